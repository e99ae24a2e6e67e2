"""Canonical correlation analysis."""

from __future__ import annotations

from typing import ClassVar

import scipy.linalg
from typing_extensions import override

from solver.baselines._bases import CentredBasis
from solver.baselines._basis_fit import BasisBaseline
from solver.baselines._linear import METRIC
from solver.baselines._pairs import PAIRS, mean_cross_product
from solver.linalg.matrices import FloatArray
from solver.supervision.signed_pairs import AnySupervision
from solver.validation.parameters import COUNT, NOT_NEGATIVE, Rule, optional


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

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "reg": NOT_NEGATIVE,
        "correlation_power": NOT_NEGATIVE,
        "metric": METRIC,
        "pairs": PAIRS,
    }

    correlations_: FloatArray

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.1,
        correlation_power: float = 0.0,
        metric: str = "cosine",
        pairs: str = "auto",
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.correlation_power = correlation_power
        self.metric = metric
        self.pairs = pairs

    @override
    def _learn_directions(
        self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision
    ) -> tuple[FloatArray, FloatArray]:
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
