"""Reading data files: any exception of a reader becomes a DatasetError."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import FloatArray
from solver.linalg.samples import check_samples
from solver.validation.errors import DatasetError, InvalidInputError

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
    rows: FloatArray = np.concatenate(list(parts.values()))
    return rows


def split_features(
    arrays: Mapping[str, Any],
    side: str,
    rows: Mapping[str, Collection[Any]],
    path: Path,
    what: str,
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
