from pathlib import Path

import pytest

from app.cli.ingest import read_table, table_items
from app.domain.errors import InvalidFieldError

NAMES = ("image", "text")


def write_table(folder: Path, *lines: str) -> Path:
    (folder / "a.png").write_bytes(b"picture")
    file = folder / "items.csv"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_a_table_brings_labels_pairs_and_facets(tmp_path: Path) -> None:
    file = write_table(
        tmp_path,
        "id,image,text,label,kind,colour,product,split",
        "1,a.png,one,shoe,boot,red,p1,train",
        "2,a.png,two,shoe,,blue,,test",
    )
    rows = read_table(file, "product", label_columns=("label", "kind"), split_column="split")
    first, text, second, _ = table_items(rows, NAMES, "product")
    assert (first.id, first.labels, first.pair_id, first.train) == ("image-1", ("shoe", "boot"), "p1", True)
    assert (first.metadata, text.pair_id) == ({"colour": "red", "split": "train"}, "p1")
    assert (second.labels, second.pair_id, second.train) == (("shoe",), None, False)


def test_without_labels_and_pairs_each_row_is_a_pair(tmp_path: Path) -> None:
    rows = read_table(write_table(tmp_path, "id,image,text", "1,a.png,one"), None, label_columns=None)
    assert [(item.labels, item.pair_id) for item in table_items(rows, NAMES, None)] == [((), "1")] * 2


def test_a_missing_pair_column_is_named(tmp_path: Path) -> None:
    file = write_table(tmp_path, "id,image,text,colour", "1,a.png,one,red")
    with pytest.raises(
        InvalidFieldError, match="--pair-column: no other column is 'product', there are colour"
    ):
        read_table(file, "product", label_columns=None)
