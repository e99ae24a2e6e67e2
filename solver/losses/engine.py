"""Where the blocks of a loss are computed: in this process, or wherever an engine takes them.

An engine yields what each block contributes, in the order of the blocks. Who adds that up in this order gets
the same bits from every engine, whatever the number of its processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from solver.linalg.matrices import FloatArray
from solver.losses.pair_blocks import Block, PairBlocks
from solver.threads import map_chunks

_Part = TypeVar("_Part")

_SUM_BYTES = 1 << 28
"""Memory of the sums of the blocks that are computed before the first of them is taken: 256 MiB."""

Measure = Callable[..., _Part]
"""A method of `PairBlocks`, whose arguments are a block, left, right and perhaps a number."""


class BlockMap(Protocol):
    """Computes measures of the blocks of one loss."""

    def map(
        self,
        measure: Measure[_Part],
        blocks: Sequence[Block],
        left: FloatArray,
        right: FloatArray,
        *numbers: float,
    ) -> Iterator[_Part]:
        """Yield the measure of each block, in the order of the blocks, by whole factors of shape (n, k).
        Who adds them up as they come needs memory for few of them, however many blocks there are."""
        # The factors are of all samples or, in a grid, of all features; `numbers` are passed on to the
        # measure.
        ...


class Engine(Protocol):
    """Computes blocks."""

    def open(self, pairs: PairBlocks, n_threads: int) -> BlockMap:
        """Make the pairs of a loss known; `n_threads` is for an engine that uses this process."""
        ...


class LocalBlockMap:
    """Computes blocks on threads of this process."""

    def __init__(self, pairs: PairBlocks, n_threads: int) -> None:
        self._pairs = pairs
        self._n_threads = n_threads

    def map(
        self,
        measure: Measure[_Part],
        blocks: Sequence[Block],
        left: FloatArray,
        right: FloatArray,
        *numbers: float,
    ) -> Iterator[_Part]:
        def evaluate(block: Block) -> _Part:
            return measure(self._pairs, block, left, right, *numbers)

        n_at_once = max(_SUM_BYTES // max(self._pairs.sum_bytes(left, right), 1), self._n_threads)
        for first in range(0, len(blocks), n_at_once):
            yield from map_chunks(evaluate, blocks[first : first + n_at_once], self._n_threads)


class LocalEngine:
    """Computes blocks in this process: the default."""

    def open(self, pairs: PairBlocks, n_threads: int) -> BlockMap:
        return LocalBlockMap(pairs, n_threads)


_ENGINE: ContextVar[Engine | None] = ContextVar("engine", default=None)


def current_engine() -> Engine:
    """Return the engine of this context, by default this process."""
    return _ENGINE.get() or LocalEngine()


@contextmanager
def use_engine(engine: Any) -> Iterator[None]:
    """Have the losses that are prepared within this context, in this thread, computed by an engine."""
    token = _ENGINE.set(engine)
    try:
        yield
    finally:
        _ENGINE.reset(token)
