"""Archives of features with labels, facets and partners."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import DatasetError
from solver.datasets import annotate_rows, draw_split, load_annotated

ARRAYS: dict[str, Any] = {
    "x": np.arange(12.0).reshape(6, 2),
    "z": np.arange(18.0).reshape(6, 3),
    "labels": np.array([0, 1, 0, 1, 0, 1]),
    "split": np.array(["train", "train", "Train", "train", "test", "test"]),
    "facet_colour": np.array(["red", "", "blue", "red", "red", "blue"]),
    "facet_year": np.array([2020, -1, 2021, 2020, 2020, 2021]),
    "pairs": np.array(["a", "a", "b", "", "c", "c"]),
    "notes": np.array([1.5]),  # not read
}


def _write(folder: Path, **changes: Any) -> Path:
    file = folder / "set.npz"
    arrays = {name: array for name, array in {**ARRAYS, **changes}.items() if array is not None}
    np.savez(file, **arrays)
    return file


def test_an_archive_gives_rows_split_facets_and_partners(tmp_path: Path) -> None:
    loaded = load_annotated(_write(tmp_path))
    features, annotations = loaded.features, loaded.annotations
    np.testing.assert_array_equal(features.X, ARRAYS["x"])
    np.testing.assert_array_equal(features.Z, ARRAYS["z"])
    assert features.labels.tolist() == ["0", "1", "0", "1", "0", "1"]
    assert features.is_train.tolist() == [True] * 4 + [False] * 2
    assert list(annotations.facets) == ["label", "colour", "year"]
    assert annotations.facets["colour"].values == ("blue", "red")
    assert annotations.facets["year"].x_indicators[1].tolist() == [False, False]
    assert annotations.pairs.tolist() == [
        [0, 0], [0, 1], [1, 0], [1, 1], [2, 2], [4, 4], [4, 5], [5, 4], [5, 5],
    ]  # fmt: skip


def test_without_pairs_the_samples_of_a_row_are_partners(tmp_path: Path) -> None:
    annotations = load_annotated(_write(tmp_path, pairs=None)).annotations
    assert annotations.pairs.tolist() == [[row, row] for row in range(6)]


def test_without_labels_partners_are_the_classes_and_without_these_a_facet(tmp_path: Path) -> None:
    loaded = load_annotated(_write(tmp_path, labels=None))
    assert (loaded.class_name, loaded.features.labels.tolist()) == ("partner", ["a", "a", "b", "c", "c"])
    assert list(loaded.annotations.facets) == ["colour", "year"]
    assert loaded.annotations.pairs.tolist()[-1] == [4, 4]
    np.testing.assert_array_equal(loaded.features.X, ARRAYS["x"][[0, 1, 2, 4, 5]])
    rows = load_annotated(_write(tmp_path, pairs=None), use_labels=False)
    assert len(set(rows.features.labels.tolist())) == 6
    facet = load_annotated(_write(tmp_path), use_labels=False, use_pairs=False)
    assert (facet.class_name, facet.features.labels.tolist()) == (
        "colour",
        ["red", "blue", "red", "red", "blue"],
    )
    assert len(facet.annotations.pairs) == 0


def test_partners_are_drawn_to_the_test_by_chance(tmp_path: Path) -> None:
    names = np.arange(6)
    changes = {"labels": None, "split": None, "pairs": names, "facet_colour": None, "facet_year": None}
    splits = {tuple(load_annotated(_write(tmp_path, **changes), seed).features.is_train) for seed in range(8)}
    assert len(splits) > 1


def test_a_mask_can_stand_for_the_split(tmp_path: Path) -> None:
    mask = np.array([1, 0, 0, 0, 0, 1])
    loaded = load_annotated(_write(tmp_path, split=None, is_test=mask))
    assert loaded.features.is_train.tolist() == [not flag for flag in mask]


def test_without_a_split_a_fifth_of_each_class_is_drawn_and_partners_stay_together() -> None:
    labels = np.repeat(["a", "b"], 50)
    partners = [f"{row // 2}" for row in range(100)]
    is_train = draw_split(labels, partners, 0)
    assert [int((~is_train[labels == label]).sum()) for label in ("a", "b")] == [10, 10]
    np.testing.assert_array_equal(is_train[::2], is_train[1::2])
    assert (is_train != draw_split(labels, partners, 1)).any()
    assert int((~draw_split(labels)).sum()) == 20


def test_names_of_classes_are_no_partners() -> None:
    values = [("a",)] * 200
    with pytest.raises(DatasetError, match="more than 64 partners on average"):
        annotate_rows({"label": (values, values)}, ["one"] * 200)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels": None, "pairs": np.full(6, -1), "facet_colour": None, "facet_year": None},
            "no labels, pairs",
        ),
        ({"x": None, "z": None}, "lacks x and z"),
        ({"x": np.arange(6.0)}, "x must be a numeric matrix"),
        (
            {"z": np.full((6, 2), np.nan)},
            r"z contains missing values \(NaN\): column 0 does in row 0; so do 1 more",
        ),
        ({"z": np.ones((5, 2))}, "different lengths"),
        ({"labels": np.array([0, 1])}, "labels has 2 rows, x has 6"),
        ({"labels": np.array([0, 1, -1, 0, 1, 0])}, "labels: row 2 has none"),
        ({"facet_colour": np.ones((6, 2))}, "facet_colour must be a vector"),
        ({"facet_label": np.arange(6)}, "facet_label: another name"),
        ({"pairs": np.arange(6) + 0.5}, "pairs holds numbers that are no integers"),
        ({"split": np.array(["train"] * 5 + ["fold"])}, "split: row 5 has 'fold'"),
        ({"split": np.array(["train"] * 6)}, "split: all rows are 'train'"),
        ({"is_test": np.zeros(6)}, "has both split and is_test"),
        ({"split": None, "is_test": np.arange(6)}, "is_test must be 6 booleans"),
        ({"labels": np.array([None] * 6)}, "not a readable array 'labels'"),
    ],
)
def test_bad_archives_are_refused_with_the_name_of_the_array(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        load_annotated(_write(tmp_path, **changes))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.npz").write_text("x,z")
    with pytest.raises(DatasetError, match=r"no archive of arrays, or a damaged one: \.npz, \.mat"):
        load_annotated(tmp_path / "set.npz")
    np.save(tmp_path / "one.npy", np.eye(2))
    with pytest.raises(DatasetError, match="single array"):
        load_annotated(tmp_path / "one.npy")
