"""All pairs of samples in blocks: what a block adds to the logistic loss, and where it is computed.

A block shares nothing with the other blocks, so that any process can compute it; the same block gives the
same bits wherever that is done. Up to 17 billion pairs, blocks are of rows: they need the projections of
their rows and of all columns, and return sums for each. Beyond, a grid bounds both sides of a block: it needs
the samples of its rows and its columns and the factors, and returns sums as small as these. An engine yields
what each block contributes, in the order of the blocks. Who adds that up in this order gets the same bits
from every engine, whatever the number of its processes.

A block is computed in tiles that fit the cache, one exponential for each pair. With ``F = 1 + exp(s)`` the
loss of a dissimilar pair is ``log F`` and its derivative ``exp(s) / F``; a similar pair has ``log F - s`` and
``-1 / F``. Both derivatives keep their relative precision even where they are tiny, and one logarithm is
taken of the product of several F.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from solver.linalg import FloatArray, Samples, Sides, is_sparse
from solver.supervision.kinds import PairKey, Supervision
from solver.threads import even_slices, map_chunks

_FACTORS_PER_LOG = 4
"""Factors multiplied before each logarithm is taken: with more, smaller scores would overflow the product."""
_LARGEST_SCORE = {4: 20.0, 8: 150.0}
"""Largest score s by dtype size in bytes: the product of four ``1 + exp(s)`` does not overflow."""


_OF_THREAD = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class TileBuffers:
    """Work arrays of the kernels, of shape (size,), reused for each tile of a chunk."""

    scores: FloatArray  # and what the kernels overwrite them with
    factors: FloatArray  # F = 1 + exp(s)

    @classmethod
    def of(cls, n_pairs: int, dtype: npt.DTypeLike) -> TileBuffers:
        """Return the buffers of this thread, for tiles of at most `n_pairs` pairs."""
        # The pages of new ones for each block would take a quarter of the time of a fit.
        buffers: TileBuffers | None = getattr(_OF_THREAD, "buffers", None)
        if buffers is None or len(buffers.scores) < n_pairs or buffers.scores.dtype != dtype:
            buffers = _OF_THREAD.buffers = cls(np.empty(n_pairs, dtype), np.empty(n_pairs, dtype))
        return buffers

    def score(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the scores ``left @ right.T``, a view of the buffer."""
        scores = self.scores[: len(left) * len(right)].reshape(len(left), len(right))
        np.matmul(left, right.T, out=scores)
        return scores

    def factors_like(self, scores: FloatArray) -> FloatArray:
        """Return uninitialised factors of the same shape, a view of the buffer."""
        return self.factors[: scores.size].reshape(scores.shape)


def sum_losses(scores: FloatArray, factors: FloatArray, similar: list[PairKey]) -> tuple[float, float]:
    """Return the sums of the dissimilar and of the `similar` pairs' losses; the latter's keys are disjoint.
    Overwrites the scores s with ``exp(s)``, the factors with ``1 + exp(s)``."""
    largest = _LARGEST_SCORE[scores.itemsize]
    on_dissimilar, on_similar = 0.0, 0.0
    if not float(scores.max()) <= largest:
        # Rare: clip the few large scores, whose loss is linear there, and add what was clipped.
        on_dissimilar -= sum(_sum(np.maximum(scores[key] - largest, 0.0)) for key in similar)
        flat = scores.reshape(-1)
        large = np.flatnonzero(flat > largest)
        on_dissimilar += _sum(flat[large] - largest)
        flat[large] = largest
    on_similar -= sum(_sum(scores[key]) for key in similar)
    np.exp(scores, out=scores)
    np.add(scores, 1.0, out=factors)
    logarithms = sum(_sum_logarithms(factors[key]) for key in similar)
    return on_dissimilar + _sum_logarithms(factors) - logarithms, on_similar + logarithms


def differentiate(
    exponentials: FloatArray, factors: FloatArray, similar: list[PairKey], ratio: float
) -> FloatArray:
    """Return the derivatives of the losses: sigma(s) where dissimilar, ``-ratio * sigma(-s)`` where similar.
    Takes what `sum_losses` left, and overwrites the exponentials with the result."""
    np.divide(exponentials, factors, out=exponentials)
    for key in similar:
        exponentials[key] = -ratio / factors[key]
    return exponentials


def sum_entropies(p: FloatArray) -> float:
    """Return the sum of binary entropies ``-p log p - (1 - p) log(1 - p)`` in nats, with 0 log 0 = 0."""
    tiny = np.finfo(p.dtype).tiny
    return -float(np.sum(p * np.log(np.maximum(p, tiny)) + (1.0 - p) * np.log(np.maximum(1.0 - p, tiny))))


def _sum_logarithms(factors: FloatArray) -> float:
    # On long contiguous arrays: in short calls, threads would mostly wait for the interpreter lock.
    flat = factors.reshape(-1)
    quarter = len(flat) // _FACTORS_PER_LOG
    grouped = quarter * _FACTORS_PER_LOG
    total = _sum(np.log(flat[grouped:]))
    if quarter == 0:
        return total
    pairs = flat[: 2 * quarter] * flat[2 * quarter : grouped]
    product = np.multiply(pairs[:quarter], pairs[quarter:], out=pairs[:quarter])
    return total + _sum(np.log(product, out=product))


def _sum(array: FloatArray) -> float:
    return float(array.sum(dtype=np.float64))


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
        self._last_keys: tuple[_Tile | None, list[PairKey]] = None, []

    @classmethod
    def of(cls, X: Samples, Z: Samples, supervision: Supervision) -> Self:
        """Return the blocks of samples of one precision, a grid if there are many of them."""
        sizes = PairSizes.of(X, Z)
        return cls(sizes, Z, supervision, X if sizes.is_grid else None)

    @property
    def is_grid(self) -> bool:
        """Whether the blocks bound columns, too."""
        return self.X is not None

    def sum_bytes(self, left: FloatArray, right: FloatArray) -> int:
        """Return how much memory the sums of a block take at most, beside those of its rows."""
        if not self.is_grid:
            return int(right.nbytes)
        return max(int(left.nbytes + right.nbytes), len(left) * len(right) * self.dtype.itemsize)

    def sum_values(self, block: Block, factors: Sides) -> float:
        left, right = self._project(block, factors)
        value = 0.0
        for tile, scores, buffers in self._scored_tiles(block, left, right):
            value += self._weigh(sum_losses(scores, buffers.factors_like(scores), self._keys(tile)))
        return value

    def weigh_columns(self, block: Block, factors: Sides) -> tuple[float, FloatArray]:
        """Return the loss of a block, and for each row the sum of Z weighted by the derivatives."""
        left, right = self._project(block, factors)
        value, weighted_Z = 0.0, np.zeros((len(left), self.Z.shape[1]), self.dtype)
        for tile, scores, buffers in self._scored_tiles(block, left, right):
            tile_value, derivatives = self._value_and_derivatives(tile, scores, buffers)
            value += tile_value
            weighted_Z[tile.own_rows] += derivatives @ self.Z[tile.columns]
        return value, self._gather(self.X, block.rows, weighted_Z)

    def weigh_factors(self, block: Block, factors: Sides) -> tuple[float, FloatArray, FloatArray]:
        """Return the loss of a block, and the sums of either factor weighted by the derivatives.
        The first are of each row, the second of each column."""
        left, right = self._project(block, factors)
        value, along_rows, along_columns = 0.0, np.zeros_like(left), np.zeros_like(right)
        for tile, scores, buffers in self._scored_tiles(block, left, right):
            tile_value, derivatives = self._value_and_derivatives(tile, scores, buffers)
            value += tile_value
            along_rows[tile.own_rows] += derivatives @ right[tile.own_columns]
            along_columns[tile.own_columns] += derivatives.T @ left[tile.own_rows]
        return (
            value,
            self._gather(self.X, block.rows, along_rows),
            self._gather(self.Z, block.columns, along_columns),
        )

    def sum_entropies(self, block: Block, factors: Sides, scale: float) -> float:
        """Return ``sum_ij w_ij H(scale * q_ij)`` over a block: q = sigma(-y s), H the entropy in nats."""
        left, right = self._project(block, factors)
        total = 0.0
        for tile, scores, buffers in self._scored_tiles(block, left, right):
            _, derivatives = self._value_and_derivatives(tile, scores, buffers)
            q = np.multiply(derivatives, scale, dtype=np.float64)
            for key in self._keys(tile):
                total += self.w_similar * sum_entropies(q[key] * (-self.w_dissimilar / self.w_similar))
                q[key] = 0.0
            total += self.w_dissimilar * sum_entropies(q)
        return total

    def sum_curvatures(self, block: Block, factors: Sides) -> tuple[float, int]:
        """Return ``sum_ij w_ij sigma'(s_ij)`` over the first tile of a block, and its number of pairs."""
        tile, buffers = next(self._tiles(block)), TileBuffers.of(self._height * self._width, self.dtype)
        scores = buffers.score(*self._project(Block(tile.rows, tile.columns), factors))
        _, slopes = self._value_and_derivatives(tile, scores, buffers)
        # sigma' = sigma(s) sigma(-s), where one factor is 1 / F and the other 1 - 1 / F.
        slopes /= buffers.factors_like(scores)
        for key in self._keys(tile):
            slopes[key] *= 1.0 - buffers.factors_like(scores)[key]
        return self.w_dissimilar * float(slopes.sum(dtype=np.float64)), slopes.size

    def _project(self, block: Block, factors: Sides) -> Sides:
        """Return the factors of the scores of a block, with a row for each of its samples."""
        left, right = factors
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

    def _scored_tiles(
        self, block: Block, left: FloatArray, right: FloatArray
    ) -> Iterator[tuple[_Tile, FloatArray, TileBuffers]]:
        # The next one overwrites the scores of a tile.
        buffers = TileBuffers.of(self._height * self._width, self.dtype)
        for tile in self._tiles(block):
            yield tile, buffers.score(left[tile.own_rows], right[tile.own_columns]), buffers

    def _keys(self, tile: _Tile) -> list[PairKey]:
        # Of few samples one tile has all pairs, each time.
        last, keys = self._last_keys
        if tile != last:
            keys = self.supervision.similar_pairs(tile.rows, tile.columns)
            self._last_keys = tile, keys
        return keys

    def _tiles(self, block: Block) -> Iterator[_Tile]:
        (top, bottom), (left, right) = ((side.start, side.stop) for side in block)
        for start in range(top, bottom, self._height):
            stop = min(start + self._height, bottom)
            rows, own_rows = slice(start, stop), slice(start - top, stop - top)
            for first in range(left, right, self._width):
                last = min(first + self._width, right)
                yield _Tile(rows, slice(first, last), own_rows, slice(first - left, last - left))


_Part = TypeVar("_Part")

_SUM_BYTES = 1 << 28
"""Memory of the sums of the blocks that are computed before the first of them is taken: 256 MiB."""

Measure = Callable[..., _Part]
"""A method of `PairBlocks`, whose arguments are a block, both factors and perhaps a number."""


class BlockMap(Protocol):
    """Computes measures of the blocks of one loss."""

    def map(
        self, measure: Measure[_Part], blocks: Sequence[Block], factors: Sides, *numbers: float
    ) -> Iterator[_Part]:
        """Yield the measure of each block, in the order of the blocks, by whole factors of shape (n, k).
        Who adds them up as they come needs memory for few of them, however many blocks there are."""
        # The factors are of all samples or, in a grid, of all features; `numbers` are passed on to the
        # measure.


class Engine(Protocol):
    """Computes blocks."""

    def open(self, pairs: PairBlocks, n_threads: int) -> BlockMap:
        """Make the pairs of a loss known; `n_threads` is for those that are computed in this process."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalBlockMap:
    """Computes blocks on threads of this process."""

    _pairs: PairBlocks
    _n_threads: int

    def map(
        self, measure: Measure[_Part], blocks: Sequence[Block], factors: Sides, *numbers: float
    ) -> Iterator[_Part]:
        def evaluate(block: Block) -> _Part:
            return measure(self._pairs, block, factors, *numbers)

        n_at_once = max(_SUM_BYTES // max(self._pairs.sum_bytes(*factors), 1), self._n_threads)
        for first in range(0, len(blocks), n_at_once):
            yield from map_chunks(evaluate, blocks[first : first + n_at_once], self._n_threads)


_ENGINE: ContextVar[Engine | None] = ContextVar("engine", default=None)


def current_engine() -> Engine | None:
    """Return the engine of this context, None for this process."""
    return _ENGINE.get()


@contextmanager
def use_engine(engine: Any) -> Iterator[None]:
    """Have the losses that are prepared within this context, in this thread, computed by an engine."""
    token = _ENGINE.set(engine)
    try:
        yield
    finally:
        _ENGINE.reset(token)
