"""What may be handed to `LowRankBilinear`, and that none of it is copied too often or changed."""

import itertools
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from solver import (
    Labels,
    LowRankBilinear,
    MultiLabels,
    PairedRows,
    alpha_max,
    make_low_rank_pairs,
)
from solver.datasets import SyntheticPairs
from solver.losses import pair_blocks
from solver.validation import NumericalError

SHAPES = [(60, 50, 12, 9), (40, 50, 70, 9)]  # few features; more features than samples


def _data(shape: tuple[int, int, int, int]) -> SyntheticPairs:
    m, n, d1, d2 = shape
    return make_low_rank_pairs(m, n, n_features_x=d1, n_features_z=d2, noise=1.0, random_state=0)


def _fit(X: Any, Z: Any, supervision: Any, **parameters: Any) -> LowRankBilinear:
    alpha = alpha_max(X, Z, supervision) / 20
    return LowRankBilinear(alpha, **parameters).fit(X, Z, supervision)


@cache
def _fitted(shape: tuple[int, int, int, int], dtype: type) -> LowRankBilinear:
    """Return one fitted on plain arrays, for tests that leave it as it is."""
    data = _data(shape)
    return _fit(data.X.astype(dtype), data.Z.astype(dtype), Labels(data.x_labels, data.z_labels))


def _assert_same_bits(found: LowRankBilinear, expected: LowRankBilinear) -> None:
    assert found.alpha == expected.alpha
    for name in ("x_factors_", "z_factors_", "x_intercept_", "z_intercept_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def _read_only(array: Any, folder: Path) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


def _memory_mapped(array: Any, folder: Path) -> Any:
    path = folder / f"{array.shape[1]}.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def _strided(array: Any, folder: Path) -> Any:
    wide = np.full((2 * array.shape[0], 3 * array.shape[1]), np.nan, array.dtype)
    wide[::2, 1::3] = array
    return wide[::2, 1::3]


def _foreign(array: Any, folder: Path) -> Any:
    return array.astype(array.dtype.newbyteorder())


DENSE_FORMS: dict[str, Callable[[Any, Path], Any]] = {
    "Fortran order": lambda array, folder: np.asfortranarray(array),
    "read-only": _read_only,
    "memory-mapped": _memory_mapped,
    "memory-mapped in Fortran order": lambda array, folder: _memory_mapped(np.asfortranarray(array), folder),
    "strided": _strided,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("form", "dtype"),
    # Foreign float32 is taken as float64, which is more exact than float32 itself.
    [*itertools.product(DENSE_FORMS, [np.float32, np.float64]), ("other byte order", np.float64)],
)
def test_layout_in_memory_does_not_change_a_bit(
    form: str, dtype: type, shape: tuple[int, int, int, int], tmp_path: Path
) -> None:
    data = _data(shape)
    X, Z = data.X.astype(dtype), data.Z.astype(dtype)
    supervision = Labels(data.x_labels, data.z_labels)
    convert = DENSE_FORMS.get(form, _foreign)
    found = _fit(convert(X, tmp_path), convert(Z, tmp_path), supervision)
    _assert_same_bits(found, _fitted(shape, dtype))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float32_and_float64_samples_give_the_same_solution(
    dtype: type, shape: tuple[int, int, int, int]
) -> None:
    data = _data(shape)
    supervision = Labels(data.x_labels, data.z_labels)
    rounded = data.X.astype(np.float32), data.Z.astype(np.float32)
    single = _fit(*rounded, supervision, dtype=dtype, tol=1e-6)
    double = _fit(*(side.astype(np.float64) for side in rounded), supervision, dtype=dtype, tol=1e-6)
    # The same numbers; samples of unit size are rounded once more to float32 (eps 1e-7), both fits to tol.
    assert single.objective_ == pytest.approx(double.objective_, rel=3e-6)
    assert single.alpha == pytest.approx(double.alpha, rel=1e-6)


def _sparse_data(m: int, d1: int, n: int, d2: int, seed: int = 0) -> tuple[Any, Any, Labels]:
    """Return samples like counts of words: most entries zero, some words for each class."""
    rng = np.random.default_rng(seed)
    x_labels, z_labels = np.arange(m) % 4, np.arange(n) % 4
    sides = []
    for labels, d in ((x_labels, d1), (z_labels, d2)):
        topical = np.arange(d)[None, :] % 5 == labels[:, None]
        sides.append(rng.poisson(np.where(topical, 0.6, 0.1), (len(labels), d)).astype(np.float64))
    return sides[0], sides[1], Labels(x_labels, z_labels)


@pytest.mark.parametrize("sizes", [(80, 30, 70, 20), (50, 200, 45, 150), (50, 200, 80, 20)])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_sparse_samples_give_the_solution_of_the_dense_ones(
    sizes: tuple[int, int, int, int], fit_intercept: bool
) -> None:
    X, Z, supervision = _sparse_data(*sizes)
    x, z = scipy.sparse.csr_array(X), scipy.sparse.csr_array(Z)
    parameters = {"fit_intercept": fit_intercept, "dtype": np.float64, "tol": 1e-6}
    alpha = alpha_max(X, Z, supervision, fit_intercept=fit_intercept) / 10
    dense = LowRankBilinear(alpha, **parameters).fit(X, Z, supervision)
    for pair in ((x, z), (x, Z), (X, z)):
        largest = alpha_max(*pair, supervision, fit_intercept=fit_intercept)
        assert largest == pytest.approx(10 * alpha, rel=1e-12)
        model = LowRankBilinear(alpha, **parameters).fit(*pair, supervision)
        assert model.objective_ == pytest.approx(dense.objective_, rel=2e-6)  # both within tol
        # Scores are known to about the root of the gap.
        np.testing.assert_allclose(model.similarity(*pair), dense.similarity(X, Z), atol=5e-3)


def test_many_wide_sparse_samples_stay_sparse() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(5100) % 3
    rows = np.repeat(np.arange(5100), 6)
    columns = np.where(rng.random(len(rows)) < 0.5, labels[rows], rng.integers(3, 6000, len(rows)))
    X = scipy.sparse.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(5100, 6000))
    Z = np.eye(3)[np.arange(30) % 3] + 0.1 * rng.standard_normal((30, 3))
    supervision = Labels(labels, np.arange(30) % 3)
    alpha = alpha_max(X, Z, supervision) / 5
    tracemalloc.start()
    try:
        model = LowRankBilinear(alpha, tol=1e-2).fit(X, Z, supervision)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.converged_
    # Dense samples would take 122 MB in float32 and their Gram matrix 208 MB.
    assert peak < 100e6
    x, z = model.project_x(X), model.project_z(Z)
    assert np.mean(np.argmax(x @ z[:3].T, axis=1) == labels) > 0.95


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("kind", ["labels", "several labels", "paired rows"])
def test_no_array_of_all_pairs_is_made(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_blocks, "_TILE_BYTES", pair_blocks._TILE_BYTES // 4)
    n = 2300  # large enough to be begun on a subsample
    data = make_low_rank_pairs(n, n, n_features_x=10, n_features_z=10, noise=1.0, random_state=0)
    supervision = {
        "labels": Labels(data.x_labels, data.z_labels),
        "several labels": MultiLabels(np.eye(5)[data.x_labels], np.eye(5)[data.z_labels]),
        "paired rows": PairedRows(n),
    }[kind]
    alpha = alpha_max(data.X, data.Z, supervision) / 3
    tracemalloc.start()
    try:
        model = LowRankBilinear(alpha, tol=5e-2, n_threads=2).fit(data.X, data.Z, supervision)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert model.converged_
    # Scores of all pairs would take 21 MB in float32, a mask of them 5 MB.
    assert peak < n * n


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("alpha", [1e-300, 1e-45])
def test_a_penalty_too_small_for_the_numbers_is_named(alpha: float, loss: str) -> None:
    """Without one, factors grow until they overflow."""
    data = make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=3, random_state=3)
    labels = Labels(data.x_labels, data.z_labels)
    with pytest.raises(NumericalError, match="larger alpha"):
        LowRankBilinear(alpha, loss=loss).fit(data.X, data.Z, labels)
