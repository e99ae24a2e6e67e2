from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from solver.linalg import FloatArray
from solver.optimisation.descent import FactorPreconditioner, GramSpectrum


def _decaying(n_samples: int, n_features: int, rate: float = 1.5) -> npt.NDArray[np.float64]:
    """Return samples with singular values that fall like a power, in a random basis."""
    rng = np.random.default_rng(0)
    k = min(n_samples, n_features)
    U = np.linalg.qr(rng.standard_normal((n_samples, k)))[0]
    V = np.linalg.qr(rng.standard_normal((n_features, k)))[0]
    X: npt.NDArray[np.float64] = (U * np.arange(1, k + 1.0) ** -rate) @ V.T
    return X


def _model_gram(spectrum: GramSpectrum) -> FloatArray:
    """Return the dense matrix that a spectrum stands for."""
    n_features = len(spectrum.vectors)
    dense: FloatArray = spectrum.quadratic_form(np.eye(n_features))
    return dense


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("shape", [(50, 8), (8, 50), (1, 3), (30, 30)])
def test_spectrum_of_few_features_is_the_whole_gram_matrix(shape: tuple[int, int], as_sparse: bool) -> None:
    X = np.random.default_rng(1).standard_normal(shape)
    spectrum = GramSpectrum.of(scipy.sparse.csr_array(X) if as_sparse else X)
    assert spectrum.rest == 0.0
    assert (spectrum.values >= 0).all()
    tolerance = 1e-12 * np.linalg.norm(X.T @ X, 2)  # eps times a few
    np.testing.assert_allclose(_model_gram(spectrum), X.T @ X, atol=tolerance)
    np.testing.assert_allclose(spectrum.vectors.T @ spectrum.vectors, np.eye(shape[1]), atol=1e-12)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_spectrum_of_many_features_has_the_leading_eigenvalues_and_the_mean_of_the_rest(
    as_sparse: bool,
) -> None:
    X = _decaying(500, 450)
    spectrum = GramSpectrum.of(scipy.sparse.csr_array(X) if as_sparse else X)
    exact = np.linalg.eigvalsh(X.T @ X)
    q = len(spectrum.values)
    assert q < 450
    assert spectrum.vectors.shape == (450, q)
    np.testing.assert_allclose(spectrum.vectors.T @ spectrum.vectors, np.eye(q), atol=1e-12)
    # The error of two power iterations is (192 / 160)^(-6 * 5) for the last value, far less for the leading.
    np.testing.assert_allclose(spectrum.values[-100:], exact[-100:], rtol=1e-3)
    assert spectrum.values.sum() + (450 - q) * spectrum.rest == pytest.approx(exact.sum(), rel=1e-12)
    assert spectrum.rest >= 0.0


def test_quadratic_form_of_a_truncated_spectrum_is_that_of_its_matrix() -> None:
    spectrum = GramSpectrum.of(_decaying(500, 450, rate=0.5))
    dense = spectrum.rest * (np.eye(450) - spectrum.vectors @ spectrum.vectors.T)
    dense += (spectrum.vectors * spectrum.values) @ spectrum.vectors.T
    B = np.random.default_rng(2).standard_normal((450, 3))
    np.testing.assert_allclose(spectrum.quadratic_form(B), B.T @ dense @ B, rtol=1e-10, atol=1e-12)


def test_spectrum_of_very_many_samples_is_estimated_from_some_of_them() -> None:
    X = np.random.default_rng(3).standard_normal((20_000, 5)) * [5.0, 4.0, 3.0, 2.0, 1.0]
    spectrum = GramSpectrum.of(X)
    # 4000 of the samples give each eigenvalue within sqrt(2 / 4000) = 2.2 %, five times that is allowed.
    np.testing.assert_allclose(spectrum.values, np.linalg.eigvalsh(X.T @ X), rtol=0.11)


def test_spectrum_gives_the_same_bits_again() -> None:
    X = _decaying(500, 450)
    first, second = GramSpectrum.of(X), GramSpectrum.of(X)
    np.testing.assert_array_equal(first.vectors, second.vectors)
    np.testing.assert_array_equal(first.values, second.values)
    assert first.rest == second.rest


def _scaling(n_features: int, k: int) -> tuple[FactorPreconditioner, FloatArray, FloatArray, FloatArray]:
    """Return a scaling, the model's Gram matrix, the inner matrix and a factor."""
    rng = np.random.default_rng(4)
    spectrum = GramSpectrum.of(_decaying(n_features + 20, n_features, rate=0.8))
    ZB = rng.standard_normal((40, k)) * np.arange(1, k + 1.0)
    inner: FloatArray = ZB.T @ ZB
    scaling = FactorPreconditioner(spectrum, inner, curvature=0.2, alpha=0.03)
    return scaling, _model_gram(spectrum), inner, rng.standard_normal((n_features, k))


SIZES = [(7, 3), (7, 1), (3, 5), (420, 2)]  # the last with a truncated spectrum


@pytest.mark.parametrize(("n_features", "k"), SIZES)
def test_scaling_and_its_inverse_cancel(n_features: int, k: int) -> None:
    scaling, _, _, A = _scaling(n_features, k)
    np.testing.assert_allclose(scaling.factor(scaling.scale(A)), A, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(scaling.scale(scaling.factor(A)), A, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("n_features", "k"), SIZES)
def test_scaled_gradient_is_the_adjoint_of_the_inverse(n_features: int, k: int) -> None:
    scaling, _, _, A = _scaling(n_features, k)
    gradient = np.random.default_rng(5).standard_normal(A.shape)
    direct = np.vdot(scaling.factor(A), gradient)
    assert np.vdot(A, scaling.scale_gradient(gradient)) == pytest.approx(direct, rel=1e-10)


@pytest.mark.parametrize(("n_features", "k"), SIZES)
def test_model_hessian_becomes_the_identity(n_features: int, k: int) -> None:
    scaling, gram, inner, A = _scaling(n_features, k)

    def hessian(direction: Any) -> Any:
        return 0.2 * gram @ direction @ inner + 0.03 * direction

    np.testing.assert_allclose(scaling.scale_gradient(hessian(scaling.factor(A))), A, rtol=1e-9, atol=1e-10)


def test_scaling_without_curvature_is_the_root_of_alpha() -> None:
    spectrum = GramSpectrum.of(np.random.default_rng(6).standard_normal((9, 4)))
    scaling = FactorPreconditioner(spectrum, np.eye(2), curvature=0.0, alpha=0.25)
    A = np.random.default_rng(7).standard_normal((4, 2))
    scaled = scaling.scale(A)
    # A rotation within the rank is all that may happen besides.
    np.testing.assert_allclose(scaled @ scaled.T, 0.25 * A @ A.T, atol=1e-14)
    np.testing.assert_allclose(scaling.factor(scaled), A, atol=1e-14)
