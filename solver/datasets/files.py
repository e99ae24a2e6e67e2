"""Arrays by name from files of NumPy, MATLAB, HDF5 and CSV; no pickle."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.io
import scipy.sparse

from solver.datasets.boundary import reading
from solver.datasets.cells import read_cells
from solver.linalg.matrices import to_dense
from solver.validation.errors import DatasetError

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
_DELIMITERS = ";\t, "  # the first that occurs is taken; where it is no comma, a comma is a decimal point


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
    delimiter = next((sign for sign in _DELIMITERS if sign in first.strip()), ",")
    names = first.split(delimiter if delimiter != " " else None)
    is_index = names[:1] == [""]  # the row numbers that pandas writes
    numbered = [str(number) for number in range(len(names) - is_index)]
    is_header = names[is_index:] == numbered or not any(_is_number(_plain(name, delimiter)) for name in names)
    array: AnyArray = np.loadtxt(
        path,
        delimiter=delimiter if delimiter != " " else None,
        converters=lambda word: float(_plain(word, delimiter)),
        skiprows=int(is_header),
        usecols=range(1, len(names)) if is_index and is_header else None,
        ndmin=2,
        encoding="utf-8-sig",
    )
    return array


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
