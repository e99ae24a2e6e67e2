"""What a fit on several machines is expected to cost: time, traffic, memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self

import numpy as np

from solver.losses.row_blocks import RowBlocks

_RANK = 32
"""Rank that is assumed: it is not known before the fit."""
_EVALUATIONS = 80
"""Evaluations over all pairs that a fit is assumed to take; 79 were counted for 20 000 x 20 000 pairs."""
_TASK_SECONDS = 2e-3
"""From a block's submission to its result beside its computation and its bytes, as the scheduler needs it."""
_SAMPLED, _REPEATS = 512, 3
"""Rows whose computation is timed, and how often: some milliseconds each at 1280 columns a tile."""


@dataclass(frozen=True, slots=True)
class Machines:
    """What computes.

    Parameters
    ----------
    n_threads : int
        Threads of all workers together.
    pair_seconds : float
        Time of one thread for the loss of a pair and its derivatives, at rank 32.
    bytes_per_second : float
        Rate of the network.
    """

    n_threads: int
    pair_seconds: float
    bytes_per_second: float

    @classmethod
    def measure(cls, pairs: RowBlocks, n_threads: int, bytes_per_second: float) -> Self:
        """Time a few rows in this process, as if workers were like it."""
        rows = slice(0, max(min(_SAMPLED, pairs.n_rows, (1 << 22) // pairs.n_columns), 1))
        left = np.full((rows.stop, _RANK), 1e-3, pairs.dtype)
        right = np.full((pairs.n_columns, _RANK), 1e-3, pairs.dtype)
        seconds = np.inf
        for _ in range(_REPEATS):
            began = time.perf_counter()
            pairs.weigh_factors(rows, left, right)
            seconds = min(seconds, time.perf_counter() - began)
        return cls(n_threads, seconds / (rows.stop * pairs.n_columns), bytes_per_second)


@dataclass(frozen=True, slots=True)
class FitCost:
    """Expected cost of a fit, a rough estimate: ranks and numbers of evaluations differ.

    Parameters
    ----------
    n_pairs : int
        Number of pairs.
    n_blocks, n_threads : int
        Blocks of rows, and threads of all workers, of which more than blocks gain nothing.
    evaluation_seconds : float
        Time of one evaluation of the loss and its gradients along factors.
    evaluation_bytes : int
        Bytes that one evaluation sends and receives.
    worker_bytes : int
        Memory of a worker beside its interpreter: mapped samples, factors and sums.
    own_bytes : int
        Memory of this process for the sums of all blocks, beside its samples.
    """

    n_pairs: int
    n_blocks: int
    n_threads: int
    evaluation_seconds: float
    evaluation_bytes: int
    worker_bytes: int
    own_bytes: int

    @property
    def fit_seconds(self) -> float:
        """Expected time of the whole fit."""
        return _EVALUATIONS * self.evaluation_seconds

    def __str__(self) -> str:
        """Return the cost in one line."""
        return (
            f"{self.n_pairs:.2g} pairs in {self.n_blocks} blocks on {self.n_threads} threads: about "
            f"{self.evaluation_seconds:.2g} s and {self.evaluation_bytes / 1e6:.3g} MB of traffic for an "
            f"evaluation, {self.fit_seconds:.3g} s for a fit of {_EVALUATIONS}; memory "
            f"{self.worker_bytes / 1e6:.3g} MB a worker, {self.own_bytes / 1e6:.3g} MB of sums here"
        )


def estimate_cost(pairs: RowBlocks, machines: Machines) -> FitCost:
    """Estimate the cost of a fit before it starts.

    Parameters
    ----------
    pairs : RowBlocks
        The pairs.
    machines : Machines
        What computes.
    """
    blocks, item = pairs.split(_RANK), pairs.dtype.itemsize
    n_blocks, n_pairs = len(blocks), pairs.n_rows * pairs.n_columns
    rows_of_columns = pairs.n_columns * _RANK * item
    # To each thread the columns' factor at most once, to each block its rows; back come both sums.
    n_busy = min(machines.n_threads, n_blocks)
    traffic = (n_busy + n_blocks) * rows_of_columns + 2 * pairs.n_rows * _RANK * item
    rounds = -(-n_blocks // n_busy)
    seconds = (
        n_pairs * machines.pair_seconds * rounds / n_blocks
        + traffic / machines.bytes_per_second
        + n_blocks * _TASK_SECONDS
    )
    largest = max(rows.stop - rows.start for rows in blocks)
    of_samples = pairs.n_columns * int(pairs.Z.shape[1]) * item
    worker = of_samples + 2 * rows_of_columns + 2 * largest * _RANK * item
    return FitCost(
        n_pairs, n_blocks, machines.n_threads, seconds, traffic, worker, n_blocks * rows_of_columns
    )
