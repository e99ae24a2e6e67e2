"""Products of many samples with a few factors, in lanes of rows on threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.threads import even_slices, map_chunks

_LANES = 8
_ROWS_WORTH_A_LANE = 250


@dataclass(frozen=True, slots=True, eq=False)
class _Lane:
    rows: slice
    width: int
    """All that stands right of it is zero."""
    samples: Samples


class SampleProducts:
    """Products of fixed samples, and of their transpose, with whatever factors are asked for.

    Rows are dealt to lanes whose number depends only on their own, and are added up in a fixed order. Of
    each lane only the columns up to the last that is not zero take part: half of a triangle.

    Parameters
    ----------
    samples : ndarray or CSR array of shape (n_samples, n_features)
        Not modified.
    n_threads : int
        Threads over lanes.
    """

    def __init__(self, samples: Samples, n_threads: int) -> None:
        n_samples, self._n_features = samples.shape
        self._dtype = samples.dtype
        self._n_threads = n_threads
        n_lanes = min(_LANES, max(n_samples // _ROWS_WORTH_A_LANE, 1))
        self._lanes = [_lane(samples, rows) for rows in even_slices(n_samples, n_lanes)]

    def project(self, factor: FloatArray) -> FloatArray:
        """Return ``samples @ factor``, in the precision of the samples.

        Parameters
        ----------
        factor : ndarray of shape (n_features, k)
            Not modified.
        """
        factor = factor.astype(self._dtype, copy=False)
        projected = np.empty((self._lanes[-1].rows.stop, factor.shape[1]), self._dtype)

        def evaluate(lane: _Lane) -> None:
            projected[lane.rows] = lane.samples @ factor[: lane.width]

        map_chunks(evaluate, self._lanes, self._n_threads)
        return projected

    def gather(self, weighted: FloatArray) -> FloatArray:
        """Return ``samples.T @ weighted``, added up in float64.

        Parameters
        ----------
        weighted : ndarray of shape (n_samples, k)
            Not modified.
        """

        def evaluate(lane: _Lane) -> FloatArray:
            some = weighted[lane.rows]
            # This order of factors reads dense samples row by row, which is quicker.
            in_rows = not is_sparse(lane.samples)
            part: FloatArray = (some.T @ lane.samples).T if in_rows else lane.samples.T @ some
            return part

        gathered = np.zeros((self._n_features, weighted.shape[1]))
        parts = map_chunks(evaluate, self._lanes, self._n_threads)
        for lane, part in zip(self._lanes, parts, strict=True):
            gathered[: lane.width] += part
        return gathered


def _lane(samples: Samples, rows: slice) -> _Lane:
    some = samples[rows]
    if is_sparse(some):
        return _Lane(rows, some.shape[1], some)
    used = np.flatnonzero(some.any(axis=0))
    width = int(used[-1]) + 1 if len(used) else 0
    return _Lane(rows, width, some[:, :width])
