"""Learned distances: across modalities, or in the common space of canonical correlations.

The metrics are written here, because metric-learn 0.7.0 does not work with scikit-learn 1.8 or newer (it
passes `force_all_finite`, which is gone) and its pairs are drawn within one set of samples.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse
from scipy.optimize import minimize
from scipy.special import expit
from typing_extensions import override

from solver.baselines._common import (
    PAIRS,
    Bases,
    BasisBaseline,
    BasisEstimator,
    CentredBasis,
    LinearBaseline,
    class_indicators,
    smallest_allowed,
    whitening,
)
from solver.baselines.subspace import CCA
from solver.linalg import FloatArray, Samples, Sides
from solver.supervision.annotations import BoolArray
from solver.supervision.kinds import AnySupervision, Indices, SignedPairs, Supervision, similarity_mask
from solver.threads import row_blocks
from solver.validation import COUNT, NOT_NEGATIVE, POSITIVE, SEED, InvalidInputError, one_of, parameter

DISTANCE_METRIC = one_of("distance", "cosine", "inner")
_ROWS_AT_ONCE = 1024
"""Samples whose numbers for all others are in memory together: 160 MB for 20 000 others."""


class DistanceBaseline(LinearBaseline):
    """A linear method scored by the distance of its projections, by their inner product or their cosine."""

    # With "distance" projections a and b become (sqrt(2) a, -|a|^2, 1) and (sqrt(2) b, 1, -|b|^2), whose
    # inner product is the negative squared distance.

    @override
    def _scale(self, projections: FloatArray, *, is_x: bool) -> FloatArray:
        if self.metric_ != "distance":
            return super()._scale(projections, is_x=is_x)
        squares, ones = -np.sum(projections**2, axis=1, keepdims=True), np.ones((len(projections), 1))
        return np.hstack([np.sqrt(2.0) * projections, *((squares, ones) if is_x else (ones, squares))])


def distance_gradients(x: FloatArray, z: FloatArray, weights: Any) -> Sides:
    """Return the derivatives of ``sum_ij w_ij |x_i - z_j|^2`` with respect to the rows of x and z."""
    x_degrees, z_degrees = (weights.sum(axis=axis)[:, None] for axis in (1, 0))
    return 2.0 * (x_degrees * x - weights @ z), 2.0 * (z_degrees * z - weights.T @ x)


@dataclass(eq=False, repr=False, kw_only=True)
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

    reg: float = parameter(0.1, NOT_NEGATIVE)
    beta: float = parameter(3.0, POSITIVE)
    n_pairs: int = parameter(10, COUNT)
    max_iter: int = parameter(30, COUNT)
    metric: str = parameter("distance", DISTANCE_METRIC)
    random_state: int = parameter(0, SEED)

    @override
    def _learn_directions(self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision) -> Sides:
        x_whitening, z_whitening = x.whitening(self.reg), z.whitening(self.reg)
        if isinstance(supervision, SignedPairs):
            pairs = supervision.rows, supervision.columns, supervision.signs, supervision.weights
        else:
            pairs = self._draw(supervision)
        problem = _Problem(x.coordinates * x_whitening, z.coordinates * z_whitening, self.beta, *pairs)
        cross = supervision.sum_over_similar(problem.x, problem.z) / supervision.n_similar
        U, _, Vt = scipy.linalg.svd(cross, full_matrices=False)
        start = problem.scale(np.vstack([U[:, : self.n_components], Vt[: self.n_components].T]))
        solution = minimize(
            problem.objective, start.ravel(), method="L-BFGS-B", jac=True, options={"maxiter": self.max_iter}
        )
        left, right = problem.split(solution.x)
        self.objective_, self.n_iter_ = float(solution.fun), int(solution.nit)
        return x_whitening[:, None] * left, z_whitening[:, None] * right

    def _draw(self, supervision: Supervision) -> tuple[Indices, Indices, FloatArray, FloatArray]:
        """Return rows of both modalities, sign and weight of each pair."""
        rng = np.random.default_rng(self.random_state)
        n, m = len(supervision.x_order), len(supervision.z_order)
        drawn: dict[float, list[tuple[Indices, Indices]]] = {1.0: [], -1.0: []}
        for rows in row_blocks(n, _ROWS_AT_ONCE):
            is_similar = similarity_mask(supervision, rows, slice(0, m))
            for sign, has_sign in ((1.0, is_similar), (-1.0, ~is_similar)):
                columns, is_pair = smallest_allowed(rng.random(has_sign.shape), has_sign, self.n_pairs)
                own, place = np.nonzero(is_pair)
                partners = supervision.z_order[columns[own, place]]
                drawn[sign].append((supervision.x_order[rows.start + own], partners))
        parts = []
        for sign, blocks in drawn.items():
            own_rows, partners = (np.concatenate(block) for block in zip(*blocks, strict=True))
            n_pairs = len(own_rows)
            parts.append((own_rows, partners, np.full(n_pairs, sign), np.full(n_pairs, 1.0 / n_pairs)))
        own_rows, partners, signs, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
        return own_rows, partners, signs, weights


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """The sum over pairs as a function of both maps, stacked."""

    x: FloatArray
    z: FloatArray
    beta: float
    rows: Indices  # of each pair, in x
    columns: Indices  # and in z
    signs: FloatArray
    weights: FloatArray

    def split(self, flat: FloatArray) -> Sides:
        n_x, n_z = self.x.shape[1], self.z.shape[1]
        left, right = np.split(flat.reshape(n_x + n_z, -1), [n_x])
        return left, right

    def scale(self, maps: FloatArray) -> FloatArray:
        """Return the maps scaled so that the pairs have the mean squared distance 1."""
        left, right = self.split(maps)
        mean = np.average(self._distances(self.x @ left, self.z @ right), weights=self.weights)
        return maps / np.sqrt(mean) if mean > 0 else maps

    def objective(self, flat: FloatArray) -> tuple[float, FloatArray]:
        left, right = self.split(flat)
        a, b = self.x @ left, self.z @ right
        margins = self.beta * self.signs * (self._distances(a, b) - 1.0)
        value = float(self.weights @ np.logaddexp(0.0, margins)) / self.beta
        slopes = self.weights * self.signs * expit(margins)
        shape = len(a), len(b)
        table = scipy.sparse.csr_array((slopes, (self.rows, self.columns)), shape=shape)
        a_gradient, b_gradient = distance_gradients(a, b, table)
        return value, np.vstack([self.x.T @ a_gradient, self.z.T @ b_gradient]).ravel()

    def _distances(self, a: FloatArray, b: FloatArray) -> FloatArray:
        squares: FloatArray = np.sum((a[self.rows] - b[self.columns]) ** 2, axis=1)
        return squares


@dataclass(frozen=True, slots=True, eq=False)
class CommonSpace:
    """The samples, (n_samples, n_dimensions), that a metric is learned from; 1 where one is of a class."""

    x: FloatArray
    z: FloatArray
    x_indicators: FloatArray
    z_indicators: FloatArray

    def map(self, directions: FloatArray) -> CommonSpace:
        """Return the samples along directions, the columns of an (n_dimensions, n_directions) array."""
        return replace(self, x=self.x @ directions, z=self.z @ directions)

    def class_means(self) -> tuple[FloatArray, FloatArray]:
        """Return the (n_classes, n_dimensions) means of both modalities together, and the class sizes.
        Classes without a sample are left out."""
        samples, indicators = self._together()
        counts = indicators.sum(axis=0)
        means: FloatArray = indicators.T @ samples / counts[:, None]
        return means, counts

    def scatter_within(self, class_weights: FloatArray) -> FloatArray:
        """Return ``sum_c w_c sum_{i in c} (x_i - m_c)(x_i - m_c)^T`` of both modalities together.
        InvalidInputError if it vanishes up to rounding."""
        samples, indicators = self._together()
        means, _ = self.class_means()
        scatter = np.zeros((samples.shape[1],) * 2)
        for mean, members, weight in zip(means, indicators.T > 0, class_weights, strict=True):
            centred = samples[members] - mean
            scatter += weight * centred.T @ centred
        spread = class_weights @ (indicators.T > 0) @ np.sum(samples**2, axis=1)
        if np.trace(scatter) <= len(samples) * np.finfo(np.float64).eps * spread:
            raise InvalidInputError(
                "in the common space no class varies within itself: there is nothing to learn from"
            )
        return scatter

    def _together(self) -> tuple[FloatArray, FloatArray]:
        indicators = np.vstack([self.x_indicators, self.z_indicators])
        return np.vstack([self.x, self.z]), indicators[:, indicators.any(axis=0)]


@dataclass(eq=False, repr=False, kw_only=True)
class CommonSpaceMetric(BasisEstimator, DistanceBaseline):
    """Base of the metrics that are learned in the space of canonical correlations.
    The projections of the first step, `cca_`, are compared by the learned metric."""

    reg: float = parameter(0.1, NOT_NEGATIVE)
    pairs: str = parameter("auto", PAIRS)
    metric: str = parameter("distance", DISTANCE_METRIC)

    _needs_classes: ClassVar[bool] = True

    @override
    def _fit(self, X: Samples, Z: Samples, supervision: AnySupervision, bases: Bases | None) -> None:
        indicators = class_indicators(supervision, type(self).__name__)
        cca = CCA(self.n_components, reg=self.reg, metric="inner", pairs=self.pairs)
        cca.fit(X, Z, supervision, bases=bases)
        directions = self._learn(CommonSpace(cca.project_x(X), cca.project_z(Z), *indicators))
        if not directions.size:
            raise InvalidInputError(
                "the classes coincide in the common space: there is nothing to learn from"
            )
        self.cca_ = cca
        self._keep(
            (cca.x_factors_ @ directions, cca.x_intercept_ @ directions),
            (cca.z_factors_ @ directions, cca.z_intercept_ @ directions),
        )

    @abstractmethod
    def _learn(self, space: CommonSpace) -> FloatArray:
        """Return L, one column a direction, of the metric ``(x - z)^T L L^T (x - z)``."""


@dataclass(eq=False, repr=False, kw_only=True)
class RCA(CommonSpaceMetric):
    """Relevant component analysis: the space of `CCA`, whitened within classes.

    The metric of [1]_ is the inverse of the covariance within chunklets, groups of samples of which it is
    known that they are of one class,

        d(x, z) = (x - z)^T C^(-1) (x - z),    C = (1 / n) sum_c sum_{i in c} (x_i - m_c) (x_i - m_c)^T

    Here the chunklets are the classes, with the samples of both modalities, in the space of canonical
    correlations.

    Parameters
    ----------
    n_components, reg, pairs, metric
        The metric is as in `CMML`, the others are as in `CCA`.
    shrinkage : float, >= 0
        Ridge on C as a share of its mean eigenvalue; 0 is the method as published.

    Attributes
    ----------
    cca_ : CCA

    References
    ----------
    .. [1] A. Bar-Hillel et al., "Learning a Mahalanobis Metric from Equivalence Constraints", JMLR 6, 2005.
    """

    shrinkage: float = parameter(0.0, NOT_NEGATIVE)

    def _learn(self, space: CommonSpace) -> FloatArray:
        _, counts = space.class_means()
        covariance = space.scatter_within(np.full(len(counts), 1.0 / counts.sum()))
        return whitening(covariance, self.shrinkage)


@dataclass(eq=False, repr=False, kw_only=True)
class DCA(CommonSpaceMetric):
    """Discriminative component analysis: what separates classes in the space of `CCA`, whitened within them.

    The metric ``A A^T`` of [1]_ maximises the variance between chunklets over that within them,

        max_A  |A^T C_b A| / |A^T C_w A|
        C_b ~ sum_{c, d} (m_c - m_d) (m_c - m_d)^T
        C_w = (1 / n_classes) sum_c (1 / n_c) sum_{i in c} (x_i - m_c) (x_i - m_c)^T

    by the algorithm of the paper: C_b is whitened in its range, and C_w in what that leaves. Here the
    chunklets are the classes, with the samples of both modalities, in the space of canonical correlations,
    and C_b takes all pairs of them.

    Parameters
    ----------
    n_components, reg, pairs, metric
        The metric is as in `CMML`, the others are as in `CCA`.
    shrinkage : float, >= 0
        Ridge on C_w, after C_b is whitened, as a share of its mean eigenvalue; 0 is the method as published.

    Attributes
    ----------
    cca_ : CCA

    References
    ----------
    .. [1] S. C. H. Hoi et al., "Learning Distance Metrics with Contextual Constraints ...", CVPR 2006.
    """

    shrinkage: float = parameter(0.0, NOT_NEGATIVE)

    def _learn(self, space: CommonSpace) -> FloatArray:
        means, counts = space.class_means()
        centred = means - means.mean(axis=0)
        # The sum over pairs is a multiple of this one, and its factor cancels below. Rounding may leave
        # more directions than the classes have.
        whitened = whitening(centred.T @ centred, 0.0)[:, -(len(means) - 1) :]
        within = whitened.T @ space.scatter_within(1.0 / (len(means) * counts)) @ whitened
        return whitened @ whitening(within, self.shrinkage)


_BOUNDS = 5, 95
"""Percentiles of the first distances that bound those of similar and of dissimilar pairs, as in the paper."""


@dataclass(eq=False, repr=False, kw_only=True)
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
    n_components, reg, pairs, metric
        The metric is as in `CMML`, the others are as in `CCA`.
    gamma : float, > 0
        Weight of the slack: the larger, the closer the bounds are kept.
    n_constraints : int, >= 1
        Similar pairs drawn, and dissimilar ones drawn: a sample of the first modality, then one of those of
        the second that make such a pair.
    max_iter : int, >= 1
        Passes over all pairs at most.
    tol : float, > 0
        Ends the passes where the multipliers change by no more than this share of their sum.
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

    gamma: float = parameter(1.0, POSITIVE)
    n_constraints: int = parameter(500, COUNT)
    max_iter: int = parameter(20, COUNT)
    tol: float = parameter(1e-3, POSITIVE)
    random_state: int = parameter(0, SEED)

    def _learn(self, space: CommonSpace) -> FloatArray:
        differences, signs = self._draw(space)
        squares = np.sum(differences**2, axis=1)
        differences, signs, squares = (part[squares > 0] for part in (differences, signs, squares))
        if not len(squares):
            raise InvalidInputError("in the common space all pairs coincide: there is nothing to learn")
        upper, lower = np.percentile(squares, _BOUNDS)
        bounds = np.where(signs > 0, upper, lower)
        matrix, self.n_iter_ = self._meet_bounds(differences, signs, bounds)
        return scipy.linalg.cholesky(matrix, lower=True)

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

    def _meet_bounds(
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


@dataclass(eq=False, repr=False, kw_only=True)
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
    n_components, reg, pairs, metric
        The metric is as in `CMML`, the others are as in `CCA`.
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

    n_targets: int = parameter(3, COUNT)
    n_impostors: int = parameter(10, COUNT)
    push: float = parameter(1.0, POSITIVE)
    n_rounds: int = parameter(3, COUNT)
    max_iter: int = parameter(10, COUNT)

    def _learn(self, space: CommonSpace) -> FloatArray:
        targets = _nearest(space, self.n_targets, is_same_class=True)
        directions = np.eye(space.x.shape[1])
        distance = sum(side.distances(space).sum() for side in targets)
        directions *= np.sqrt(sum(side.is_pair.sum() for side in targets) / max(distance, 1e-300))
        self.objectives_: list[float] = []
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
        for rows in row_blocks(len(own), _ROWS_AT_ONCE):
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
