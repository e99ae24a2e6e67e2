"""Which pairs of samples are similar: the supervision of a bilinear similarity.

A supervision object answers four questions of the loss: how many similar and dissimilar pairs
there are (they set the weights w = 1/|S| and 1/|D| of the paper), in which order the samples should
be visited so that similar pairs stand together, which pairs of a tile are similar, and what it would be
on some of the samples only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.errors import SupervisionError
from solver.linalg import FloatArray, Samples, is_sparse

Indices = npt.NDArray[np.intp]

_ROWS_AT_ONCE = 4096

PairKey = tuple[slice, slice] | tuple[Indices, Indices] | npt.NDArray[np.bool_]
"""Anything that picks pairs out of a tile: a rectangle, lists of rows and columns, or a mask."""

_SETS_AT_ONCE = 256
_LARGEST_TABLE = 1 << 22


class Supervision(Protocol):
    """What a loss needs to know about the pairs.

    Rows and columns are counted in visiting order: row r is sample ``x_order[r]``.
    """

    @property
    def x_order(self) -> Indices:
        """Visiting order of the first modality's samples."""
        ...

    @property
    def z_order(self) -> Indices:
        """Visiting order of the second modality's samples."""
        ...

    @property
    def n_similar(self) -> int:
        """Size of S, the set of similar pairs."""
        ...

    @property
    def n_dissimilar(self) -> int:
        """Size of D, the set of dissimilar pairs."""
        ...

    def similar_pairs(self, rows: slice, columns: slice) -> list[PairKey]:
        """Return the similar pairs of a tile as disjoint keys into it."""
        ...

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the similar pairs, samples in their own order, in float64."""
        ...

    def restricted(self, x_rows: Indices, z_rows: Indices) -> Supervision:
        """Return the supervision of some samples of each modality."""
        ...


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

    def clipped(self, code: int, within: slice) -> slice:
        """Return the part of a code's run that lies in `within`, counted from its start."""
        start = max(int(self.starts[code]), within.start) - within.start
        return slice(start, max(min(int(self.stops[code]), within.stop) - within.start, start))


class Labels:
    """One class per sample; a pair is similar when both samples carry the same class.

    Parameters
    ----------
    x_labels : array-like of shape (n_samples_x,)
        Classes of the first modality: integers or strings.
    z_labels : array-like of shape (n_samples_z,), optional
        Classes of the second modality; the first's when left out (paired rows).
        The two may differ in length, and a class may occur on one side only.

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
        classes, codes = np.unique(_joined(x, z), return_inverse=True)
        self.classes: npt.NDArray[Any] = classes
        self._x_codes, self._z_codes = codes[: len(x)], codes[len(x) :]
        self._x = _Runs.of(self._x_codes, len(classes))
        self._z = _Runs.of(self._z_codes, len(classes))
        self._n_similar = int(np.sum((self._x.stops - self._x.starts) * (self._z.stops - self._z.starts)))
        if self.n_similar == 0:
            raise SupervisionError("no similar pair: x_labels and z_labels have no class in common")
        if self.n_dissimilar == 0:
            raise SupervisionError(f"no dissimilar pair: every sample has the label {classes[0]!r}")

    @property
    def x_order(self) -> Indices:
        """Samples of the first modality, class by class."""
        return self._x.order

    @property
    def z_order(self) -> Indices:
        """Samples of the second modality, class by class."""
        return self._z.order

    @property
    def n_similar(self) -> int:
        """Number of pairs with the same class."""
        return self._n_similar

    @property
    def n_dissimilar(self) -> int:
        """Number of pairs with different classes."""
        return len(self._x.order) * len(self._z.order) - self._n_similar

    @property
    def x_targets(self) -> Indices:
        """Class of each sample of the first modality, as a number."""
        return self._x_codes

    @property
    def z_targets(self) -> Indices:
        """Class of each sample of the second modality, as a number."""
        return self._z_codes

    def similar_pairs(self, rows: slice, columns: slice) -> list[PairKey]:
        """Return one rectangle per class that has both rows and columns in the tile."""
        keys: list[PairKey] = []
        first = int(np.searchsorted(self._x.stops, rows.start, side="right"))
        for code in range(first, len(self.classes)):
            if self._x.starts[code] >= rows.stop:
                break
            key = self._x.clipped(code, rows), self._z.clipped(code, columns)
            if key[0].start < key[0].stop and key[1].start < key[1].stop:
                keys.append(key)
        return keys

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the pairs with the same class, in float64."""
        n_classes = len(self.classes)
        return _group_sums(X, self._x_codes, n_classes).T @ _group_sums(Z, self._z_codes, n_classes)

    def restricted(self, x_rows: Indices, z_rows: Indices) -> Self:
        """Return the labels of some samples."""
        return type(self)(self._x_codes[x_rows], self._z_codes[z_rows])


class MultiLabels:
    """Any number of labels per sample; a pair is similar when the two share at least one.

    Parameters
    ----------
    x_indicators : array-like of shape (n_samples_x, n_labels)
        True or 1 where a sample of the first modality carries a label.
    z_indicators : array-like of shape (n_samples_z, n_labels), optional
        Of the second modality; the first's when left out (paired rows).

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
        self._x_indicators, self._z_indicators = x, z
        self._x_sets, self._x_codes, x_counts = _distinct_rows(x)
        self._z_sets, self._z_codes, z_counts = _distinct_rows(z)
        self._x_order = np.argsort(self._x_codes, kind="stable")
        self._z_order = np.argsort(self._z_codes, kind="stable")
        # In practice the distinct sets are few; where nearly all samples differ, no table of them is kept.
        is_small = len(self._x_sets) * len(self._z_sets) <= _LARGEST_TABLE
        self._table = _share_a_label(self._x_sets, self._z_sets) if is_small else None
        self._n_similar = sum(
            int(x_counts[some] @ (self._shared(some, slice(None)) @ z_counts))
            for some in self._runs_of_sets()
        )
        if self.n_similar == 0:
            raise SupervisionError("no similar pair: no two samples share a label")
        if self.n_dissimilar == 0:
            raise SupervisionError("no dissimilar pair: all samples share a label with each other")

    @property
    def x_order(self) -> Indices:
        """Samples of the first modality, those with equal labels together."""
        return self._x_order

    @property
    def z_order(self) -> Indices:
        """Samples of the second modality, those with equal labels together."""
        return self._z_order

    @property
    def n_similar(self) -> int:
        """Number of pairs that share a label."""
        return self._n_similar

    @property
    def n_dissimilar(self) -> int:
        """Number of pairs without a label in common."""
        return len(self._x_order) * len(self._z_order) - self._n_similar

    @property
    def x_targets(self) -> npt.NDArray[np.bool_]:
        """Labels of each sample of the first modality, as indicators."""
        return self._x_indicators

    @property
    def z_targets(self) -> npt.NDArray[np.bool_]:
        """Labels of each sample of the second modality, as indicators."""
        return self._z_indicators

    def similar_pairs(self, rows: slice, columns: slice) -> list[PairKey]:
        """Return one mask for the whole tile, if anything in it is similar."""
        x, z = self._x_codes[self._x_order[rows]], self._z_codes[self._z_order[columns]]
        # Codes ascend, so that a tile meets one run of the distinct sets of either side.
        share = self._shared(slice(x[0], x[-1] + 1), slice(z[0], z[-1] + 1))
        mask = share[x - x[0]][:, z - z[0]]
        return [mask] if mask.any() else []

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_j^T`` over the pairs that share a label, in float64."""
        x_sums = _group_sums(X, self._x_codes, len(self._x_sets))
        z_sums = _group_sums(Z, self._z_codes, len(self._z_sets))
        total = np.zeros((X.shape[1], Z.shape[1]))
        for some in self._runs_of_sets():
            total += x_sums[some].T @ (self._shared(some, slice(None)).astype(np.float64) @ z_sums)
        return total

    def restricted(self, x_rows: Indices, z_rows: Indices) -> Self:
        """Return the labels of some samples."""
        return type(self)(self._x_indicators[x_rows], self._z_indicators[z_rows])

    def _runs_of_sets(self) -> Iterator[slice]:
        for start in range(0, len(self._x_sets), _SETS_AT_ONCE):
            yield slice(start, start + _SETS_AT_ONCE)

    def _shared(self, x_run: slice, z_run: slice) -> npt.NDArray[np.bool_]:
        """Return which of the distinct sets of labels have one in common."""
        if self._table is None:
            return _share_a_label(self._x_sets[x_run], self._z_sets[z_run])
        return self._table[x_run, z_run]


class PairedRows:
    """Row i of one modality matches row i of the other, and nothing else.

    Parameters
    ----------
    n : int, >= 2
        Number of samples of either modality.

    Raises
    ------
    SupervisionError
        If `n` is not an integer of at least 2.
    """

    def __init__(self, n: int) -> None:
        if not isinstance(n, int | np.integer) or isinstance(n, bool) or n < 2:
            raise SupervisionError(f"n must be an integer >= 2 (one row has no dissimilar pair), got {n!r}")
        self._order = np.arange(n)

    @property
    def x_order(self) -> Indices:
        """The rows as they are."""
        return self._order

    @property
    def z_order(self) -> Indices:
        """The rows as they are."""
        return self._order

    @property
    def n_similar(self) -> int:
        """One pair per row."""
        return len(self._order)

    @property
    def n_dissimilar(self) -> int:
        """All other pairs."""
        return len(self._order) ** 2 - len(self._order)

    def similar_pairs(self, rows: slice, columns: slice) -> list[PairKey]:
        """Return the part of the diagonal that crosses the tile."""
        diagonal = np.arange(max(rows.start, columns.start), min(rows.stop, columns.stop))
        return [(diagonal - rows.start, diagonal - columns.start)] if len(diagonal) else []

    def sum_over_similar(self, X: Samples, Z: Samples) -> FloatArray:
        """Return ``sum x_i z_i^T``, in float64."""
        total = np.zeros((X.shape[1], Z.shape[1]))
        for start in range(0, len(self._order), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            product = X[rows].T.astype(np.float64) @ Z[rows].astype(np.float64)
            total += product.toarray() if is_sparse(product) else product
        return total

    def restricted(self, x_rows: Indices, z_rows: Indices) -> PairedRows:
        """Return the supervision of the same rows of both modalities.

        Raises
        ------
        SupervisionError
            If the two differ: a row without its partner says nothing.
        """
        if not np.array_equal(x_rows, z_rows):
            raise SupervisionError("paired rows can only be restricted to the same rows of both modalities")
        return PairedRows(len(x_rows))


def _group_sums(samples: Samples, codes: Indices, n_groups: int) -> FloatArray:
    """Return the (n_groups, n_features) sums of the samples of each code, in float64."""
    membership = scipy.sparse.csr_array(
        (np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(n_groups, len(codes))
    )
    sums = np.zeros((n_groups, samples.shape[1]))
    for start in range(0, len(codes), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        product = membership[:, rows] @ samples[rows]
        sums += product.toarray() if is_sparse(product) else product
    return sums


def _one_dimensional(labels: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    array = np.asarray(labels)
    if array.ndim != 1 or len(array) == 0:
        raise SupervisionError(f"{name} must be a non-empty list of one label per sample, got {array.shape}")
    if array.dtype.kind == "O":
        for position, label in enumerate(array):
            if label is None or label != label:
                raise SupervisionError(f"{name}[{position}] is missing ({label!r})")
        array = np.asarray([str(label) for label in array])
    if (array.dtype.kind == "f" and not np.isfinite(array).all()) or (
        array.dtype.kind in "mM" and np.isnat(array).any()
    ):
        raise SupervisionError(f"{name} contains NaN, NaT or infinity")
    return array


def _joined(x: npt.NDArray[Any], z: npt.NDArray[Any]) -> npt.NDArray[Any]:
    joined = np.concatenate([x, z])
    if joined.dtype.kind == "f" and "f" != x.dtype.kind != z.dtype.kind:
        # int64 beside uint64 becomes float64, which merges large neighbours; Python's integers do not.
        joined = np.concatenate([x.astype(object), z.astype(object)])
    return joined


def _indicators(indicators: npt.ArrayLike, name: str) -> npt.NDArray[np.bool_]:
    array = np.asarray(indicators)
    if array.ndim != 2 or 0 in array.shape:
        raise SupervisionError(
            f"{name} must be a non-empty (n_samples, n_labels) array, got shape {array.shape}"
        )
    if array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise SupervisionError(f"{name} must hold 0 and 1 only")
    return array.astype(np.bool_)


def _distinct_rows(
    indicators: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.float32], Indices, Indices]:
    sets, codes, counts = np.unique(indicators, axis=0, return_inverse=True, return_counts=True)
    return sets.astype(np.float32), codes.reshape(-1), counts


def _share_a_label(x_sets: npt.NDArray[np.float32], z_sets: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    shared: npt.NDArray[np.bool_] = (x_sets @ z_sets.T) > 0
    return shared
