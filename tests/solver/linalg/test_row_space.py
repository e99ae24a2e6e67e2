from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from solver.linalg import RowSpaceBasis


def _samples(kind: str) -> npt.NDArray[np.float64]:
    X = np.random.default_rng(4).standard_normal((6, 20))
    if kind == "dependent":  # no Cholesky factor: the eigenvectors have to do
        X[5] = X[0] + X[1]
    elif kind == "nearly dependent":  # there is one, but its inverse is worth nothing
        X[5] = X[0] + 1e-4 * X[5]
    elif kind == "mostly zero":
        X[:, 7:] = 0.0
    return X


RANKS = {"independent": 6, "dependent": 5, "nearly dependent": 6, "mostly zero": 6}
# Orthonormality is lost in proportion to the condition of the Gram matrix of the samples kept: about
# 100 times eps, and 1e10 times eps for near dependence, where few samples use the lost direction.
TOLERANCES = {"independent": 1e-13, "dependent": 1e-13, "nearly dependent": 1e-5, "mostly zero": 1e-12}


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("kind", RANKS)
def test_reduced_samples_are_the_samples_in_an_orthonormal_basis_of_their_span(
    kind: str, as_sparse: bool
) -> None:
    X, tolerance = _samples(kind), TOLERANCES[kind]
    samples: Any = scipy.sparse.csr_array(X) if as_sparse else X
    basis = RowSpaceBasis(samples)
    rank = RANKS[kind]
    assert isinstance(basis.reduced, np.ndarray)
    assert basis.reduced.shape == (6, rank)
    Q = basis.lift(np.eye(rank))
    np.testing.assert_allclose(Q.T @ Q, np.eye(rank), atol=tolerance)
    np.testing.assert_allclose(basis.reduced @ Q.T, X, atol=10 * tolerance)
    np.testing.assert_allclose(basis.reduced @ basis.reduced.T, X @ X.T, atol=1e-12)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("kind", ["independent", "dependent", "mostly zero"])
def test_lift_lower_and_rotate_are_products_with_one_basis(kind: str, as_sparse: bool) -> None:
    X, rng = _samples(kind), np.random.default_rng(5)
    samples: Any = scipy.sparse.csr_array(X) if as_sparse else X
    basis = RowSpaceBasis(samples)
    rank = RANKS[kind]
    Q = basis.lift(np.eye(rank))
    U, left, others = (rng.standard_normal(shape) for shape in ((rank, 3), (20, 3), (4, 20)))
    np.testing.assert_allclose(basis.lift(U), Q @ U, atol=1e-12)
    np.testing.assert_allclose(basis.lower(left), Q.T @ left, atol=1e-12)
    np.testing.assert_allclose(basis.lower(basis.lift(U)), U, atol=1e-12)
    np.testing.assert_allclose(basis.to_row_space(samples), basis.reduced, atol=1e-12)
    np.testing.assert_allclose(basis.to_row_space(others), others @ Q, atol=1e-12)
    if as_sparse:
        np.testing.assert_allclose(basis.to_row_space(scipy.sparse.csr_array(others)), others @ Q, atol=1e-12)


@pytest.mark.parametrize("kind", ["independent", "dependent"])
def test_float32_samples_are_reduced_in_float64(kind: str) -> None:
    X = _samples(kind).astype(np.float32)
    if kind == "dependent":
        X[5] = 2 * X[0]  # exact in float32
    basis = RowSpaceBasis(X)
    assert basis.reduced.dtype == np.float64
    assert basis.reduced.shape == (6, RANKS[kind])
    Q = basis.lift(np.eye(RANKS[kind]))
    np.testing.assert_allclose(Q.T @ Q, np.eye(RANKS[kind]), atol=1e-13)
    # The samples are taken for what they are and not rounded again.
    np.testing.assert_allclose(basis.reduced @ Q.T, X, atol=1e-13)


def test_samples_that_are_all_zero_span_nothing() -> None:
    basis = RowSpaceBasis(np.zeros((3, 8)))
    assert basis.reduced.shape == (3, 0)
    np.testing.assert_array_equal(basis.lift(np.zeros((0, 2))), np.zeros((8, 2)))
