"""Validation of samples, dense, sparse or in a data frame, and their affine projection."""

from __future__ import annotations

import decimal
import numbers
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.validation.errors import InvalidInputError

_FLOATS = (np.float32, np.float64)
_NUMERIC = "fiub"  # kinds of dtypes that are numbers
_READ_ONE_BY_ONE = "OUST"  # kinds whose values may be numbers all the same, or have become text beside it


def check_samples(
    samples: npt.ArrayLike,
    name: str,
    dtype: npt.DTypeLike | None = None,
    *,
    n_features: int | None = None,
) -> Samples:
    """Return `samples` as a finite, non-empty, two-dimensional float array, sparse ones by rows.
    InvalidInputError, which says `name` and the column, if they are not or have other `n_features`."""
    # Not copied if it is such an array already; duplicate entries of a sparse one are summed. Columns of
    # numbers of any type are taken, as scikit-learn takes them, and text is none. Without `dtype` float32 and
    # float64 stay as they are.
    if _is_plain(samples, _FLOATS if dtype is None else (dtype,), n_features):
        plain: Samples = samples
        return plain  # as most are: what follows takes longer than to project one
    array: Samples = _read_sparse(samples, name) if is_sparse(samples) else _read_dense(samples, name)
    if not is_frame(samples) and array.dtype.kind not in _NUMERIC + _READ_ONE_BY_ONE:
        raise InvalidInputError(f"{name} must be numeric, got dtype {array.dtype}")
    if array.ndim != 2 or 0 in array.shape:
        got = array.shape if array.ndim else type(samples).__name__
        raise InvalidInputError(f"{name} must be a non-empty (n_samples, n_features) array, got {got}")
    if array.dtype.kind not in _NUMERIC:
        array = _read_columns(samples, name)
    if n_features is not None and array.shape[1] != n_features:
        raise InvalidInputError(f"{name} has {array.shape[1]} features, the model expects {n_features}")
    if is_sparse(array) and not array.has_canonical_format:
        # Duplicate entries are summed in a copy: the caller may still own the original.
        array = array.copy()
        array.sum_duplicates()
    if dtype is None and array.dtype not in _FLOATS:
        dtype = np.float64
    with np.errstate(over="ignore"):  # infinity is refused below
        array = array.astype(dtype or array.dtype, copy=False)
    if not np.isfinite(array.data if is_sparse(array) else array).all():
        _refuse_gaps(samples, array, name)
    return array


def _is_plain(samples: Any, dtypes: Sequence[npt.DTypeLike], n_features: int | None) -> bool:
    """Return whether these are a finite array as asked for."""
    if (
        type(samples) is not np.ndarray
        or samples.ndim != 2
        or not samples.size
        or samples.dtype not in dtypes
    ):
        return False
    return n_features in (None, samples.shape[1]) and bool(np.isfinite(samples).all())


def feature_names(samples: Any) -> npt.NDArray[np.object_] | None:
    """Return the names of the columns of a data frame; None of anything else, or where one is no word."""
    names = list(samples.columns) if is_frame(samples) else []
    return np.asarray(names, object) if names and all(isinstance(name, str) for name in names) else None


def is_frame(samples: Any) -> bool:
    """Return whether these are a data frame of pandas or polars, or one like them."""
    return all(hasattr(samples, attribute) for attribute in ("shape", "columns", "dtypes"))


def _read_sparse(samples: Any, name: str) -> Samples:
    if isinstance(samples, scipy.sparse.csr_array) and samples.ndim == 2:
        return samples
    try:
        return scipy.sparse.csr_array(samples)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(f"{name} is no two-dimensional sparse array of numbers: {error}") from error


def _read_dense(samples: Any, name: str) -> npt.NDArray[Any]:
    if is_frame(samples) and not all(isinstance(dtype, np.dtype) for dtype in samples.dtypes):
        # As one array, missing categories would become numbers, and dates, too.
        return _read_columns(samples, name) if 0 not in samples.shape else np.empty(samples.shape)
    try:
        if hasattr(samples, "__dlpack__") and not hasattr(samples, "__array__"):
            return np.from_dlpack(samples)
        if isinstance(samples, np.ma.MaskedArray) and np.ma.is_masked(samples):
            return np.ma.filled(samples.astype(np.float64), np.nan)
        return np.asarray(samples)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:
        raise InvalidInputError(f"{name} is not an array: {error}") from error


def _read_columns(samples: Any, name: str) -> npt.NDArray[Any]:
    """Return the numbers of columns that have no dtype of NumPy in common, such as nullable ones."""
    is_whole = isinstance(samples, np.ndarray) or is_frame(samples)
    cells = samples if is_whole else np.asarray(samples, object)  # numbers beside text have become text
    return np.column_stack([_read_column(cells, number, name) for number in range(cells.shape[1])])


def _read_column(cells: Any, number: int, name: str) -> npt.NDArray[Any]:
    if hasattr(cells, "iloc"):
        column = cells.iloc[:, number]
        if column.dtype.kind in _NUMERIC and not isinstance(column.dtype, np.dtype):
            numeric: FloatArray = column.to_numpy(dtype=np.float64, na_value=np.nan)
            return numeric
    else:
        column = cells.to_series(number).to_numpy() if is_frame(cells) else cells[:, number]
    values = np.asarray(column)
    if values.dtype.kind in _NUMERIC and values.ndim == 1:
        return values
    place = _describe_column(cells, number)
    if values.dtype.kind not in _READ_ONE_BY_ONE:
        raise InvalidInputError(f"{name} must be numeric: {place} holds {values.dtype}")
    for row, value in enumerate(values):
        if not (is_missing(value) or isinstance(value, numbers.Real | decimal.Decimal | np.bool)):
            kind = "text" if isinstance(value, str | bytes) else f"a {type(value).__name__}"
            raise InvalidInputError(
                f"{name} must be numeric: {place} holds {kind} in row {row}: {str(value)!r:.50}"
            )
    return np.asarray([np.nan if is_missing(value) else float(value) for value in values], np.float64)


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN, NaT or the NA of pandas."""
    is_itself = value is not None and value == value
    return np.ndim(is_itself) == 0 and not (isinstance(is_itself, bool | np.bool) and bool(is_itself))


def _describe_column(samples: Any, number: int) -> str:
    if not is_frame(samples):
        return f"column {number}"
    return f"column {list(samples.columns)[number]!r} of dtype {list(samples.dtypes)[number]}"


def _refuse_gaps(samples: Any, array: Samples, name: str) -> NoReturn:
    """Raise InvalidInputError that names the columns with NaN or infinity."""
    if is_sparse(array):
        entries = scipy.sparse.coo_array(array)
        is_gap = ~np.isfinite(entries.data)
        rows, columns = (axis[is_gap] for axis in entries.coords)
        values = entries.data[is_gap]
    else:
        rows, columns = np.nonzero(~np.isfinite(array))
        values = array[rows, columns]
    first = np.lexsort((rows, columns))[0]
    what = "missing values (NaN)" if np.isnan(values[first]) else "infinity"
    others = np.unique(columns)[1:].tolist()
    rest = f"; so do {len(others)} more, such as {_describe_column(samples, others[0])}" if others else ""
    place = _describe_column(samples, int(columns[first]))
    raise InvalidInputError(f"{name} contains {what}: {place} does in row {rows[first]}{rest}")


def project_affinely(
    samples: npt.ArrayLike, factors: FloatArray, intercept: FloatArray, name: str
) -> FloatArray:
    """Return ``samples @ factors + intercept`` in the dtype of the factors; InvalidInputError says `name`."""
    array = check_samples(samples, name, n_features=factors.shape[0])
    # In the wider of both precisions: large samples may meet small factors, or the reverse.
    projected: FloatArray = np.asarray(array @ factors + intercept).astype(factors.dtype, copy=False)
    return projected


def check_array(name: str, array: FloatArray, shape: tuple[int | None, ...]) -> None:
    """Raise InvalidInputError, which says `name`, unless an array has finite floats and the shape.
    None in the shape stands for any length."""
    if array.dtype not in _FLOATS:
        raise InvalidInputError(f"{name} must hold floats, got dtype {array.dtype}")
    fits = array.ndim == len(shape) and all(
        size in (None, length) for size, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        expected = tuple("any" if size is None else size for size in shape)
        raise InvalidInputError(f"{name} must have shape {expected}, got {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} contains NaN or infinity")
