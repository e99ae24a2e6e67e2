"""How far a point is from the optimum, at most: the duality gap.

With the conjugate of the logistic loss, the dual of problem (4) is

    max_P  sum_ij w_ij H(p_ij)    subject to  ||X^T (W * Y * P) Z||_2 <= alpha,   0 <= p_ij <= 1,

where H is the binary entropy. At M the natural candidate is p_ij = sigma(-y_ij s_ij), for which
``X^T (W * Y * P) Z`` is minus the gradient of the loss; multiplied by ``min(1, alpha / ||l'(M)||_2)``
it is feasible, because H's domain contains every smaller p. By weak duality

    objective(M) - optimum <= objective(M) - dual value,

and both sides vanish at the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.linalg.matrices import FloatArray, LowRankMatrix, spectral_norm
from solver.losses.base import CertifiableLoss, FactoredPoint
from solver.optimisation.penalties import NuclearNorm


@dataclass(frozen=True, slots=True)
class Certificate:
    """Primal value, dual value and what follows from them.

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
    loss: CertifiableLoss, penalty: NuclearNorm, M: LowRankMatrix, enough: float = 0.0
) -> Certificate:
    """Compute the duality gap of `M`.

    Parameters
    ----------
    loss : CertifiableLoss
        In float64 for a gap that is good to the last digits.
    penalty : NuclearNorm
        Its weight bounds the dual's spectral norm.
    M : LowRankMatrix of shape (n_features_x, n_features_z)
        The point.
    enough : float, >= 0
        Where `lower_bound` already gives a relative gap below this, it stands for the dual value, and
        a second pass over all pairs is saved.

    Returns
    -------
    Certificate
        With the objective at `M` and the dual value of its scaled pair variables.
    """
    point = FactoredPoint.of(M)
    value, gradient = loss.value_and_gradient(point)
    bounded = Certificate(value + penalty.value(M), lower_bound(value, gradient, point, penalty.alpha))
    if bounded.relative_gap < enough:
        return bounded
    scale = _feasible_scale(gradient, penalty.alpha)
    return Certificate(bounded.objective, loss.dual_value(point, scale))


def lower_bound(value: float, gradient: FloatArray, point: FactoredPoint, alpha: float) -> float:
    """Return a bound on the optimum that costs nothing beyond a value and a gradient.

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
    concave with H(0) = 0, so that ``H(c p) >= c H(p)``. The bound is a little below `certify`'s.
    """
    along = float(np.vdot(point.left, gradient.astype(np.float64) @ point.right))
    return _feasible_scale(gradient, alpha) * (value - along)


def _feasible_scale(gradient: FloatArray, alpha: float) -> float:
    norm = spectral_norm(gradient)
    return 1.0 if norm <= alpha else alpha / norm
