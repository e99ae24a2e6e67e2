"""A table of pictures and texts: one CSV row per pair."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from solver.datasets.boundary import reading
from solver.validation.errors import DatasetError

_LABEL = "label"
"""Column of the classes, if none is named."""
_OTHER_SEPARATORS = (";", "\t")
"""What programs write between cells in place of a comma."""


@dataclass(frozen=True, slots=True)
class PictureTextRow:
    """One row: a picture file, its text, its classes and the split it belongs to.

    Parameters
    ----------
    id : str
        Unique within the table.
    picture : Path
        The picture file, resolved against the table's folder.
    text : str
        The text.
    labels : tuple of str
        Classes.
    is_train : bool
        True when the row belongs to the training split.
    other : dict of str to str
        The remaining columns.
    """

    id: str
    picture: Path
    text: str
    labels: tuple[str, ...]
    is_train: bool
    other: dict[str, str]


def read_picture_text_table(
    file: str | Path,
    *,
    id_column: str = "id",
    picture_column: str = "image",
    text_column: str = "text",
    label_columns: tuple[str, ...] | None = ("label",),
    split_column: str | None = None,
) -> list[PictureTextRow]:
    """Read a CSV table whose pictures are files in the same folder or below it.

    Parameters
    ----------
    file : path
        UTF-8 CSV with a header.
    id_column, picture_column, text_column : str
        Names of the columns.
    label_columns : tuple of str or None
        Columns whose values become the classes; empty cells are left out. None: "label", if there is one.
    split_column : str, optional
        "train" there, in any case, marks the training split; every row is trained on when left out.

    Raises
    ------
    DatasetError
        If the file cannot be read, a column is missing or there twice, a picture is missing, an id
        repeats or a text is empty; names the line.
    """
    path = Path(file)
    header, lines = _read_cells(path)
    if label_columns is None:
        label_columns = (_LABEL,) if _LABEL in header else ()
    columns = _Columns(id_column, picture_column, text_column, label_columns, split_column)
    columns.check(header, path)
    rows: dict[str, PictureTextRow] = {}
    for line_number, cells in lines:
        where = f"{path}, line {line_number}"
        if None in cells or None in cells.values():
            raise DatasetError(f"{where}: expected {len(header)} cells")
        row = columns.row(cells, path.parent, where)
        if not row.id or row.id in rows:
            raise DatasetError(f"{where}: id {row.id!r} is empty or repeated")
        rows[row.id] = row
    return list(rows.values())


def _read_cells(path: Path) -> tuple[Sequence[str], list[tuple[int, dict[str, str]]]]:
    """Return the header, and the number of each row's last line with its cells by column."""
    with reading(path, "CSV table"), path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        return reader.fieldnames or [], [(reader.line_num, cells) for cells in reader]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which column of a table holds what."""

    id: str
    picture: str
    text: str
    labels: tuple[str, ...]
    split: str | None

    @property
    def names(self) -> list[str]:
        return [self.id, self.picture, self.text, *self.labels, *([self.split] if self.split else [])]

    def check(self, header: Sequence[str], path: Path) -> None:
        """Check that the header has every column once."""
        missing = [name for name in self.names if name not in header]
        if missing:
            raise DatasetError(
                f"{path} has no column {_quote(missing)}; it has {_quote(header)}{_hint(header)}"
            )
        repeated = sorted({name for name in header if list(header).count(name) > 1})
        if repeated:
            raise DatasetError(f"{path} has the columns {_quote(repeated)} more than once")

    def row(self, cells: dict[str, str], folder: Path, where: str) -> PictureTextRow:
        """Return the checked row of these cells."""
        picture = folder / cells[self.picture]
        with reading(picture, f"picture ({where})"):
            exists = picture.is_file()
        if not exists:
            raise DatasetError(f"{where}: picture {picture} does not exist")
        if not cells[self.text].strip():
            raise DatasetError(f"{where}: column {self.text!r} is empty")
        return PictureTextRow(
            id=cells[self.id],
            picture=picture,
            text=cells[self.text],
            labels=tuple(cells[name] for name in self.labels if cells[name]),
            is_train=self.split is None or cells[self.split].strip().casefold() == "train",
            other={name: value for name, value in cells.items() if name not in self.names},
        )


def _quote(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _hint(header: Sequence[str]) -> str:
    """Say which separator a header of one column seems to have in place of the comma."""
    separator = next((sign for sign in _OTHER_SEPARATORS if len(header) == 1 and sign in header[0]), None)
    return f": expected commas between cells, not {separator!r}" if separator else ""
