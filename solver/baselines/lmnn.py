"""Large margin nearest neighbours in a common space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse
from scipy.optimize import minimize

from solver.baselines._common_space import CommonSpace, CommonSpaceMetric
from solver.baselines._distance import BoolArray, Indices, distance_gradients, smallest_allowed
from solver.linalg.matrices import FloatArray
from solver.validation.parameters import COUNT, POSITIVE, Rule

_ROWS_AT_ONCE = 1024  # samples whose distances to all others are computed together: 160 MB for 20 000 others


class LMNN(CommonSpaceMetric):
    """Large margin nearest neighbours in the space of `CCA`.

    Learns the map L of a metric ``|L^T (a - b)|^2`` under which each sample is nearer to samples of its class
    than to those of other classes by a margin [1]_:

        min_L  sum_{i, j} |L^T (a_i - b_j)|^2
               + push * sum_{i, j, l} [1 + |L^T (a_i - b_j)|^2 - |L^T (a_i - b_l)|^2]_+

    where j runs over the target neighbours of sample i, the nearest of its class before anything is learned,
    and l over its impostors, samples of other classes. Here a and b are samples of different modalities in
    the space of canonical correlations, each modality being a in turn; with the weights of the paper
    ``push = mu / (1 - mu)``.

    Parameters
    ----------
    n_components, reg, pairs
        As in `CCA`.
    n_targets : int, >= 1
        Target neighbours of a sample; all of its class where there are fewer.
    n_impostors : int, >= 1
        Impostors of a sample: the nearest under the map of the round. All where there are fewer.
    push : float, > 0
        Weight of the second sum.
    n_rounds : int, >= 1
        How often the impostors are searched for.
    max_iter : int, >= 1
        Steps of L-BFGS in a round at most.
    metric : {"distance", "cosine", "inner"}
        How projections are compared; "distance" is the method as published.

    Attributes
    ----------
    cca_ : CCA
    objectives_ : list of float
        The objective at the end of each round, over its impostors, divided by the number of targets.

    Notes
    -----
    The paper solves the convex problem in ``L L^T``; its objective is minimised here over L itself, as in its
    section on low rank, from the identity (scaled so that the mean distance of a target is 1).

    References
    ----------
    .. [1] K. Q. Weinberger, L. K. Saul, "Distance Metric Learning for Large Margin ...", JMLR 10, 2009.
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        **CommonSpaceMetric._parameter_rules,
        "n_targets": COUNT,
        "n_impostors": COUNT,
        "push": POSITIVE,
        "n_rounds": COUNT,
        "max_iter": COUNT,
    }

    objectives_: list[float]

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.1,
        n_targets: int = 3,
        n_impostors: int = 10,
        push: float = 1.0,
        n_rounds: int = 3,
        max_iter: int = 10,
        pairs: str = "auto",
        metric: str = "distance",
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.n_targets = n_targets
        self.n_impostors = n_impostors
        self.push = push
        self.n_rounds = n_rounds
        self.max_iter = max_iter
        self.pairs = pairs
        self.metric = metric

    def _learn(self, space: CommonSpace) -> FloatArray:
        targets = _nearest(space, self.n_targets, is_same_class=True)
        directions = np.eye(space.x.shape[1])
        distance = sum(side.distances(space).sum() for side in targets)
        directions *= np.sqrt(sum(side.is_pair.sum() for side in targets) / max(distance, 1e-300))
        self.objectives_ = []
        for _ in range(self.n_rounds):
            impostors = _nearest(space.map(directions), self.n_impostors, is_same_class=False)
            solution = minimize(
                _objective,
                directions.ravel(),
                (space, targets, impostors, self.push),
                method="L-BFGS-B",
                jac=True,
                options={"maxiter": self.max_iter},
            )
            directions = solution.x.reshape(directions.shape)
            self.objectives_.append(float(solution.fun))
        return directions


@dataclass(frozen=True, slots=True, eq=False)
class _Neighbours:
    """Samples of the other modality, for each sample of one."""

    of_x: bool  # neighbours of X in Z, rather than of Z in X
    columns: Indices  # (n_samples, n_neighbours), rows of the other modality
    is_pair: BoolArray  # false where a sample has fewer neighbours

    def distances(self, space: CommonSpace) -> FloatArray:
        """Return the squared distances to the neighbours, 0 where there are fewer."""
        own, other = (space.x, space.z) if self.of_x else (space.z, space.x)
        squares: FloatArray = np.sum((own[:, None] - other[self.columns]) ** 2, axis=2)
        return np.where(self.is_pair, squares, 0.0)

    def pairs(self) -> tuple[Indices, Indices]:
        """Return rows of X and rows of Z, neighbour by neighbour."""
        rows = np.repeat(np.arange(len(self.columns)), self.columns.shape[1])
        return (rows, self.columns.ravel()) if self.of_x else (self.columns.ravel(), rows)


_BothSides = tuple[_Neighbours, _Neighbours]


def _nearest(space: CommonSpace, count: int, *, is_same_class: bool) -> _BothSides:
    """Return the nearest samples of the same or of other classes, for each sample of either modality."""
    sides = (space.x, space.x_indicators), (space.z, space.z_indicators)
    neighbours: list[_Neighbours] = []
    for (own, own_classes), (other, other_classes) in (sides, sides[::-1]):
        parts = []
        for start in range(0, len(own), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            distances = np.sum(other**2, axis=1) - 2.0 * own[rows] @ other.T  # up to a constant of the row
            is_same = own_classes[rows] @ other_classes.T > 0
            parts.append(smallest_allowed(distances, is_same == is_same_class, count))
        columns, is_pair = (np.concatenate(part) for part in zip(*parts, strict=True))
        neighbours.append(_Neighbours(not neighbours, columns, is_pair))
    return neighbours[0], neighbours[1]


def _objective(
    flat: FloatArray, space: CommonSpace, targets: _BothSides, impostors: _BothSides, push: float
) -> tuple[float, FloatArray]:
    """Return the objective and its derivative, both divided by the number of targets."""
    mapped = space.map(flat.reshape(space.x.shape[1], -1))
    value, parts = 0.0, []
    for near, far in zip(targets, impostors, strict=True):
        pull = near.distances(mapped)
        excess = 1.0 + pull[:, :, None] - far.distances(mapped)[:, None, :]
        violates = (excess > 0) & near.is_pair[:, :, None] & far.is_pair[:, None, :]
        value += float(pull.sum() + push * excess[violates].sum())
        near_weights = near.is_pair * (1.0 + push * violates.sum(axis=2))
        parts += [(*near.pairs(), near_weights.ravel())]
        parts += [(*far.pairs(), -push * violates.sum(axis=1).ravel())]
    rows, columns, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    table = scipy.sparse.csr_array((weights, (rows, columns)), shape=(len(space.x), len(space.z)))
    x_gradient, z_gradient = distance_gradients(mapped.x, mapped.z, table)
    gradient = space.x.T @ x_gradient + space.z.T @ z_gradient
    n_targets = max(sum(int(side.is_pair.sum()) for side in targets), 1)
    return value / n_targets, gradient.ravel() / n_targets
