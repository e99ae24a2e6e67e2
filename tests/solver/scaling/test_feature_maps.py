from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import euclidean_distances, laplacian_kernel, manhattan_distances, rbf_kernel

from solver.scaling.feature_maps import FeatureMap, kernel_distances
from solver.validation import InvalidInputError, InvalidParameterError

KERNELS = {"rbf": rbf_kernel, "laplacian": laplacian_kernel}


def _samples(n: int = 60, d: int = 5) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, d)) * np.arange(1, d + 1)


@pytest.mark.parametrize("kernel", KERNELS)
def test_with_every_sample_a_landmark_inner_products_are_the_kernel(kernel: str) -> None:
    samples = _samples()
    feature_map = FeatureMap.fit(samples, "standard", kernel, 1.0, 1000, 0)
    mapped = feature_map.transform(samples)
    expected = KERNELS[kernel](feature_map.scaler.transform(samples), gamma=feature_map.gamma)
    np.testing.assert_allclose(mapped @ mapped.T, expected, atol=2e-3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_with_few_landmarks_the_map_is_scikit_learns_up_to_a_rotation(kernel: str) -> None:
    samples = _samples()
    feature_map = FeatureMap.fit(samples, "center", kernel, 0.5, 12, 3)
    scaled = feature_map.scaler.transform(samples).astype(np.float64)
    reference = Nystroem(kernel=kernel, gamma=feature_map.gamma, n_components=12)
    reference.fit(feature_map.landmarks.astype(np.float64))
    expected = reference.transform(scaled) @ reference.transform(scaled).T
    mapped = feature_map.transform(samples)
    assert mapped.shape == (60, 12)
    assert mapped.dtype == np.float32
    np.testing.assert_allclose(mapped @ mapped.T, expected, atol=2e-3)


def test_the_width_is_the_exponent_at_the_median_distance() -> None:
    feature_map = FeatureMap.fit(_samples(), "standard", "rbf", 3.0, 60, 0)
    inner = rbf_kernel(feature_map.landmarks, gamma=feature_map.gamma)
    off_diagonal = inner[~np.eye(60, dtype=bool)]
    assert np.median(-np.log(off_diagonal)) == pytest.approx(3.0, rel=1e-3)


def test_linear_is_the_scaling_alone() -> None:
    feature_map = FeatureMap.fit(_samples(), "l2", "linear", 1.0, 10, 0)
    np.testing.assert_array_equal(feature_map.transform(_samples()), feature_map.scaler.transform(_samples()))


def test_a_row_is_mapped_independently_of_the_others() -> None:
    samples = _samples(5000)
    feature_map = FeatureMap.fit(samples, "standard", "rbf", 1.0, 20, 0)
    single_rows = np.concatenate(
        [feature_map.transform(samples[row : row + 1]) for row in (0, 4095, 4096, 4999)]
    )
    np.testing.assert_allclose(feature_map.transform(samples)[[0, 4095, 4096, 4999]], single_rows, atol=1e-5)


def test_nearly_equal_samples_give_a_finite_map() -> None:
    samples = np.repeat(_samples(2), 30, axis=0)
    mapped = FeatureMap.fit(samples, "center", "rbf", 1.0, 40, 0).transform(samples)
    assert np.isfinite(mapped).all()


def test_parts_that_do_not_match_are_rejected() -> None:
    feature_map = FeatureMap.fit(_samples(), "center", "rbf", 1.0, 10, 0)
    for landmarks, whitening in (
        (feature_map.landmarks[:, :2], feature_map.whitening),
        (feature_map.landmarks, feature_map.whitening[:4]),
    ):
        with pytest.raises(InvalidInputError, match="landmarks"):
            FeatureMap(feature_map.scaler, "rbf", 1.0, landmarks, whitening)
    with pytest.raises(InvalidParameterError, match="kernel"):
        FeatureMap(feature_map.scaler, "poly", 1.0, feature_map.landmarks, feature_map.whitening)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_distances_are_those_of_scikit_learn(dtype: type, form: type) -> None:
    left, right = (form(_samples(n).round().astype(dtype)) for n in (7, 60))
    squared, absolute = kernel_distances("rbf", left, right), kernel_distances("laplacian", left, right)
    expected = euclidean_distances(left, right, squared=True)
    assert squared.dtype == expected.dtype
    np.testing.assert_array_equal(squared, expected)  # whole numbers: no rounding hides a difference
    np.testing.assert_array_equal(absolute, manhattan_distances(left, right))
    assert squared[0, 0] == absolute[0, 0] == 0.0  # the first samples are the same


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_what_serves_maps_each_query_to_the_same_bits_without_reading_its_landmarks_again(
    kernel: str, form: type
) -> None:
    samples = _samples().astype(np.float32)
    fitted = FeatureMap.fit(form(samples), "l2", kernel, 1.0, 20, 0)
    fitted = replace(fitted, landmarks=form(fitted.landmarks))
    expected = [fitted.transform(form(row[None])) for row in samples]
    serving = replace(fitted, serves=True)
    if not (kernel == "laplacian" and form is not np.asarray):  # of which scikit-learn reads them
        entries = serving.landmarks if form is np.asarray else serving.landmarks.data
        entries[:] = np.nan
    for row, mapped in zip(samples, expected, strict=True):
        np.testing.assert_array_equal(serving.transform(form(row[None])), mapped)
