"""Partial least squares."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg
from sklearn.cross_decomposition import PLSCanonical
from typing_extensions import override

from solver.baselines._bases import CentredBasis
from solver.baselines._basis_fit import BasisBaseline
from solver.baselines._linear import METRIC
from solver.baselines._pairs import PAIRS, mean_cross_product, rows_are_pairs
from solver.linalg.matrices import FloatArray
from solver.supervision.signed_pairs import AnySupervision
from solver.validation.errors import SupervisionError
from solver.validation.parameters import COUNT, Rule, one_of, optional

_MAX_ITER = 10_000
"""Power iterations for each direction: they converge slowly where two covariances are close."""


class PLS(BasisBaseline):
    """Partial least squares between two modalities.

    Finds directions along which paired samples covary most, one pair of directions after another:

        max_{u, v}  u^T C_xz v   subject to   |u| = |v| = 1.

    Parameters
    ----------
    n_components : int, >= 1, or None
        Number of directions at most; all when None.
    deflation : {"cross", "canonical"}
        What is subtracted before the next pair is computed. "cross": that pair's share of C_xz, so that the
        directions are the leading singular vectors of C_xz ([2]_, PLS-SVD). "canonical": from
        each modality its own score, as in [1]_ (PLS mode A, `sklearn.cross_decomposition.PLSCanonical`);
        it needs pairs of rows.
    metric : {"cosine", "inner"}
    pairs : {"auto", "rows", "similar"}
        As in `CCA`.

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

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "deflation": one_of("cross", "canonical"),
        "metric": METRIC,
        "pairs": PAIRS,
    }

    covariances_: FloatArray

    def __init__(
        self,
        n_components: int | None = None,
        *,
        deflation: str = "cross",
        metric: str = "cosine",
        pairs: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.deflation = deflation
        self.metric = metric
        self.pairs = pairs

    @override
    def _learn_directions(
        self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision
    ) -> tuple[FloatArray, FloatArray]:
        cross = mean_cross_product(x.coordinates, z.coordinates, supervision, self.pairs)
        if self.deflation == "cross":
            U, _, Vt = scipy.linalg.svd(cross, full_matrices=False)
            left, right = U[:, : self.n_components], Vt[: self.n_components].T
        elif rows_are_pairs(x.coordinates, z.coordinates, supervision, self.pairs):
            left, right = self._rotations(x.coordinates, z.coordinates)
        else:
            raise SupervisionError('deflation "canonical" needs pairs of rows: use deflation="cross"')
        self.covariances_ = np.einsum("ik,ij,jk->k", left, cross, right)
        return left, right

    def _rotations(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what maps undeflated samples to the scores of mode A."""
        most = min(X.shape[1], Z.shape[1])
        model = PLSCanonical(min(self.n_components or most, most), scale=False, max_iter=_MAX_ITER).fit(X, Z)
        return model.x_rotations_, model.y_rotations_
