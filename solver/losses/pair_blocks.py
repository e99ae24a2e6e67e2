"""All pairs of samples in blocks: what a block adds to the logistic loss and its derivatives.

A block shares nothing with the other blocks, so that any process can compute it; the same block gives the
same bits wherever that is done. Up to 17 billion pairs, blocks are of rows: they need the projections of
their rows and of all columns, and return sums for each. Beyond, a grid bounds both sides of a block: it needs
the samples of its rows and its columns and the factors, and returns sums as small as these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from solver.linalg.matrices import FloatArray, Samples
from solver.losses.kernels import TileBuffers, differentiate, sum_entropies, sum_losses
from solver.losses.products import gather_rows
from solver.supervision.base import PairKey, Supervision

_TILE_BYTES = 3 << 19
"""Size of the scores of a tile, 1.5 MiB: small enough to stay in cache between the passes of the kernels."""
_TILE_COLUMNS = 1280  # columns of a tile, long enough for the matrix products to run at full speed
_BLOCKS = 16  # blocks of rows, independent of the number of threads; also blocks of which tiles are sampled
_BLOCK_PAIRS = 1 << 30
"""Pairs of a block of a grid, about, ten seconds of a core: of more, another worker would repeat too much."""
_SPREAD = 7
"""Steps through bands of columns, one for each band of rows: odd, so that each of 16 is taken once."""


class Block(NamedTuple):
    """A rectangle of pairs."""

    rows: slice
    columns: slice


@dataclass(frozen=True, slots=True)
class PairSizes:
    """Sizes of all pairs, from which their blocks follow.

    Parameters
    ----------
    n_rows, n_columns : int
        Samples of both modalities.
    n_features_x, n_features_z : int
        Features of a row and of a column.
    itemsize : int
    """

    n_rows: int
    n_columns: int
    n_features_x: int
    n_features_z: int
    itemsize: int

    @classmethod
    def of(cls, X: Samples, Z: Samples) -> Self:
        """Return the sizes of samples in the precision of the computations."""
        (n_rows, n_features_x), (n_columns, n_features_z) = X.shape, Z.shape
        return cls(n_rows, n_columns, n_features_x, n_features_z, Z.dtype.itemsize)

    @property
    def n_pairs(self) -> int:
        """Number of pairs."""
        return self.n_rows * self.n_columns

    @property
    def tile_width(self) -> int:
        """Columns of a tile."""
        return -(-self.n_columns // -(-self.n_columns // _TILE_COLUMNS))

    @property
    def tile_height(self) -> int:
        """Rows of a tile."""
        return min(max(_TILE_BYTES // (self.tile_width * self.itemsize), 16), self.n_rows)

    @property
    def is_grid(self) -> bool:
        """Whether the blocks bound columns, too."""
        return self.n_pairs > _BLOCKS * _BLOCK_PAIRS

    def split(self) -> list[Block]:
        """Return the blocks, each of whole tiles, row by row; they depend on nothing but the sizes."""
        rows, columns = self._bands()
        return [Block(*sides) for sides in itertools.product(rows, columns)]

    def sample(self) -> list[Block]:
        """Return a few blocks, spread over rows and columns."""
        rows, columns = self._bands()
        spread = {
            (i * len(rows) // _BLOCKS, i * _SPREAD % _BLOCKS * len(columns) // _BLOCKS)
            for i in range(_BLOCKS)
        }
        return [Block(rows[i], columns[j]) for i, j in sorted(spread)]

    def _bands(self) -> tuple[list[slice], list[slice]]:
        if not self.is_grid:
            return _cut(self.n_rows, self.tile_height, _BLOCKS), [slice(0, self.n_columns)]
        n_blocks = -(-self.n_pairs // _BLOCK_PAIRS)
        n_bands = min(max(round(math.sqrt(n_blocks * self.n_columns / self.n_rows)), 1), n_blocks)
        columns = _cut(self.n_columns, self.tile_width, n_bands)
        return _cut(self.n_rows, self.tile_height, max(round(n_blocks / len(columns)), 1)), columns


def _cut(length: int, step: int, n_parts: int) -> list[slice]:
    """Return consecutive slices of whole steps, `n_parts` unless there are fewer steps."""
    n_steps = -(-length // step)
    n_parts = min(n_parts, n_steps)
    edges = [min(i * n_steps // n_parts * step, length) for i in range(n_parts + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


class _Tile(NamedTuple):
    rows: slice
    columns: slice
    own_rows: slice  # the rows as counted within their block
    own_columns: slice


class PairBlocks:
    """The pairs of all samples (Z in visiting order, X for a grid only), in blocks.
    Derivatives are divided by the weight of a dissimilar pair; sums over tiles are float64."""

    # The scores are the inner products of two factors, which each method takes as `left` and `right`: blocks
    # of rows take those with a row for each sample, and a block of a grid takes those with a row for each
    # feature and projects its samples. What a method returns of each row is for blocks of rows an array of
    # them, and in a grid the sum of their samples weighted by it; so with columns.

    def __init__(
        self, sizes: PairSizes, Z: Samples, supervision: Supervision, X: Samples | None = None
    ) -> None:
        self.sizes, self.supervision = sizes, supervision
        self.X, self.Z = X, Z
        self.dtype: np.dtype[np.floating] = Z.dtype
        self.w_similar = 1.0 / supervision.n_similar
        self.w_dissimilar = 1.0 / supervision.n_dissimilar
        self._width, self._height = sizes.tile_width, sizes.tile_height

    @classmethod
    def of(cls, X: Samples, Z: Samples, supervision: Supervision) -> Self:
        """Return the blocks of samples of one precision, a grid if there are many of them."""
        sizes = PairSizes.of(X, Z)
        return cls(sizes, Z, supervision, X if sizes.is_grid else None)

    @property
    def is_grid(self) -> bool:
        """Whether the blocks bound columns, too."""
        return self.X is not None

    def split(self) -> list[Block]:
        return self.sizes.split()

    def sum_bytes(self, left: FloatArray, right: FloatArray) -> int:
        """Return how much memory the sums of a block take at most, beside those of its rows."""
        if not self.is_grid:
            return int(right.nbytes)
        return max(int(left.nbytes + right.nbytes), len(left) * len(right) * self.dtype.itemsize)

    def sum_values(self, block: Block, left: FloatArray, right: FloatArray) -> float:
        left, right = self._project(block, left, right)
        value, buffers = 0.0, self._buffers()
        for tile in self._tiles(block):
            scores = buffers.score(left[tile.own_rows], right[tile.own_columns])
            value += self._weigh(sum_losses(scores, buffers.factors_like(scores), self._keys(tile)))
        return value

    def weigh_columns(self, block: Block, left: FloatArray, right: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss of a block, and for each row the sum of Z weighted by the derivatives."""
        left, right = self._project(block, left, right)
        value, buffers = 0.0, self._buffers()
        weighted_Z = np.zeros((len(left), self.Z.shape[1]), self.dtype)
        for tile in self._tiles(block):
            scores = buffers.score(left[tile.own_rows], right[tile.own_columns])
            tile_value, derivatives = self._value_and_derivatives(tile, scores, buffers)
            value += tile_value
            weighted_Z[tile.own_rows] += derivatives @ self.Z[tile.columns]
        return value, self._gather(self.X, block.rows, weighted_Z)

    def weigh_factors(
        self, block: Block, left: FloatArray, right: FloatArray
    ) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss of a block, and the sums of either factor weighted by the derivatives.
        The first are of each row, the second of each column."""
        left, right = self._project(block, left, right)
        value, buffers = 0.0, self._buffers()
        along_rows, along_columns = np.zeros_like(left), np.zeros_like(right)
        for tile in self._tiles(block):
            scores = buffers.score(left[tile.own_rows], right[tile.own_columns])
            tile_value, derivatives = self._value_and_derivatives(tile, scores, buffers)
            value += tile_value
            along_rows[tile.own_rows] += derivatives @ right[tile.own_columns]
            along_columns[tile.own_columns] += derivatives.T @ left[tile.own_rows]
        return (
            value,
            self._gather(self.X, block.rows, along_rows),
            self._gather(self.Z, block.columns, along_columns),
        )

    def sum_entropies(self, block: Block, left: FloatArray, right: FloatArray, scale: float) -> float:
        """Return ``sum_ij w_ij H(scale * q_ij)`` over a block: q = sigma(-y s), H the entropy in nats."""
        left, right = self._project(block, left, right)
        total, buffers = 0.0, self._buffers()
        for tile in self._tiles(block):
            scores = buffers.score(left[tile.own_rows], right[tile.own_columns])
            keys = self._keys(tile)
            _, derivatives = self._value_and_derivatives(tile, scores, buffers)
            q = np.multiply(derivatives, scale, dtype=np.float64)
            for key in keys:
                total += self.w_similar * sum_entropies(q[key] * (-self.w_dissimilar / self.w_similar))
                q[key] = 0.0
            total += self.w_dissimilar * sum_entropies(q)
        return total

    def sum_curvatures(self, block: Block, left: FloatArray, right: FloatArray) -> tuple[float, int]:
        """Return ``sum_ij w_ij sigma'(s_ij)`` over the first tile of a block, and its number of pairs."""
        tile, buffers = next(self._tiles(block)), self._buffers()
        scores = buffers.score(*self._project(Block(tile.rows, tile.columns), left, right))
        _, slopes = self._value_and_derivatives(tile, scores, buffers)
        # sigma' = sigma(s) sigma(-s), where one factor is 1 / F and the other 1 - 1 / F.
        slopes /= buffers.factors_like(scores)
        for key in self._keys(tile):
            slopes[key] *= 1.0 - buffers.factors_like(scores)[key]
        return self.w_dissimilar * float(slopes.sum(dtype=np.float64)), slopes.size

    def _project(self, block: Block, left: FloatArray, right: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the factors of the scores of a block, with a row for each of its samples."""
        if self.X is None:
            return left[block.rows], right[block.columns]
        return self.X[block.rows] @ left, self.Z[block.columns] @ right

    def _gather(self, samples: Samples | None, own: slice, weighted: FloatArray) -> FloatArray:
        """Return what a block adds to a gradient of what it has of each of its samples."""
        if not self.is_grid or samples is None:
            return weighted
        return gather_rows(samples[own], weighted)

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

    def _tiles(self, block: Block) -> Iterator[_Tile]:
        (top, bottom), (left, right) = ((side.start, side.stop) for side in block)
        for start in range(top, bottom, self._height):
            stop = min(start + self._height, bottom)
            rows, own_rows = slice(start, stop), slice(start - top, stop - top)
            for first in range(left, right, self._width):
                last = min(first + self._width, right)
                yield _Tile(rows, slice(first, last), own_rows, slice(first - left, last - left))
