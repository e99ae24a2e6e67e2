"""The two losses beside the paper's: against dense arithmetic, finite differences and weak duality."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.special import entr, logsumexp, softmax

from solver import Labels, LowRankBilinear, MultiLabels, PairedRows, SignedPairs, alpha_max
from solver.linalg import from_factors
from solver.losses.base import FactoredPoint
from solver.losses.pair_losses import PairSoftmaxLoss, PairSquaredLoss
from solver.optimisation.convergence import certify
from solver.validation import InvalidParameterError, SupervisionError

LOSSES = {"squared": PairSquaredLoss, "softmax": PairSoftmaxLoss}


def _instance(kind: str, seed: int = 0) -> tuple[Any, Any, Any, np.ndarray]:
    """Return samples, a supervision, and which pairs are similar in the order of the samples."""
    rng = np.random.default_rng(seed)
    m, n = 23, 23 if kind == "paired" else 17
    X, Z = rng.standard_normal((m, 5)), rng.standard_normal((n, 4))
    if kind == "paired":
        return X, Z, PairedRows(m), np.eye(m, dtype=bool)
    if kind == "labels":
        # Class 3 occurs on one side only: its samples match nothing.
        x, z = rng.integers(0, 4, m), rng.integers(0, 3, n)
        return X, Z, Labels(x, z), x[:, None] == z
    x, z = rng.random((m, 5)) < 0.3, rng.random((n, 5)) < 0.3
    return X, Z, MultiLabels(x, z), (x.astype(int) @ z.T.astype(int)) > 0


def _dense(name: str, scores: np.ndarray, matches: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the loss and its derivatives by the similarities, written out."""
    if name == "squared":
        return 0.5 * np.mean((scores - matches) ** 2), (scores - matches) / scores.size
    value, derivatives = 0.0, np.zeros_like(scores)
    for axis in (1, 0):
        side = matches if axis == 1 else matches.T
        turned = scores if axis == 1 else scores.T
        rows = np.flatnonzero(side.any(axis=1))
        for row in rows:
            target = side[row] / side[row].sum()
            value += 0.5 / len(rows) * (logsumexp(turned[row]) - target @ turned[row])
            change = 0.5 / len(rows) * (softmax(turned[row]) - target)
            if axis == 1:
                derivatives[row] += change
            else:
                derivatives[:, row] += change
    return value, derivatives


def _dense_dual(name: str, scores: np.ndarray, matches: np.ndarray, scale: float) -> float:
    """Return the dual objective of `scale` times what the loss has at these similarities, written out."""
    if name == "squared":
        scaled = scale * (matches - scores)
        return float(np.mean(scaled * matches - 0.5 * scaled**2))
    value = 0.0
    for side, turned in ((matches, scores), (matches.T, scores.T)):
        rows = np.flatnonzero(side.any(axis=1))
        targets = side[rows] / side[rows].sum(axis=1, keepdims=True)
        value += 0.5 * np.mean(
            entr(scale * softmax(turned[rows], axis=1) + (1 - scale) * targets).sum(axis=1)
        )
    return float(value)


@pytest.mark.parametrize("kind", ["labels", "multi", "paired"])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-6)])
@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("block_bytes", [1 << 24, 1 << 9])
def test_values_and_gradients_are_those_of_dense_arithmetic(
    name: str,
    kind: str,
    dtype: type,
    tolerance: float,
    size: float,
    block_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{LOSSES[name].__module__}._BLOCK_BYTES", block_bytes, raising=False)
    X, Z, supervision, matches = _instance(kind)
    rng = np.random.default_rng(1)
    A, B = size * rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    value, derivatives = _dense(name, X @ A @ B.T @ Z.T, matches)
    loss = LOSSES[name](X, Z, supervision, dtype)
    assert loss.shape == (5, 4)
    found, gradient = loss.value_and_gradient(FactoredPoint(A, B))
    assert found == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(gradient, X.T @ derivatives @ Z, atol=10 * tolerance)
    assert gradient.dtype == dtype
    found, on_A, on_B = loss.value_and_factor_gradients(A, B)
    assert found == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(on_A, X.T @ derivatives @ Z @ B, atol=30 * tolerance)
    np.testing.assert_allclose(on_B, Z.T @ derivatives.T @ X @ A, atol=30 * tolerance)
    assert loss.value(from_factors(A, B)) == pytest.approx(value, rel=tolerance)


@pytest.mark.parametrize("name", LOSSES)
def test_the_mean_curvature_is_that_of_finite_differences(name: str) -> None:
    X, Z, supervision, matches = _instance("labels")
    X, Z, supervision = X[:9], Z[:8], supervision.subset(np.arange(9), np.arange(8))
    matches, rng = matches[:9, :8], np.random.default_rng(1)
    A, B = rng.standard_normal((5, 3)), rng.standard_normal((4, 3))
    scores, step, total = X @ A @ B.T @ Z.T, 1e-4, 0.0
    for i, j in np.ndindex(scores.shape):
        up, down = scores.copy(), scores.copy()
        up[i, j] += step
        down[i, j] -= step
        total += (_dense(name, up, matches)[1][i, j] - _dense(name, down, matches)[1][i, j]) / (2 * step)
    loss = LOSSES[name](X, Z, supervision, np.float64)
    assert loss.mean_curvature(FactoredPoint(A, B)) == pytest.approx(total / scores.size, rel=1e-6)


@pytest.mark.parametrize("kind", ["labels", "multi", "paired"])
@pytest.mark.parametrize("name", LOSSES)
def test_the_dual_value_never_exceeds_the_objective_of_any_point(name: str, kind: str) -> None:
    X, Z, supervision, matches = _instance(kind)
    loss = LOSSES[name](X, Z, supervision, np.float64)
    alpha = 0.3 * alpha_max(X, Z, supervision, fit_intercept=False, loss=name)
    rng = np.random.default_rng(2)
    points = [
        from_factors(size * rng.standard_normal((5, 2)), rng.standard_normal((4, 2)))
        for size in (1e-3, 0.1, 1.0)
    ]
    certificates = [certify(loss, M, alpha) for M in points]
    assert max(c.dual_value for c in certificates) <= min(c.objective for c in certificates)
    # Where nothing is scaled, the dual value is what Fenchel's equality says.
    point = FactoredPoint.of(points[1])
    value, gradient = loss.value_and_gradient(point)
    along = float(np.vdot(gradient, point.dense()))
    assert loss.dual_value(point, 1.0) == pytest.approx(value - along, rel=1e-10)
    for scale in (1.0, 0.6, 0.01):
        expected = _dense_dual(name, X @ point.dense() @ Z.T, matches, scale)
        assert loss.dual_value(point, scale) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("kind", ["labels", "multi", "paired"])
@pytest.mark.parametrize("name", LOSSES)
def test_fits_are_certified_and_optimal(name: str, kind: str, share: float) -> None:
    X, Z, supervision, matches = _instance(kind)
    alpha = share * alpha_max(X, Z, supervision, loss=name)
    model = LowRankBilinear(alpha, loss=name, tol=1e-6, dtype=np.float64).fit(X, Z, supervision)
    assert model.converged_
    # The conditions of optimality, computed from the fitted factors alone.
    wide_X, wide_Z = (np.column_stack([samples, np.ones(len(samples))]) for samples in (X, Z))
    value, derivatives = _dense(name, model.similarity(X, Z), matches)
    gradient = wide_X.T @ derivatives @ wide_Z
    assert np.linalg.norm(gradient, 2) <= alpha * (1 + 2e-2)
    assert model.objective_ == pytest.approx(value + alpha * model.singular_values_.sum(), rel=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_zero_is_the_solution_from_alpha_max_on_only(name: str) -> None:
    X, Z, supervision, _ = _instance("labels")
    largest = alpha_max(X, Z, supervision, loss=name)
    assert LowRankBilinear(1.001 * largest, loss=name).fit(X, Z, supervision).rank_ == 0
    assert LowRankBilinear(0.97 * largest, loss=name).fit(X, Z, supervision).rank_ >= 1


def test_the_squared_loss_of_calibrated_posteriors_asks_for_their_inner_product() -> None:
    rng = np.random.default_rng(0)
    P, Q = rng.dirichlet(np.full(4, 0.3), 4000), rng.dirichlet(np.full(4, 0.3), 4000)
    x = np.array([rng.choice(4, p=p) for p in P])
    z = np.array([rng.choice(4, p=q) for q in Q])
    supervision = Labels(x, z)
    alpha = 1e-4 * alpha_max(P, Q, supervision, fit_intercept=False, loss="squared")
    model = LowRankBilinear(alpha, loss="squared", fit_intercept=False).fit(P, Q, supervision)
    np.testing.assert_allclose(model.x_factors_ @ model.z_factors_.T, np.eye(4), atol=0.06)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array])
def test_the_squared_loss_of_more_samples_than_a_block_is_that_of_all(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((4100, 3)), rng.standard_normal((600, 2))
    x, z = rng.integers(0, 50, len(X)), rng.integers(0, 50, len(Z))
    M = rng.standard_normal((3, 2))
    loss = PairSquaredLoss(kind(X), kind(Z), Labels(x, z), np.float64)
    value, gradient = loss.value_and_gradient(FactoredPoint(M, np.eye(2)))
    scores = X @ M @ Z.T
    expected, derivatives = _dense("squared", scores, x[:, None] == z)
    assert value == pytest.approx(expected)
    np.testing.assert_allclose(gradient, X.T @ derivatives @ Z, rtol=1e-9)


def test_what_a_loss_cannot_do_is_said() -> None:
    X, Z, supervision, matches = _instance("labels")
    with pytest.raises(InvalidParameterError, match="loss"):
        LowRankBilinear(loss="hinge").fit(X, Z, supervision)
    with pytest.raises(InvalidParameterError, match="solver"):
        LowRankBilinear(loss="squared", solver="paper").fit(X, Z, supervision)
    with pytest.raises(SupervisionError, match="logistic"):
        LowRankBilinear(loss="softmax").fit(
            X, Z, SignedPairs(scipy.sparse.csr_array(np.where(matches, 1, -1)))
        )
