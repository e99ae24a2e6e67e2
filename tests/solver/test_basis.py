import numpy as np

from solver.basis import SampleBasis


def test_reduced_basis_keeps_inner_products_and_spans_the_samples() -> None:
    X = np.random.default_rng(4).standard_normal((6, 20))
    X[5] = X[0] + X[1]
    basis = SampleBasis(X)
    assert basis.reduced.shape == (6, 5)
    Q = basis.lift(np.eye(5))
    np.testing.assert_allclose(Q.T @ Q, np.eye(5), atol=1e-13)  # eps times a few
    np.testing.assert_allclose(basis.reduced @ Q.T, X, atol=1e-13)
    np.testing.assert_allclose(basis.reduced @ basis.reduced.T, X @ X.T, atol=1e-12)
