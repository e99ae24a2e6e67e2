"""Supervision by pairs of rows: row i of one modality belongs to row i of the other."""

from __future__ import annotations

import numpy as np

from solver.linalg.matrices import FloatArray, Samples, to_dense
from solver.supervision.base import Indices, PairKey
from solver.validation.errors import SupervisionError
from solver.validation.parameters import is_integer

_ROWS_AT_ONCE = 4096
"""Rows converted to float64 at once, so that a memory-mapped array is never copied as a whole."""


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
        if not is_integer(n, least=2):
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
            total += to_dense(product)
        return total

    def subset(self, x_rows: Indices, z_rows: Indices) -> PairedRows:
        """Return the supervision of the same rows of both modalities.

        Raises
        ------
        SupervisionError
            If the two differ: a row without its partner says nothing.
        """
        if not np.array_equal(x_rows, z_rows):
            raise SupervisionError("a subset of paired rows takes the same rows of both modalities")
        return PairedRows(len(x_rows))
