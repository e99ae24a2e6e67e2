from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import Labels, MultiLabels, PairedRows
from solver.linalg import from_factors, singular_triplets_above
from solver.losses.base import FactoredPoint
from solver.losses.pair_losses import PairLogisticLoss
from tests.solver.dense import DenseProblem

# Relative to the largest entry: errors of a few eps * |s| in scores of up to 60, times a slope of at most 1.
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-13}


def _instance(n: int, m: int, scale: float, seed: int = 0) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((n, 5)), rng.standard_normal((m, 4))
    x_labels, z_labels = rng.integers(0, 4, n), rng.integers(1, 6, m)  # 0 only left; 4, 5 only right
    A = rng.standard_normal((5, 4))
    A *= scale / np.abs(X @ A @ Z.T).max()
    # Rounded to float32 once, so that both precisions see the same numbers.
    M = singular_triplets_above(A, 0.0).astype(np.float32).astype(np.float64)
    return X.astype(np.float32), Z.astype(np.float32), x_labels, z_labels, M


def test_factor_gradients_are_the_derivatives_of_the_value() -> None:
    X, Z, x_labels, z_labels, M = _instance(30, 20, 3.0)
    loss = PairLogisticLoss(X, Z, Labels(x_labels, z_labels), np.float64)
    start = np.concatenate([factor.ravel() for factor in M.balanced_factors()])

    def evaluate(flat: npt.NDArray[np.float64]) -> tuple[float, Any, Any]:
        return loss.value_and_factor_gradients(flat[:20].reshape(5, 4), flat[20:].reshape(4, 4))

    error = scipy.optimize.check_grad(
        lambda flat: evaluate(flat)[0],
        lambda flat: np.concatenate([part.ravel() for part in evaluate(flat)[1:]]),
        start,
    )
    # Forward differences with h = 1.5e-8: rounding eps / h plus curvature h, over 36 entries.
    assert error < 1e-6


def _supervision(kind: str, n: int, m: int, rng: np.random.Generator) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Return a supervision with its dense mask of similar pairs."""
    if kind == "paired":
        return PairedRows(n), np.eye(n, dtype=bool)
    if kind == "labels":
        x, z = rng.integers(0, 4, n), rng.integers(1, 6, m)
        x[:2], z[:2] = (1, 2), (1, 2)  # at least one similar and one dissimilar pair
        return Labels(x, z), x[:, None] == z[None, :]
    x_tags, z_tags = rng.random((n, 5)) < 0.3, rng.random((m, 5)) < 0.3
    x_tags[0], z_tags[0], x_tags[1] = True, True, False
    return MultiLabels(x_tags, z_tags), (x_tags[:, None, :] & z_tags[None, :, :]).any(axis=2)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["labels", "several", "paired"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    as_sparse=st.booleans(),
    n=st.integers(2, 50),
    m=st.integers(2, 50),
    rank=st.integers(0, 12),
    scale=st.floats(0.01, 60.0),
    seed=st.integers(0, 2**16),
)
def test_any_instance_equals_the_dense_float64_formula(
    kind: str, dtype: type, as_sparse: bool, n: int, m: int, rank: int, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    m = n if kind == "paired" else m
    supervision, similar = _supervision(kind, n, m, rng)
    X, Z = (rng.standard_normal(shape).astype(dtype) for shape in ((n, 5), (m, 4)))
    A, B = rng.standard_normal((5, rank)), rng.standard_normal((4, rank))
    A *= scale / max(float(np.abs(X @ A @ B.T @ Z.T).max()), 1e-9)
    A, B = A.astype(dtype), B.astype(dtype)
    M = A.astype(np.float64) @ B.astype(np.float64).T
    dense = DenseProblem.of_pairs(X, Z, np.where(similar, 1.0, -1.0))
    slopes = dense.gradient(M)
    loss = PairLogisticLoss(
        *(map(scipy.sparse.csr_array, (X, Z)) if as_sparse else (X, Z)), supervision, dtype, 1 + seed % 2
    )
    point = FactoredPoint(A, B)
    tolerance = 2 * TOLERANCE[dtype]
    size = max(float(np.abs(slopes).max()), 0.1)
    value, gradient = loss.value_and_gradient(point)
    assert value == pytest.approx(dense.loss(M), rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(gradient, slopes, atol=tolerance * size)
    other, on_A, on_B = loss.value_and_factor_gradients(A, B)
    assert other == value
    largest = max(float(np.abs(A).max(initial=1.0)), float(np.abs(B).max(initial=1.0)))
    np.testing.assert_allclose(on_A, slopes @ B, atol=4 * tolerance * size * largest)
    np.testing.assert_allclose(on_B, slopes.T @ A, atol=4 * tolerance * size * largest)
    assert loss.dual_value(point, 0.6) == pytest.approx(dense.entropy(M, 0.6), abs=tolerance)
    # One tile holds all of these pairs, so that the estimate is exact.
    assert loss.mean_curvature(point) == pytest.approx(dense.curvature(M), abs=tolerance / min(n, m))


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("kind", "n", "m"), [("labels", 150, 5000), ("several", 150, 5000), ("paired", 800, 800)]
)
def test_many_tiles_of_every_supervision_equal_the_dense_float64_formula(
    kind: str, n: int, m: int, dtype: type, as_sparse: bool
) -> None:
    rng = np.random.default_rng(0)
    supervision, similar = _supervision(kind, n, m, rng)
    X, Z = (rng.standard_normal(shape).astype(dtype) for shape in ((n, 5), (m, 4)))
    A, B = rng.standard_normal((5, 2)).astype(dtype), rng.standard_normal((4, 2)).astype(dtype)
    M = A.astype(np.float64) @ B.astype(np.float64).T
    dense = DenseProblem.of_pairs(X, Z, np.where(similar, 1.0, -1.0))
    slopes = dense.gradient(M)
    sides = map(scipy.sparse.csr_array, (X, Z)) if as_sparse else (X, Z)
    loss = PairLogisticLoss(*sides, supervision, dtype, 2)
    point, tolerance = FactoredPoint(A, B), 2 * TOLERANCE[dtype]
    value, gradient = loss.value_and_gradient(point)
    size = float(np.abs(slopes).max())
    assert value == pytest.approx(dense.loss(M), rel=tolerance)
    assert loss.value(from_factors(A, B)) == pytest.approx(value, rel=tolerance)
    np.testing.assert_allclose(gradient, slopes, atol=tolerance * size)
    other, on_A, on_B = loss.value_and_factor_gradients(A, B)
    assert other == pytest.approx(value, rel=1e-12)  # the same tiles, dealt to other chunks
    np.testing.assert_allclose(on_A, slopes @ B, atol=8 * tolerance * size)
    np.testing.assert_allclose(on_B, slopes.T @ A, atol=8 * tolerance * size)
    assert loss.dual_value(point, 0.6) == pytest.approx(dense.entropy(M, 0.6), rel=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [(700, 2600), (301, 17)])
def test_thread_count_does_not_change_a_bit(dtype: type, size: tuple[int, int]) -> None:
    X, Z, x_labels, z_labels, M = _instance(*size, 10.0)
    supervision = Labels(x_labels, z_labels)
    A, B = M.balanced_factors()
    point = FactoredPoint.of(M.astype(dtype))
    results = []
    for n_threads in (1, 2, 3, 8):
        loss = PairLogisticLoss(X, Z, supervision, dtype, n_threads)
        results.append(
            [
                *loss.value_and_gradient(point),
                *loss.value_and_factor_gradients(A, B),
                loss.value(M.astype(dtype)),
                loss.dual_value(point, 0.9),
            ]
        )
    for other in results[1:]:
        for expected, found in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(found, expected)
