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
from typing import Protocol

from solver.linalg import FloatArray, LowRankMatrix, spectral_norm
from solver.losses import FactoredPoint
from solver.penalties import NuclearNorm


class DualisableLoss(Protocol):
    """A loss that knows its gradient and its dual value."""

    def value_and_gradient(self, point: FactoredPoint) -> tuple[float, FloatArray]:
        """Return the loss and its gradient."""
        ...

    def dual_entropy(self, point: FactoredPoint, scale: float) -> float:
        """Return the dual objective of the scaled pair variables at `point`."""
        ...


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


def certify(loss: DualisableLoss, penalty: NuclearNorm, M: LowRankMatrix) -> Certificate:
    """Compute the duality gap of `M`.

    Parameters
    ----------
    loss : DualisableLoss
        In float64 for a gap that is good to the last digits.
    penalty : NuclearNorm
        Its weight bounds the dual's spectral norm.
    M : LowRankMatrix of shape (n_features_x, n_features_z)
        The point.

    Returns
    -------
    Certificate
        With the objective at `M` and the dual value of its scaled pair variables.
    """
    point = FactoredPoint.of(M)
    value, gradient = loss.value_and_gradient(point)
    objective = value + penalty.value(M)
    return Certificate(objective, dual_value(loss, penalty, point, gradient))


def dual_value(
    loss: DualisableLoss, penalty: NuclearNorm, point: FactoredPoint, gradient: FloatArray
) -> float:
    """Return the dual objective of the pair variables at `point`, scaled until feasible.

    Parameters
    ----------
    loss : DualisableLoss
        The smooth term.
    penalty : NuclearNorm
        Its weight bounds the dual's spectral norm.
    point : FactoredPoint
        Any point: each gives a valid lower bound.
    gradient : ndarray of shape (n_features_x, n_features_z)
        The loss's gradient at `point`.
    """
    norm = spectral_norm(gradient)
    scale = 1.0 if norm <= penalty.alpha else penalty.alpha / norm
    return loss.dual_entropy(point, scale)
