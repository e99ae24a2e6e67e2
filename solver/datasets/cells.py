"""Cells of a CSV file, whatever its encoding and whatever stands between the cells; read row by row."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from solver.datasets.boundary import reading
from solver.validation.errors import DatasetError

FALLBACK = "cp1252"  # encoding of what is not UTF-8: Excel writes "CSV" in it in western Europe and America
_MARKED = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_BINARY = {
    b"PK\x03\x04": "a workbook or another ZIP file: save it as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file (.xls): save it as CSV",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "compressed: unpack it first",
    b"%PDF": "a PDF file: save the table as CSV",
    **dict.fromkeys(
        (b"\xff\xd8\xff", b"\x89PNG", b"GIF8"), "a picture: lrbs ingest folder takes a folder of them"
    ),
}
"""First bytes of what people take for a CSV file."""
_DELIMITERS = (",", ";", "\t", "|")
"""The first that fits is taken: a comma, unless another one gives more of the wanted columns."""
_DECLARED = re.compile(r"\ufeff?sep=(.)\s*", re.IGNORECASE)  # first line that gives Excel the delimiter
_SAMPLE_CHARACTERS, _SAMPLE_ROWS = 1 << 16, 20  # beginning of a file by which the delimiter is recognised
_CHUNK_BYTES, _HEAD_BYTES = 1 << 20, 512
_STRAY = "its quotes do not pair: one opens a cell and is not closed, or stands within a quoted cell"


@dataclass(frozen=True, slots=True)
class Cells:
    """A CSV file whose header is read, and whose rows are when they are asked for."""

    path: Path
    header: tuple[str, ...]  # a column without a name has pandas' one, such as "Unnamed: 0"
    encoding: str
    delimiter: str
    n_before: int = 0  # rows before the header, such as a title

    def rows(self, on_stray: Callable[[str], None] | None = None) -> Iterator[tuple[str, list[str] | str]]:
        """Yield the place of each row, such as "line 3", and its cells (none if all are blank), or why not.
        `on_stray` gets the place of a row whose quote is a sign of the text; empty lines are left out."""
        with reading(self.path, "CSV table"), self.path.open(encoding=self.encoding, newline="") as stream:
            lines = _Lines(stream)
            if _DECLARED.fullmatch(next(lines, "")) is None:
                lines.give_back()
            records = _records(lines, self.delimiter, self.n_before)
            for place, cells, is_stray in itertools.islice(records, self.n_before + 1, None):
                if is_stray and on_stray is not None:
                    on_stray(place)
                yield place, self._fit(cells) if isinstance(cells, list) else cells

    def _fit(self, cells: list[str]) -> list[str] | str:
        """Return as many cells as there are columns, none of a blank row; why not, where they do not fit."""
        if not any(cell.strip() for cell in cells):
            return []
        n_columns = len(self.header)
        if len(cells) < n_columns or any(cell.strip() for cell in cells[n_columns:]):
            return f"expected {n_columns} cells as in the header, got {len(cells)}"
        return cells[:n_columns]


class _Lines:
    """Lines of a text, of which those of the last record may be given back."""

    def __init__(self, stream: Iterator[str]) -> None:
        self._stream = stream
        self._returned: deque[str] = deque()
        self.taken: list[str] = []
        self.number = 0  # of lines before `taken`

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._returned.popleft() if self._returned else next(self._stream)
        self.taken.append(line)
        return line

    def give_back(self, count: int = 0) -> None:
        """Keep the first lines that were taken, and give back the others."""
        self._returned.extendleft(reversed(self.taken[count:]))
        del self.taken[count:]

    def finish(self) -> None:
        """Count what was taken."""
        self.number += len(self.taken)
        self.taken.clear()


def read_cells(path: Path, columns: Sequence[str], encoding: str | None = None) -> Cells:
    """Read the header of a CSV file; `columns` decide between comma, semicolon, tab and bar as delimiter.
    DatasetError if the file cannot be read, or not in this encoding."""
    # By default UTF-8 or UTF-16 if there is a byte order mark, UTF-8 if it is that, else `FALLBACK`.
    with reading(path, "CSV table"):
        used = encoding or _guess_encoding(path)
        if encoding is not None or used == FALLBACK:
            _check_encoding(path, used, is_guessed=encoding is None)
        with path.open(encoding=used, newline="") as stream:
            text = stream.read(_SAMPLE_CHARACTERS).removeprefix("\ufeff")
    first, _, rest = text.partition("\n")
    declared = _DECLARED.fullmatch(first)
    delimiter = declared[1] if declared is not None else _guess_delimiter(text, columns)
    sample = _Lines(iter(io.StringIO(text if declared is None else rest, newline="")))
    rows = [cells for _, cells, _ in itertools.islice(_records(sample, delimiter), _SAMPLE_ROWS)]
    n_before = find_header(rows, columns)
    header = rows[n_before] if rows else []
    if isinstance(header, str):
        raise DatasetError(f"{path}, line 1: {header}")
    names = [" ".join(name.removeprefix("\ufeff").split()) for name in header]
    while names and not names[-1]:
        names.pop()
    return Cells(
        path, tuple(name or f"Unnamed: {n}" for n, name in enumerate(names)), used, delimiter, n_before
    )


def find_header(rows: Sequence[Sequence[str] | str], columns: Sequence[str]) -> int:
    """Return the number of the row that names the columns: the first, unless titles of one cell stand before.
    A row with one of `columns` is no title."""
    expected = {name.casefold() for name in columns}
    for number, row in enumerate(rows):
        names = [cell.strip().casefold() for cell in row if cell.strip()] if not isinstance(row, str) else []
        if len(names) > 1 or not expected.isdisjoint(names):
            return number
    return 0


def _records(lines: _Lines, delimiter: str, n_before: int = 0) -> Iterator[tuple[str, list[str] | str, bool]]:
    """Yield the place and the cells of each record, and whether a quote of it was taken as text."""
    # A quote that somebody forgot to close would swallow the lines after it. A record that goes on over lines
    # which do not fit is read again as one line, with its quotes as they are, and so are the lines after it.
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
    width: int | None = None  # of the header
    while True:
        lines.finish()
        cells, reason = [], ""
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            reason = str(error) if "limit" in str(error) else _STRAY
        place = f"line {lines.number + 1}"
        if not cells and not reason:
            continue
        if len(lines.taken) > 1 and width is not None and not reason:
            n_alone = sum(len(_literal(line, delimiter)) == width for line in lines.taken)
            if n_alone == len(lines.taken) and width > 1:
                yield f"lines {lines.number + 1} to {lines.number + n_alone}", _STRAY, False
                continue
            if len(cells) != width and n_alone:
                reason = _STRAY
        if not reason:
            if n_before:
                n_before -= 1
            elif width is None:
                width = len(cells)
            yield place, cells, False
            continue
        lines.give_back(1)
        alone = _literal(lines.taken[0], delimiter)
        is_row = len(alone) == width
        yield place, alone if is_row else reason, is_row


def _literal(line: str, delimiter: str) -> list[str]:
    """Return the cells of one line, in which a quote is a sign like any other unless a cell stands in two."""
    try:
        cells = next(csv.reader([line], delimiter=delimiter, quoting=csv.QUOTE_NONE), [])
    except csv.Error:
        return []
    return [cell.strip()[1:-1] if re.fullmatch(r'\s*"[^"]*"\s*', cell) else cell for cell in cells]


def describe_binary(head: bytes) -> str:
    """Return what a file is that begins so, and what to do with it; nothing of what may be text."""
    if head[257:262] == b"ustar":
        return "a tar file: lrbs ingest tar takes it"
    return next((what for beginning, what in _BINARY.items() if head.startswith(beginning)), "")


def _guess_encoding(path: Path) -> str:
    """Return the encoding of a file; raises DatasetError for what is no text, or damaged UTF-8."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
        for mark, encoding in _MARKED.items():
            if head.startswith(mark):
                return encoding
        if what := describe_binary(head):
            raise DatasetError(f"{path} is no CSV table, but {what}")
        if 0 in head[:2]:  # as of UTF-16 without a mark
            return "utf-16-le" if head[0] else "utf-16-be"
        decoder = codecs.getincrementaldecoder("utf-8")()
        is_utf8 = False
        for chunk in itertools.chain([head], iter(lambda: stream.read(_CHUNK_BYTES), b""), [b""]):
            try:
                is_utf8 = not decoder.decode(chunk, not chunk).isascii() or is_utf8
            except UnicodeDecodeError as error:
                if not is_utf8 and error.object[: error.start].isascii():
                    return FALLBACK
                _check_encoding(path, "utf-8", is_guessed=False)
    return "utf-8"


def _check_encoding(path: Path, encoding: str, *, is_guessed: bool) -> None:
    n_lines = 0
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
        with path.open("rb") as stream:
            for chunk in itertools.chain(iter(lambda: stream.read(_CHUNK_BYTES), b""), [b""]):
                n_lines += decoder.decode(chunk, not chunk).count("\n")
    except UnicodeDecodeError as error:
        line = n_lines + error.object.count(b"\n", 0, error.start) + 1
        what = "neither UTF-8 nor Windows-1252" if is_guessed else f"not {encoding}"
        raise DatasetError(
            f"{path}, line {line}: the byte {error.object[error.start]:#04x} is {what}: "
            "name the file's encoding"
        ) from error
    except LookupError as error:
        raise DatasetError(f"{path}: there is no encoding {encoding!r}") from error


def _guess_delimiter(text: str, columns: Sequence[str]) -> str:
    """Return what splits the header into most of the wanted columns, then most rows as the header."""
    expected = {name.casefold() for name in columns}

    def fit(delimiter: str) -> tuple[int, float, int]:
        sample = _Lines(iter(io.StringIO(text, newline="")))
        records = itertools.islice(_records(sample, delimiter), _SAMPLE_ROWS + 1)
        rows = [row if isinstance(row, list) else [] for _, row, _ in records] or [[]]
        n_before = find_header(rows, columns)
        header, rest = rows[n_before], rows[n_before + 1 :]
        n_fit = sum(len(row) == len(header) for row in rest)
        names = {name.strip().casefold() for name in header}
        return len(names & expected), n_fit / max(len(rest), 1) if len(header) > 1 else 0.0, len(header)

    return max(_DELIMITERS, key=fit)
