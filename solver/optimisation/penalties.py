"""The proximable term: the nuclear norm."""

from __future__ import annotations

from solver.linalg.matrices import FloatArray, LowRankMatrix, singular_triplets_above
from solver.validation.parameters import NOT_NEGATIVE, POSITIVE


class NuclearNorm:
    """``alpha * ||M||_*``, the sum of the singular values times the paper's lambda."""

    def __init__(self, alpha: float) -> None:
        NOT_NEGATIVE.check("alpha", alpha)
        self.alpha = float(alpha)

    def value(self, M: LowRankMatrix) -> float:
        return self.alpha * M.nuclear_norm

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
