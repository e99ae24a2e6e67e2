"""Arrays of features as sources of items."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cli.sources.arrays import open_pair, read_rows
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem
from solver import DatasetError

NAMES = ("sketch", "photo")


def items_of(source: Any) -> dict[str, NewItem]:
    items = {item.id: item for item in source.rows()}
    assert len(items) == source.total
    return items


def test_rows_of_two_files_are_partners(tmp_path: Path) -> None:
    x, z = tmp_path / "x.npy", tmp_path / "z.npy"
    np.save(x, np.arange(6, dtype=np.int16).reshape(3, 2))
    np.save(z, np.ones((3, 4), np.float16))
    (tmp_path / "labels.txt").write_text("cat\n\nhund\n", encoding="utf-8")
    items = items_of(open_pair((x, z), tmp_path / "labels.txt", NAMES))
    last = items["sketch-x:000002"]
    assert (last.content.vector, last.labels, last.pair_id) == ([4.0, 5.0], ("hund",), "x:000002")
    assert (items["photo-x:000002"].pair_id, items["photo-x:000001"].labels) == ("x:000002", ())
    assert items["photo-x:000000"].place == "z.npy, row 0"
    np.save(tmp_path / "labels.npy", np.asarray([2, 0, -1]))
    items = items_of(open_pair((x, z), tmp_path / "labels.npy", NAMES))
    assert [items[f"photo-x:{row:06d}"].labels for row in range(3)] == [("2",), ("0",), ()]


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    x, z, labels = tmp_path / "x.npy", tmp_path / "z.npy", tmp_path / "labels.txt"
    np.save(x, np.ones((3, 2)))
    np.save(z, np.ones((2, 2)))
    labels.write_text("a\nb\n")
    for first, second, named, expected in (
        (x, z, None, r"z.npy: has 2 rows, x.npy has 3"),
        (x, x, labels, r"labels.txt: has 2 labels, x.npy has 3 rows"),
        (x, labels, None, r"labels.txt is not a readable .txt array"),
        (tmp_path / "none.npy", x, None, r"none.npy is not a readable .npy array"),
    ):
        with pytest.raises((InvalidFieldError, DatasetError), match=expected):
            open_pair((first, second), named, NAMES)
    np.save(z, np.ones(3))
    with pytest.raises(InvalidFieldError, match=r"z.npy: is no matrix of numbers"):
        open_pair((x, z), None, NAMES)


def write_archive(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {
        "x": np.eye(3),
        "z": np.ones((3, 2)),
        "labels": np.asarray([b"a", b"b", b""]),
        "split": np.asarray(["train", "Test", "train"]),
        "pairs": np.asarray([5, 5, -1]),
        "facet_colour": np.asarray(["red", "", "blue"]),
        "facet_size": np.asarray([1.0, np.nan, 2.5]),
        **changes,
    }
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def test_columns_of_an_archive_say_more_of_its_rows(tmp_path: Path) -> None:
    file = write_archive(tmp_path / "a.npz")
    assert read_rows(write_archive(tmp_path / "b.npz", z=None), NAMES) is None
    items = items_of(read_rows(file, NAMES))
    facts = [(item.labels, item.pair_id, item.train, item.metadata) for item in list(items.values())[:3]]
    assert facts == [
        (("a",), "5", True, {"colour": "red", "size": 1, "split": "train"}),
        (("b",), "5", False, {"split": "test"}),
        ((), None, True, {"colour": "blue", "size": 2.5, "split": "train"}),
    ]
    plain = write_archive(
        tmp_path / "c.npz", labels=None, pairs=None, split=None, is_test=np.asarray([0, 1, 0], bool)
    )
    last = items_of(read_rows(plain, NAMES))["photo-c:000001"]
    assert (last.labels, last.pair_id, last.train) == ((), "c:000001", False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"z": np.ones((2, 2))}, r"array 'z': has 2 rows, 'x' has 3"),
        ({"x": np.ones(3)}, r"array 'x': is no matrix of numbers"),
        (
            {"labels": np.ones((3, 2))},
            r"labels of shape \(3, 2\) must be one of each row",
        ),
        ({"pairs": np.asarray(5)}, r"array 'pairs': has 0 rows, 'x' has 3"),
        (
            {"split": np.asarray(["train", "fold", "test"])},
            r"array 'split': row 1 has 'fold', expected 'train'",
        ),
        ({"is_test": np.zeros(3)}, r"array 'is_test': is there beside 'split'"),
        (
            {"labels": np.asarray([{}, {}, {}])},
            r"not a readable array 'labels': it holds objects of Python, .*astype\(str\)",
        ),
    ],
)
def test_an_array_that_does_not_fit_is_named(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises((InvalidFieldError, DatasetError), match=expected):
        read_rows(write_archive(tmp_path / "a.npz", **changes), NAMES)
