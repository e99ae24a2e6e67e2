"""What a fit on several machines is expected to cost: time, traffic, memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

import numpy as np

from solver.linalg.matrices import FloatArray
from solver.losses.pair_blocks import Block, PairBlocks, PairSizes

RANK = 32  # rank that is assumed: it is not known before the fit
_EVALUATIONS = 80
"""Evaluations over all pairs that a fit is assumed to take; 79 were counted for 20 000 x 20 000 pairs."""
_TASK_SECONDS = 2e-3
"""From a block's submission to its result beside its computation and its bytes, as the scheduler needs it."""
_TIMED_SECONDS = 0.1  # of real rows, at least: a tile of a small problem takes some milliseconds, which vary
_TASK_PROCESSOR_SECONDS = 3.5e-3
"""Of a worker for a block beside its computation: 2.5 to 4 ms were measured, to 12 beside other programs."""


@dataclass(frozen=True, slots=True)
class Machines:
    """What computes.

    Parameters
    ----------
    n_threads : int
        Threads of all workers together.
    pair_seconds : float
        Time of one thread for the loss of a pair and its derivatives, at rank 32, while all are busy.
    bytes_per_second : float
        Rate of the network at the process that fits, through which everything goes.
    pair_processor_seconds : float, optional
        Part of `pair_seconds` that a processor was at work; all of it where other programs do not interfere.
    """

    n_threads: int
    pair_seconds: float
    bytes_per_second: float
    pair_processor_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class FitCost:
    """Expected cost of a fit, whose rank and number of evaluations are assumed.

    Parameters
    ----------
    n_pairs : int
    n_blocks, n_threads : int
        Blocks, and threads of all workers, of which more than blocks gain nothing.
    evaluation_seconds : float
        Time of one evaluation of the loss and its gradients along factors.
    evaluation_processor_seconds : float
        Time of all workers' processors together in it.
    evaluation_bytes : int
        Bytes that one evaluation sends and receives.
    worker_bytes : int
        Memory of a worker beside its interpreter: mapped samples, factors and sums.
    own_bytes : int
        Memory of this process for the sums of a block and of all, beside its samples.
    """

    n_pairs: int
    n_blocks: int
    n_threads: int
    evaluation_seconds: float
    evaluation_processor_seconds: float
    evaluation_bytes: int
    worker_bytes: int
    own_bytes: int

    @classmethod
    def estimate(cls, sizes: PairSizes, machines: Machines) -> Self:
        """Estimate the cost of a fit before it starts.

        Parameters
        ----------
        sizes : PairSizes
            Of the problem; nothing else is needed, so that machines that do not exist yet can be planned.
        machines : Machines
            What computes.

        Examples
        --------
        >>> from solver import FitCost, Machines, PairSizes
        >>> million = PairSizes(10**6, 10**6, n_features_x=64, n_features_z=64, itemsize=4)
        >>> machines = [Machines(16 * n, pair_seconds=1e-8, bytes_per_second=1.25e9) for n in (16, 64)]
        >>> costs = [FitCost.estimate(million, each) for each in machines]
        >>> [(cost.n_blocks, round(cost.evaluation_seconds)) for cost in costs]
        [(930, 46), (930, 13)]
        """
        blocks, itemsize = sizes.split(), sizes.itemsize
        n_blocks, n_busy = len(blocks), min(machines.n_threads, len(blocks))
        n_rows, n_columns = (
            max(side.stop - side.start for side in sides) for sides in zip(*blocks, strict=True)
        )
        n_rounds = -(-n_blocks // n_busy)
        if sizes.is_grid:  # all need both factors and return as much; samples are those of the blocks
            shared, own = sizes.n_features_x + sizes.n_features_z, 0
            mapped = min(n_rounds * n_rows, sizes.n_rows) * sizes.n_features_x
            mapped += min(n_rounds * n_columns, sizes.n_columns) * sizes.n_features_z
        else:  # all need the columns' factor and return as much; rows go each way once
            shared, own = sizes.n_columns, sizes.n_rows
            mapped = sizes.n_columns * sizes.n_features_z
        traffic = ((n_busy + n_blocks) * shared + 2 * own) * RANK * itemsize  # to a thread at most once
        seconds = (
            n_rows * n_columns * machines.pair_seconds * n_rounds
            + traffic / machines.bytes_per_second
            + n_blocks * _TASK_SECONDS
        )
        return cls(
            sizes.n_pairs,
            n_blocks,
            machines.n_threads,
            seconds,
            sizes.n_pairs * (machines.pair_processor_seconds or machines.pair_seconds)
            + n_blocks * _TASK_PROCESSOR_SECONDS,
            traffic,
            (mapped + 2 * (n_rows + n_columns) * RANK) * itemsize,
            shared * RANK * (itemsize + np.dtype(np.float64).itemsize),
        )

    @property
    def fit_seconds(self) -> float:
        """Expected time of the whole fit."""
        return _EVALUATIONS * self.evaluation_seconds

    def __str__(self) -> str:
        return (
            f"{self.n_pairs:.2g} pairs in {self.n_blocks} blocks on {self.n_threads} threads: about "
            f"{self.evaluation_seconds:.2g} s ({self.evaluation_processor_seconds:.2g} s of processors) and "
            f"{self.evaluation_bytes / 1e6:.3g} MB of traffic for an evaluation at rank {RANK}, "
            f"{self.fit_seconds:.3g} s for a fit of {_EVALUATIONS}; memory "
            f"{self.worker_bytes / 1e6:.3g} MB a worker, {self.own_bytes / 1e6:.3g} MB of sums here"
        )


def sample_tiles(pairs: PairBlocks) -> tuple[Block, FloatArray, FloatArray]:
    """Return a row of tiles of the first block with factors of their samples, for `time_tiles`."""
    block = Block(slice(0, pairs.sizes.tile_height), pairs.split()[0].columns)
    left, right = (np.full((side.stop, RANK), 1e-3, pairs.dtype) for side in block)
    return block, left, right


def time_tiles(pairs: PairBlocks, block: Block, left: FloatArray, right: FloatArray) -> tuple[float, float]:
    """Return how long a pair takes, and how long of that a processor is at work on it."""
    # A block of a grid projects its samples once for far more rows than these: that does not count.
    of_rows = PairBlocks(pairs.sizes, pairs.Z, pairs.supervision)
    began, processor_began, n_rounds = time.perf_counter(), time.thread_time(), 0
    while not n_rounds or time.perf_counter() - began < _TIMED_SECONDS:
        of_rows.weigh_factors(block, left, right)
        n_rounds += 1
    n_pairs = n_rounds * len(left) * len(right)
    return (time.perf_counter() - began) / n_pairs, (time.thread_time() - processor_began) / n_pairs
