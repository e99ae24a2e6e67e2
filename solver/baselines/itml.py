"""Information-theoretic metric learning in a common space."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from solver.baselines._common_space import CommonSpace, CommonSpaceMetric
from solver.baselines._distance import smallest_allowed
from solver.linalg.matrices import FloatArray
from solver.validation.errors import InvalidInputError
from solver.validation.parameters import COUNT, POSITIVE, SEED, Rule

_BOUNDS = 5, 95
"""Percentiles of the first distances that bound those of similar and of dissimilar pairs, as in the paper."""


class ITML(CommonSpaceMetric):
    """Information-theoretic metric learning in the space of `CCA`.

    The metric A of [1]_ stays as close to the identity as bounds on the distances of some pairs allow,

        min_A  tr(A) - log det(A)
        subject to  (x_i - z_j)^T A (x_i - z_j) <= u  for similar pairs,  >= l  for dissimilar ones

    with slack variables of weight gamma, by the cyclic projections of Algorithm 1 there. Here the pairs are
    of one sample of each modality in the space of canonical correlations, u and l the 5th and the 95th
    percentile of their distances.

    Parameters
    ----------
    n_components, reg, pairs
        As in `CCA`.
    gamma : float, > 0
        Weight of the slack: the larger, the closer the bounds are kept.
    n_constraints : int, >= 1
        Similar pairs drawn, and dissimilar ones drawn: a sample of the first modality, then one of those of
        the second that make such a pair.
    max_iter : int, >= 1
        Passes over all pairs at most.
    tol : float, > 0
        Ends the passes where the multipliers change by no more than this share of their sum.
    metric : {"distance", "cosine", "inner"}
        How projections are compared; "distance" is the method as published.
    random_state : int, >= 0
        Seed for drawing the pairs.

    Attributes
    ----------
    cca_ : CCA
    n_iter_ : int
        Passes made.

    References
    ----------
    .. [1] J. V. Davis et al., "Information-Theoretic Metric Learning", ICML 2007.
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        **CommonSpaceMetric._parameter_rules,
        "gamma": POSITIVE,
        "n_constraints": COUNT,
        "max_iter": COUNT,
        "tol": POSITIVE,
        "random_state": SEED,
    }

    n_iter_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.1,
        gamma: float = 1.0,
        n_constraints: int = 500,
        max_iter: int = 20,
        tol: float = 1e-3,
        pairs: str = "auto",
        metric: str = "distance",
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.gamma = gamma
        self.n_constraints = n_constraints
        self.max_iter = max_iter
        self.tol = tol
        self.pairs = pairs
        self.metric = metric
        self.random_state = random_state

    def _learn(self, space: CommonSpace) -> FloatArray:
        differences, signs = self._draw(space)
        squares = np.sum(differences**2, axis=1)
        differences, signs, squares = (part[squares > 0] for part in (differences, signs, squares))
        if not len(squares):
            raise InvalidInputError("in the common space all pairs coincide: there is nothing to learn")
        upper, lower = np.percentile(squares, _BOUNDS)
        bounds = np.where(signs > 0, upper, lower)
        matrix, self.n_iter_ = self._project(differences, signs, bounds)
        factor: FloatArray = scipy.linalg.cholesky(matrix, lower=True)
        return factor

    def _draw(self, space: CommonSpace) -> tuple[FloatArray, FloatArray]:
        """Return differences of drawn similar pairs, then of dissimilar ones, and their signs."""
        rng = np.random.default_rng(self.random_state)
        differences, signs = [], []
        for sign in (1.0, -1.0):
            rows = rng.integers(len(space.x), size=self.n_constraints)
            is_similar = space.x_indicators[rows] @ space.z_indicators.T > 0
            has_sign = is_similar if sign > 0 else ~is_similar
            columns, is_pair = smallest_allowed(rng.random(has_sign.shape), has_sign, 1)
            differences.append((space.x[rows] - space.z[columns[:, 0]])[is_pair[:, 0]])
            signs.append(np.full(len(differences[-1]), sign))
        return np.vstack(differences), np.concatenate(signs)

    def _project(
        self, differences: FloatArray, signs: FloatArray, bounds: FloatArray
    ) -> tuple[FloatArray, int]:
        """Return the matrix after Bregman projections on one pair after the other, and the passes made."""
        A = np.eye(differences.shape[1])
        multipliers = np.zeros(len(signs))
        targets = bounds.copy()
        n_iter, is_settled = 0, False
        while n_iter < self.max_iter and not is_settled:
            n_iter += 1
            before = multipliers.copy()
            for pair, (difference, sign) in enumerate(zip(differences, signs, strict=True)):
                direction = A @ difference
                distance = float(difference @ direction)
                step = min(multipliers[pair], sign / 2.0 * (1.0 / distance - self.gamma / targets[pair]))
                targets[pair] *= self.gamma / (self.gamma + sign * step * targets[pair])
                multipliers[pair] -= step
                scale = sign * step / (1.0 - sign * step * distance)
                A += scale * np.outer(direction, direction)
            change = float(np.abs(multipliers - before).sum())
            is_settled = change <= self.tol * float(np.abs(multipliers).sum())
        return A, n_iter
