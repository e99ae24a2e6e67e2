"""A table of pictures and texts: one CSV row per pair."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from solver.errors import DatasetError


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
    label_columns: tuple[str, ...] = ("label",),
    split_column: str | None = None,
) -> list[PictureTextRow]:
    """Read a CSV table whose pictures are files beside it.

    Parameters
    ----------
    file : path
        UTF-8 CSV with a header.
    id_column, picture_column, text_column : str
        Names of the columns.
    label_columns : tuple of str
        Columns whose values become the classes; empty cells are left out.
    split_column : str, optional
        "train" there marks the training split; every row is trained on when left out.

    Raises
    ------
    DatasetError
        If a column or a picture is missing, an id repeats or a text is empty; names the line.
    """
    path = Path(file)
    wanted = [
        id_column,
        picture_column,
        text_column,
        *label_columns,
        *([split_column] if split_column else []),
    ]
    rows: dict[str, PictureTextRow] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in wanted if name not in (reader.fieldnames or [])]
            if missing:
                raise DatasetError(f"{path} has no column {missing}; it has {reader.fieldnames}")
            for cells in reader:
                where = f"{path}, line {reader.line_num}"
                if None in cells or any(value is None for value in cells.values()):
                    raise DatasetError(f"{where}: expected {len(reader.fieldnames or [])} cells")
                picture = path.parent / cells[picture_column]
                if not picture.is_file():
                    raise DatasetError(f"{where}: picture {picture} does not exist")
                if not cells[text_column].strip():
                    raise DatasetError(f"{where}: column {text_column!r} is empty")
                if not cells[id_column] or cells[id_column] in rows:
                    raise DatasetError(f"{where}: id {cells[id_column]!r} is empty or repeated")
                rows[cells[id_column]] = PictureTextRow(
                    id=cells[id_column],
                    picture=picture,
                    text=cells[text_column],
                    labels=tuple(cells[name] for name in label_columns if cells[name]),
                    is_train=split_column is None or cells[split_column] == "train",
                    other={name: value for name, value in cells.items() if name not in wanted},
                )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    return list(rows.values())
