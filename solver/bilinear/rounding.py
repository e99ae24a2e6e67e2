"""How a solution is kept: as factors in the original features, rounded to the estimator's precision.

At small penalties the rounding of the factors can show in the duality gap, so that the certificate is
computed for the factors as they are kept. Where there is an intercept it makes up for the rounding of the
other rows at the mean sample, which is most of it when the samples are not centred.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from solver.bilinear.problem import BilinearProblem
from solver.errors import NumericalError
from solver.linalg.matrices import FloatArray, LowRankMatrix, Samples


class FactorRounding:
    """The rounding of one problem's solutions.

    Parameters
    ----------
    problem : BilinearProblem
        Prepared samples.
    X : ndarray or CSR array of shape (n_samples_x, n_features_x)
        First modality as given. Not modified.
    Z : ndarray or CSR array of shape (n_samples_z, n_features_z)
        Second modality as given. Not modified.
    fit_intercept : bool
        Whether the factors' last rows are intercepts.
    dtype : {float32, float64}
        Precision of the factors.
    """

    def __init__(
        self, problem: BilinearProblem, X: Samples, Z: Samples, fit_intercept: bool, dtype: npt.DTypeLike
    ) -> None:
        self._problem = problem
        self._dtype = np.dtype(dtype)
        self._means = [_mean(side) if fit_intercept else None for side in (X, Z)]

    def factors(self, M: LowRankMatrix) -> tuple[FloatArray, FloatArray]:
        """Return the balanced factors of a point of the problem, rounded.

        Raises
        ------
        NumericalError
            If they are too large or too small for the precision.
        """
        left, right = self._problem.lift(M).balanced_factors()
        return self._rounded(left, self._means[0]), self._rounded(right, self._means[1])

    def kept(self, M: LowRankMatrix) -> LowRankMatrix:
        """Return the point of the problem that the rounded factors stand for."""
        if self._dtype == np.float64:
            return M
        left, right = self.factors(M)
        return self._problem.lower(left.astype(np.float64), right.astype(np.float64))

    def _rounded(self, factor: FloatArray, mean: FloatArray | None) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            rounded: FloatArray = factor.astype(self._dtype)
        if not (np.isfinite(rounded).all() and rounded.any(axis=0).all()):
            largest = float(np.abs(factor).max())
            raise NumericalError(f"factors of size {largest:.1e} are beyond {self._dtype}: scale the samples")
        if mean is not None:
            rounded[-1] = factor[-1] + mean @ (factor[:-1] - rounded[:-1].astype(np.float64))
        return rounded


def _mean(samples: Samples) -> FloatArray:
    mean: FloatArray = np.asarray(samples.mean(axis=0, dtype=np.float64)).ravel()
    return mean
