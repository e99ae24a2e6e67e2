"""Rounding a solution to the estimator's dtype, as factors in the original features.

At small penalties the rounding of the factors can show in the duality gap, so the certificate is computed for
the rounded factors. An intercept, where there is one, compensates for the rounding of the other rows at the
mean sample, which is most of the error when the samples are not centred.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from solver.bilinear.problem import BilinearProblem
from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples
from solver.validation.errors import NumericalError


class FactorRounding:
    """Rounds the solutions of one problem; X and Z are as passed to `fit`.
    With `fit_intercept` the last rows of the factors are intercepts."""

    def __init__(
        self, problem: BilinearProblem, X: Samples, Z: Samples, fit_intercept: bool, dtype: npt.DTypeLike
    ) -> None:
        self._problem = problem
        self._dtype = np.dtype(dtype)
        self._means = [_mean(side) if fit_intercept else None for side in (X, Z)]

    def factors(self, M: LowRankMatrix) -> tuple[FloatArray, FloatArray]:
        """Return the rounded, balanced factors of a point of the problem.
        NumericalError if they are too large or too small for the precision."""
        left, right = self._problem.lift(M).balanced_factors()
        return self._round(left, self._means[0]), self._round(right, self._means[1])

    def round(self, M: LowRankMatrix) -> LowRankMatrix:
        """Return the point of the problem that the rounded factors represent."""
        if self._dtype == np.float64:
            return M
        left, right = self.factors(M)
        return self._problem.lower(left.astype(np.float64), right.astype(np.float64))

    def _round(self, factor: FloatArray, mean: FloatArray | None) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            rounded: FloatArray = factor.astype(self._dtype)
        if not (np.isfinite(rounded).all() and rounded.any(axis=0).all()):
            largest = float(np.abs(factor).max())
            raise NumericalError(
                f"factors of size {largest:.1e} are out of range of {self._dtype}: scale the samples"
            )
        if mean is not None:
            rounded[-1] = factor[-1] + mean @ (factor[:-1] - rounded[:-1].astype(np.float64))
        return rounded


def _mean(samples: Samples) -> FloatArray:
    mean: FloatArray = np.asarray(samples.mean(axis=0, dtype=np.float64)).ravel()
    return mean
