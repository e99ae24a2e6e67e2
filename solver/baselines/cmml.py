"""Cross-modal metric learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.optimize import minimize
from scipy.special import expit
from typing_extensions import override

from solver.baselines._bases import CentredBasis
from solver.baselines._basis_fit import BasisBaseline
from solver.baselines._distance import (
    DISTANCE_METRIC,
    DistanceBaseline,
    Indices,
    distance_gradients,
    smallest_allowed,
)
from solver.linalg.matrices import FloatArray
from solver.supervision.base import Supervision
from solver.supervision.signed_pairs import AnySupervision, SignedPairs
from solver.validation.parameters import COUNT, NOT_NEGATIVE, POSITIVE, SEED, Rule, optional

_ROWS_AT_ONCE = 1024
"""Samples whose partners are drawn together: 160 MB of random numbers for 20 000 partners."""


class CMML(BasisBaseline, DistanceBaseline):
    """Metric learning across modalities from similar and dissimilar pairs.

    Learns two linear maps under which similar pairs are nearer than 1 and dissimilar pairs farther [1]_:

        min_{A, B}  sum_ij w_ij l(y_ij (|A^T x_i - B^T z_j|^2 - 1)),    l(t) = log(1 + exp(beta t)) / beta

    with y = +1 for similar pairs and -1 for dissimilar ones. Similar pairs weigh 1 together, and so do
    dissimilar ones.

    Parameters
    ----------
    n_components : int, >= 1, or None
        Columns of the maps at most; the smaller number of features when None.
    reg : float, >= 0
        Ridge of the whitening of either modality as a share of its mean variance, as in `CCA`.
    beta : float, > 0
        Sharpness of the loss: for large values it is a hinge.
    n_pairs : int, >= 1
        Similar pairs, and dissimilar pairs, drawn for each sample of the first modality; all where there are
        fewer. `SignedPairs` are all used, with their weights.
    max_iter : int, >= 1
        Steps of L-BFGS at most. There is no penalty: stopping early regularises, as few components do.
    metric : {"distance", "cosine", "inner"}
        How projections are compared; "distance" is the method as published.
    random_state : int, >= 0
        Seed for drawing the pairs.

    Attributes
    ----------
    objective_ : float
        The sum above, over the drawn pairs.
    n_iter_ : int
        Steps made.

    Notes
    -----
    Choices where the paper leaves them: the optimisation starts from `CCA` over the similar pairs, scaled so
    that drawn pairs have the mean squared distance 1, and takes place in the whitened coordinates, so that
    what few steps reach is what CCA with a ridge would trust. The paper's kernels are left out.

    References
    ----------
    .. [1] A. Mignon, F. Jurie, "CMML: a New Metric Learning Approach for Cross Modal Matching", ACCV 2012.
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "reg": NOT_NEGATIVE,
        "beta": POSITIVE,
        "n_pairs": COUNT,
        "max_iter": COUNT,
        "metric": DISTANCE_METRIC,
        "random_state": SEED,
    }

    objective_: float
    n_iter_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.1,
        beta: float = 3.0,
        n_pairs: int = 10,
        max_iter: int = 30,
        metric: str = "distance",
        random_state: int = 0,
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.beta = beta
        self.n_pairs = n_pairs
        self.max_iter = max_iter
        self.metric = metric
        self.random_state = random_state

    @override
    def _learn_directions(
        self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision
    ) -> tuple[FloatArray, FloatArray]:
        x_whitening, z_whitening = x.whitening(self.reg), z.whitening(self.reg)
        pairs = _all_pairs(supervision) if isinstance(supervision, SignedPairs) else self._draw(supervision)
        problem = _Problem(x.coordinates * x_whitening, z.coordinates * z_whitening, pairs, self.beta)
        cross = supervision.sum_over_similar(problem.x, problem.z) / supervision.n_similar
        U, _, Vt = scipy.linalg.svd(cross, full_matrices=False)
        start = problem.scale(np.vstack([U[:, : self.n_components], Vt[: self.n_components].T]))
        solution = minimize(
            problem.objective,
            start.ravel(),
            method="L-BFGS-B",
            jac=True,
            options={"maxiter": self.max_iter},
        )
        left, right = problem.split(solution.x)
        self.objective_, self.n_iter_ = float(solution.fun), int(solution.nit)
        return x_whitening[:, None] * left, z_whitening[:, None] * right

    def _draw(self, supervision: Supervision) -> _Pairs:
        rng = np.random.default_rng(self.random_state)
        n, m = len(supervision.x_order), len(supervision.z_order)
        drawn: dict[float, list[tuple[Indices, Indices]]] = {1.0: [], -1.0: []}
        for start in range(0, n, _ROWS_AT_ONCE):
            rows = slice(start, min(start + _ROWS_AT_ONCE, n))
            is_similar = np.zeros((rows.stop - start, m), dtype=bool)
            for key in supervision.similar_pairs(rows, slice(0, m)):
                is_similar[key] = True
            for sign, has_sign in ((1.0, is_similar), (-1.0, ~is_similar)):
                columns, is_pair = smallest_allowed(rng.random(has_sign.shape), has_sign, self.n_pairs)
                own, place = np.nonzero(is_pair)
                partners = supervision.z_order[columns[own, place]]
                drawn[sign].append((supervision.x_order[start + own], partners))
        parts = []
        for sign, blocks in drawn.items():
            own_rows, partners = (np.concatenate(block) for block in zip(*blocks, strict=True))
            signs = np.full(len(own_rows), sign)
            parts.append((own_rows, partners, signs, np.full(len(own_rows), 1.0 / len(own_rows))))
        return _Pairs(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Rows of both modalities, sign and weight of each pair."""

    rows: Indices
    columns: Indices
    signs: FloatArray
    weights: FloatArray


def _all_pairs(supervision: SignedPairs) -> _Pairs:
    return _Pairs(supervision.rows, supervision.columns, supervision.signs, supervision.weights)


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The sum over pairs as a function of both maps, stacked."""

    x: FloatArray
    z: FloatArray
    pairs: _Pairs
    beta: float

    def split(self, flat: FloatArray) -> tuple[FloatArray, FloatArray]:
        n_x, n_z = self.x.shape[1], self.z.shape[1]
        left, right = np.split(flat.reshape(n_x + n_z, -1), [n_x])
        return left, right

    def scale(self, maps: FloatArray) -> FloatArray:
        """Return the maps scaled so that the pairs have the mean squared distance 1."""
        left, right = self.split(maps)
        mean = np.average(self._distances(self.x @ left, self.z @ right), weights=self.pairs.weights)
        scaled: FloatArray = maps / np.sqrt(mean) if mean > 0 else maps
        return scaled

    def objective(self, flat: FloatArray) -> tuple[float, FloatArray]:
        left, right = self.split(flat)
        a, b = self.x @ left, self.z @ right
        margins = self.beta * self.pairs.signs * (self._distances(a, b) - 1.0)
        value = float(self.pairs.weights @ np.logaddexp(0.0, margins)) / self.beta
        slopes = self.pairs.weights * self.pairs.signs * expit(margins)
        shape = len(a), len(b)
        table = scipy.sparse.csr_array((slopes, (self.pairs.rows, self.pairs.columns)), shape=shape)
        a_gradient, b_gradient = distance_gradients(a, b, table)
        return value, np.vstack([self.x.T @ a_gradient, self.z.T @ b_gradient]).ravel()

    def _distances(self, a: FloatArray, b: FloatArray) -> FloatArray:
        squares: FloatArray = np.sum((a[self.pairs.rows] - b[self.pairs.columns]) ** 2, axis=1)
        return squares
