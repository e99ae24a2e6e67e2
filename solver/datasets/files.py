"""Arrays by name from files of NumPy, MATLAB, HDF5 and CSV; no pickle."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
import zipfile
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.io
import scipy.sparse

from solver.linalg import FloatArray, check_samples, to_dense
from solver.validation import DatasetError, InvalidInputError

_OBJECTS = "it holds objects of Python, which are never read: save numbers, or words as labels.astype(str)"


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn what a file's reader raises into DatasetError; `kind` is what the file should be."""
    try:
        yield
    except DatasetError:
        raise
    # A damaged file makes readers raise a dozen types, MemoryError and RecursionError among them.
    except Exception as error:
        reason = (
            _OBJECTS
            if re.search("allow_pickle|Python objects", str(error))
            else str(error) or type(error).__name__
        )
        raise DatasetError(f"{path} is not a readable {kind}: {reason}") from error


def stacked_features(parts: dict[str, Any], path: Path) -> FloatArray:
    """Return the rows of several arrays of one modality, by the names the file gives them.
    DatasetError if one is not a numeric matrix, holds what is no number, or has other features."""
    for name, array in parts.items():
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiub":
            raise DatasetError(f"{path}: {name} must be a numeric matrix, got {_describe(array)}")
        if array.size:
            try:
                check_samples(array, f"{path}: {name}")
            except InvalidInputError as error:
                raise DatasetError(str(error)) from error
    widths = {name: array.shape[1] for name, array in parts.items()}
    if len(set(widths.values())) != 1 or 0 in widths.values():
        raise DatasetError(f"{path}: {' and '.join(widths)} have different features or none: {widths}")
    return np.concatenate(list(parts.values()))


def split_features(
    arrays: Mapping[str, Any], side: str, rows: Mapping[str, Collection[Any]], path: Path, what: str
) -> FloatArray:
    """Return the features of both splits; DatasetError, which says `what`, unless they have as many rows."""
    parts = {f"{side}_{suffix}": arrays.get(f"{side}_{suffix}") for suffix in rows}
    stacked = stacked_features(parts, path)
    for suffix, own in rows.items():
        name = f"{side}_{suffix}"
        if len(arrays[name]) != len(own):
            lengths = f"{name} has {len(arrays[name])} rows for {len(own)} {what}"
            raise DatasetError(f"{path}: different lengths: {lengths}")
    return stacked


def label_column(array: Any, name: str, path: Path) -> npt.NDArray[Any]:
    """Return labels, of shape (n,), (n, 1) or (1, n), as one vector of int64 or of strings, or DatasetError.
    MATLAB has no vectors and rarely stores integers, so that floats that are integers are taken."""
    is_vector = isinstance(array, np.ndarray) and (array.ndim == 1 or (array.ndim == 2 and 1 in array.shape))
    if not is_vector or array.dtype.kind not in "iubfUS":
        raise DatasetError(f"{path}: {name} must be a vector of integers or strings, got {_describe(array)}")
    column = array.ravel()
    if column.dtype.kind == "S":
        with reading(path, f"archive of UTF-8 strings ({name})"):
            decoded: npt.NDArray[np.str_] = np.strings.decode(column, "utf-8")
        return decoded
    if column.dtype.kind == "U":
        words: npt.NDArray[np.str_] = column
        return words
    is_out_of_range = column.dtype.kind == "f" and not (np.abs(column) < 2.0**53).all()
    numbers: npt.NDArray[np.int64] = np.zeros(0, np.int64) if is_out_of_range else column.astype(np.int64)
    if not np.array_equal(numbers, column):
        raise DatasetError(f"{path}: {name} holds numbers that are no integers of 64 bits")
    return numbers


def _describe(array: Any) -> str:
    if isinstance(array, np.ndarray):
        return f"{array.dtype} of shape {array.shape}"
    return f"a {type(array).__name__}"


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


AnyArray = npt.NDArray[Any]
Choose = Callable[[list[str]], Iterable[str]]
"""From the names in a file, which of them to read; may raise DatasetError."""

_ROW_NAMES = ("x", "z", "labels", "split", "is_test", "pairs")
_ALIASES = {"y": "labels", "label": "labels", "class": "labels"}
_FACET = "facet_"
_FEATURE = re.compile(r"([xz])(?:[_. -].*|\d+)", re.IGNORECASE)
"""Columns of a CSV file that are features: ``x0``, ``x_0``, ``z-word`` and so on."""
_FIRST_COLUMNS = tuple(
    f"{side}{between}{number}" for side in "xzXZ" for between in ("", "_") for number in "01"
)
_BOOLS = {"1": True, "true": True, "0": False, "false": False}
_KINDS = ".npz, .mat, .h5, .csv and .tsv"
_NPY = b"\x93NUMPY"
_HDF5 = b"\x89HDF\r\n\x1a\n"  # first bytes of HDF5; MATLAB 7.3 puts a header of its own before them
_TEXTS = (".csv", ".tsv", ".txt")
_TABLES = {".csv": ";\t,", ".tsv": "\t"}  # what may stand between their columns; the first that occurs does
_ARRAY_DELIMITERS = (
    ";\t, "  # the first that occurs is taken; where it is no comma, a comma is a decimal point
)


def read_arrays(file: str | Path, choose: Choose = list) -> dict[str, AnyArray]:
    """Read arrays of an archive by name.

    Parameters
    ----------
    file : path
        ``.npz``; ``.mat`` of any version; ``.h5`` or ``.hdf5``; or ``.csv`` and ``.tsv``, whose columns
        ``x0``, ``x_1``, ``z-word`` and so on are the features x and z.
    choose : callable
        Which of the names to read; all when left out.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, or needs a package that is not installed; names it.
    """
    path = Path(file)
    readers: dict[str, Callable[[Path, Choose], dict[str, AnyArray]]] = {
        ".mat": _read_matlab,
        ".h5": _read_hdf5,
        ".hdf5": _read_hdf5,
        ".csv": _read_columns,
        ".tsv": _read_columns,
    }
    suffix = path.suffix.lower()
    with reading(path, f"{suffix} file" if suffix in readers else ".npz archive"):
        path.stat()  # a missing file is said in the same words whatever reads it
        return readers.get(suffix, _read_npz)(path, choose)


def read_row_arrays(file: str | Path) -> dict[str, AnyArray]:
    """Read an archive whose row i of all arrays belongs together; empty where it is of another layout.

    Returns
    -------
    dict of str to ndarray
        ``x``, ``z``, and where there are such ``labels``, ``split``, ``is_test``, ``pairs``, ``facet_NAME``:
        names in any case, and ``y``, ``label`` or ``class`` for the labels. Vectors have one axis.
    """

    def choose(names: list[str]) -> list[str]:
        rows: dict[str, str] = {}
        for name in names:
            rows.setdefault(_row_name(name), name)
        rows.pop("", None)
        return list(rows.values()) if {"x", "z"} <= rows.keys() else []

    arrays = {_row_name(name): array for name, array in read_arrays(file, choose).items()}
    if "labels" in arrays:
        arrays["labels"] = _classes_of_indicators(arrays["labels"], file)
    return {
        name: array.ravel() if name not in ("x", "z") and array.ndim == 2 and 1 in array.shape else array
        for name, array in arrays.items()
    }


def read_array(file: str | Path) -> AnyArray:
    """Read the one array of a file: ``.npy``, numbers as text with or without a header, or an archive.

    An ``.npy`` file is mapped, not read into memory.
    """
    path = Path(file)
    suffix = path.suffix.lower()
    with reading(path, f"{suffix} array"):
        if suffix == ".npy":
            array: AnyArray = np.load(path, mmap_mode="r", allow_pickle=False)
            return array
        if suffix in _TEXTS:
            return _read_numbers(path)
    arrays = read_arrays(path)
    if len(arrays) != 1:
        raise DatasetError(f"{path} has the arrays {sorted(arrays)}: one is expected")
    return next(iter(arrays.values()))


def read_labels(file: str | Path, n_rows: int) -> AnyArray:
    """Read a label of each row: one a line of a text, below a header or not, or the array of another file.

    Of a ``.csv`` or ``.tsv`` file the one column counts, beside the index that pandas writes.
    """
    path = Path(file)
    suffix = path.suffix.lower()
    if suffix not in _TEXTS:
        return _classes_of_indicators(read_array(path), path).ravel()
    with reading(path, "text in UTF-8"):
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    if suffix in _TABLES:
        lines = _one_column(lines, _TABLES[suffix], path)
    return np.asarray(lines[1:] if len(lines) == n_rows + 1 else lines, np.str_)


def _one_column(lines: list[str], delimiters: str, path: Path) -> list[str]:
    """Return the cells of a column; of several the second, where the first has no name, as an index."""
    delimiter = next((sign for sign in delimiters if sign in "".join(lines[:1])), delimiters[0])
    rows = list(csv.reader(lines, delimiter=delimiter))
    is_index = rows and len(rows[0]) == 2 and rows[0][0] == ""
    wrong = next((number for number, row in enumerate(rows, 1) if len(row) != 1 + bool(is_index)), None)
    if wrong is not None:
        raise DatasetError(f"{path}, line {wrong}: expected one label, got {lines[wrong - 1]!r:.50}")
    return [row[-1].strip() for row in rows]


def _classes_of_indicators(labels: AnyArray, file: str | Path) -> AnyArray:
    """Return the number of the class of each row where labels are 0/1 indicators of one; else as they are."""
    if labels.ndim != 2 or 1 in labels.shape or labels.dtype.kind not in "fiub":
        return labels
    if not (np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all()):
        raise DatasetError(
            f"{file}: labels of shape {labels.shape} must be one of each row, or 0/1 with a single 1 in each "
            "row; of several, give the others as facet_NAME"
        )
    classes: AnyArray = labels.argmax(axis=1)
    return classes


def _read_numbers(path: Path) -> AnyArray:
    with path.open(encoding="utf-8-sig") as stream:
        first = stream.readline().rstrip("\r\n")
    delimiter = next((sign for sign in _ARRAY_DELIMITERS if sign in first.strip()), ",")
    names = first.split(delimiter if delimiter != " " else None)
    is_index = names[:1] == [""]  # the row numbers that pandas writes
    numbered = [str(number) for number in range(len(names) - is_index)]
    is_header = names[is_index:] == numbered or not any(_is_number(_plain(name, delimiter)) for name in names)
    return np.loadtxt(
        path,
        delimiter=delimiter if delimiter != " " else None,
        converters=lambda word: float(_plain(word, delimiter)),
        skiprows=int(is_header),
        usecols=range(1, len(names)) if is_index and is_header else None,
        ndmin=2,
        encoding="utf-8-sig",
    )


def _plain(number: str, delimiter: str) -> str:
    return number if delimiter == "," else number.replace(",", ".")


def _row_name(name: str) -> str:
    """Return what an array of rows is called here; empty where it is none."""
    if name.startswith(_FACET):
        return name
    lower = name.lower()
    return _ALIASES.get(lower, lower if lower in _ROW_NAMES else "")


def _read_npz(path: Path, choose: Choose) -> dict[str, AnyArray]:
    with path.open("rb") as stream:
        if stream.read(len(_NPY)) == _NPY:
            raise DatasetError(
                f"{path} holds a single array: give a file of x, one of z, perhaps one of labels"
            )
        stream.seek(0)
        if not zipfile.is_zipfile(stream):
            raise DatasetError(f"{path} is no archive of arrays, or a damaged one: {_KINDS} are read")
        stream.seek(0)
        archive = np.load(stream, allow_pickle=False)
        arrays = {}
        for name in choose(archive.files):
            with reading(path, f"array {name!r}"):
                arrays[name] = archive[name]
        return arrays


def _read_matlab(path: Path, choose: Choose) -> dict[str, AnyArray]:
    with path.open("rb") as stream:
        if stream.read(len(_HDF5)) == _HDF5:
            return _read_hdf5(path, choose)
    try:
        names = list(choose([name for name, _, _ in scipy.io.whosmat(path)]))
    except NotImplementedError:  # of version 7.3, which is HDF5
        return _read_hdf5(path, choose)
    loaded = scipy.io.loadmat(path, variable_names=names)
    return {name: _matlab_array(loaded[name]) for name in names}


def _matlab_array(value: Any) -> AnyArray:
    array = to_dense(value)
    if array.dtype.kind == "O":  # cells, of which those that hold one word are labels
        cells = [np.asarray(cell) for cell in array.flat]
        array = np.asarray([cell.item() if cell.size == 1 else "" for cell in cells])
    return np.strings.rstrip(array) if array.dtype.kind == "U" else array


def _read_hdf5(path: Path, choose: Choose) -> dict[str, AnyArray]:
    try:
        import h5py
    except ImportError as error:
        raise DatasetError(
            f"{path} is HDF5 and needs h5py, of the extra: pip install 'lrbs[hdf5]'"
        ) from error
    with h5py.File(path, "r") as file:
        names = choose([name for name in file if not name.startswith("#")])
        return {name: _hdf5_array(h5py, file, name) for name in names}


def _hdf5_array(h5py: Any, file: Any, name: str) -> AnyArray:
    node = file[name]
    if "MATLAB_sparse" in node.attrs:
        starts = np.asarray(node["jc"], np.int64)
        shape = int(node.attrs["MATLAB_sparse"]), len(starts) - 1
        if "data" not in node:
            return np.zeros(shape)
        entries = np.asarray(node["data"]), np.asarray(node["ir"], np.int64), starts
        return to_dense(scipy.sparse.csc_array(entries, shape=shape))
    if not isinstance(node, h5py.Dataset):
        raise DatasetError(f"{name} is a group, not an array")
    if h5py.check_string_dtype(node.dtype) is not None:
        return np.asarray(node.asstr("utf-8")[()], np.str_)
    array: AnyArray = np.asarray(node[()])
    if h5py.check_ref_dtype(node.dtype) is not None:  # cells of MATLAB
        return np.asarray([_matlab_words(np.asarray(file[cell]))[0] for cell in array.flat], np.str_)
    if "MATLAB_class" not in node.attrs:
        return array
    return _matlab_words(array) if node.attrs["MATLAB_class"] == b"char" else array.T  # columns come first


def _matlab_words(codes: AnyArray) -> AnyArray:
    """Return the words of a matrix of characters as HDF5 holds it, one a column."""
    if codes.ndim != 2 or codes.dtype.kind != "u":
        return np.asarray([""], np.str_)
    return np.asarray(["".join(map(chr, column)).rstrip("\0 ") for column in codes.T.tolist()], np.str_)


def _read_columns(path: Path, choose: Choose) -> dict[str, AnyArray]:
    cells = read_cells(path, ("labels", "label", *_FIRST_COLUMNS))
    sides = [_FEATURE.fullmatch(name) for name in cells.header]
    of_array: dict[str, list[int]] = {}
    for number, (name, side) in enumerate(zip(cells.header, sides, strict=True)):
        of_array.setdefault(name if side is None else side[1].lower(), []).append(number)
    chosen = list(choose(list(of_array)))
    values: dict[str, list[Any]] = {name: [] for name in chosen}
    for place, row in cells.rows():
        if isinstance(row, str):
            raise DatasetError(f"{path}, {place}: {row}")
        for name in chosen if row else ():
            read = _numbers if name in ("x", "z") else _word
            plain = [_plain(cell, cells.delimiter) for cell in row] if read is _numbers else row
            values[name].append(read(path, place, cells.header, plain, of_array[name]))
    return {name: np.asarray(column) for name, column in values.items()}


def _numbers(
    path: Path, place: str, header: tuple[str, ...], row: list[str], columns: list[int]
) -> list[float]:
    try:
        return [float(row[number]) for number in columns]
    except ValueError as error:
        wrong = next(number for number in columns if not _is_number(row[number]))
        raise DatasetError(
            f"{path}, {place}, column {header[wrong]!r}: {row[wrong]!r:.50} is no number"
        ) from error


def _word(path: Path, place: str, header: tuple[str, ...], row: list[str], columns: list[int]) -> str | bool:
    name, word = header[columns[0]], row[columns[0]].strip()
    if name.lower() != "is_test":
        return word
    if word.lower() not in _BOOLS:
        raise DatasetError(f"{path}, {place}, column {name!r}: expected 0 or 1, got {word!r:.50}")
    return _BOOLS[word.lower()]


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
