"""Samples that carry any number of labels each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import FloatArray, Samples, to_dense
from solver.linalg.samples import check_samples, is_frame
from solver.supervision.base import Indices, PairKey
from solver.supervision.labels import group_sums
from solver.validation.errors import InvalidInputError, SupervisionError

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
            for run in self._runs_of_sets()
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
        for run in self._runs_of_sets():
            total += x_sums[run].T @ (self._count_shared(run, slice(None)).astype(np.float64) @ z_sums)
        return total

    def subset(self, x_rows: Indices, z_rows: Indices) -> Self:
        """Return the labels of some samples."""
        return type(self)(self.x_targets[x_rows], self.z_targets[z_rows])

    def _runs_of_sets(self) -> Iterator[slice]:
        for start in range(0, len(self._x_sets), _SETS_AT_ONCE):
            yield slice(start, start + _SETS_AT_ONCE)

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


def _distinct_rows(
    indicators: npt.NDArray[np.bool_],
) -> tuple[npt.NDArray[np.float32], Indices, Indices]:
    sets, codes, counts = np.unique(indicators, axis=0, return_inverse=True, return_counts=True)
    return sets.astype(np.float32), codes.reshape(-1), counts


def _share_a_label(x_sets: npt.NDArray[np.float32], z_sets: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    shared: npt.NDArray[np.bool_] = (x_sets @ z_sets.T) > 0
    return shared
