"""All pairs of samples in blocks of rows: what a block adds to the logistic loss and its derivatives.

A block needs the rows' side of the scores, all of the columns' side and, for a whole gradient, the samples of
the columns. It shares nothing with the other blocks, so that any process can compute it; the same block gives
the same bits wherever that is done.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from solver.linalg.matrices import FloatArray, Samples
from solver.losses.kernels import TileBuffers, differentiate, sum_entropies, sum_losses
from solver.supervision.base import PairKey, Supervision

_TILE_BYTES = 3 << 19
"""Size of the scores of a tile, 1.5 MiB: small enough to stay in cache between the passes of the kernels."""
_TILE_COLUMNS = 1280
"""Columns of a tile, long enough for the matrix products to run at full speed."""
_BLOCKS = 16
"""Blocks of rows at least, independent of the number of threads."""
_BLOCK_PAIRS = 1 << 32
"""Pairs of a block at most, half a minute of a core: of more, another worker would repeat too much."""


@dataclass(frozen=True, slots=True)
class PairSizes:
    """Sizes of all pairs, from which their blocks follow.

    Parameters
    ----------
    n_rows, n_columns : int
        Samples of both modalities.
    n_features : int
        Features of a column.
    itemsize : int
        Bytes of a number.
    """

    n_rows: int
    n_columns: int
    n_features: int
    itemsize: int

    @property
    def tile_width(self) -> int:
        """Columns of a tile."""
        return -(-self.n_columns // -(-self.n_columns // _TILE_COLUMNS))

    @property
    def tile_height(self) -> int:
        """Rows of a tile."""
        return min(max(_TILE_BYTES // (self.tile_width * self.itemsize), 16), self.n_rows)

    def split(self) -> list[slice]:
        """Return blocks of rows, each of whole tiles."""
        height = self.tile_height
        n_tiles = -(-self.n_rows // height)
        n_blocks = min(max(_BLOCKS, -(-self.n_rows * self.n_columns // _BLOCK_PAIRS)), n_tiles)
        edges = [min(i * n_tiles // n_blocks * height, self.n_rows) for i in range(n_blocks + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


@dataclass(frozen=True, slots=True)
class _Tile:
    rows: slice
    columns: slice
    own: slice
    """The rows as counted within their block."""


class RowBlocks:
    """The pairs of all samples, in blocks of rows.

    Parameters
    ----------
    Z : ndarray or CSR array of shape (n, n_features_z)
        Samples of the second modality in visiting order, in the precision of the computations.
    supervision : Supervision
        Which pairs are similar.
    n_rows : int
        Number of samples of the first modality.
    dtype : {float32, float64}
        Precision of the computations; sums over tiles are always float64.

    Notes
    -----
    `left` is, in each method, the factor of the block's rows, and `right` that of all columns: their inner
    products are the scores. Derivatives are divided by the weight of a dissimilar pair.
    """

    def __init__(self, Z: Samples, supervision: Supervision, n_rows: int, dtype: npt.DTypeLike) -> None:
        self.Z = Z
        self.supervision = supervision
        self.dtype = np.dtype(dtype)
        self.w_similar = 1.0 / supervision.n_similar
        self.w_dissimilar = 1.0 / supervision.n_dissimilar
        self.n_rows, self.n_columns = n_rows, int(Z.shape[0])
        self._width, self._height = self.sizes.tile_width, self.sizes.tile_height

    @property
    def sizes(self) -> PairSizes:
        """Numbers of rows, columns, and features of a column, and the precision."""
        return PairSizes(self.n_rows, self.n_columns, int(self.Z.shape[1]), self.dtype.itemsize)

    def split(self) -> list[slice]:
        """Return the blocks of rows, which depend on nothing but the sizes."""
        return self.sizes.split()

    def sum_values(self, rows: slice, left: FloatArray, right: FloatArray) -> float:
        """Return the loss of a block."""
        value, buffers = 0.0, self._buffers()
        for tile in self._tiles(rows):
            scores = buffers.score(left[tile.own], right[tile.columns])
            value += self._weigh(sum_losses(scores, buffers.factors_like(scores), self._keys(tile)))
        return value

    def weigh_columns(self, rows: slice, left: FloatArray, right: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss of a block, and for each row the sum of all Z weighted by the derivatives."""
        value, buffers = 0.0, self._buffers()
        weighted_Z = np.zeros((len(left), self.Z.shape[1]), self.dtype)
        for tile in self._tiles(rows):
            scores = buffers.score(left[tile.own], right[tile.columns])
            tile_value, derivatives = self._value_and_derivatives(tile, scores, buffers)
            value += tile_value
            weighted_Z[tile.own] += derivatives @ self.Z[tile.columns]
        return value, weighted_Z

    def weigh_factors(
        self, rows: slice, left: FloatArray, right: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss of a block, and the sums of either factor weighted by the derivatives.

        The first has a row for each row of the block, the second one for each column.
        """
        value, buffers = 0.0, self._buffers()
        along_rows, along_columns = np.zeros_like(left), np.zeros_like(right)
        for tile in self._tiles(rows):
            scores = buffers.score(left[tile.own], right[tile.columns])
            tile_value, derivatives = self._value_and_derivatives(tile, scores, buffers)
            value += tile_value
            along_rows[tile.own] += derivatives @ right[tile.columns]
            along_columns[tile.columns] += derivatives.T @ left[tile.own]
        return value, along_rows, along_columns

    def sum_entropies(self, rows: slice, left: FloatArray, right: FloatArray, scale: float) -> float:
        """Return ``sum_ij w_ij H(scale * q_ij)`` over a block: q = sigma(-y s), H the entropy in nats."""
        total, buffers = 0.0, self._buffers()
        for tile in self._tiles(rows):
            scores = buffers.score(left[tile.own], right[tile.columns])
            keys = self._keys(tile)
            _, derivatives = self._value_and_derivatives(tile, scores, buffers)
            q = np.multiply(derivatives, scale, dtype=np.float64)
            for key in keys:
                total += self.w_similar * sum_entropies(q[key] * (-self.w_dissimilar / self.w_similar))
                q[key] = 0.0
            total += self.w_dissimilar * sum_entropies(q)
        return total

    def sum_curvatures(self, rows: slice, left: FloatArray, right: FloatArray) -> tuple[float, int]:
        """Return ``sum_ij w_ij sigma'(s_ij)`` over the first tile of a block, and its number of pairs."""
        tile, buffers = next(self._tiles(rows)), self._buffers()
        scores = buffers.score(left[tile.own], right[tile.columns])
        _, slopes = self._value_and_derivatives(tile, scores, buffers)
        # sigma' = sigma(s) sigma(-s), where one factor is 1 / F and the other 1 - 1 / F.
        slopes /= buffers.factors_like(scores)
        for key in self._keys(tile):
            slopes[key] *= 1.0 - buffers.factors_like(scores)[key]
        return self.w_dissimilar * float(slopes.sum(dtype=np.float64)), slopes.size

    def _value_and_derivatives(
        self, tile: _Tile, scores: FloatArray, buffers: TileBuffers
    ) -> tuple[float, FloatArray]:
        keys, factors = self._keys(tile), buffers.factors_like(scores)
        value = self._weigh(sum_losses(scores, factors, keys))
        return value, differentiate(scores, factors, keys, self.w_similar / self.w_dissimilar)

    def _weigh(self, losses: tuple[float, float]) -> float:
        return self.w_dissimilar * losses[0] + self.w_similar * losses[1]

    def _buffers(self) -> TileBuffers:
        return TileBuffers.of(self._height * self._width, self.dtype)

    def _keys(self, tile: _Tile) -> list[PairKey]:
        return self.supervision.similar_pairs(tile.rows, tile.columns)

    def _tiles(self, block: slice) -> Iterator[_Tile]:
        for start in range(block.start, block.stop, self._height):
            stop = min(start + self._height, block.stop)
            rows, own = slice(start, stop), slice(start - block.start, stop - block.start)
            for first in range(0, self.n_columns, self._width):
                yield _Tile(rows, slice(first, min(first + self._width, self.n_columns)), own)
