"""Supervision by one class per sample."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.linalg.matrices import FloatArray, Samples, to_dense
from solver.linalg.samples import is_missing
from solver.supervision.base import Indices, PairKey
from solver.validation.errors import SupervisionError

_ROWS_AT_ONCE = 4096  # samples summed at once, so that a memory-mapped array is never copied as a whole

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
    for start in range(0, len(codes), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
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
