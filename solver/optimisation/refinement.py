"""Quasi-Newton descent on the factors of a low-rank matrix, between proximal steps.

Since ``||M||_* = min (||A||_F^2 + ||B||_F^2) / 2`` over all ``A B^T = M``, the objective restricted to
rank k is the smooth function ``l(A B^T) + alpha/2 (||A||_F^2 + ||B||_F^2)`` (Srebro, Rennie and Jaakkola,
"Maximum-margin matrix factorization", NIPS 2004). L-BFGS makes large progress on it at the cost of two thin
products per evaluation, even more so after the change of variables of `solver.optimisation.preconditioner`.
It cannot change the rank, nor distinguish a saddle point from a minimum: the proximal steps and the
certificate do that. On factors this is the method of Burer and Monteiro (Mathematical Programming 95, 2003).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize

from solver.linalg.matrices import FloatArray, LowRankMatrix, from_factors
from solver.losses.base import FactoredPoint, SmoothLoss
from solver.optimisation.preconditioner import FactorPreconditioner, GramSpectrum

_MEMORY = 20
"""Pairs of vectors that L-BFGS stores, instead of its usual 10: vectors are small beside the pairs."""


@dataclass(frozen=True, slots=True, eq=False)
class Refinement:
    """The refined point, and the norm of the scaled gradient at which the refinement was to stop."""

    M: LowRankMatrix
    gradient_target: float


def refine_factors(
    loss: SmoothLoss,
    spectra: tuple[GramSpectrum, GramSpectrum],
    alpha: float,
    M: LowRankMatrix,
    *,
    max_evaluations: int,
    reduction: float,
    gradient_target: float = np.inf,
    relative_tolerance: float = 0.0,
) -> Refinement:
    """Descend from `M`, of rank 1 at least, within its rank; in its dtype.
    The objective is at most that of `M`, up to rounding."""
    # It stops when the norm of the scaled gradient is at most the fraction `reduction` of its first value and
    # no larger than `gradient_target`, when a step decreases the objective by less than the fraction
    # `relative_tolerance` of max(objective, 1), or after `max_evaluations` of the loss.
    descent = _FactorDescent(loss, spectra, alpha, M)
    first = float(np.linalg.norm(descent.evaluate(descent.start)[1]))
    target = min(gradient_target, reduction * first)

    def stop_at_target(intermediate_result: Any) -> None:
        if descent.gradient_norm <= target:
            raise StopIteration

    result = scipy.optimize.minimize(
        descent.evaluate,
        descent.start,
        jac=True,
        method="L-BFGS-B",
        callback=stop_at_target,
        options={
            "maxcor": _MEMORY,
            "maxfun": max_evaluations,
            "maxiter": max_evaluations,
            "ftol": relative_tolerance,
            "gtol": 0.0,
        },
    )
    refined = from_factors(*descent.factors(result.x)).astype(M.U.dtype)
    return Refinement(refined, target)


class _FactorDescent:
    """The objective as a function of one flat vector of preconditioned factors."""

    def __init__(
        self, loss: SmoothLoss, spectra: tuple[GramSpectrum, GramSpectrum], alpha: float, M: LowRankMatrix
    ) -> None:
        A, B = (factor.astype(np.float64) for factor in M.balanced_factors())
        curvature = loss.mean_curvature(FactoredPoint.of(M))
        self._loss, self._alpha, self._rank, self._split = loss, alpha, M.rank, A.size
        self._left = FactorPreconditioner(spectra[0], spectra[1].quadratic_form(B), curvature, alpha)
        self._right = FactorPreconditioner(spectra[1], spectra[0].quadratic_form(A), curvature, alpha)
        self.start = np.concatenate([self._left.scale(A).ravel(), self._right.scale(B).ravel()])
        self.gradient_norm = np.inf
        self._last_evaluation: tuple[FloatArray, tuple[float, FloatArray]] | None = None

    def factors(self, flat: FloatArray) -> tuple[FloatArray, FloatArray]:
        shape = (-1, self._rank)
        left, right = flat[: self._split].reshape(shape), flat[self._split :].reshape(shape)
        return self._left.factor(left), self._right.factor(right)

    def evaluate(self, flat: FloatArray) -> tuple[float, FloatArray]:
        if self._last_evaluation is not None and np.array_equal(flat, self._last_evaluation[0]):
            return self._last_evaluation[1]
        A, B = self.factors(flat)
        value, on_A, on_B = self._loss.value_and_factor_gradients(A, B)
        on_left = self._left.scale_gradient(on_A + self._alpha * A)
        on_right = self._right.scale_gradient(on_B + self._alpha * B)
        gradient = np.concatenate([on_left.ravel(), on_right.ravel()])
        self.gradient_norm = float(np.linalg.norm(gradient))
        objective = value + 0.5 * self._alpha * float(np.vdot(A, A) + np.vdot(B, B))
        self._last_evaluation = flat.copy(), (objective, gradient)
        return objective, gradient
