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
        for start in range(0, self.n_similar, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
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
