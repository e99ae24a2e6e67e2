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
    """Primal and dual value at a point: loss plus penalty, and a lower bound on the optimum."""

    objective: float
    dual_value: float

    @property
    def relative_gap(self) -> float:
        """``(objective - dual_value) / objective``, at least 0."""
        return max(self.objective - self.dual_value, 0.0) / self.objective


def certify(
    loss: CertifiableLoss, M: LowRankMatrix, alpha: float, sufficient_gap: float = 0.0
) -> Certificate:
    """Compute the duality gap of `M`; a loss in float64 makes it accurate to the last digits.
    A `lower_bound` that meets `sufficient_gap` (relative) spares the second pass over all pairs."""
    point = FactoredPoint.of(M)
    value, gradient = loss.value_and_gradient(point)
    objective = value + alpha * M.nuclear_norm
    cheap = Certificate(objective, lower_bound(value, gradient, point, alpha))
    if cheap.relative_gap < sufficient_gap:
        return cheap
    scale = _feasible_scale(gradient, alpha)
    return Certificate(objective, loss.dual_value(point, scale))


def lower_bound(value: float, gradient: FloatArray, point: FactoredPoint, alpha: float) -> float:
    """Return a lower bound on the optimum that needs only a value and a gradient of the loss at a point."""
    # H(p_ij) = l_ij + y_ij s_ij p_ij, so that the unscaled dual value is l(M) - <l'(M), M>; and H is concave
    # with H(0) = 0, so that H(c p) >= c H(p). The dual value of `certify` is slightly larger.
    along = float(np.vdot(point.left, gradient.astype(np.float64) @ point.right))
    return _feasible_scale(gradient, alpha) * (value - along)


def _feasible_scale(gradient: FloatArray, alpha: float) -> float:
    norm = spectral_norm(gradient)
    return 1.0 if norm <= alpha else alpha / norm
