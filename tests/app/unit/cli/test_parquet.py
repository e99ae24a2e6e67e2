"""Parquet files as sources of items: written by pyarrow, as people's tools write them."""

import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.cli.sources.arrays import open_embeddings
from app.cli.sources.rows import Refusal
from app.cli.sources.sheets import is_parquet
from app.cli.sources.tables import TableColumns, open_table
from app.domain.errors import InvalidFieldError
from app.services.catalogue.preparation import NewItem

NAMES = ("photo", "words")


def write(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path, **options)
    return path


def test_cells_become_contents_labels_pairs_and_metadata(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(b"second")
    taken = datetime(2026, 1, 2, tzinfo=UTC)
    rows = [
        {"id": 7, "image": {"bytes": b"first", "path": "a.png"}, "text": "one", "label": ["x", "y", "x"]},
        {"id": 8, "image": {"bytes": None, "path": "b.png"}, "text": "two", "label": None},
    ]
    facts = {
        "colour": "red",
        "price": Decimal("2.50"),
        "sizes": [1, 2],
        "taken": taken,
        "raw": b"?",
        "none": float("nan"),
    }
    file = write(tmp_path / "items.parquet", [{**row, **facts, "sku": "s", "split": "Train"} for row in rows])
    assert is_parquet(file)
    columns = TableColumns(pair="sku", split="split")
    table = open_table(file, columns, NAMES, ("picture", "text"))
    items = [row for row in table.rows() if isinstance(row, NewItem)]
    assert len(items) == table.total == 4
    assert [item.id for item in items] == ["photo-7", "words-7", "photo-8", "words-8"]
    assert [item.content.picture for item in items[::2]] == [b"first", b"second"]
    assert [item.labels for item in items] == [("x", "y")] * 2 + [()] * 2
    assert {(item.pair_id, item.train) for item in items} == {("s", True)}
    assert items[0].metadata == {
        "colour": "red",
        "price": 2.5,
        "sizes": [1, 2],
        "taken": "2026-01-02T00:00:00+00:00",
        "split": "train",
    }


def test_vectors_sounds_and_separated_labels(tmp_path: Path) -> None:
    rows = [
        {"voice": b"RIFF", "vector": [1.0, 2.0], "kind": "a| b |"},
        {"voice": b"RIFF", "vector": [3, 4], "kind": "c"},
    ]
    file = write(tmp_path / "items.parquet", rows)
    columns = TableColumns(picture="voice", text="vector", labels=("kind",), label_separator="|")
    items = list(open_table(file, columns, ("sound", "text"), ("sound", "vector")).rows())
    ids = [item.id for item in items if isinstance(item, NewItem)]
    assert [item_id.partition("-")[0] for item_id in ids] == ["sound", "text"] * 2
    assert len(set(ids)) == 4
    sound, vector = items[0], items[3]
    assert isinstance(sound, NewItem)
    assert isinstance(vector, NewItem)
    assert (sound.content.sound, sound.labels, sound.metadata) == (
        b"RIFF",
        ("a", "b"),
        {},
    )
    assert vector.content.vector == [3.0, 4.0]


def test_bad_rows_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "image": b"picture", "text": None},
        {"id": None, "image": b"picture", "text": "text"},
        {"id": "c", "image": b"", "text": "text"},
    ]
    file = write(tmp_path / "items.parquet", rows)
    found = list(open_table(file, TableColumns(), NAMES, ("picture", "text")).rows())
    refused = [(row.place, row.reason) for row in found if isinstance(row, Refusal)]
    assert refused == [("items.parquet, row 1", "column 'id' is empty")]
    # A row of which one content is missing is an item of the other.
    assert [row.id for row in found if isinstance(row, NewItem)] == ["photo-a", "words-c"]
    with pytest.raises(
        InvalidFieldError, match="has no column 'part', 'kind'; it has 'id', 'image' and 'text'"
    ):
        open_table(file, TableColumns(split="part", labels=("kind",)), NAMES, ("picture", "text"))


def test_a_number_that_is_none_is_an_empty_cell(tmp_path: Path) -> None:
    nan = float("nan")
    rows = [
        {"id": 1.5, "image": b"picture", "text": "text", "label": nan, "sku": nan, "sizes": [1.0, nan]},
        {"id": nan, "image": b"picture", "text": "text", "label": 2.0, "sku": 2.0, "sizes": [nan]},
    ]
    file = write(tmp_path / "items.parquet", rows)
    columns = TableColumns(labels=("label", "sizes"), pair="sku")
    *found, refused = open_table(file, columns, NAMES, ("picture", "text")).rows()
    labels_and_pairs = [(row.labels, row.pair_id) for row in found if isinstance(row, NewItem)]
    assert labels_and_pairs == [(("1.0",), None)] * 2
    assert refused == Refusal("items.parquet, row 1", "column 'id' is empty")
    for part in ("img_emb", "text_emb", "metadata"):
        (tmp_path / part).mkdir()
        np.save(tmp_path / part / f"{part}_0.npy", np.ones((2, 3)))
    write(tmp_path / "metadata" / "metadata_0.parquet", [{"label": nan}, {"label": 2.0}])
    embedded = open_embeddings(tmp_path, NAMES, ("label",)).rows()
    assert [row.labels for row in embedded if isinstance(row, NewItem)] == [(), ("2.0",)] * 2


def test_a_file_that_is_damaged_within_yields_what_comes_before(tmp_path: Path) -> None:
    rows = [{"id": str(number), "image": b"%06d" % number * 50, "text": str(number)} for number in range(900)]
    file = write(tmp_path / "items.parquet", rows, row_group_size=300, compression="gzip")
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 600] = bytes(600)
    file.write_bytes(content)
    *good, bad = open_table(file, TableColumns(), NAMES, ("picture", "text")).rows()
    assert 0 < len(good) < 2 * 900
    assert isinstance(bad, Refusal)
    assert bad.reason.startswith("is damaged from here on: ")
    file.write_bytes(content[: len(content) - 8])
    with pytest.raises(InvalidFieldError, match=r"items.parquet: is no readable Parquet file"):
        open_table(file, TableColumns(), NAMES, ("picture", "text"))


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "items.parquet", [{"id": "a", "image": b"p", "text": "t"}])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InvalidFieldError, match=r"needs the extra 'parquet': pip install 'lrbs\[parquet\]'"):
        open_table(file, TableColumns(), NAMES, ("picture", "text"))


def test_metadata_of_embeddings_have_as_many_rows_as_these(tmp_path: Path) -> None:
    import numpy as np

    for part in ("img_emb", "text_emb"):
        (tmp_path / part).mkdir()
        np.save(tmp_path / part / f"{part}_0.npy", np.ones((2, 3), np.float16))
    (tmp_path / "metadata").mkdir()
    write(tmp_path / "metadata" / "metadata_0.parquet", [{"caption": "one"}])
    with pytest.raises(InvalidFieldError, match=r"metadata_0.parquet: has 1 rows, the arrays have 2"):
        open_embeddings(tmp_path, NAMES)
    items = list(open_embeddings(tmp_path, NAMES, with_metadata=False).rows())
    assert [item.metadata for item in items if isinstance(item, NewItem)] == [{}] * 4
