"""The space that inverted lists are built in."""
# A ranking by inner products stays the same when a constant is added to all rows of the gallery, and when a
# map ``A`` is applied to the gallery and ``A^-T`` to the queries. Rows are centred by their mean, so that
# lists follow their differences, and both sides get the same second moment: then rows that are near each
# other score alike for the queries that come, and clusters by distance are good lists for inner products.

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.domain.entities import Matrix, Vector

_FLOOR = 1e-6
"""Smallest eigenvalue of a second moment relative to its largest: directions without variance stay finite."""


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """The maps of rows and queries into the space of the lists: (rank, rank), symmetric inverses of each
    other."""

    mean: Vector  # of the gallery, (rank,)
    row_map: Matrix
    query_map: Matrix

    @classmethod
    def between(cls, vectors: Matrix, queries: Matrix) -> Balance:
        """Return the maps that give centred rows (size, rank) and a sample of queries (n_queries, rank) the
        same second moment."""
        # It is the geometric mean of the two moments, in the sense of positive definite matrices.
        mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        of_rows, of_queries = _second_moment(vectors - mean), _second_moment(queries)
        root, inverse_root = _power(of_rows, 0.5), _power(of_rows, -0.5)
        squared_map = inverse_root @ _power(root @ of_queries @ root, 0.5) @ inverse_root
        row_map, query_map = _power(squared_map, 0.5), _power(squared_map, -0.5)
        return cls(mean, row_map.astype(np.float32), query_map.astype(np.float32))

    def map_rows(self, vectors: Matrix) -> Matrix:
        """Return rows of the gallery in the space of the lists, shape (n, rank)."""
        mapped: Matrix = np.ascontiguousarray((vectors - self.mean) @ self.row_map, dtype=np.float32)
        return mapped

    def map_query(self, query: Vector) -> Matrix:
        """Return one query in the space of the lists, shape (1, rank)."""
        mapped: Matrix = np.ascontiguousarray((query @ self.query_map)[None, :], dtype=np.float32)
        return mapped


def _second_moment(rows: Matrix) -> npt.NDArray[np.float64]:
    moment = (rows.T @ rows).astype(np.float64)
    return moment / max(len(rows), 1)


def _power(moment: npt.NDArray[np.float64], exponent: float) -> npt.NDArray[np.float64]:
    """Return a power of a symmetric positive semidefinite matrix, its smallest eigenvalues raised."""
    values, axes = np.linalg.eigh(moment)
    smallest = max(float(values.max()) * _FLOOR, float(np.finfo(np.float32).tiny))
    values = np.maximum(values, smallest)
    power: npt.NDArray[np.float64] = (axes * values**exponent) @ axes.T
    return power
