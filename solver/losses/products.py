"""Products of many samples with a few factors, in chunks of rows on threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.threads import even_slices, map_chunks

_CHUNKS = 8
_ROWS_WORTH_A_CHUNK = 250


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    rows: slice
    width: int
    """All that stands right of it is zero."""
    samples: Samples


class SampleProducts:
    """Products of fixed samples, and of their transpose, with whatever factors are asked for.

    Rows are dealt to chunks whose number depends only on their own, and are added up in a fixed order. Of
    each chunk only the columns up to the last that is not zero take part: half of a triangle.

    Parameters
    ----------
    samples : ndarray or CSR array of shape (n_samples, n_features)
        Not modified.
    n_threads : int
        Threads over chunks.
    """

    def __init__(self, samples: Samples, n_threads: int) -> None:
        n_samples, self._n_features = samples.shape
        self._dtype = samples.dtype
        self._n_threads = n_threads
        n_chunks = min(_CHUNKS, max(n_samples // _ROWS_WORTH_A_CHUNK, 1))
        self._chunks = [_chunk(samples, rows) for rows in even_slices(n_samples, n_chunks)]

    def project(self, factor: FloatArray) -> FloatArray:
        """Return ``samples @ factor``, in the precision of the samples.

        Parameters
        ----------
        factor : ndarray of shape (n_features, k)
            Not modified.
        """
        factor = factor.astype(self._dtype, copy=False)
        projected = np.empty((self._chunks[-1].rows.stop, factor.shape[1]), self._dtype)

        def evaluate(chunk: _Chunk) -> None:
            projected[chunk.rows] = chunk.samples @ factor[: chunk.width]

        map_chunks(evaluate, self._chunks, self._n_threads)
        return projected

    def gather(self, weighted: FloatArray) -> FloatArray:
        """Return ``samples.T @ weighted``, added up in float64.

        Parameters
        ----------
        weighted : ndarray of shape (n_samples, k)
            Not modified.
        """

        def evaluate(chunk: _Chunk) -> FloatArray:
            some = weighted[chunk.rows]
            # This order of factors reads dense samples row by row, which is quicker.
            in_rows = not is_sparse(chunk.samples)
            part: FloatArray = (some.T @ chunk.samples).T if in_rows else chunk.samples.T @ some
            return part

        gathered = np.zeros((self._n_features, weighted.shape[1]))
        parts = map_chunks(evaluate, self._chunks, self._n_threads)
        for chunk, part in zip(self._chunks, parts, strict=True):
            gathered[: chunk.width] += part
        return gathered


def _chunk(samples: Samples, rows: slice) -> _Chunk:
    some = samples[rows]
    if is_sparse(some):
        return _Chunk(rows, some.shape[1], some)
    used = np.flatnonzero(some.any(axis=0))
    width = int(used[-1]) + 1 if len(used) else 0
    return _Chunk(rows, width, some[:, :width])
