"""Which pairs of samples are similar: the supervision of a bilinear similarity.

A supervision object answers four questions of the loss: how many similar and dissimilar pairs
there are (they set the weights w = 1/|S| and 1/|D| of the paper), in which order the samples should
be visited so that similar pairs stand together, which pairs of a tile are similar, and what it would be
on some of the samples only.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import FloatArray, Samples

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
