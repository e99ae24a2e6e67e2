"""Directions along which the modalities agree: by correlation, covariance, or the sum over similar pairs."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.optimize import linear_sum_assignment
from sklearn.cross_decomposition import PLSCanonical
from typing_extensions import override

from solver.baselines._common import (
    METRIC,
    PAIRS,
    BasisBaseline,
    CentredBasis,
    LinearBaseline,
    class_indicators,
)
from solver.linalg import FloatArray, Sides, leading_triplets
from solver.supervision.annotations import AnyLabels, check_sizes
from solver.supervision.kinds import AnySupervision, Indices, Labels, MultiLabels, PairedRows
from solver.validation import (
    COUNT,
    NOT_NEGATIVE,
    InvalidInputError,
    SupervisionError,
    one_of,
    optional,
    parameter,
)


@dataclass(eq=False, repr=False, kw_only=True)
class CCA(BasisBaseline):
    """Canonical correlation analysis with a ridge.

    Finds the pairs of directions along which paired samples correlate most [1]_, [2]_:

        max_{u, v}  u^T C_xz v   subject to   u^T (C_xx + k_x I) u = v^T (C_zz + k_z I) v = 1

    and each pair uncorrelated with those before, with ``k = reg * trace(C) / rank(C)``. They are the
    singular vectors of ``(C_xx + k_x I)^(-1/2) C_xz (C_zz + k_z I)^(-1/2)``.

    Parameters
    ----------
    n_components : int, >= 1, or None
        Number of directions at most; all when None.
    reg : float, >= 0
        Ridge of either covariance as a share of its mean eigenvalue. With 0 the inverse is the
        pseudo-inverse: directions in which the samples do not vary are left out, but low-variance
        directions still contribute and overfit.
    correlation_power : float, >= 0
        Each canonical variate is multiplied by its correlation to this power; 0 is the method itself,
        larger powers give weakly correlated directions less weight [3]_.
    metric : {"cosine", "inner"}
    pairs : {"auto", "rows", "similar"}
        "rows": sample i of X with sample i of Z, the method as published. "similar": all similar pairs, with
        equal weight; under `Labels` the method then uses the classes, as in [4]_. "auto": rows for
        `PairedRows` and for labels that are the same row by row on both sides, all similar pairs otherwise.

    Attributes
    ----------
    correlations_ : ndarray of shape (rank,)
        The (regularised) canonical correlations, in descending order. At most 1 where rows are pairs.

    Notes
    -----
    Computed in float64 from thin SVDs of the centred samples, never from inverted covariances. Without
    `correlation_power` the projections of the fitted samples have mean square 1 under ``reg=0``.

    References
    ----------
    .. [1] H. Hotelling, "Relations between two sets of variates", Biometrika 28, 1936.
    .. [2] D. R. Hardoon et al., "Canonical Correlation Analysis", Neural Computation 16, 2004, for the ridge.
    .. [3] Y. Gong et al., "A Multi-View Embedding Space for Modeling Internet Images", IJCV 106, 2014.
    .. [4] N. Rasiwasia et al., "Cluster Canonical Correlation Analysis", AISTATS 2014.

    Examples
    --------
    >>> from solver import CCA, Labels, make_low_rank_pairs
    >>> data = make_low_rank_pairs(60, 50, n_classes=4, random_state=0)
    >>> model = CCA(n_components=3).fit(data.X, data.Z, Labels(data.x_labels, data.z_labels))
    >>> model.similarity(data.X, data.Z).shape
    (60, 50)
    """

    reg: float = parameter(0.1, NOT_NEGATIVE)
    correlation_power: float = parameter(0.0, NOT_NEGATIVE)
    pairs: str = parameter("auto", PAIRS)

    @override
    def _learn_directions(self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision) -> Sides:
        x_whitening, z_whitening = x.whitening(self.reg), z.whitening(self.reg)
        cross = mean_cross_product(x.coordinates, z.coordinates, supervision, self.pairs)
        U, s, Vt = scipy.linalg.svd(x_whitening[:, None] * cross * z_whitening, full_matrices=False)
        leading = slice(0, self.n_components)
        weights = s[leading] ** self.correlation_power
        self.correlations_ = s[leading]
        return (
            x_whitening[:, None] * U[:, leading] * weights,
            z_whitening[:, None] * Vt[leading].T * weights,
        )


_MAX_ITER = 10_000
"""Power iterations for each direction: they converge slowly where two covariances are close."""


@dataclass(eq=False, repr=False, kw_only=True)
class PLS(BasisBaseline):
    """Partial least squares between two modalities.

    Finds directions along which paired samples covary most, one pair of directions after another:

        max_{u, v}  u^T C_xz v   subject to   |u| = |v| = 1.

    Parameters
    ----------
    n_components, metric, pairs
        As in `CCA`.
    deflation : {"cross", "canonical"}
        What is subtracted before the next pair is computed. "cross": that pair's share of C_xz, so that the
        directions are the leading singular vectors of C_xz ([2]_, PLS-SVD). "canonical": from
        each modality its own score, as in [1]_ (PLS mode A, `sklearn.cross_decomposition.PLSCanonical`);
        it needs pairs of rows.

    Attributes
    ----------
    covariances_ : ndarray of shape (rank,)
        Covariance of the paired projections along each pair of directions, under ``deflation="cross"``
        in descending order.

    Notes
    -----
    Features are centred, not scaled: a covariance means what the features' scale means.

    References
    ----------
    .. [1] A. Sharma, D. W. Jacobs, "Bypassing Synthesis: PLS for Face Recognition ...", CVPR 2011.
    .. [2] R. Rosipal, N. Kramer, "Overview and Recent Advances in Partial Least Squares", SLSFS 2005.
    """

    deflation: str = parameter("cross", one_of("cross", "canonical"))
    pairs: str = parameter("auto", PAIRS)

    @override
    def _learn_directions(self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision) -> Sides:
        cross = mean_cross_product(x.coordinates, z.coordinates, supervision, self.pairs)
        if self.deflation == "cross":
            U, _, Vt = scipy.linalg.svd(cross, full_matrices=False)
            left, right = U[:, : self.n_components], Vt[: self.n_components].T
        elif rows_are_pairs(x.coordinates, z.coordinates, supervision, self.pairs):
            # What maps undeflated samples to the scores of mode A.
            most = min(x.coordinates.shape[1], z.coordinates.shape[1])
            model = PLSCanonical(min(self.n_components or most, most), scale=False, max_iter=_MAX_ITER)
            model.fit(x.coordinates, z.coordinates)
            left, right = model.x_rotations_, model.y_rotations_
        else:
            raise SupervisionError('deflation "canonical" needs pairs of rows: use deflation="cross"')
        self.covariances_ = np.einsum("ik,ij,jk->k", left, cross, right)
        return left, right


@dataclass(eq=False, repr=False)
class MsAlg(LinearBaseline):
    """Linear maps that make similar pairs similar in sum, under orthonormality.

    Solves the problem of [1]_, [2]_ for one type of features in each modality,

        max_{L_x, L_z}  (1 / |S|) sum_{(i, j) in S} x_i^T L_x L_z^T z_j
        subject to      L_x^T L_x = L_z^T L_z = I

    whose optimum is the leading singular vectors of ``sum_S x_i z_j^T``.

    Parameters
    ----------
    n_components : int, >= 1, or None
        Columns of the maps at most; all when None.
    metric : {"inner", "cosine"}
        How projections are compared. The paper's similarity is the inner product.

    Attributes
    ----------
    singular_values_ : ndarray of shape (rank,)
        Share of each pair of columns in the objective, in descending order.

    Notes
    -----
    Choices where the paper leaves them, or is about another kind of data. The edges of the graph are the
    similar pairs, each of weight 1 (there: the number of clicks): pairs of one class under `Labels`,
    of which there are far more than the rows that `PLS` pairs. Dissimilar pairs are not used. Features
    are not centred, which is the other difference from PLS: where a common mean dominates the features, it
    dominates the first columns, too. The paper's combination of several types of features is left out, since
    a modality has one.

    References
    ----------
    .. [1] W. Wu et al., "Learning Similarity Function between Objects ...", report MSR-TR-2010-86, 2010.
    .. [2] W. Wu et al., "Learning Query and Document Similarities ...", WSDM 2013.
    """

    n_components: int | None = parameter(None, optional(COUNT))
    _: KW_ONLY
    metric: str = parameter("inner", METRIC)

    def fit(self, X: npt.ArrayLike, Z: npt.ArrayLike, supervision: AnyLabels = None) -> Self:
        """Find the maps; parameters and errors as of `CrossModalEstimator.fit`."""
        x, z, checked = self._check_inputs(X, Z, supervision)
        check_sizes(x, z, checked)
        cross = checked.sum_over_similar(x, z) / checked.n_similar
        triplets = leading_triplets(cross, self.n_components or min(cross.shape))
        if triplets.rank == 0:
            raise InvalidInputError("X and Z sum to zero over the similar pairs: there is nothing to learn")
        self.singular_values_ = triplets.s
        self._keep((triplets.U, np.zeros(triplets.rank)), (triplets.V, np.zeros(triplets.rank)))
        return self


Groups = list[tuple[Indices, Indices]]  # rows of either modality that belong together, group by group


@dataclass(eq=False, repr=False, kw_only=True)
class WMCA(BasisBaseline):
    """Maximum covariance analysis that finds out which samples of a class belong together.

    Maximises the covariance of paired projections where only groups of samples are known to correspond,
    jointly over the directions and over the pairing within each group [1]_:

        max_{U, V, P_g}  sum_g tr(U^T X_g^T P_g Z_g V)   subject to   U^T U = V^T V = I

    where ``P_g`` assigns to each sample of a group's smaller side another one of its larger side. Given the
    pairing, the directions are the leading singular vectors of the cross product (as in `PLS`); given the
    directions, the pairing is a linear assignment problem for each group. The two steps take turns and never
    lower the objective.

    Parameters
    ----------
    n_components, metric
        As in `CCA`.
    max_iter : int, >= 1
        Pairings at most; fewer where one repeats the one before.

    Attributes
    ----------
    covariances_ : ndarray of shape (rank,)
        Covariance of the paired projections along each pair of directions, in descending order.
    x_pairs_, z_pairs_ : ndarray of shape (n_pairs,)
        Rows of either modality that the last pairing joins.
    objectives_ : list of float
        Sum of the covariances after each pairing.

    Notes
    -----
    Choices where the paper leaves them: the groups are the classes (under `MultiLabels` the sets of labels;
    samples without a label, or of a class that the other modality lacks, are left out); the first directions
    are those of the mean pairing, in which all samples of a class correspond alike. The paper's kernels are
    left out.

    References
    ----------
    .. [1] C. H. Lampert, O. Kroemer, "Weakly-Paired Maximum Covariance Analysis ...", ECCV 2010.
    """

    max_iter: int = parameter(20, COUNT)
    _needs_classes: ClassVar[bool] = True

    @override
    def _learn_directions(self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision) -> Sides:
        indicators = class_indicators(supervision, type(self).__name__)
        groups = _common_groups(*indicators)
        left, _, right = self._leading(_mean_cross_product(x.coordinates, z.coordinates, groups))
        self.objectives_: list[float] = []
        columns = None
        for _ in range(self.max_iter):
            rows, new_columns = _pair(x.coordinates @ left, z.coordinates @ right, groups)
            if columns is not None and np.array_equal(columns, new_columns):
                break
            columns = new_columns
            cross = x.coordinates[rows].T @ z.coordinates[columns] / len(rows)
            left, self.covariances_, right = self._leading(cross)
            self.objectives_.append(float(self.covariances_.sum()))
            self.x_pairs_, self.z_pairs_ = rows, columns
        return left, right

    def _leading(self, cross: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the leading singular vectors on the left, their singular values, those on the right."""
        U, s, Vt = scipy.linalg.svd(cross, full_matrices=False)
        return U[:, : self.n_components], s[: self.n_components], Vt[: self.n_components].T


def _common_groups(x_indicators: FloatArray, z_indicators: FloatArray) -> Groups:
    sets, codes = np.unique(np.vstack([x_indicators, z_indicators]), axis=0, return_inverse=True)
    x_codes, z_codes = np.split(codes.ravel(), [len(x_indicators)])
    groups = [
        (np.flatnonzero(x_codes == code), np.flatnonzero(z_codes == code))
        for code in np.flatnonzero(sets.any(axis=1))
    ]
    common = [(x_rows, z_rows) for x_rows, z_rows in groups if len(x_rows) and len(z_rows)]
    if not common:
        raise SupervisionError("no group: no set of labels occurs in both modalities")
    return common


def _mean_cross_product(X: FloatArray, Z: FloatArray, groups: Groups) -> FloatArray:
    """Return the sum of ``x_i z_j^T`` over the mean of all pairings."""
    sums = [
        (X[rows].sum(axis=0) / max(len(rows), len(columns)), Z[columns].sum(axis=0))
        for rows, columns in groups
    ]
    product: FloatArray = np.array([x for x, _ in sums]).T @ np.array([z for _, z in sums])
    return product


def _pair(X: FloatArray, Z: FloatArray, groups: Groups) -> tuple[Indices, Indices]:
    """Return the rows of the pairing within each group whose inner products have the largest sum."""
    pairs = []
    for rows, columns in groups:
        first, second = linear_sum_assignment(X[rows] @ Z[columns].T, maximize=True)
        pairs.append((rows[first], columns[second]))
    return np.concatenate([rows for rows, _ in pairs]), np.concatenate([columns for _, columns in pairs])


def mean_cross_product(X: FloatArray, Z: FloatArray, supervision: AnySupervision, pairs: str) -> FloatArray:
    """Return the mean of ``x_i z_j^T`` over pairs of samples. SupervisionError if the supervision is of other
    samples, or rows are asked for and their numbers differ."""
    # "rows" are sample i of one modality with sample i of the other, "similar" all similar pairs; "auto" is
    # rows where the supervision carries them (`PairedRows`, or labels that are the same row by row on both
    # sides), all similar pairs otherwise.
    if rows_are_pairs(X, Z, supervision, pairs):
        return X.T @ Z / len(X)
    return supervision.sum_over_similar(X, Z) / supervision.n_similar


def rows_are_pairs(X: FloatArray, Z: FloatArray, supervision: AnySupervision, pairs: str) -> bool:
    """Say whether row i of X goes with row i of Z; parameters and errors as in `mean_cross_product`."""
    check_sizes(X, Z, supervision)
    if pairs == "rows" and len(X) != len(Z):
        raise SupervisionError(f"rows cannot be pairs: X has {len(X)} samples, Z has {len(Z)}")
    if pairs == "auto" and isinstance(supervision, Labels | MultiLabels):
        return np.array_equal(supervision.x_targets, supervision.z_targets)
    return pairs == "rows" or (pairs == "auto" and isinstance(supervision, PairedRows))
