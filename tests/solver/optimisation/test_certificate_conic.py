"""The optimum of tiny problems by an interior-point conic solver, which shares no idea with ours."""

from typing import Any

import clarabel
import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from solver import Labels, LowRankBilinear, MultiLabels, PairedRows, SignedPairs, alpha_max
from solver.supervision.kinds import AnySupervision
from tests.solver.dense import DenseProblem

ROOT_HALF = float(np.sqrt(0.5))


class _Program:
    """Rows ``b - A x`` of a conic program, gathered cone by cone."""

    def __init__(self) -> None:
        self.rows: list[dict[int, float]] = []
        self.constants: list[float] = []
        self.cones: list[Any] = []

    def add(self, cone: Any, rows: list[dict[int, float]], constants: list[float]) -> None:
        """Ask that (constants + rows x) lie in the cone."""
        self.cones.append(cone)
        self.rows += rows
        self.constants += constants

    def minimum(self, cost: npt.NDArray[np.float64]) -> tuple[float, float, npt.NDArray[np.float64]]:
        """Return the primal and the dual value, and the solution."""
        triplets = [(i, j, -value) for i, row in enumerate(self.rows) for j, value in row.items()]
        i, j, values = (np.array(part) for part in zip(*triplets, strict=True))
        A = scipy.sparse.csc_matrix((values, (i, j)), shape=(len(self.rows), len(cost)))
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-10
        none = scipy.sparse.csc_matrix((len(cost), len(cost)))
        found = clarabel.DefaultSolver(none, cost, A, np.array(self.constants), self.cones, settings).solve()
        assert str(found.status) in ("Solved", "AlmostSolved")
        return found.obj_val, found.obj_val_dual, np.array(found.x)


def _conic_optimum(dense: Any, alpha: float) -> tuple[float, float, npt.NDArray[np.float64]]:
    """Solve problem (4), written as a conic program, and return its value, its dual value and M."""
    # ||M||_* is half the smallest trace of a positive semidefinite S = [[P, M], [M^T, R]], and log(1 + exp(-y
    # s)) <= t says u + v <= 1, exp(-y s - t) <= u, exp(-t) <= v.
    (d1, d2), known = (dense.X.shape[1], dense.Z.shape[1]), np.argwhere(dense.W > 0)
    size = d1 + d2
    # Variables: the upper triangle of S by columns, off-diagonal entries times root 2; then t, u, v.
    entry = {(i, j): j * (j + 1) // 2 + i for j in range(size) for i in range(j + 1)}
    first = len(entry)
    cost = np.zeros(first + 3 * len(known))
    for i in range(size):
        cost[entry[i, i]] = alpha / 2
    program = _Program()
    program.add(clarabel.PSDTriangleConeT(size), [{k: 1.0} for k in range(first)], [0.0] * first)
    for number, (row, column) in enumerate(known):
        t, u, v = (first + 3 * number + k for k in range(3))
        cost[t] = dense.W[row, column]
        outer = -dense.Y[row, column] * ROOT_HALF * np.outer(dense.X[row], dense.Z[column])
        score = {entry[i, d1 + j]: float(outer[i, j]) for i in range(d1) for j in range(d2)}
        program.add(clarabel.ExponentialConeT(), [{**score, t: -1.0}, {}, {u: 1.0}], [0.0, 1.0, 0.0])
        program.add(clarabel.ExponentialConeT(), [{t: -1.0}, {}, {v: 1.0}], [0.0, 1.0, 0.0])
        program.add(clarabel.NonnegativeConeT(1), [{u: -1.0, v: -1.0}], [1.0])
    value, dual_value, x = program.minimum(cost)
    M = np.array([[ROOT_HALF * x[entry[i, d1 + j]] for j in range(d2)] for i in range(d1)])
    return value, dual_value, M


def _instance(kind: str) -> tuple[Any, Any, AnySupervision, npt.NDArray[np.float64], Any]:
    """Return samples, supervision, dense signs and dense weights."""
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((9, 4)), rng.standard_normal((9 if kind == "paired rows" else 7, 3))
    shape = len(X), len(Z)
    if kind == "paired rows":
        return X, Z, PairedRows(9), np.where(np.eye(9) > 0, 1.0, -1.0), None
    if kind == "labels":
        x, z = np.arange(9) % 3, np.arange(7) % 3
        return X, Z, Labels(x, z), np.where(x[:, None] == z[None, :], 1.0, -1.0), None
    if kind == "several labels":
        x_tags, z_tags = rng.random((9, 4)) < 0.4, rng.random((7, 4)) < 0.4
        shared = (x_tags[:, None, :] & z_tags[None, :, :]).any(axis=2)
        return X, Z, MultiLabels(x_tags, z_tags), np.where(shared, 1.0, -1.0), None
    Y = rng.choice([-1.0, 0.0, 1.0], shape)
    W = rng.uniform(0.2, 3.0, shape)
    signs, weights = (scipy.sparse.csr_array(np.where(Y != 0, array, 0.0)) for array in (Y, W))
    return X, Z, SignedPairs(signs, weights), Y, W


@pytest.mark.parametrize("kind", ["labels", "several labels", "paired rows", "signed pairs"])
@pytest.mark.parametrize("fraction", [1 / 2, 1 / 20])
def test_certified_interval_holds_the_optimum_of_a_conic_solver(kind: str, fraction: float) -> None:
    X, Z, supervision, Y, W = _instance(kind)
    fit_intercept = kind == "labels"
    alpha = fraction * alpha_max(X, Z, supervision, fit_intercept=fit_intercept)
    dense = DenseProblem.of_pairs(X, Z, Y, W, fit_intercept)
    value, dual_value, M = _conic_optimum(dense, alpha)
    # The interior-point solver stops at a relative gap of 1e-10; a tenth of our tolerance is ample.
    assert dual_value == pytest.approx(value, rel=1e-7)
    assert dense.objective(M, alpha) == pytest.approx(value, rel=1e-6)
    for tol in (1e-2, 1e-6):
        model = LowRankBilinear(alpha, fit_intercept=fit_intercept, tol=tol, dtype=np.float64)
        model.fit(X, Z, supervision)
        assert model.converged_
        lower = model.objective_ * (1 - model.duality_gap_)
        assert lower <= value * (1 + 1e-7)
        assert value * (1 - 1e-7) <= model.objective_
        assert model.objective_ <= value * (1 + tol) + 1e-7


@pytest.mark.parametrize("factor", [0.98, 1.02])
def test_conic_solver_finds_zero_from_alpha_max_on(factor: float) -> None:
    X, Z, supervision, Y, W = _instance("labels")
    alpha = factor * alpha_max(X, Z, supervision, fit_intercept=False)
    value, _, M = _conic_optimum(DenseProblem.of_pairs(X, Z, Y, W), alpha)
    if factor > 1:
        assert value == pytest.approx(2 * np.log(2.0), rel=1e-8)
        assert np.abs(M).max() < 1e-6
    else:
        assert value < 2 * np.log(2.0) * (1 - 1e-6)
