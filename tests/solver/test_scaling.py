from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import euclidean_distances, laplacian_kernel, manhattan_distances, rbf_kernel

from solver import FeatureScaler
from solver.scaling.feature_maps import FeatureMap, kernel_distances
from solver.scaling.scaler import SCALINGS
from solver.validation import InvalidInputError, InvalidParameterError, NotFittedError


def _counts() -> npt.NDArray[np.float64]:
    counts: npt.NDArray[np.float64] = np.random.default_rng(0).gamma(2.0, 3.0, (30, 5)) * np.arange(1.0, 6.0)
    return counts


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("factor", [1e-200, 1e-6, 1.0, 1e6, 1e20, 1e200])
def test_training_samples_leave_with_a_root_mean_square_norm_of_one(kind: str, factor: float) -> None:
    samples = factor * _counts()
    scaled = FeatureScaler(kind).fit(samples).transform(samples)
    assert scaled.dtype == np.float32
    # Float32 output: eps per entry.
    assert np.sqrt(np.mean(np.sum(scaled.astype(np.float64) ** 2, axis=1))) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("kind", ["center", "standard", "sqrt"])
def test_centring_kinds_leave_features_with_mean_zero(kind: str) -> None:
    scaled = FeatureScaler(kind).fit(_counts()).transform(_counts())
    np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-6)  # float32 output


def test_standard_gives_each_feature_the_same_deviation() -> None:
    scaled = FeatureScaler("standard").fit(_counts()).transform(_counts())
    np.testing.assert_allclose(scaled.std(axis=0), 1 / np.sqrt(5), rtol=1e-6)  # float32 output


@pytest.mark.parametrize(
    "value",
    [4.0, 0.1],
)
def test_standard_maps_a_constant_feature_to_zero(value: float) -> None:
    samples = _counts()
    samples[:, 2] = value
    scaled = FeatureScaler("standard").fit(samples).transform(samples)
    np.testing.assert_array_equal(scaled[:, 2], np.zeros(30))
    assert np.sqrt(np.mean(np.sum(scaled**2, axis=1))) == pytest.approx(1.0, rel=1e-6)


def test_l2_gives_each_sample_norm_one_and_leaves_a_zero_sample_zero() -> None:
    samples = _counts()
    samples[3] = 0.0
    scaled = FeatureScaler("l2").fit(samples).transform(samples)
    norms = np.linalg.norm(scaled, axis=1)
    assert norms[3] == 0.0
    np.testing.assert_allclose(np.delete(norms, 3), 1.0, rtol=1e-6)  # float32 output


def test_none_keeps_directions() -> None:
    samples = _counts()
    scaled = FeatureScaler("none").fit(samples).transform(samples)
    np.testing.assert_allclose(scaled / samples, scaled[0, 0] / samples[0, 0], rtol=1e-6)


def test_sqrt_is_center_of_the_square_root() -> None:
    samples = _counts()
    by_hand = FeatureScaler("center").fit(np.sqrt(samples)).transform(np.sqrt(samples))
    np.testing.assert_allclose(FeatureScaler("sqrt").fit(samples).transform(samples), by_hand, atol=1e-7)


@pytest.mark.parametrize("kind", SCALINGS)
def test_transform_scales_each_sample_by_itself(kind: str) -> None:
    samples = _counts()
    scaler = FeatureScaler(kind).fit(samples)
    np.testing.assert_array_equal(scaler.transform(samples[4:5]), scaler.transform(samples)[4:5])


@pytest.mark.parametrize("kind", SCALINGS)
def test_restored_scaler_transforms_to_the_same_bits(kind: str) -> None:
    scaler = FeatureScaler(kind).fit(_counts())
    restored = FeatureScaler.restore(kind, scaler.mean_, scaler.scale_)
    np.testing.assert_array_equal(restored.transform(_counts()), scaler.transform(_counts()))


def test_negative_features_are_refused_by_sqrt_at_fit_and_clipped_afterwards() -> None:
    scaler = FeatureScaler("sqrt")
    with pytest.raises(InvalidInputError, match=">= 0"):
        scaler.fit(_counts() - 5.0)
    scaler.fit(_counts())
    with pytest.raises(InvalidInputError, match=">= 0"):
        scaler.fit(_counts() - 5.0)
    np.testing.assert_array_equal(scaler.transform(-_counts()), scaler.transform(0 * _counts()))


@pytest.mark.parametrize("kind", ["center", "standard", "sqrt"])
@pytest.mark.parametrize("value", [0.0, 0.5, 1e6])
def test_equal_samples_are_refused(kind: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match="all samples are the same"):
        FeatureScaler(kind).fit(np.full((7, 3), value))


@pytest.mark.parametrize("kind", ["none", "l2"])
def test_zero_samples_are_refused_without_centring(kind: str) -> None:
    with pytest.raises(InvalidInputError, match="all samples are zero"):
        FeatureScaler(kind).fit(np.zeros((7, 3)))


@pytest.mark.parametrize("kind", ["none", "l2"])
def test_equal_samples_that_are_not_zero_keep_their_direction_without_centring(kind: str) -> None:
    scaled = FeatureScaler(kind).fit(np.full((7, 4), 3.0)).transform(np.full((1, 4), 3.0))
    np.testing.assert_allclose(scaled, [[0.5] * 4], rtol=1e-6)


def test_failed_fit_leaves_the_scaler_as_it_was() -> None:
    scaler = FeatureScaler("center").fit(_counts())
    before = scaler.transform(_counts())
    with pytest.raises(InvalidInputError, match="all samples are the same"):
        scaler.fit(np.ones((7, 5)))
    np.testing.assert_array_equal(scaler.transform(_counts()), before)


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("other", SCALINGS)
def test_changing_the_parameter_changes_nothing_before_the_next_fit(kind: str, other: str) -> None:
    scaler = FeatureScaler(kind).fit(_counts())
    before = scaler.transform(_counts())
    scaler.set_params(kind=other)
    np.testing.assert_array_equal(scaler.transform(_counts()), before)
    assert scaler.kind_ == kind
    assert scaler.fit(_counts()).kind_ == other


@pytest.mark.parametrize("length", [1e-200, 1e200])
def test_l2_gives_norm_one_where_squares_leave_the_range_of_floats(length: float) -> None:
    scaled = FeatureScaler("l2").fit(_counts()).transform(np.full((1, 5), length))
    np.testing.assert_allclose(np.linalg.norm(scaled), 1.0, rtol=1e-6)


ONES = np.ones(3)
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "differ in length": (lambda: FeatureScaler.restore("center", np.ones(1), ONES), InvalidInputError),
    "^mean must be": (lambda: FeatureScaler.restore("center", np.ones((3, 1)), ONES), InvalidInputError),
    "^mean must be .*int8": (
        lambda: FeatureScaler.restore("center", ONES.astype(np.int8), ONES),
        InvalidInputError,
    ),
    "^scale must be": (lambda: FeatureScaler.restore("center", ONES, ONES * np.nan), InvalidInputError),
    "^kind must be": (lambda: FeatureScaler.restore("whiten", ONES, ONES), InvalidParameterError),
    "^kind must be .*l2'": (lambda: FeatureScaler.restore(["l2"], ONES, ONES), InvalidParameterError),  # type: ignore[arg-type]
    "^kind must be .*None": (lambda: FeatureScaler(None).fit(_counts()), InvalidParameterError),  # type: ignore[arg-type]
    "call fit first": (lambda: FeatureScaler().transform(_counts()), NotFittedError),
    "overflows float32": (
        lambda: FeatureScaler("none").fit(_counts()).transform(np.full((1, 5), 1e200)),
        InvalidInputError,
    ),
    "4 features, the model expects 5": (
        lambda: FeatureScaler().fit(_counts()).transform(_counts()[:, :4]),
        InvalidInputError,
    ),
    "array of samples": (lambda: FeatureScaler().fit(np.array([[np.nan]])), InvalidInputError),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_a_scaler_cannot_do_is_refused(words: str) -> None:
    call, error = REFUSED[words]
    with pytest.raises(error, match=words):
        call()


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
