"""The duality gap: an upper bound on the distance of an objective from the optimum.

With the conjugate of the logistic loss, the dual of problem (4) is

    max_P  sum_ij w_ij H(p_ij)    subject to  ||X^T (W * Y * P) Z||_2 <= alpha,   0 <= p_ij <= 1,

where H is the binary entropy. At M the natural candidate for p is p_ij = sigma(-y_ij s_ij), for which
``X^T (W * Y * P) Z`` is minus the gradient of the loss; multiplied by ``min(1, alpha / ||l'(M)||_2)``
it is feasible, because the domain of H contains every smaller p. By weak duality

    objective(M) - optimum <= objective(M) - dual value,

and both sides vanish at the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.linalg.matrices import FloatArray, LowRankMatrix, spectral_norm
from solver.losses.base import CertifiableLoss, FactoredPoint


@dataclass(frozen=True, slots=True)
class Certificate:
    """Primal and dual value at a point.

    Parameters
    ----------
    objective : float
        Loss plus penalty at the point.
    dual_value : float
        A lower bound on the optimum.
    """

    objective: float
    dual_value: float

    @property
    def relative_gap(self) -> float:
        """``(objective - dual_value) / objective``, at least 0."""
        return max(self.objective - self.dual_value, 0.0) / self.objective


def certify(
    loss: CertifiableLoss, M: LowRankMatrix, alpha: float, sufficient_gap: float = 0.0
) -> Certificate:
    """Compute the duality gap of `M`.

    Parameters
    ----------
    loss : CertifiableLoss
        In float64 for a gap that is accurate to the last digits.
    M : LowRankMatrix of shape (n_features_x, n_features_z)
        The point to certify.
    alpha : float, > 0
        Penalty weight; it bounds the spectral norm in the dual.
    sufficient_gap : float, >= 0
        If `lower_bound` already gives a smaller relative gap, it is returned as the dual value, without a
        second pass over all pairs.

    Returns
    -------
    Certificate
        With the objective at `M` and the dual value of its scaled pair variables.
    """
    point = FactoredPoint.of(M)
    value, gradient = loss.value_and_gradient(point)
    objective = value + alpha * M.nuclear_norm
    cheap = Certificate(objective, lower_bound(value, gradient, point, alpha))
    if cheap.relative_gap < sufficient_gap:
        return cheap
    scale = _feasible_scale(gradient, alpha)
    return Certificate(objective, loss.dual_value(point, scale))


def lower_bound(value: float, gradient: FloatArray, point: FactoredPoint, alpha: float) -> float:
    """Return a lower bound on the optimum that needs only a value and a gradient.

    Parameters
    ----------
    value : float
        The loss at `point`.
    gradient : ndarray of shape (n_features_x, n_features_z)
        The loss's gradient there.
    point : FactoredPoint
        Any point.
    alpha : float, > 0
        Penalty weight.

    Notes
    -----
    ``H(p_ij) = l_ij + y_ij s_ij p_ij``, so that the unscaled dual value is ``l(M) - <l'(M), M>``; and H is
    concave with H(0) = 0, so that ``H(c p) >= c H(p)``. The dual value of `certify` is slightly larger.
    """
    along = float(np.vdot(point.left, gradient.astype(np.float64) @ point.right))
    return _feasible_scale(gradient, alpha) * (value - along)


def _feasible_scale(gradient: FloatArray, alpha: float) -> float:
    norm = spectral_norm(gradient)
    return 1.0 if norm <= alpha else alpha / norm
