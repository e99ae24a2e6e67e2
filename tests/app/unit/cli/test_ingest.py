from pathlib import Path

import pytest

from app.cli.sources.rows import Source
from app.cli.sources.tables import read_table
from app.domain.errors import InvalidFieldError
from app.services.catalogue.service import NewItem

NAMES = ("image", "text")


def write_table(folder: Path, *lines: str) -> Path:
    (folder / "a.png").write_bytes(b"picture")
    file = folder / "items.csv"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def items_of(source: Source) -> list[NewItem]:
    rows = list(source.rows())
    items = [row for row in rows if isinstance(row, NewItem)]
    assert (len(items), source.total) == (len(rows), len(rows))
    return items


def test_a_table_brings_labels_pairs_and_facets(tmp_path: Path) -> None:
    file = write_table(
        tmp_path,
        "id,image,text,label,kind,colour,product,split",
        "1,a.png,one,shoe,boot,red,p1,train",
        "2,a.png,two,shoe,,blue,,test",
    )
    table = read_table(file, NAMES, "product", label_columns=("label", "kind"), split_column="split")
    first, text, second, _ = items_of(table)
    assert (first.id, first.labels, first.pair_id, first.train) == ("image-1", ("shoe", "boot"), "p1", True)
    assert (first.metadata, text.pair_id) == ({"colour": "red", "split": "train"}, "p1")
    assert (second.labels, second.pair_id, second.train) == (("shoe",), None, False)


def test_without_labels_and_pairs_each_row_is_a_pair(tmp_path: Path) -> None:
    table = read_table(write_table(tmp_path, "id,image,text", "1,a.png,one"), NAMES, None, label_columns=None)
    assert [(item.labels, item.pair_id) for item in items_of(table)] == [((), "1")] * 2


def test_a_missing_pair_column_is_named(tmp_path: Path) -> None:
    file = write_table(tmp_path, "id,image,text,colour", "1,a.png,one,red")
    with pytest.raises(
        InvalidFieldError, match="--pair-column: no other column is 'product', there are colour"
    ):
        read_table(file, NAMES, "product", label_columns=None)
