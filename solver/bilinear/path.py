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
    """The solution for one penalty weight.

    Parameters
    ----------
    M : LowRankMatrix
        The solution in the original features; the constant features, if any, come last.
    duality_gap : float
        Certified duality gap, relative to the objective.
    """

    M: LowRankMatrix
    duality_gap: float

    def project(self, X: FloatArray, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the samples of both modalities, projected into the common space.

        Parameters
        ----------
        X : ndarray of shape (n_samples_x, n_features_x)
            Without constant features.
        Z : ndarray of shape (n_samples_z, n_features_z)
            Without constant features.
        """
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
    """Solve a problem for each of several penalty weights.

    Parameters
    ----------
    problem : BilinearProblem
        Prepared samples and supervision.
    alphas : sequence of float, > 0
        Penalty weights in the user's units; fastest in descending order.
    tol : float, > 0
        Relative duality gap of each solution.
    max_iter : int, >= 1
        Limit on the iterations of each.
    callback : callable, optional
        Called after each iteration; an exception it raises ends the path.

    Yields
    ------
    PathPoint
        The solution for each weight, in the order given.
    """
    M = LowRankMatrix.zeros(*problem.shape, dtype=np.float64)
    for alpha in alphas:
        scaled = problem.to_problem_units(alpha)
        monitor = ConvergenceMonitor(tol, max_iter, callback)
        descent = Descent(problem, scaled, np.float32)
        for state in monitor.follow(problem, scaled, descent.states(descent.start(M))):
            M = state.M
        yield PathPoint(problem.lift(M), monitor.certificate.relative_gap)


def _affine(samples: FloatArray, factors: FloatArray) -> FloatArray:
    n_features = samples.shape[1]
    projected: FloatArray = np.asarray(samples @ factors[:n_features])
    projected += factors[n_features:].sum(axis=0)
    return projected
