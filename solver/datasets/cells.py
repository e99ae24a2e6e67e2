"""Cells of a CSV file, whatever its encoding and whatever stands between the cells."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from solver.datasets.boundary import reading
from solver.validation.errors import DatasetError

FALLBACK = "cp1252"
"""Encoding of what is not UTF-8: Excel writes "CSV" in it in western Europe and America."""
_MARKED = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_DELIMITERS = (",", ";", "\t", "|")
"""The first that fits is taken: a comma, unless another one gives more of the wanted columns."""
_DECLARED = re.compile(r"sep=(.)\r?\n", re.IGNORECASE)
"""First line that gives Excel the delimiter."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The header of a table, and of each row the number of its last line with its cells by column.

    Parameters
    ----------
    header : sequence of str
        Names of the columns.
    rows : list of (int, dict or str)
        A row with too many cells has the rest under None, one with too few has None in some. Of a row that is
        no row of cells, such as one with a cell of more than 131 072 characters, it is said why.
    encoding : str
        As Python calls it.
    """

    header: Sequence[str]
    rows: list[tuple[int, dict[str, str] | str]]
    encoding: str


def read_cells(path: Path, columns: Sequence[str], encoding: str | None = None) -> Cells:
    """Read a CSV file.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str
        Columns by which the delimiter is recognised: comma, semicolon, tab or vertical bar.
    encoding : str, optional
        By default, UTF-8 or UTF-16 if there is a byte order mark, UTF-8 if it is that, else `FALLBACK`.

    Raises
    ------
    DatasetError
        If the file cannot be read, or not in this encoding.
    """
    with reading(path, "CSV table"):
        data = path.read_bytes()
        used = encoding or _guess_encoding(data)
        text = _decode(data, used, path, is_guessed=encoding is None)
        declared = _DECLARED.match(text)
        n_skipped = 0
        if declared is not None:
            text, n_skipped = text[declared.end() :], 1
        delimiter = declared[1] if declared is not None else _guess_delimiter(text, columns)
        reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
        header = reader.fieldnames or []
        return Cells(header, [(reader.reader.line_num + n_skipped, row) for row in _rows(reader)], used)


def _rows(reader: csv.DictReader[str]) -> Iterator[dict[str, str] | str]:
    """Yield the cells of each row, or why it has none; the reader goes on with the line after it."""
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield str(error)


def _guess_encoding(data: bytes) -> str:
    for mark, encoding in _MARKED.items():
        if data.startswith(mark):
            return encoding
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return FALLBACK
    return "utf-8"


def _decode(data: bytes, encoding: str, path: Path, *, is_guessed: bool) -> str:
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = "neither UTF-8 nor Windows-1252" if is_guessed else f"not {encoding}"
        raise DatasetError(
            f"{path}, line {line}: the byte {data[error.start]:#04x} is {what}: name the file's encoding"
        ) from error
    except LookupError as error:
        raise DatasetError(f"{path}: there is no encoding {encoding!r}") from error


def _guess_delimiter(text: str, columns: Sequence[str]) -> str:
    """Return what splits the header into most of the wanted columns, then into most cells."""

    def fit(delimiter: str) -> tuple[int, int]:
        header = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
        return len(set(header).intersection(columns)), len(header)

    return max(_DELIMITERS, key=fit)
