import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from solver.errors import InvalidInputError, InvalidParameterError
from solver.semantic.feature_maps import FeatureMap

KERNELS = {"rbf": rbf_kernel, "laplacian": laplacian_kernel}


def _samples(n: int = 60, d: int = 5) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, d)) * np.arange(1, d + 1)


@pytest.mark.parametrize("kernel", KERNELS)
def test_with_every_sample_a_landmark_inner_products_are_the_kernel(kernel: str) -> None:
    samples = _samples()
    features = FeatureMap.fit(samples, "standard", kernel, 1.0, 1000, 0)
    mapped = features.transform(samples)
    expected = KERNELS[kernel](features.scaler.transform(samples), gamma=features.gamma)
    np.testing.assert_allclose(mapped @ mapped.T, expected, atol=2e-3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_with_few_landmarks_it_is_scikit_learns_map_up_to_a_rotation(kernel: str) -> None:
    samples = _samples()
    features = FeatureMap.fit(samples, "center", kernel, 0.5, 12, 3)
    scaled = features.scaler.transform(samples).astype(np.float64)
    theirs = Nystroem(kernel=kernel, gamma=features.gamma, n_components=12)
    theirs.fit(features.landmarks.astype(np.float64))
    expected = theirs.transform(scaled) @ theirs.transform(scaled).T
    mapped = features.transform(samples)
    assert mapped.shape == (60, 12)
    assert mapped.dtype == np.float32
    np.testing.assert_allclose(mapped @ mapped.T, expected, atol=2e-3)


def test_the_width_is_the_exponent_at_the_median_distance() -> None:
    features = FeatureMap.fit(_samples(), "standard", "rbf", 3.0, 60, 0)
    inner = rbf_kernel(features.landmarks, gamma=features.gamma)
    between = inner[~np.eye(60, dtype=bool)]
    assert np.median(-np.log(between)) == pytest.approx(3.0, rel=1e-3)


def test_linear_is_the_scaling_alone() -> None:
    features = FeatureMap.fit(_samples(), "l2", "linear", 1.0, 10, 0)
    np.testing.assert_array_equal(features.transform(_samples()), features.scaler.transform(_samples()))


def test_rows_do_not_depend_on_what_they_are_mapped_with() -> None:
    samples = _samples(5000)
    features = FeatureMap.fit(samples, "standard", "rbf", 1.0, 20, 0)
    alone = np.concatenate([features.transform(samples[row : row + 1]) for row in (0, 4095, 4096, 4999)])
    np.testing.assert_allclose(features.transform(samples)[[0, 4095, 4096, 4999]], alone, atol=1e-5)


def test_samples_that_are_all_but_equal_give_a_finite_map() -> None:
    samples = np.repeat(_samples(2), 30, axis=0)
    mapped = FeatureMap.fit(samples, "center", "rbf", 1.0, 40, 0).transform(samples)
    assert np.isfinite(mapped).all()


def test_parts_that_do_not_fit_are_refused() -> None:
    features = FeatureMap.fit(_samples(), "center", "rbf", 1.0, 10, 0)
    for landmarks, whitening in (
        (features.landmarks[:, :2], features.whitening),
        (features.landmarks, features.whitening[:4]),
    ):
        with pytest.raises(InvalidInputError, match="landmarks"):
            FeatureMap(features.scaler, "rbf", 1.0, landmarks, whitening)
    with pytest.raises(InvalidParameterError, match="kernel"):
        FeatureMap(features.scaler, "poly", 1.0, features.landmarks, features.whitening)
