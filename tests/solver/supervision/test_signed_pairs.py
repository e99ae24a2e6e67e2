from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import Labels, SignedPairs
from solver.linalg import from_factors
from solver.losses.base import FactoredPoint
from solver.losses.pair_losses import ListedPairLoss, PairLogisticLoss
from solver.optimisation.convergence import certify
from solver.validation import SupervisionError
from tests.solver.dense import DenseProblem

EPS = {dtype: float(np.finfo(dtype).eps) for dtype in (np.float32, np.float64)}


def _signs(m: int = 30, n: int = 20, density: float = 0.3, seed: int = 0) -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((m, n)) < density, rng.choice([-1.0, 1.0], (m, n)), 0.0)


def _weights(signs: npt.NDArray[np.float64], seed: int = 1) -> npt.NDArray[np.float64]:
    return np.where(signs != 0, np.random.default_rng(seed).uniform(0.1, 5.0, signs.shape), 0.0)


def _samples(m: int = 30, n: int = 20) -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    return rng.standard_normal((m, 5)), rng.standard_normal((n, 4))


def _csr(array: Any) -> Any:
    return scipy.sparse.csr_array(array)


@settings(max_examples=60)
@given(
    m=st.integers(2, 40),
    n=st.integers(2, 40),
    rank=st.integers(0, 4),
    density=st.floats(0.0, 1.0),
    scale=st.floats(0.01, 60.0),
    weighted=st.booleans(),
    as_sparse=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**16),
)
def test_any_list_equals_the_dense_float64_formula(
    m: int,
    n: int,
    rank: int,
    density: float,
    scale: float,
    weighted: bool,
    as_sparse: bool,
    dtype: type,
    seed: int,
) -> None:
    signs = _signs(m, n, density, seed)
    signs[0, 0], signs[-1, -1] = 1.0, -1.0  # at least one pair of each sign
    weights = _weights(signs, seed) if weighted else None
    rng = np.random.default_rng(seed)
    X, Z = (rng.standard_normal(shape).astype(dtype) for shape in ((m, 5), (n, 4)))
    A, B = rng.standard_normal((5, rank)), rng.standard_normal((4, rank))
    A *= scale / max(float(np.abs(X @ A @ B.T @ Z.T).max()), 1e-9)
    point = FactoredPoint(A.astype(dtype), B.astype(dtype))
    M = point.left.astype(np.float64) @ point.right.astype(np.float64).T
    dense = DenseProblem.of_pairs(X, Z, signs, weights)
    pairs = SignedPairs(_csr(signs), None if weights is None else _csr(weights))
    loss = ListedPairLoss(*((_csr(X), _csr(Z)) if as_sparse else (X, Z)), pairs, dtype)
    # Scores of at most `scale` are sums of products that may cancel, known to some eps times their terms.
    terms = 1.0 + float(np.abs(X @ point.left).max(initial=0.0) * np.abs(Z @ point.right).max(initial=0.0))
    tolerance = 50 * EPS[dtype] * (scale + terms)
    value, gradient = loss.value_and_gradient(point)
    assert value == pytest.approx(dense.loss(M), abs=tolerance)
    np.testing.assert_allclose(gradient, dense.gradient(M), atol=10 * tolerance)
    other, on_A, on_B = loss.value_and_factor_gradients(point.left, point.right)
    assert other == value
    assert on_A.dtype == on_B.dtype == np.float64
    exact = from_factors(point.left.astype(np.float64), point.right.astype(np.float64))
    assert loss.value(exact) == pytest.approx(value, abs=tolerance)
    largest = 1.0 + max(float(np.abs(factor).max(initial=0.0)) for factor in (point.left, point.right))
    np.testing.assert_allclose(on_A, dense.gradient(M) @ point.right, atol=40 * tolerance * largest)
    np.testing.assert_allclose(on_B, dense.gradient(M).T @ point.left, atol=40 * tolerance * largest)
    assert loss.dual_value(point, 0.6) == pytest.approx(dense.entropy(M, 0.6), abs=tolerance)
    assert loss.mean_curvature(point) == pytest.approx(dense.curvature(M), abs=tolerance / (m * n))


def test_all_pairs_listed_by_class_are_the_loss_of_the_classes() -> None:
    X, Z = _samples()
    rng = np.random.default_rng(5)
    x_labels, z_labels = rng.integers(0, 3, 30), rng.integers(0, 3, 20)
    signs = np.where(x_labels[:, None] == z_labels[None, :], 1.0, -1.0)
    listed = ListedPairLoss(X, Z, SignedPairs(_csr(signs)), np.float64)
    by_class = PairLogisticLoss(X, Z, Labels(x_labels, z_labels), np.float64)
    M = from_factors(rng.standard_normal((5, 3)), rng.standard_normal((4, 3)))
    certificates = [certify(loss, M, 0.05) for loss in (listed, by_class)]
    assert certificates[0].objective == pytest.approx(certificates[1].objective, rel=1e-13)
    assert certificates[0].dual_value == pytest.approx(certificates[1].dual_value, rel=1e-12)


def test_many_pairs_are_scored_in_parts() -> None:
    X, Z = _samples(400, 300)
    signs = np.random.default_rng(6).choice([-1.0, 1.0], (400, 300))  # 120 000 pairs
    loss = ListedPairLoss(X, Z, SignedPairs(_csr(signs)), np.float64)
    M = np.random.default_rng(7).standard_normal((5, 4))
    expected = DenseProblem.of_pairs(X, Z, signs).loss(M)
    assert loss.value_and_gradient(FactoredPoint(M, np.eye(4)))[0] == pytest.approx(expected, rel=1e-12)


def test_weights_of_each_sign_sum_to_one_and_equal_ones_are_the_papers() -> None:
    signs = _signs()
    for weights in (None, _weights(signs), 1e-200 * _weights(signs)):
        pairs = SignedPairs(_csr(signs), None if weights is None else _csr(weights))
        for sign in (-1, 1):
            assert pairs.weights[pairs.signs == sign].sum() == pytest.approx(1.0, rel=1e-14)
    by_default, by_hand = SignedPairs(_csr(signs)), SignedPairs(_csr(signs), _csr(3.0 * np.abs(signs)))
    np.testing.assert_allclose(by_default.weights, by_hand.weights, rtol=1e-14)
    np.testing.assert_allclose(
        by_default.weights,
        np.where(by_default.signs > 0, 1 / by_default.n_similar, 1 / by_default.n_dissimilar),
    )


@pytest.mark.parametrize("form", ["coo", "csc", "lil", "csr_matrix", "int8", "unsorted"])
def test_any_sparse_form_names_the_same_pairs(form: str) -> None:
    signs = _signs()
    tables: dict[str, Callable[[], Any]] = {
        "coo": lambda: scipy.sparse.coo_array(signs),
        "csc": lambda: scipy.sparse.csc_array(signs),
        "lil": lambda: scipy.sparse.lil_array(signs),
        "csr_matrix": lambda: scipy.sparse.csr_matrix(signs),
        "int8": lambda: _csr(signs.astype(np.int8)),
        "unsorted": lambda: _unsorted(signs),
    }
    expected, found = SignedPairs(_csr(signs)), SignedPairs(tables[form]())
    for name in ("rows", "columns", "signs", "weights"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.shape == expected.shape
    assert (found.n_similar, found.n_dissimilar) == (np.sum(signs > 0), np.sum(signs < 0))


def _unsorted(signs: npt.NDArray[np.float64]) -> Any:
    table = _csr(signs)
    for start, stop in zip(table.indptr[:-1], table.indptr[1:], strict=True):
        table.indices[start:stop] = table.indices[start:stop][::-1].copy()
        table.data[start:stop] = table.data[start:stop][::-1].copy()
    table.has_sorted_indices = False
    return table


def test_restricted_pairs_are_those_among_the_chosen_samples() -> None:
    signs = _signs()
    weights = _weights(signs)
    x_rows, z_rows = np.array([1, 4, 7, 20, 29]), np.arange(3, 18, 2)
    part = SignedPairs(_csr(signs), _csr(weights)).subset(x_rows, z_rows)
    some = np.ix_(x_rows, z_rows)
    expected = SignedPairs(_csr(signs[some]), _csr(weights[some]))
    for name in ("rows", "columns", "signs"):
        np.testing.assert_array_equal(getattr(part, name), getattr(expected, name))
    np.testing.assert_allclose(part.weights, expected.weights, rtol=1e-13)


def _with(array: npt.NDArray[np.float64], value: float) -> npt.NDArray[np.float64]:
    changed = array.copy()
    changed[np.nonzero(array)[0][0], np.nonzero(array)[1][0]] = value
    return changed


@pytest.mark.parametrize(
    ("signs", "words"),
    [
        (_csr(np.abs(_signs())), r"no dissimilar \(-1\) pair"),
        (_csr(-np.abs(_signs())), r"no similar \(\+1\) pair"),
        (_csr(np.zeros((3, 4))), r"no similar \(\+1\) pair"),
        (_csr(_with(_signs(), 2.0)), r"\+1 and -1 only"),
        (_csr(_with(_signs(), 0.5)), r"\+1 and -1 only"),
        (_csr(_with(_signs(), np.nan)), r"\+1 and -1 only"),
        (scipy.sparse.coo_array(([1, 1, -1], ([0, 0, 1], [0, 0, 1]))), r"\+1 and -1 only"),  # 1 + 1
        (
            scipy.sparse.csr_array(([1, 1, -1], [0, 0, 1], [0, 2, 3])),
            r"\+1 and -1 only",
        ),  # by rows, as stored
        (scipy.sparse.csr_array(([1, -1, 0], ([0, 1, 2], [0, 1, 2]))), r"\+1 and -1 only"),  # a stored zero
        (_signs(), "signs must be a scipy sparse array"),
        ([[1, -1]], "signs must be a scipy sparse array"),
        (None, "signs must be a scipy sparse array"),
        (scipy.sparse.csr_array((0, 3)), "signs must be non-empty"),
        (scipy.sparse.coo_array(np.array([1.0, -1.0])), "signs must be non-empty and two-dimensional"),
    ],
)
def test_unusable_signs_are_refused(signs: Any, words: str) -> None:
    with pytest.raises(SupervisionError, match=words):
        SignedPairs(signs)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (_csr(_weights(_signs(seed=9))), "same pairs"),
        (_csr(_weights(_signs())[:-1]), "same pairs"),
        (_csr(np.ones((30, 20))), "same pairs"),
        (_csr(_with(_weights(_signs()), -1.0)), "finite and > 0"),
        (_csr(_with(_weights(_signs()), np.nan)), "finite and > 0"),
        (_csr(_with(_weights(_signs()), np.inf)), "finite and > 0"),
        (_weights(_signs()), "weights must be a scipy sparse array"),
    ],
)
def test_unusable_weights_are_refused(weights: Any, words: str) -> None:
    with pytest.raises(SupervisionError, match=words):
        SignedPairs(_csr(_signs()), weights)


def test_signs_weights_and_samples_stay_unmodified() -> None:
    signs, weights = _unsorted(_signs()), _csr(_weights(_signs()))
    X, Z = _samples()
    arrays = [signs.data, signs.indices, signs.indptr, weights.data, weights.indices, X, Z]
    copies = [array.copy() for array in arrays]
    loss = ListedPairLoss(X, Z, SignedPairs(signs, weights), np.float64)
    loss.value_and_gradient(FactoredPoint(np.ones((5, 4)), np.eye(4)))
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
