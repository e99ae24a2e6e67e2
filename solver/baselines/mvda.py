"""Multi-view discriminant analysis."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg
from typing_extensions import override

from solver.baselines._bases import CentredBasis
from solver.baselines._basis_fit import BasisBaseline
from solver.baselines._linear import METRIC
from solver.baselines._multiview import whitening
from solver.baselines._pairs import class_indicators
from solver.linalg.matrices import FloatArray
from solver.supervision.signed_pairs import AnySupervision
from solver.validation.errors import InvalidInputError
from solver.validation.parameters import COUNT, NOT_NEGATIVE, Rule, optional


class MvDA(BasisBaseline):
    """Linear discriminant analysis of both modalities in one common space.

    Projects both modalities so that samples of one class lie together, whichever modality they are of, and
    the classes apart [1]_, [2]_:

        max_{U, V}  tr(S_B) / tr(S_W)
        S_W = sum_c sum_{i in c} (y_i - m_c) (y_i - m_c)^T,    S_B = sum_c n_c (m_c - m) (m_c - m)^T

    where ``y`` are the projections ``U^T x`` and ``V^T z`` of all samples together, ``m_c`` is their mean and
    ``n_c`` their number in class c, and m the mean of all. As in the papers the ratio of the traces is
    replaced by the trace of the ratio, which the generalised eigenproblem ``S_B w = lambda S_W w`` of the
    stacked directions ``w = (u, v)`` solves.

    Parameters
    ----------
    n_components : int, >= 1, or None
        Number of directions at most; None for all, of which there are fewer than classes.
    reg : float, >= 0
        Ridge on S_W as a share of its mean eigenvalue. With 0, directions along which it vanishes are left
        out.
    eigenvalue_power : float, >= 0
        Each direction is multiplied by its eigenvalue to this power; 0 is the method itself.
    metric : {"cosine", "inner"}

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (rank,)
        Of the chosen directions, in descending order.

    Notes
    -----
    Choices where the papers leave them: the features of either modality are centred, and divided by their
    root mean square in the principal axes, so that one ridge suits both. The view-consistent variant of
    [2]_ needs as many samples in both modalities and is left out. Under `MultiLabels` a sample counts in each
    of its classes.

    References
    ----------
    .. [1] M. Kan, S. Shan, H. Zhang, S. Lao, X. Chen, "Multi-view Discriminant Analysis", ECCV 2012.
    .. [2] M. Kan et al., "Multi-View Discriminant Analysis", IEEE TPAMI 38, 2016.
    """

    _parameter_rules: ClassVar[dict[str, Rule]] = {
        "n_components": optional(COUNT),
        "reg": NOT_NEGATIVE,
        "eigenvalue_power": NOT_NEGATIVE,
        "metric": METRIC,
    }
    _needs_classes: ClassVar[bool] = True

    eigenvalues_: FloatArray

    def __init__(
        self,
        n_components: int | None = None,
        *,
        reg: float = 0.1,
        eigenvalue_power: float = 0.0,
        metric: str = "cosine",
    ) -> None:
        self.n_components = n_components
        self.reg = reg
        self.eigenvalue_power = eigenvalue_power
        self.metric = metric

    @override
    def _learn_directions(
        self, x: CentredBasis, z: CentredBasis, supervision: AnySupervision
    ) -> tuple[FloatArray, FloatArray]:
        indicators = class_indicators(supervision, type(self).__name__)
        x_scale, z_scale = (np.sqrt(np.mean(basis.coordinates**2)) for basis in (x, z))
        anchors, within = _scatters((x.coordinates / x_scale, z.coordinates / z_scale), indicators)
        values, directions = _leading_directions(anchors, within, self.reg)
        self.eigenvalues_ = values[: self.n_components]
        weighted = directions[:, : self.n_components] * self.eigenvalues_**self.eigenvalue_power
        left, right = np.split(weighted, [len(x.lengths)])
        return left / x_scale, right / z_scale


def _scatters(
    coordinates: tuple[FloatArray, FloatArray], indicators: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return what the scatter between classes is the Gram matrix of, and the scatter within them.
    Both are of stacked samples: (x, 0) of the first modality and (0, z) of the second."""
    counts = np.maximum(sum(side.sum(axis=0) for side in indicators), 1.0)
    sums = np.hstack([side.T @ samples for samples, side in zip(coordinates, indicators, strict=True)])
    means = sums / counts[:, None]
    blocks = (
        samples.T @ (samples * side.sum(axis=1)[:, None])
        for samples, side in zip(coordinates, indicators, strict=True)
    )
    within = scipy.linalg.block_diag(*blocks) - sums.T @ means
    anchors = np.sqrt(counts)[:, None] * (means - sums.sum(axis=0) / counts.sum())
    return anchors, (within + within.T) / 2.0


def _leading_directions(anchors: FloatArray, within: FloatArray, reg: float) -> tuple[FloatArray, FloatArray]:
    """Return positive eigenvalues and directions w with ``anchors^T anchors w = lambda (within + ridge) w``.
    As many as the rank of the anchors, from a problem of their number's size."""
    size = len(within)
    ridge = reg * float(np.trace(within)) / size
    if ridge > 0:
        factor = scipy.linalg.cho_factor(within + ridge * np.eye(size))
        solved = scipy.linalg.cho_solve(factor, anchors.T)
    else:
        white = whitening(within, 0.0)
        solved = white @ (white.T @ anchors.T)
    values, vectors = scipy.linalg.eigh(anchors @ solved)
    values, vectors = values[::-1], vectors[:, ::-1]
    rounding = len(values) * np.finfo(np.float64).eps * max(float(values[0]), 1.0)
    is_positive = values > rounding
    if not is_positive.any():
        raise InvalidInputError("the classes do not differ: there is nothing to learn from")
    return values[is_positive], solved @ (vectors[:, is_positive] / np.sqrt(values[is_positive]))
