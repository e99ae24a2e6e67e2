"""A table of pictures and texts: one CSV row per pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from solver.datasets.boundary import reading
from solver.datasets.cells import FALLBACK, read_cells
from solver.datasets.features import is_training_split
from solver.validation.errors import DatasetError

_LABEL = "label"  # column of the classes, if none is named


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
    labels : tuple of str
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
    label_separator: str | None = None,
    encoding: str | None = None,
    on_refused: Callable[[str, str], None] | None = None,
    on_fallback: Callable[[str], None] | None = None,
) -> list[PictureTextRow]:
    """Read a CSV table whose pictures are files in the same folder or below it.

    Parameters
    ----------
    file : path
        CSV with a header; comma, semicolon, tab or vertical bar between cells.
    id_column, picture_column, text_column : str
    label_columns : tuple of str or None
        Columns whose values become the classes; empty cells are left out. None: "label", if there is one.
    split_column : str, optional
        "train" or the like there marks the training split; every row is trained on when left out.
    label_separator : str, optional
        What stands between several classes in one cell; by default, a cell is one class.
    encoding : str, optional
        By default, UTF-8 or UTF-16 if the file is that, else Windows-1252.
    on_refused : callable, optional
        Called with the place and the reason of each row that is left out; by default, the first one raises.
    on_fallback : callable, optional
        Called with the name of the encoding if the file is in none that can be recognised with certainty.

    Raises
    ------
    DatasetError
        If the file cannot be read, a column is missing or there twice, a picture is missing, an id
        repeats or a text is empty; names the line.
    """
    path = Path(file)
    named = [id_column, picture_column, text_column, *(label_columns or ()), *filter(None, [split_column])]
    table = read_cells(path, named, encoding)
    if encoding is None and table.encoding == FALLBACK and on_fallback is not None:
        on_fallback(FALLBACK)
    if label_columns is None:
        label_columns = (_LABEL,) if _LABEL in table.header else ()
    columns = _Columns(id_column, picture_column, text_column, label_columns, split_column, label_separator)
    columns.check(table.header, path)
    rows: dict[str, PictureTextRow] = {}
    for place, cells in table.rows():
        where = f"{path}, {place}"
        try:
            if isinstance(cells, str):
                raise DatasetError(f"{where}: {cells}")
            if not cells:
                continue
            row = columns.row(dict(zip(table.header, cells, strict=True)), path.parent, where)
            if not row.id or row.id in rows:
                raise DatasetError(f"{where}: id {row.id!r} is empty or repeated")
        except DatasetError as error:
            if on_refused is None:
                raise
            on_refused(where, str(error).removeprefix(f"{where}: "))
            continue
        rows[row.id] = row
    return list(rows.values())


@dataclass(frozen=True, slots=True)
class _Columns:
    id: str
    picture: str
    text: str
    labels: tuple[str, ...]
    split: str | None
    label_separator: str | None

    @property
    def names(self) -> list[str]:
        return [self.id, self.picture, self.text, *self.labels, *([self.split] if self.split else [])]

    def check(self, header: Sequence[str], path: Path) -> None:
        """Check that the header has every column once."""
        missing = [name for name in self.names if name not in header]
        if missing:
            raise DatasetError(f"{path} has no column {_quote(missing)}; it has {_quote(header)}")
        repeated = sorted({name for name in header if list(header).count(name) > 1})
        if repeated:
            raise DatasetError(f"{path} has the columns {_quote(repeated)} more than once")

    def row(self, cells: dict[str, str], folder: Path, where: str) -> PictureTextRow:
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
            labels=tuple(self._split_labels(cells)),
            is_train=self.split is None or is_training_split(cells[self.split]) is True,
            other={name: value for name, value in cells.items() if name not in self.names},
        )

    def _split_labels(self, cells: dict[str, str]) -> list[str]:
        values = [cells[name] for name in self.labels if cells[name]]
        if self.label_separator is None:
            return values
        parts = [part.strip() for value in values for part in value.split(self.label_separator)]
        return list(dict.fromkeys(part for part in parts if part))


def _quote(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names)
