import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from solver import Labels, MultiLabels, PairedRows
from solver.supervision.annotations import supervision_of
from solver.supervision.kinds import Supervision
from solver.validation import SupervisionError


def _similar_pairs(supervision: Supervision, block: int) -> npt.NDArray[np.bool]:
    n, m = len(supervision.x_order), len(supervision.z_order)
    visited = np.zeros((n, m), dtype=int)
    for start in range(0, n, block):
        for first in range(0, m, 2 * block):
            rows, columns = slice(start, min(start + block, n)), slice(first, min(first + 2 * block, m))
            for key in supervision.similar_pairs(rows, columns):
                visited[rows, columns][key] += 1
    similar = np.zeros_like(visited)
    similar[np.ix_(supervision.x_order, supervision.z_order)] = visited
    assert similar.max() <= 1
    return similar.astype(bool)


def _overlapping(
    n: int, m: int, n_labels: int, density: float, seed: int = 0
) -> tuple[npt.NDArray[np.bool], ...]:
    rng = np.random.default_rng(seed)
    return rng.random((n, n_labels)) < density, rng.random((m, n_labels)) < density


CODES = np.random.default_rng(0).integers(0, 5, 23), np.random.default_rng(1).integers(2, 8, 17)
"""Of classes 0, 1 there are samples on the left only, of 5, 6, 7 on the right only."""
FEW, MANY = _overlapping(23, 17, 3, 0.3), _overlapping(23, 17, 30, 0.1)
"""Labels of which there are few distinct sets, or which are all distinct; some samples have none at all."""


@pytest.mark.parametrize("block", [1, 3, 7, 100])
@pytest.mark.parametrize(
    ("supervision", "mask"),
    [
        (Labels(*CODES), CODES[0][:, None] == CODES[1]),
        (MultiLabels(*(np.eye(8)[codes] for codes in CODES)), CODES[0][:, None] == CODES[1]),
        *(
            (MultiLabels(*(convert(side) for side in sides)), (sides[0][:, None] & sides[1]).any(axis=2))
            for sides in (FEW, MANY)
            for convert in (np.asarray, scipy.sparse.csr_array, scipy.sparse.coo_matrix)
        ),
        (PairedRows(20), np.eye(20, dtype=bool)),
    ],
)
def test_keys_of_every_block_split_cover_exactly_the_similar_pairs(
    supervision: Supervision, mask: npt.NDArray[np.bool], block: int
) -> None:
    np.testing.assert_array_equal(_similar_pairs(supervision, block), mask)
    assert (supervision.n_similar, supervision.n_dissimilar) == (np.sum(mask), np.sum(~mask))


@pytest.mark.parametrize("block", [50, 130, 400])
def test_many_small_classes_are_one_key_that_covers_the_similar_pairs(block: int) -> None:
    rng = np.random.default_rng(0)
    x, z = rng.permutation(np.arange(400) // 2), np.concatenate([rng.integers(0, 150, 300), np.full(50, 7)])
    supervision = Labels(x, z)
    np.testing.assert_array_equal(_similar_pairs(supervision, block), x[:, None] == z[None, :])
    keys = supervision.similar_pairs(slice(0, 400), slice(0, 350))
    assert len(keys) == 2  # class 7 has more than 64 pairs


def test_orders_visit_each_sample_once_class_by_class() -> None:
    x = np.array([2, 0, 1, 0, 2])
    supervision = Labels(x)
    assert sorted(supervision.x_order.tolist()) == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(x[supervision.x_order], np.sort(x))
    np.testing.assert_array_equal(supervision.x_order, supervision.z_order)


def test_string_and_integer_labels_name_the_same_pairs() -> None:
    x, z = np.array([0, 1, 2, 1]), np.array([1, 1, 0])
    by_number, by_name = Labels(x, z), Labels(x.astype(str), z.astype(str))
    np.testing.assert_array_equal(_similar_pairs(by_number, 2), _similar_pairs(by_name, 2))


def test_object_labels_are_taken_as_strings() -> None:
    supervision = Labels(np.array(["a", "b"], dtype=object), ["a", "b", "b"])
    assert (supervision.n_similar, supervision.n_dissimilar) == (3, 3)


def test_large_integers_of_two_types_stay_apart() -> None:
    x, z = np.array([2**62, 2**62 + 1], np.int64), np.array([2**62], np.uint64)  # one float64
    assert (Labels(x, z).n_similar, Labels(z, x).n_similar) == (1, 1)


@pytest.mark.parametrize(
    ("x", "z", "words"),
    [
        ([0, 1], [2, 3], "no similar pair"),
        ([1, 1, 1], [1, 1], "no dissimilar pair"),
        ([0, 1], ["0", "1"], "not of one kind"),
        *(([0, 1], labels, "z_labels") for labels in ([], [[0, 1], [1, 0]], 3)),
        ([0.0, np.nan], None, r"x_labels\[1\] is missing or infinite \(nan\)"),
        (np.array([["a", 1], ["b", 2]], dtype=object), None, "x_labels"),
        (None, None, "x_labels"),
    ],
)
def test_unusable_labels_are_refused(x: Any, z: Any, words: str) -> None:
    with pytest.raises(SupervisionError, match=words):
        Labels(x, z)


def test_samples_that_all_differ_in_their_labels_need_no_array_of_all_pairs() -> None:
    x, z = _overlapping(4500, 4400, 40, 0.15)
    assert len(np.unique(x, axis=0)) > 4300  # hardly any two samples alike
    tracemalloc.start()
    try:
        supervision = MultiLabels(x, z)
        height = 300
        n_similar = 0
        for start in range(0, 4500, height):
            for key in supervision.similar_pairs(slice(start, min(start + height, 4500)), slice(0, 4400)):
                n_similar += np.count_nonzero(key)
        ones = np.ones((4500, 1)), np.ones((4400, 1))
        assert supervision.sum_over_similar(*ones) == n_similar
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert n_similar == supervision.n_similar
    # Blocks of 300 rows take 5 MB in float32, a mask of all pairs 20 MB and their scores 79 MB.
    assert peak < 4500 * 4400


def test_restricted_supervision_names_the_pairs_of_the_chosen_samples() -> None:
    rng = np.random.default_rng(2)
    x_rows, z_rows = np.sort(rng.permutation(23)[:9]), np.sort(rng.permutation(17)[:8])
    x, z = rng.integers(0, 3, 23), rng.integers(0, 3, 17)
    several = _overlapping(23, 17, 4, 0.3)
    kinds: list[Supervision] = [Labels(x, z), MultiLabels(*several)]
    for supervision in kinds:
        whole = _similar_pairs(supervision, 7)
        np.testing.assert_array_equal(
            _similar_pairs(supervision.subset(x_rows, z_rows), 7), whole[np.ix_(x_rows, z_rows)]
        )
    assert PairedRows(23).subset(x_rows, x_rows).n_similar == 9


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sum_over_similar_is_the_product_with_the_dense_mask(dtype: type, as_sparse: bool) -> None:
    rng = np.random.default_rng(3)
    X, Z = rng.standard_normal((23, 4)).astype(dtype), rng.standard_normal((17, 3)).astype(dtype)
    kinds: list[Supervision] = [
        Labels(rng.integers(0, 5, 23), rng.integers(2, 8, 17)),
        MultiLabels(*_overlapping(23, 17, 4, 0.3)),
        PairedRows(17),
    ]
    for supervision in kinds:
        x = X[: len(supervision.x_order)]
        expected = x.T.astype(np.float64) @ _similar_pairs(supervision, 100) @ Z.astype(np.float64)
        found = supervision.sum_over_similar(*(map(scipy.sparse.csr_array, (x, Z)) if as_sparse else (x, Z)))
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, atol=1e-13)  # exact products, summed in float64


def test_paired_rows_without_their_partners_are_refused() -> None:
    with pytest.raises(SupervisionError, match="same rows"):
        PairedRows(5).subset(np.array([0, 1]), np.array([0, 2]))


@pytest.mark.parametrize("n", [1, 0, -3, 2.0, "4", True, None])
def test_number_of_paired_rows_must_be_an_integer_of_two_or_more(n: object) -> None:
    with pytest.raises(SupervisionError, match="n must be an integer >= 2"):
        PairedRows(n)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "z", "words"),
    [
        ([[1, 0]], [[0, 1]], "no similar pair"),
        ([[0, 0], [0, 0]], None, "no similar pair"),
        ([[1, 0], [1, 1]], None, "no dissimilar pair"),
        ([[1, 0]], [[0, 1, 1]], "x_indicators has 2 labels, z_indicators has 3"),
        ([1, 0], None, "x_indicators must be a non-empty"),
        ([[1, 0]], [[]], "z_indicators must be a non-empty"),
        ([[1, 2]], None, "x_indicators must hold 0 and 1 only"),
        ([[1, 0]], [[0.5, 1]], "z_indicators must hold 0 and 1 only"),
        ([["1", "0"]], None, "x_indicators must hold 0 and 1 only"),
        ([[1, np.nan]], None, "x_indicators must hold 0 and 1 only"),
    ],
)
def test_unusable_indicators_are_refused(x: npt.ArrayLike, z: npt.ArrayLike | None, words: str) -> None:
    with pytest.raises(SupervisionError, match=words):
        MultiLabels(x, z)


def test_indicators_may_be_booleans_integers_or_floats_and_stay_unmodified() -> None:
    x, z = _overlapping(9, 8, 3, 0.4)
    expected = _similar_pairs(MultiLabels(x, z), 4)
    for dtype in (np.int8, np.uint16, np.float32):
        arrays = x.astype(dtype), z.astype(dtype)
        np.testing.assert_array_equal(_similar_pairs(MultiLabels(*arrays), 4), expected)
        np.testing.assert_array_equal(arrays[0], x)
        np.testing.assert_array_equal(arrays[1], z)


COLUMNS: dict[str, Any] = {
    "pandas": pd.Series(["cat", "dog", "dog"]),
    "categories": pd.Series(["cat", "dog", "dog"]).astype("category"),
    "Arrow": pd.Series(["cat", "dog", "dog"], dtype="string[pyarrow]"),
    "polars": pl.Series(["cat", "dog", "dog"]),
    "polars, categories": pl.Series(["cat", "dog", "dog"], dtype=pl.Categorical),
    "strings of NumPy": np.array(["cat", "dog", "dog"], np.dtypes.StringDType()),
}


@pytest.mark.parametrize("form", COLUMNS)
def test_columns_of_words_are_labels(form: str) -> None:
    assert Labels(COLUMNS[form], ["dog", "cat"]).classes.tolist() == ["cat", "dog"]
    assert supervision_of(COLUMNS[form], np.ones((3, 1)), np.ones((3, 1))).n_similar == 5


@pytest.mark.parametrize(
    "column", [pd.Series([1, 2, 2], dtype="Int64"), pl.Series([1, 2, 2], dtype=pl.UInt8)]
)
def test_columns_of_whole_numbers_match_integers(column: Any) -> None:
    assert Labels(column, [2, 1]).n_similar == 3


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, None, 2], dtype="Int64"),
        pd.Series(["a", None, "b"], dtype="string"),
        pd.Series(["a", None, "b"]).astype("category"),
        pl.Series(["a", None, "b"]),
        pl.Series([True, None, False]),
        ["a", float("nan"), "b"],
    ],
)
def test_a_missing_label_is_named(column: Any) -> None:
    with pytest.raises(SupervisionError, match=r"x_labels\[1\] is missing"):
        Labels(column)


def test_arrays_of_both_modalities_are_labels_of_each() -> None:
    X, Z = np.ones((3, 1)), np.ones((2, 1))
    assert supervision_of((["a", "b", "b"], ["b", "a"]), X, Z).n_similar == 3
    assert supervision_of(([[1, 0], [1, 1], [0, 1]], [[0, 1], [1, 0]]), X, Z).n_similar == 4
    assert supervision_of(("a", "b"), Z, Z).n_similar == 2  # one array, not two
    with pytest.raises(SupervisionError, match=r"are a tuple, \(x_labels, z_labels\)"):
        supervision_of([["a", "b", "b"], ["b", "a", "a"]], X, X)
    table = pd.DataFrame({"kind": ["a", "b", "b"]})
    assert isinstance(supervision_of(table, X, X), Labels)
    indicators = pd.DataFrame({"a": [1, 0, 1], "b": [0, 1, 1]}, dtype="boolean")
    assert supervision_of(indicators, X, X).n_similar == 7
    with pytest.raises(SupervisionError, match=r"0 and 1 only.*missing.*column 'a' of dtype boolean"):
        MultiLabels(indicators.astype("boolean").mask(indicators["b"]))
