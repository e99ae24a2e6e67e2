"""The proximable term: the nuclear norm."""

from __future__ import annotations

from solver.linalg.matrices import FloatArray, LowRankMatrix, singular_triplets_above
from solver.validation.parameters import NOT_NEGATIVE, POSITIVE


class NuclearNorm:
    """``alpha * ||M||_*``, the sum of the singular values times the paper's lambda.

    Parameters
    ----------
    alpha : float, >= 0
        Penalty weight.
    """

    def __init__(self, alpha: float) -> None:
        NOT_NEGATIVE.check("alpha", alpha)
        self.alpha = float(alpha)

    def value(self, M: LowRankMatrix) -> float:
        """Return ``alpha * ||M||_*``."""
        return self.alpha * M.nuclear_norm

    def prox(
        self, A: FloatArray, step_size: float, rank_guess: int = 0, relative_noise: float | None = None
    ) -> LowRankMatrix:
        """Shrink the singular values of `A` by ``step_size * alpha``.

        Parameters
        ----------
        A : ndarray of shape (n_features_x, n_features_z)
            Point at which to evaluate the operator.
        step_size : float, > 0
            Step of the gradient move that led to `A`.
        rank_guess : int, >= 0
            Expected number of singular values above the threshold; a wrong guess only costs time.
        relative_noise : float, optional
            Of `A`; see `solver.linalg.matrices.singular_triplets_above`.

        Returns
        -------
        LowRankMatrix
            Minimiser of ``alpha * ||N||_* + ||N - A||_F**2 / (2 * step_size)``; same dtype as `A`.

        Raises
        ------
        InvalidParameterError
            If `step_size` is not finite and positive.

        Notes
        -----
        The singular-value shrinkage of Algorithm 1 in Kang et al., CIKM 2015: the singular vectors stay
        the same, each singular value s becomes max(s - step_size * alpha, 0).
        """
        POSITIVE.check("step_size", step_size)
        threshold = step_size * self.alpha
        triplets = singular_triplets_above(A, threshold, rank_guess, relative_noise)
        return LowRankMatrix(triplets.U, (triplets.s - threshold).astype(A.dtype), triplets.V)
