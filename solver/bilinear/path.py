"""The regularisation path: solutions for several penalty weights, each a warm start of the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solver.bilinear.problem import BilinearProblem
from solver.linalg.matrices import FloatArray, LowRankMatrix
from solver.optimisation.convergence import ConvergenceMonitor
from solver.optimisation.descent import Descent
from solver.progress import IterationProgress


@dataclass(frozen=True, slots=True, eq=False)
class PathPoint:
    """The solution for one penalty weight, in the original features; the constant features come last."""

    M: LowRankMatrix
    duality_gap: float  # certified, relative to the objective

    def project(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the samples of both modalities, without constant features, in the common space."""
        left, right = self.M.balanced_factors()
        return _affine(X, left), _affine(Z, right)


def regularisation_path(
    problem: BilinearProblem,
    alphas: Sequence[float],
    *,
    tol: float,
    max_iter: int,
    callback: Callable[[IterationProgress], None] | None = None,
) -> Iterator[PathPoint]:
    """Yield the solution for each of several penalty weights in the user's units, fastest when descending.
    `tol` (relative duality gap) and `max_iter` are those of each; `callback` may raise to end the path."""
    M = LowRankMatrix.zeros(*problem.shape, dtype=np.float64)
    for alpha in alphas:
        scaled = problem.to_problem_units(alpha)
        monitor = ConvergenceMonitor(tol, max_iter, callback)
        descent = Descent(problem, scaled, np.float32)
        for state in monitor.follow(problem.loss, scaled, descent.states(descent.start(M))):
            M = state.M
        yield PathPoint(problem.lift(M), monitor.certificate.relative_gap)


def _affine(samples: FloatArray, factors: FloatArray) -> FloatArray:
    n_features = samples.shape[1]
    projected: FloatArray = np.asarray(samples @ factors[:n_features])
    projected += factors[n_features:].sum(axis=0)
    return projected
