"""The kinds of supervision: by one class or several labels per sample, by rows, or by a list of pairs."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg import FloatArray, Samples, check_samples, is_frame, is_missing, is_sparse, to_dense
from solver.threads import row_blocks
from solver.validation import InvalidInputError, SupervisionError, is_integer

Indices = npt.NDArray[np.intp]

PairKey = tuple[slice, slice] | tuple[Indices, Indices] | npt.NDArray[np.bool_]
"""Anything that picks pairs out of a tile: a rectangle, lists of rows and columns, or a mask."""


class Supervision(Protocol):
    """What a loss needs to know about the pairs, counted in visiting order: row r is sample
    ``x_order[r]``."""

    x_order: Indices  # visiting order of the first modality's samples
    z_order: Indices
    n_similar: int  # size of S, the set of similar pairs
    n_dissimilar: int  # size of D, the set of dissimilar pairs

    def similar_pairs(self, rows: slice, columns: slice) -> list[PairKey]:
        """Return the similar pairs of a tile as disjoint keys into it."""

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the similar pairs, samples in their own order, in float64."""

    def subset(self, x_rows: Indices, z_rows: Indices) -> Supervision:
        """Return the supervision of some samples of each modality."""


def similarity_mask(supervision: Supervision, rows: slice, columns: slice) -> npt.NDArray[np.bool_]:
    """Return which pairs of a tile are similar, as a table."""
    is_similar = np.zeros((rows.stop - rows.start, columns.stop - columns.start), np.bool_)
    for key in supervision.similar_pairs(rows, columns):
        is_similar[key] = True
    return is_similar


_FEW_PAIRS, _MANY_CLASSES = 64, 64
"""Classes of so few pairs in a tile are listed pair by pair where there are at least this number of them: a
step of the interpreter for each would take longer than the numbers."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """Samples of one modality sorted by an integer code: where each code begins and ends."""

    order: Indices
    starts: Indices
    stops: Indices

    @classmethod
    def of(cls, codes: Indices, n_codes: int) -> _Runs:
        counts = np.bincount(codes, minlength=n_codes)
        stops = np.cumsum(counts).astype(np.intp)
        return cls(np.argsort(codes, kind="stable"), stops - counts, stops)

    def clip(self, codes: slice, within: slice) -> tuple[Indices, Indices]:
        """Return where the parts of runs that lie in `within` begin, from its start, and their sizes."""
        starts, stops = (
            np.clip(ends[codes], within.start, within.stop) for ends in (self.starts, self.stops)
        )
        return starts - within.start, stops - starts


class Labels:
    """One class per sample; a pair is similar when both samples carry the same class.

    Parameters
    ----------
    x_labels : array-like of shape (n_samples_x,)
        Classes of the first modality: integers or strings, such as a column of a data frame.
    z_labels : array-like of shape (n_samples_z,), optional
        Classes of the second modality; the first's when left out (paired rows).
        The two may differ in length, and a class may occur on one side only.

    Attributes
    ----------
    classes : ndarray
        All classes, in order.
    x_targets, z_targets : ndarray of int
        Class of each sample, as a number.
    x_order, z_order : ndarray of int
        Samples of either modality, class by class.
    n_similar, n_dissimilar : int
        Numbers of pairs of the same class, and of different ones.

    Raises
    ------
    SupervisionError
        If the labels are not one-dimensional, are missing for some sample, are not comparable, or
        leave no similar or no dissimilar pair.

    Examples
    --------
    >>> supervision = Labels(["cat", "dog", "dog"], ["dog", "cat"])
    >>> supervision.n_similar, supervision.n_dissimilar
    (3, 3)
    """

    def __init__(self, x_labels: npt.ArrayLike, z_labels: npt.ArrayLike | None = None) -> None:
        x = _one_dimensional(x_labels, "x_labels")
        z = x if z_labels is None else _one_dimensional(z_labels, "z_labels")
        if (x.dtype.kind in "US") != (z.dtype.kind in "US"):
            raise SupervisionError(f"x_labels ({x.dtype}) and z_labels ({z.dtype}) are not of one kind")
        classes, codes = np.unique(_join(x, z), return_inverse=True)
        self.classes: npt.NDArray[Any] = classes
        self.x_targets: Indices = codes[: len(x)]
        self.z_targets: Indices = codes[len(x) :]
        self._x, self._z = (_Runs.of(side, len(classes)) for side in (self.x_targets, self.z_targets))
        self.x_order, self.z_order = self._x.order, self._z.order
        self.n_similar = int(np.sum((self._x.stops - self._x.starts) * (self._z.stops - self._z.starts)))
        self.n_dissimilar = len(x) * len(z) - self.n_similar
        if self.n_similar == 0:
            raise SupervisionError("no similar pair: x_labels and z_labels have no class in common")
        if self.n_dissimilar == 0:
            raise SupervisionError(f"no dissimilar pair: every sample has the label {str(classes[0])!r}")

    def similar_pairs(self, rows: slice, columns: slice) -> list[PairKey]:
        """Return one rectangle per class with both rows and columns in the tile; many small ones together."""
        first = int(np.searchsorted(self._x.stops, rows.start, side="right"))
        codes = slice(first, int(np.searchsorted(self._x.starts, rows.stop, side="left")))
        (x_starts, x_sizes), (z_starts, z_sizes) = self._x.clip(codes, rows), self._z.clip(codes, columns)
        sizes = x_sizes * z_sizes
        is_small = (sizes > 0) & (sizes <= _FEW_PAIRS)
        is_small &= np.count_nonzero(is_small) >= _MANY_CLASSES
        rectangles = np.column_stack([x_starts, x_starts + x_sizes, z_starts, z_starts + z_sizes])
        keys: list[PairKey] = [
            (slice(top, bottom), slice(left, right))
            for top, bottom, left, right in rectangles[(sizes > 0) & ~is_small].tolist()
        ]
        if is_small.any():
            small = np.flatnonzero(is_small)
            block = np.repeat(small, sizes[small])
            place = np.arange(len(block)) - np.repeat(np.cumsum(sizes[small]) - sizes[small], sizes[small])
            own, partners = np.divmod(place, z_sizes[block])
            keys.append((x_starts[block] + own, z_starts[block] + partners))
        return keys

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the pairs with the same class, in float64."""
        n_classes = len(self.classes)
        return group_sums(X, self.x_targets, n_classes).T @ group_sums(Z, self.z_targets, n_classes)

    def subset(self, x_rows: Indices, z_rows: Indices) -> Self:
        """Return the labels of some samples."""
        return type(self)(self.x_targets[x_rows], self.z_targets[z_rows])


def group_sums(samples: Samples, codes: Indices, n_groups: int) -> FloatArray:
    """Return the (n_groups, n_features) sums of the samples of each code, in float64."""
    membership = scipy.sparse.csr_array(
        (np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(n_groups, len(codes))
    )
    sums = np.zeros((n_groups, samples.shape[1]))
    for rows in row_blocks(len(codes)):  # a memory-mapped array is never copied as a whole
        product = membership[:, rows] @ samples[rows]
        sums += to_dense(product)
    return sums


def _one_dimensional(labels: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    array = np.asarray(labels)
    if array.dtype.kind in "US" and isinstance(labels, list | tuple):
        array = np.asarray(labels, object)  # what is missing has become the word "nan"
    if array.ndim != 1 or len(array) == 0:
        raise SupervisionError(f"{name} must be a non-empty list of one label per sample, got {array.shape}")
    if array.dtype.kind in "OT":
        for position, label in enumerate(array):
            if is_missing(label):
                raise SupervisionError(f"{name}[{position}] is missing ({label!r})")
        are_integers = all(isinstance(label, numbers.Integral | np.bool) for label in array)
        array = np.asarray(array.tolist() if are_integers else [str(label) for label in array])
    if array.dtype.kind in "fmM" and not np.isfinite(array).all():
        position = np.flatnonzero(~np.isfinite(array))[0]
        raise SupervisionError(f"{name}[{position}] is missing or infinite ({array[position]})")
    return array


def _join(x: npt.NDArray[Any], z: npt.NDArray[Any]) -> npt.NDArray[Any]:
    joined = np.concatenate([x, z])
    if joined.dtype.kind == "f" and "f" != x.dtype.kind != z.dtype.kind:
        # int64 joined with uint64 becomes float64, which merges large neighbours; Python's integers do not.
        joined = np.concatenate([x.astype(object), z.astype(object)])
    return joined


_LARGEST_TABLE = 1 << 22  # entries of the table of distinct label sets that is kept: 4 MiB of booleans
_SETS_AT_ONCE = 256
"""Label sets compared at once where there is no table: memory then grows with one modality only."""


class MultiLabels:
    """Any number of labels per sample; a pair is similar when the two share at least one.

    Parameters
    ----------
    x_indicators : array-like or sparse array of shape (n_samples_x, n_labels)
        True or 1 where a sample of the first modality carries a label; stored dense.
    z_indicators : array-like or sparse array of shape (n_samples_z, n_labels), optional
        The same for the second modality; if omitted, those of the first are used (paired rows).

    Attributes
    ----------
    x_targets, z_targets : ndarray of bool, shape (n_samples, n_labels)
        Labels of each sample.
    x_order, z_order : ndarray of int
        Samples of either modality, those with equal labels together.
    n_similar, n_dissimilar : int
        Numbers of pairs that share a label, and of those that share none.

    Raises
    ------
    SupervisionError
        If the indicators are not two-dimensional arrays of 0 and 1 over the same labels, or leave no
        similar or no dissimilar pair.

    Examples
    --------
    >>> supervision = MultiLabels([[1, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 1, 1]])
    >>> supervision.n_similar, supervision.n_dissimilar
    (3, 1)
    """

    def __init__(self, x_indicators: npt.ArrayLike, z_indicators: npt.ArrayLike | None = None) -> None:
        x = _indicators(x_indicators, "x_indicators")
        z = x if z_indicators is None else _indicators(z_indicators, "z_indicators")
        if x.shape[1] != z.shape[1]:
            raise SupervisionError(f"x_indicators has {x.shape[1]} labels, z_indicators has {z.shape[1]}")
        self.x_targets, self.z_targets = x, z
        self._x_sets, self._x_codes, x_counts = _distinct_rows(x)
        self._z_sets, self._z_codes, z_counts = _distinct_rows(z)
        self.x_order: Indices = np.argsort(self._x_codes, kind="stable")
        self.z_order: Indices = np.argsort(self._z_codes, kind="stable")
        # In practice the distinct sets are few; where nearly all samples differ, no table of them is kept.
        is_small = len(self._x_sets) * len(self._z_sets) <= _LARGEST_TABLE
        self._table = _share_a_label(self._x_sets, self._z_sets) if is_small else None
        self.n_similar = sum(
            int(x_counts[run] @ (self._count_shared(run, slice(None)) @ z_counts))
            for run in row_blocks(len(self._x_sets), _SETS_AT_ONCE)
        )
        self.n_dissimilar = len(x) * len(z) - self.n_similar
        if self.n_similar == 0:
            raise SupervisionError("no similar pair: no two samples share a label")
        if self.n_dissimilar == 0:
            raise SupervisionError("no dissimilar pair: every pair across the modalities shares a label")

    def similar_pairs(self, rows: slice, columns: slice) -> list[PairKey]:
        """Return one mask for the whole tile, if anything in it is similar."""
        x, z = self._x_codes[self.x_order[rows]], self._z_codes[self.z_order[columns]]
        # Codes are sorted, so a tile covers one contiguous run of distinct label sets on each side.
        share = self._count_shared(slice(x[0], x[-1] + 1), slice(z[0], z[-1] + 1))
        mask = share[x - x[0]][:, z - z[0]]
        return [mask] if mask.any() else []

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the pairs that share a label, in float64."""
        x_sums = group_sums(X, self._x_codes, len(self._x_sets))
        z_sums = group_sums(Z, self._z_codes, len(self._z_sets))
        total = np.zeros((X.shape[1], Z.shape[1]))
        for run in row_blocks(len(self._x_sets), _SETS_AT_ONCE):
            total += x_sums[run].T @ (self._count_shared(run, slice(None)).astype(np.float64) @ z_sums)
        return total

    def subset(self, x_rows: Indices, z_rows: Indices) -> Self:
        """Return the labels of some samples."""
        return type(self)(self.x_targets[x_rows], self.z_targets[z_rows])

    def _count_shared(self, x_run: slice, z_run: slice) -> npt.NDArray[np.bool_]:
        """Return which of the distinct sets of labels have one in common."""
        if self._table is None:
            return _share_a_label(self._x_sets[x_run], self._z_sets[z_run])
        return self._table[x_run, z_run]


def _indicators(indicators: npt.ArrayLike, name: str) -> npt.NDArray[np.bool_]:
    try:
        array = check_samples(indicators, name) if is_frame(indicators) else to_dense(indicators)
    except InvalidInputError as error:
        raise SupervisionError(f"{name} must hold 0 and 1 only: {error}") from error
    if array.ndim != 2 or 0 in array.shape:
        raise SupervisionError(
            f"{name} must be a non-empty (n_samples, n_labels) array, got shape {array.shape}"
        )
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise SupervisionError(f"{name} must hold 0 and 1 only")
    return array.astype(np.bool_)


def _distinct_rows(indicators: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.float32], Indices, Indices]:
    sets, codes, counts = np.unique(indicators, axis=0, return_inverse=True, return_counts=True)
    return sets.astype(np.float32), codes.reshape(-1), counts


def _share_a_label(x_sets: npt.NDArray[np.float32], z_sets: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    return (x_sets @ z_sets.T) > 0


class PairedRows:
    """Row i of one modality matches row i of the other, and nothing else.

    Parameters
    ----------
    n : int, >= 2
        Number of samples of either modality.

    Attributes
    ----------
    x_order, z_order : ndarray of int
        The rows as they are.
    n_similar, n_dissimilar : int
        One pair a row, and all others.

    Raises
    ------
    SupervisionError
        If `n` is not an integer of at least 2.
    """

    def __init__(self, n: int) -> None:
        if not is_integer(n, least=2):
            raise SupervisionError(f"n must be an integer >= 2 (one row has no dissimilar pair), got {n!r}")
        self.x_order = self.z_order = np.arange(n)
        self.n_similar = len(self.x_order)
        self.n_dissimilar = self.n_similar**2 - self.n_similar

    def similar_pairs(self, rows: slice, columns: slice) -> list[PairKey]:
        """Return the part of the diagonal that crosses the tile."""
        diagonal = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
        return [(diagonal - rows.start, diagonal - columns.start)] if len(diagonal) else []

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_i^T``, in float64."""
        total = np.zeros((X.shape[1], Z.shape[1]))
        for rows in row_blocks(self.n_similar):
            product = X[rows].T.astype(np.float64) @ Z[rows].astype(np.float64)
            total += to_dense(product)
        return total

    def subset(self, x_rows: Indices, z_rows: Indices) -> PairedRows:
        """Return the supervision of the same rows of both modalities.

        SupervisionError if the two differ: a row without its partner says nothing.
        """
        if not np.array_equal(x_rows, z_rows):
            raise SupervisionError("a subset of paired rows takes the same rows of both modalities")
        return PairedRows(len(x_rows))


class SignedPairs:
    """Pairs known to be similar (+1) or dissimilar (-1); absent ones are unknown and not counted.

    Parameters
    ----------
    signs : sparse array of shape (n_samples_x, n_samples_z)
        +1 and -1 at the known pairs.
    weights : sparse array of shape (n_samples_x, n_samples_z), optional
        Positive weight of each known pair, stored at the same places; they are scaled so that the
        similar and the dissimilar pairs weigh 1 in all. Equal weights when left out, which are the
        paper's 1/|S| and 1/|D|.

    Attributes
    ----------
    rows, columns : ndarray of int
        Where each pair is; `signs` and `weights` are parallel to them.
    x_order, z_order : ndarray of int
        The samples as they are.
    n_similar, n_dissimilar : int
        Numbers of pairs marked +1, and marked -1.

    Raises
    ------
    SupervisionError
        If `signs` holds anything else, `weights` does not fit it, or no similar or no dissimilar pair
        is left.

    Examples
    --------
    >>> import scipy.sparse
    >>> supervision = SignedPairs(scipy.sparse.coo_array(([1, -1], ([0, 1], [2, 0])), shape=(2, 3)))
    >>> supervision.n_similar, supervision.n_dissimilar
    (1, 1)
    """

    def __init__(self, signs: Any, weights: Any | None = None) -> None:
        table = _csr(signs, "signs")
        if not np.isin(table.data, (-1, 1)).all():
            raise SupervisionError("signs must hold +1 and -1 only, where a pair is known")
        self.shape: tuple[int, int] = table.shape
        self.indptr: Indices = table.indptr.astype(np.intp)
        self.columns: Indices = table.indices.astype(np.intp)
        self.signs: npt.NDArray[np.float64] = table.data.astype(np.float64)
        self.rows: Indices = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        self.x_order, self.z_order = (np.arange(size) for size in self.shape)
        self.n_similar = int(np.count_nonzero(self.signs > 0))
        self.n_dissimilar = len(self.signs) - self.n_similar
        if self.n_similar == 0 or self.n_dissimilar == 0:
            kind = "similar (+1)" if self.n_similar == 0 else "dissimilar (-1)"
            raise SupervisionError(f"no {kind} pair in signs")
        self.weights = self._balance(None if weights is None else _csr(weights, "weights"))

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the pairs marked +1, in float64."""
        similar = scipy.sparse.csr_array(
            ((self.signs > 0).astype(np.float64), self.columns, self.indptr), shape=self.shape
        )
        total: Any = X.T @ (similar @ Z)
        return to_dense(total)

    def subset(self, x_rows: Indices, z_rows: Indices) -> Self:
        """Return the pairs among some samples of each modality."""
        table = scipy.sparse.csr_array((self.signs, self.columns, self.indptr), shape=self.shape)
        weights = scipy.sparse.csr_array((self.weights, self.columns, self.indptr), shape=self.shape)
        return type(self)(table[x_rows][:, z_rows], weights[x_rows][:, z_rows])

    def _balance(self, table: Any | None) -> npt.NDArray[np.float64]:
        weights = np.ones(len(self.signs))
        if table is not None:
            if table.shape != self.shape or not (
                np.array_equal(table.indptr, self.indptr) and np.array_equal(table.indices, self.columns)
            ):
                raise SupervisionError("weights must be stored at the same pairs as signs")
            weights = table.data.astype(np.float64)
            if not (np.isfinite(weights).all() and (weights > 0).all()):
                raise SupervisionError("weights must be finite and > 0")
        for sign in (1.0, -1.0):
            has_sign = self.signs == sign
            weights[has_sign] /= weights[has_sign].sum()
        return weights


def _csr(table: Any, name: str) -> Any:
    if not is_sparse(table):
        raise SupervisionError(f"{name} must be a scipy sparse array of shape (n_samples_x, n_samples_z)")
    if table.ndim != 2 or 0 in table.shape:
        raise SupervisionError(f"{name} must be non-empty and two-dimensional, got shape {table.shape}")
    converted = scipy.sparse.csr_array(table, copy=True)
    converted.sum_duplicates()
    converted.sort_indices()
    return converted


AnySupervision = Supervision | SignedPairs  # all pairs of samples, or a list of them
