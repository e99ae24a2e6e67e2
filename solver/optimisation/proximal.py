"""The nuclear norm, and the proximal gradient step, with backtracking.

One step of Algorithm 1 of Kang et al. (CIKM 2015) from a given point: against the gradient of the smooth
term, then the proximal operator of the penalty. The step size is halved until the objective lies below its
quadratic model. The choice of points, stopping and history belong to the caller
(`solver.optimisation.descent`).
"""

from __future__ import annotations

import numpy as np

from solver.linalg.matrices import FloatArray, LowRankMatrix, singular_triplets_above
from solver.losses.base import FactoredPoint, SmoothLoss
from solver.validation.errors import NumericalError
from solver.validation.parameters import NOT_NEGATIVE, POSITIVE


class NuclearNorm:
    """``alpha * ||M||_*``, the sum of the singular values times the paper's lambda."""

    def __init__(self, alpha: float) -> None:
        NOT_NEGATIVE.check("alpha", alpha)
        self.alpha = float(alpha)

    def prox(
        self, A: FloatArray, step_size: float, rank_guess: int = 0, relative_noise: float | None = None
    ) -> LowRankMatrix:
        """Shrink the singular values s of `A` to ``max(s - step_size * alpha, 0)``, as Algorithm 1 does.
        The minimiser of ``alpha * ||N||_* + ||N - A||_F**2 / (2 * step_size)``, in the dtype of `A`."""
        # A wrong `rank_guess` of singular values above the threshold only costs time; for `relative_noise` of
        # `A` see `solver.linalg.matrices.singular_triplets_above`.
        POSITIVE.check("step_size", step_size)
        threshold = step_size * self.alpha
        triplets = singular_triplets_above(A, threshold, rank_guess, relative_noise)
        return LowRankMatrix(triplets.U, (triplets.s - threshold).astype(A.dtype), triplets.V)


_SHRINKAGE = 0.5  # factor of a rejected step size, as in the paper
_MAX_BACKTRACKS = 60
"""Halvings after which a step size has shrunk by 1e18, which float64 cannot distinguish from no step."""
_FLOAT32_NOISE = 1e-6
"""Assumed relative noise of a float32 gradient: about ten times the machine epsilon of 1.2e-7."""


def proximal_step(
    smooth: SmoothLoss,
    penalty: NuclearNorm,
    point: FactoredPoint,
    value: float,
    gradient: FloatArray,
    step_size: float,
    rank_guess: int,
) -> tuple[LowRankMatrix, float, float]:
    """Move from a point against the gradient and apply the proximal operator, with backtracking.
    Returns the new point, the smooth term there, and the accepted step size."""
    # The first step size is halved until the objective lies below its quadratic model. The dtype of the
    # gradient is that of the result. NumericalError if the smooth term is not finite or no step decreases the
    # model.
    dtype = gradient.dtype
    # In float64: where the point is large and the step small, float32 would round new directions away.
    exact = FactoredPoint(point.left.astype(np.float64), point.right.astype(np.float64))
    dense, slope = exact.dense(), gradient.astype(np.float64)
    noise = _FLOAT32_NOISE if dtype == np.float32 else None
    for _ in range(_MAX_BACKTRACKS):
        M = penalty.prox(dense - step_size * slope, step_size, rank_guess, noise).astype(dtype)
        move = M.dense() - dense
        new_value = smooth.value(M)
        if not np.isfinite(new_value):
            raise NumericalError(f"the loss became {new_value}")
        if new_value <= _quadratic_model(value, gradient, move, step_size):
            return M, new_value, step_size
        step_size *= _SHRINKAGE
    raise NumericalError("no step decreased the objective")


def _quadratic_model(value: float, gradient: FloatArray, move: FloatArray, step_size: float) -> float:
    """Return the model's value after `move`, plus the rounding noise of a float32 loss."""
    linear = float(np.vdot(gradient, move))
    noise = 4.0 * float(np.finfo(gradient.dtype).eps) * abs(value)
    return value + linear + float(np.vdot(move, move)) / (2.0 * step_size) + noise
