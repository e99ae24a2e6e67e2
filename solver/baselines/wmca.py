"""Weakly paired maximum covariance analysis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg
from scipy.optimize import linear_sum_assignment
from typing_extensions import override

from solver.baselines._bases import CentredBasis
from solver.baselines._basis_fit import BasisBaseline
from solver.baselines._linear import METRIC
from solver.baselines._pairs import class_indicators
from solver.linalg.matrices import FloatArray
from solver.supervision.base import Indices
from solver.supervision.signed_pairs import AnySupervision
from solver.validation.errors import SupervisionError
from solver.validation.parameters import COUNT, Rule, optional

Groups = list[tuple[Indices, Indices]]  # rows of either modality that belong together, group by group


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
    n_components : int, >= 1, or None
        Number of directions at most; all when None.
    max_iter : int, >= 1
        Pairings at most; fewer where one repeats the one before.
    metric : {"cosine", "inner"}

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

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "max_iter": COUNT,
        "metric": METRIC,
    }
    _needs_classes: ClassVar[bool] = True

    covariances_: FloatArray
    x_pairs_: Indices
    z_pairs_: Indices
    objectives_: list[float]

    def __init__(
        self, n_components: int | None = None, *, max_iter: int = 20, metric: str = "cosine"
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.metric = metric

    @override
    def _learn_directions(
        self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision
    ) -> tuple[FloatArray, FloatArray]:
        indicators = class_indicators(supervision, type(self).__name__)
        groups = _common_groups(*indicators)
        left, _, right = self._leading(_mean_cross_product(x.coordinates, z.coordinates, groups))
        self.objectives_ = []
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
