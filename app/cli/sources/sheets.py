"""Tables as files hold them: a header and rows of cells, of CSV, Excel and Parquet files.
Those of Parquet are read by pyarrow, which the extra ``parquet`` installs, a few hundred rows at a time."""

from __future__ import annotations

import importlib
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from itertools import islice
from pathlib import Path
from typing import Any

from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from solver.datasets.files import FALLBACK, find_header, read_cells

_PARQUET_MAGIC = b"PAR1"
_ROWS_AT_ONCE = 200  # their pictures fit into memory
_ZEROS = re.compile("00+")  # format of codes, such as 01234, that are stored as numbers
_SAMPLE_ROWS = 20  # among which the header is
_CHUNK_BYTES = 1 << 20
_END_OF_CELLS, _MERGED = b"/sheetData>", re.compile(rb"mergeCell\s[^>]*?ref=[\"']([A-Z]+\d+:[A-Z]+\d+)[\"']")
Rows = Iterator[tuple[str, Sequence[Any] | str]]
"""The place of each row and its cells, none of a blank one; of what is no row, why."""


def is_parquet(file: Path) -> bool:
    """Return whether a file begins as Parquet files do."""
    try:
        with file.open("rb") as stream:
            return stream.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC
    except OSError:
        return False


def open_parquet(file: Path) -> Any:
    """Open a Parquet file; raises InvalidFieldError, which names the file, and the extra if that is not
    installed."""
    try:
        library = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        reason = "is a Parquet file, which needs the extra 'parquet': pip install 'lrbs[parquet]'"
        raise InvalidFieldError(str(file), reason) from error
    try:
        return library.ParquetFile(file)
    except (ValueError, OSError) as error:  # pyarrow's errors are of these
        raise InvalidFieldError(str(file), f"is no readable Parquet file: {error}") from error


def parquet_rows(file: Path) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield the place and the cells of each row; in the place of what cannot be read any more, why."""
    number = 0
    try:
        for batch in open_parquet(file).iter_batches(batch_size=_ROWS_AT_ONCE):
            for cells in batch.to_pylist():
                yield f"row {number}", cells
                number += 1
    except (ValueError, OSError) as error:
        yield f"row {number}", f"is damaged from here on: {error}"


def check_length(file: Path, n_rows: int) -> None:
    """Check how many rows a file has; raises InvalidFieldError, which names it."""
    n_stored = int(open_parquet(file).metadata.num_rows)
    if n_stored != n_rows:
        raise InvalidFieldError(str(file), f"has {n_stored} rows, the arrays have {n_rows}")


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table whose rows can be read again and again."""

    file: Path
    header: Sequence[str]
    # begins with the first; gets a callable for the places of rows with quotes that are taken as text
    rows: Callable[[Callable[[str], None]], Rows]
    is_typed: bool = False  # the file itself says which cells are numbers
    n_rows: int = 0  # where the file says it; 0 elsewhere
    notes: tuple[str, ...] = ()  # what was found out about the file and may be wrong


def open_sheet(file: Path, expected: Sequence[str], encoding: str | None, sheet: str | None) -> Sheet:
    """Open a CSV, Excel (.xlsx; its first sheet) or Parquet file, whichever it is, of whatever encoding."""
    # Raises InvalidFieldError, which names the file that cannot be read, is empty, or has no such sheet.
    if is_parquet(file):
        opened = open_parquet(file)
        n_rows = int(opened.metadata.num_rows)
        return Sheet(
            file, opened.schema_arrow.names, lambda _: _cells_of_parquet(file), is_typed=True, n_rows=n_rows
        )
    if is_workbook(file):
        return _open_workbook(file, expected, sheet)
    if sheet is not None:
        raise InvalidFieldError("--sheet", f"{file} is no workbook")
    cells = read_cells(file, expected, encoding)
    if not cells.header:
        raise InvalidFieldError(str(file), "is empty: expected a header line and a line for each pair")
    is_guess = encoding is None and cells.encoding == FALLBACK
    notes = [f"{file} is not UTF-8: read as {FALLBACK}; --encoding names another"] if is_guess else []
    return Sheet(file, cells.header, cells.rows, notes=(*notes, *_titles(cells.n_before)))


def _cells_of_parquet(file: Path) -> Rows:
    for place, cells in parquet_rows(file):
        yield place, cells if isinstance(cells, str) else list(cells.values())


def is_workbook(file: Path) -> bool:
    """Return whether a file is an Excel workbook (.xlsx); raises InvalidFieldError for one of others."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except OSError:
        return False
    except Exception as error:  # of a damaged file, or of one that is none
        with file.open("rb") as stream:
            if stream.read(4) == b"PK\x03\x04":
                reason = f"is a damaged workbook or another ZIP file: {error}"
                raise InvalidFieldError(str(file), reason) from error
        return False
    if any(name.startswith("Index/") for name in names):
        raise InvalidFieldError(str(file), "is a Numbers document: export it as .xlsx or CSV")
    if "mimetype" in names and "content.xml" in names:
        raise InvalidFieldError(str(file), "is an OpenDocument spreadsheet (.ods): save it as .xlsx or CSV")
    if any(name == "xl/workbook.bin" for name in names):
        raise InvalidFieldError(str(file), "is a binary workbook (.xlsb): save it as .xlsx or CSV")
    return any(name.startswith("xl/") for name in names)


def _open_workbook(file: Path, expected: Sequence[str], title: str | None) -> Sheet:
    try:
        library = importlib.import_module("openpyxl")
    except ImportError as error:
        reason = "is an Excel workbook, which needs the extra 'excel' (pip install 'lrbs[excel]')"
        raise InvalidFieldError(str(file), reason) from error
    book = _load(library, file)
    names = [sheet.title for sheet in book.worksheets]
    book.close()
    # Without a name, the first sheet in which there is anything.
    with_rows = (one for one in names if next(_workbook_rows(library, file, one), None) is not None)
    name = title or next(with_rows, next(iter(names), ""))
    if name not in names:
        there = join_words([repr(one) for one in names], "and") or "none"
        raise InvalidFieldError("--sheet", f"{file} has no sheet {name!r}; it has {there}")
    first = islice(_workbook_rows(library, file, name), _SAMPLE_ROWS)
    rows = [[" ".join(str("" if cell is None else cell).split()) for cell in cells] for _, cells in first]
    n_before = find_header(rows, expected)
    titles = rows[n_before] if rows else []
    while titles and not titles[-1]:
        titles.pop()
    if not titles:
        raise InvalidFieldError(str(file), f"is empty: sheet {name!r} has no header")
    titles = [title or f"Unnamed: {number}" for number, title in enumerate(titles)]
    others = [repr(one) for one in names if one != name]
    note = f"{file}: sheet {name!r} is read, not {join_words(others)}; --sheet names another"
    return Sheet(
        file,
        titles,
        lambda _: _fit(islice(_workbook_rows(library, file, name), n_before + 1, None), len(titles)),
        notes=(
            *([note] if others and title is None else []),
            *_titles(n_before),
            *_without_results(rows, islice(_workbook_rows(library, file, name, False), _SAMPLE_ROWS)),
        ),
    )


def _without_results(
    rows: Sequence[Sequence[str]], formulas: Iterator[tuple[str, Sequence[Any]]]
) -> list[str]:
    """Say if formulas have no results: a program wrote them, and no spreadsheet has saved the workbook."""
    pairs = (
        (cell, formula)
        for row, (_, cells) in zip(rows, formulas, strict=False)
        for cell, formula in zip(row, cells, strict=False)
    )
    is_lacking = any(not cell and str(formula).startswith("=") for cell, formula in pairs)
    note = "formulas without results are empty cells: open the workbook in a spreadsheet, and save it"
    return [note] if is_lacking else []


def _titles(count: int) -> list[str]:
    return [f"{count} rows before the header are left out"] if count else []


def _load(library: Any, file: Path, with_results: bool = True) -> Any:
    """Open a workbook with the results of its formulas, as they were computed when it was saved, or these."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts of a workbook that hold no cells
            return library.load_workbook(file, read_only=True, data_only=with_results)
    except Exception as error:  # a damaged file makes its reader raise a dozen types
        raise InvalidFieldError(
            str(file), f"is no readable workbook: {str(error) or type(error).__name__}"
        ) from error


def _workbook_rows(
    library: Any, file: Path, name: str, with_results: bool = True
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the rows of a sheet but for blank ones before its header; merged ones all have what is shown."""
    book = _load(library, file, with_results)
    try:
        sheet = book[name]
        sheet.reset_dimensions()  # what some programs write there is wrong
        merged = _merged_rows(library, sheet)
        shared: dict[int, tuple[int, Any]] = {}  # by column: through which row, and what
        is_begun = False
        for number, cells in enumerate(sheet.iter_rows(), 1):
            values = list(map(_value_of, cells))
            shared |= {
                column: (last, values[column])
                for column, last in merged.get(number, ())
                if column < len(values)
            }
            if any(value is not None for value in values):
                is_begun = True
                for column, (last, value) in shared.items():
                    if number <= last and column < len(values):
                        values[column] = value
            if is_begun:
                yield f"row {number}", tuple(values)
    except Exception as error:  # as above, in the middle of a file
        reason = f"sheet {name!r} is damaged: {str(error) or type(error).__name__}"
        raise InvalidFieldError(str(file), reason) from error
    finally:
        book.close()


def _merged_rows(library: Any, sheet: Any) -> dict[int, list[tuple[int, int]]]:
    """Return by its first row the column and the last row of what is merged over several rows."""
    merged: dict[int, list[tuple[int, int]]] = {}
    with sheet._get_source() as source:  # read-only, the library passes over what stands behind the cells
        rest = b""
        while chunk := source.read(_CHUNK_BYTES):
            rest = rest + chunk if _END_OF_CELLS in rest else rest[-len(_END_OF_CELLS) :] + chunk
    for place in _MERGED.findall(rest):
        column, first, _, last = library.utils.cell.range_boundaries(place.decode())
        if last > first:
            merged.setdefault(first, []).append((column - 1, last))
    return merged


def _value_of(cell: Any) -> Any:
    """Return what a cell shows: a date where its time is midnight, and digits with zeros before them."""
    value = cell.value
    if isinstance(value, datetime):
        return value.date() if value.time() == time() else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    shown, *_ = cell.number_format.split(";")  # the other sections are of negative numbers and zero
    has_zeros = _ZEROS.fullmatch(shown) and float(value).is_integer()
    return "-" * (value < 0) + str(abs(int(value))).zfill(len(shown)) if has_zeros else value


def _fit(rows: Iterator[tuple[str, tuple[Any, ...]]], n_columns: int) -> Rows:
    for place, cells in rows:
        are_full = [cell is not None and bool(str(cell).strip()) for cell in cells]
        if any(are_full[n_columns:]):
            yield place, f"expected {n_columns} cells as in the header, got {len(cells)}"
        else:
            yield place, [*cells[:n_columns], *[None] * (n_columns - len(cells))] if any(are_full) else []
