"""Products of many samples with a few factors, on threads over chunks of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.threads import even_slices, map_chunks

_CHUNKS = 8  # chunks of rows, a fixed number so that the result does not depend on the number of threads
_ROWS_WORTH_A_CHUNK = 250
"""Rows per chunk at least: the product of fewer takes less time than starting it on another thread."""


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    rows: slice
    width: int  # columns from this one on are zero
    samples: Samples


class SampleProducts:
    """Products of fixed samples, and of their transpose, with factors."""

    # The number of chunks depends only on the number of rows, and their results are added in a fixed order.
    # Each chunk uses only the columns up to its last nonzero one, which halves the work on a triangle.

    def __init__(self, samples: Samples, n_threads: int) -> None:
        n_samples, self._n_features = samples.shape
        self._dtype = samples.dtype
        self._n_threads = n_threads
        n_chunks = min(_CHUNKS, max(n_samples // _ROWS_WORTH_A_CHUNK, 1))
        self._chunks = [_chunk(samples, rows) for rows in even_slices(n_samples, n_chunks)]

    def project(self, factor: FloatArray) -> FloatArray:
        """Return ``samples @ factor``, in the precision of the samples."""
        factor = factor.astype(self._dtype, copy=False)
        projected = np.empty((self._chunks[-1].rows.stop, factor.shape[1]), self._dtype)

        def evaluate(chunk: _Chunk) -> None:
            projected[chunk.rows] = chunk.samples @ factor[: chunk.width]

        map_chunks(evaluate, self._chunks, self._n_threads)
        return projected

    def gather(self, weighted: FloatArray) -> FloatArray:
        """Return ``samples.T @ weighted``, accumulated in float64."""

        def evaluate(chunk: _Chunk) -> FloatArray:
            return gather_rows(chunk.samples, weighted[chunk.rows])

        gathered = np.zeros((self._n_features, weighted.shape[1]))
        parts = map_chunks(evaluate, self._chunks, self._n_threads)
        for chunk, part in zip(self._chunks, parts, strict=True):
            gathered[: chunk.width] += part
        return gathered


def gather_rows(samples: Samples, weighted: FloatArray) -> FloatArray:
    """Return ``samples.T @ weighted`` in one piece, in the precision of both."""
    # This order of factors reads dense samples row by row, which is faster.
    in_rows = not is_sparse(samples)
    gathered: FloatArray = (weighted.T @ samples).T if in_rows else samples.T @ weighted
    return gathered


def _chunk(samples: Samples, rows: slice) -> _Chunk:
    part = samples[rows]
    if is_sparse(part):
        return _Chunk(rows, part.shape[1], part)
    nonzero = np.flatnonzero(part.any(axis=0))
    width = int(nonzero[-1]) + 1 if len(nonzero) else 0
    return _Chunk(rows, width, part[:, :width])
