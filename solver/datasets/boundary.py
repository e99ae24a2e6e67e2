"""Reading data files: any exception of a reader becomes a DatasetError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import FloatArray
from solver.validation.errors import DatasetError


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Turn what a file's reader raises into DatasetError.

    Parameters
    ----------
    path : Path
        Named in the message.
    kind : str
        What the file should be, such as ".npz archive".
    """
    try:
        yield
    except DatasetError:
        raise
    # A damaged file makes readers raise a dozen types, MemoryError and RecursionError among them.
    except Exception as error:
        raise DatasetError(
            f"{path} is not a readable {kind}: {str(error) or type(error).__name__}"
        ) from error


def stacked_features(parts: dict[str, Any], path: Path) -> FloatArray:
    """Return the rows of several arrays of one modality.

    Parameters
    ----------
    parts : dict of str to ndarray
        Arrays by the name the file gives them.
    path : Path
        Named in the message.

    Raises
    ------
    DatasetError
        If one is not a numeric matrix, or their numbers of features differ.
    """
    for name, array in parts.items():
        if not isinstance(array, np.ndarray) or array.ndim != 2 or array.dtype.kind not in "fiub":
            raise DatasetError(f"{path}: {name} must be a numeric matrix, got {_describe(array)}")
    widths = {name: array.shape[1] for name, array in parts.items()}
    if len(set(widths.values())) != 1 or 0 in widths.values():
        raise DatasetError(f"{path}: {' and '.join(widths)} have different features or none: {widths}")
    rows: FloatArray = np.concatenate(list(parts.values()))
    return rows


def label_column(array: Any, name: str, path: Path) -> npt.NDArray[Any]:
    """Return labels as one vector of int64 or of strings.

    Parameters
    ----------
    array : ndarray of shape (n,), (n, 1) or (1, n)
        Integers, floats that are integers, booleans or strings; MATLAB has no vectors and
        rarely stores integers.
    name : str
        How the file names it.
    path : Path
        Named in the message.

    Raises
    ------
    DatasetError
        If it is not such an array.
    """
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
