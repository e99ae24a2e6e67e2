"""Parquet files: tables of pictures, texts or vectors, and the metadata of embeddings.

They are read by pyarrow, which the extra ``parquet`` installs, a few hundred rows at a time.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from app.cli.sources.contents import content_of
from app.cli.sources.rows import Refusal, Row, identifier_of, read_bounded
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.services.catalogue.service import NewItem

_MAGIC = b"PAR1"
_ROWS_AT_ONCE = 200
"""Their pictures fit into memory."""
_LABEL, _ID = "label", "id"
"""Columns that are taken if they are there and no other is named."""


def is_parquet(file: Path) -> bool:
    """Return whether a file begins as Parquet files do."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def open_parquet(file: Path) -> Any:
    """Open a Parquet file.

    Raises
    ------
    InvalidFieldError
        If it is none, or the library is not installed; names the file, and the extra.
    """
    try:
        library = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        reason = "is a Parquet file, which needs the extra 'parquet': pip install 'lrbs[parquet]'"
        raise InvalidFieldError(str(file), reason) from error
    try:
        return library.ParquetFile(file)
    except (ValueError, OSError) as error:  # pyarrow's errors are of these
        raise InvalidFieldError(str(file), f"is no readable Parquet file: {error}") from error


@dataclass(frozen=True, slots=True)
class ParquetColumns:
    """Which column holds what.

    Parameters
    ----------
    id : str
        Ids of the rows; where there is no column "id", the file's name and their numbers are.
    picture : str
        Content of the first modality.
    text : str
        Content of the second.
    labels : tuple of str or None
        Labels; None: "label", if there is one.
    label_separator : str or None
        What stands between several labels in one cell.
    pair : str or None
        Rows of the same value are partners; None: both contents of a row are.
    split : str or None
        "train" there, in any case, marks what may be learned from.
    """

    id: str = _ID
    picture: str = "image"
    text: str = "text"
    labels: tuple[str, ...] | None = None
    label_separator: str | None = None
    pair: str | None = None
    split: str | None = None


@dataclass(frozen=True, slots=True)
class ParquetTable:
    """The two contents of each row, and what else it says.

    A content is a text, a vector, the name of a file beside the table, or the bytes of a picture or sound: as
    they are, or with the name of their file, as in data sets of Hugging Face.

    Parameters
    ----------
    file : Path
        The table.
    columns : ParquetColumns
        Its columns.
    modality_names : (str, str)
        Of the column of pictures and of that of texts.
    content_forms : (str or None, str or None)
        What the encoders of both take: "picture", "sound", "text" or "vector".
    """

    file: Path
    columns: ParquetColumns
    modality_names: tuple[str, str]
    content_forms: tuple[str | None, str | None]

    @property
    def total(self) -> int:
        """Number of contents."""
        return 2 * int(open_parquet(self.file).metadata.num_rows)

    def rows(self) -> Iterator[Row]:
        """Yield the two items of each row; an empty cell is refused."""
        for number, cells in read_rows(self.file):
            place = f"{self.file.name}, row {number}"
            if isinstance(cells, Refusal):
                yield cells
                return
            yield from self._row(number, cells, place)

    def check_columns(self) -> ParquetTable:
        """Return this table; raises InvalidFieldError, which names columns that are named and absent."""
        names = open_parquet(self.file).schema_arrow.names
        columns = self.columns
        expected = [columns.picture, columns.text, *(columns.labels or ())]
        expected += [name for name in (columns.pair, columns.split) if name is not None]
        expected += [columns.id] if columns.id != _ID else []
        missing = [repr(name) for name in expected if name not in names]
        if missing:
            there = join_words([repr(name) for name in names], "and") or "none"
            raise InvalidFieldError(str(self.file), f"has no column {', '.join(missing)}; it has {there}")
        return self

    def _row(self, number: int, cells: dict[str, Any], place: str) -> Iterator[Row]:
        columns = self.columns
        # With the name of the file: other parts of the same set have rows of the same numbers.
        numbered = identifier_of(f"{self.file.stem}/{number:06d}")
        name = str(cells.get(columns.id) if columns.id in cells else numbered)
        if columns.id in cells and is_missing(cells[columns.id]):
            yield Refusal(place, f"column {columns.id!r} is empty")
            return
        is_train = columns.split is None or str(cells[columns.split]).strip().casefold() == "train"
        pair = name if columns.pair is None else cells[columns.pair]
        shared: dict[str, Any] = {
            "labels": self._labels(cells),
            "pair_id": None if is_missing(pair) else str(pair),
            "metadata": self._metadata(cells, is_train),
            "train": is_train,
        }
        for column, modality, form in zip(
            (columns.picture, columns.text), self.modality_names, self.content_forms, strict=True
        ):
            try:
                content = self._content(cells[column], form)
            except InvalidFieldError as error:
                yield Refusal(f"{place}, column {column!r}", error.message)
                continue
            yield NewItem(modality=modality, content=content, id=f"{modality}-{name}", place=place, **shared)

    def _content(self, value: Any, form: str | None) -> Content:
        if is_missing(value):
            raise InvalidFieldError("", "is empty")
        if form in ("picture", "sound"):
            return content_of(form, self._bytes(value, form))
        if form == "vector":
            if not isinstance(value, list) or not all(isinstance(number, float | int) for number in value):
                raise InvalidFieldError("", f"expected a list of numbers, got {type(value).__name__}")
            return Content(vector=[float(number) for number in value])
        if not isinstance(value, str):
            raise InvalidFieldError("", f"expected a text, got {type(value).__name__}")
        return Content(text=value)

    def _bytes(self, value: Any, form: str) -> bytes:
        if isinstance(value, dict):  # as Hugging Face stores pictures and sounds
            value = value.get("bytes") or value.get("path") or ""
        if isinstance(value, bytes) and value:
            return value
        if isinstance(value, str) and value:
            return read_bounded(self.file.parent / value)
        raise InvalidFieldError("", f"expected a {form} or the name of its file, got {type(value).__name__}")

    def _labels(self, cells: dict[str, Any]) -> tuple[str, ...]:
        names = self.columns.labels
        if names is None:
            names = (_LABEL,) if _LABEL in cells else ()
        labels: list[str] = []
        for name in names:
            values = cells[name] if isinstance(cells[name], list) else [cells[name]]
            for text in (str(value) for value in values if not is_missing(value)):
                separator = self.columns.label_separator
                labels += [part.strip() for part in text.split(separator)] if separator else [text]
        return tuple(dict.fromkeys(label for label in labels if label))

    def _metadata(self, cells: dict[str, Any], is_train: bool) -> dict[str, Any]:
        columns = self.columns
        labels = (_LABEL,) if columns.labels is None else columns.labels
        used = {columns.id, columns.picture, columns.text, columns.pair, columns.split, *labels}
        metadata = {name: value for name, value in cells.items() if name not in used}
        if columns.split is not None:
            metadata["split"] = "train" if is_train else "test"
        return plain_metadata(metadata)


def read_rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | Refusal]]:
    """Yield the number and the cells of each row; a refusal in the place of what cannot be read any more."""
    number = 0
    try:
        for batch in open_parquet(file).iter_batches(batch_size=_ROWS_AT_ONCE):
            for cells in batch.to_pylist():
                yield number, cells
                number += 1
    except (ValueError, OSError) as error:
        yield number, Refusal(f"{file.name}, row {number}", f"is damaged from here on: {error}")


def check_length(file: Path, n_rows: int) -> None:
    """Check how many rows a file has; raises InvalidFieldError, which names it."""
    n_stored = int(open_parquet(file).metadata.num_rows)
    if n_stored != n_rows:
        raise InvalidFieldError(str(file), f"has {n_stored} rows, the arrays have {n_rows}")


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty; a column of numbers written by pandas has NaN there."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def plain_metadata(cells: dict[str, Any]) -> dict[str, Any]:
    """Return cells as JSON can have them: no empty ones and no bytes, and times as text."""
    plain = {name: _plain(value) for name, value in cells.items()}
    return {name: value for name, value in plain.items() if value is not None}


def _plain(value: Any) -> Any:
    match value:
        case bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case dict():
            return plain_metadata(value)
        case list():
            return [_plain(one) for one in value]
        case bytes() | None:
            return None
    return str(value)
