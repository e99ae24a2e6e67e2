"""Blocks computed by the workers of a Dask cluster (extra `dask`), and what that is expected to cost.

A task names a folder and a block; the worker maps samples and factors from files there and keeps the samples
mapped. Workers need nothing from each other, so that one that dies costs its unfinished blocks, which others
compute again at once. The same blocks give the same bits as in this process, where machines have the same
kind of processor and the same versions of the libraries.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import itertools
import logging
import os
import pickle
import shutil
import tempfile
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import joblib
import numpy as np

from solver.linalg import FloatArray, Sides
from solver.losses.pair_blocks import (
    Block,
    BlockMap,
    LocalBlockMap,
    Measure,
    PairBlocks,
    PairSizes,
    use_engine,
)
from solver.threads import single_threaded_blas
from solver.validation import EngineError

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


def sample_tiles(pairs: PairBlocks) -> tuple[Block, Sides]:
    """Return a row of tiles of the first block with factors of their samples, for `time_tiles`."""
    block = Block(slice(0, pairs.sizes.tile_height), pairs.sizes.split()[0].columns)
    left, right = (np.full((side.stop, RANK), 1e-3, pairs.dtype) for side in block)
    return block, (left, right)


def time_tiles(pairs: PairBlocks, block: Block, factors: Sides, least: float) -> tuple[float, float]:
    """Return how long a pair takes, and how long of that a processor is at work on it."""
    # A block of a grid projects its samples once for far more rows than these: that does not count.
    began, processor_began, n_rounds = time.perf_counter(), time.thread_time(), 0
    while not n_rounds or time.perf_counter() - began < least:
        PairBlocks(pairs.sizes, pairs.Z, pairs.supervision).weigh_factors(block, factors)
        n_rounds += 1
    n_pairs = n_rounds * len(factors[0]) * len(factors[1])
    return (time.perf_counter() - began) / n_pairs, (time.thread_time() - processor_began) / n_pairs


_LOADED = 2  # losses that a worker keeps mapped: a fit has one in either precision
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of two parameters in the C library's malloc.h
_KEPT_BYTES = 32 << 20  # more than a tile's temporary arrays take; the C library accepts no larger threshold
_REST = "rest.joblib"

_Part = TypeVar("_Part")


class DaskBlockMap:
    """The blocks of one loss; its folder goes with this object, or before by `remove`.
    `run` yields what workers return of a function for each tuple of arguments, in their order."""

    def __init__(
        self,
        run: Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]],
        pairs: PairBlocks,
        folder: Path,
    ) -> None:
        self._run, self._pairs, self._folder = run, pairs, folder
        self.remove: Callable[[], object] = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        """Remove what is stored, once."""
        _store(pairs, folder)

    def map(
        self, measure: Measure[_Part], blocks: Sequence[Block], factors: Sides, *numbers: float
    ) -> Iterator[_Part]:
        """Yield the measure of each block, in the order of the blocks."""
        files = [self._folder / f"{name}-{uuid.uuid4().hex}.npy" for name in ("left", "right")]
        for file, factor in zip(files, factors, strict=True):
            np.save(file, factor)
        names = [file.name for file in files]
        try:
            yield from self._run(
                compute_block, ((str(self._folder), measure, block, names, numbers) for block in blocks)
            )
        except (FileNotFoundError, PermissionError) as error:
            raise EngineError(f"a worker cannot read {self._folder}: {error}") from error
        finally:
            for file in files:
                file.unlink()

    def time_tiles(self, n_tasks: int, least: float) -> list[tuple[float, float]]:
        """Return the seconds, of the clock and of a processor, that workers take for a pair."""
        block, factors = sample_tiles(self._pairs)
        return list(self.map(time_tiles, [block] * n_tasks, factors, least))


def compute_block(
    folder: str, measure: Measure[_Part], block: Block, factors: Sequence[str], numbers: tuple[float, ...]
) -> _Part:
    """Compute a block: what a worker does. `folder` has the pairs, and the files of both factors."""
    left, right = (_map_array(Path(folder) / name) for name in factors)
    with single_threaded_blas():
        return measure(_load(folder), block, (left, right), *numbers)


def _store(pairs: PairBlocks, folder: Path) -> None:
    """Write pairs to a folder: dense samples so that they can be mapped, the rest beside them."""
    rest: dict[str, Any] = {}
    for name, samples in (("X", pairs.X), ("Z", pairs.Z)):
        if isinstance(samples, np.ndarray):
            rest[name] = f"{name}.npy"
            np.save(folder / rest[name], samples)
        else:
            rest[name] = samples
    joblib.dump((pairs.sizes, pairs.supervision, rest), folder / _REST)


@functools.lru_cache(_LOADED)
def _load(folder: str) -> PairBlocks:
    _keep_freed_memory()
    sizes, supervision, rest = joblib.load(Path(folder) / _REST)
    X, Z = (
        _map_array(Path(folder) / samples) if isinstance(samples, str) else samples
        for samples in (rest["X"], rest["Z"])
    )
    return PairBlocks(sizes, Z, supervision, X)


def _map_array(file: Path) -> FloatArray:
    return np.asarray(np.load(file, mmap_mode="r"))


def _keep_freed_memory() -> None:
    """Undo that Dask has its workers return freed memory at once: a tile would wait for it as long again."""
    with suppress(OSError, AttributeError):  # another C library, which has no such function
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)


_logger = logging.getLogger(__name__)
_LEAST_PAIRS = 50_000_000
"""Pairs from which on blocks are sent away: an evaluation of fewer takes a few tenths of a second here."""
_PATIENCE_SECONDS = 60.0
"""How long a scheduler or the last worker may be away: longer than a supervisor takes to start it again."""
_RECONNECT_SECONDS = 5.0
"""How long a connection that broke is repaired before another one is made, which takes its place at once."""
_LOOK_SECONDS = 2.0  # how often somebody who waits for blocks looks whether there are workers
_FETCH_SECONDS = 600.0
"""How long a result may be on its way: longer than a scheduler takes to give up a worker that is silent."""
_LEAST_SECONDS = 0.5  # of an attempt to connect, and between two
_RETRIES = 3
"""Attempts of a worker at a block that it cannot read, as while a shared file system is being mounted."""
_KILLS = 3  # failures of one block, each after several workers died of it, before it is to blame and not they
_AHEAD, _LEAST_AHEAD = 2, 16
"""Blocks that are under way for each thread, one computed and one to follow, and at least for all."""
_BYTES_AHEAD = 1 << 28
"""Of arguments of calls under way, held by this process and the scheduler: none follows beyond 256 MiB."""
_BYTES_AT_ONCE = 16 << 20
"""Of results that are fetched together, as an answer takes longer than a small one is on its way: 16 MiB."""
_ALIVE = ("finished", "pending")  # futures that another one's failure leaves as they are
_PROBE_BYTES = 4 << 20
"""Sent to a worker and back to measure the network: 4 MiB take much longer than the answer alone."""
_PROBES = 3  # of which the fastest counts: with the first one, a worker imports what it needs


@dataclass(slots=True)
class _Call:
    """A call on a worker; without a future until it is submitted, or again once that is lost."""

    arguments: bytes  # pickled, so that their size is known, whatever they are
    future: Any = None
    n_kills: int = 0


class DaskEngine:
    """Computes the blocks of large problems on Dask workers, within a ``with`` statement.

    It connects, or starts workers, when the first large problem is evaluated.

    Parameters
    ----------
    scheduler : str, optional
        Address such as ``tcp://host:8786``. Without one, worker processes of this machine are started.
    folder : path-like, optional
        Where samples are written for the workers, which must see it under the same path. A temporary folder
        of this machine by default.
    n_workers : int, optional
        Processes to start when there is no `scheduler`; one per core by default.
    least_pairs : int
        Problems of fewer pairs are computed in this process.
    patience_seconds : float
        How long to wait for a scheduler that is lost, or for the first worker.
    announce : callable, optional
        Takes the expected cost before the first evaluation of a large problem; it is logged by default.

    Raises
    ------
    EngineError
        From a fit: if the extra is not installed, scheduler or workers are away for longer than
        `patience_seconds`, or a worker cannot read the folder. A fit that was followed by `iter_fit` goes on
        from its last checkpoint, with any engine.

    Examples
    --------
    >>> from solver import DaskEngine, LowRankBilinear
    >>> with DaskEngine("tcp://10.0.0.1:8786", "/mnt/shared"):  # doctest: +SKIP
    ...     model = LowRankBilinear(alpha_fraction=0.1).fit(X, Z, supervision)
    """

    PREFIX: ClassVar[str] = "lrbs-blocks-"
    """Of the names of the folders that a fit writes; a process that is killed leaves them."""

    def __init__(
        self,
        scheduler: str | None = None,
        folder: str | Path | None = None,
        *,
        n_workers: int | None = None,
        least_pairs: int = _LEAST_PAIRS,
        patience_seconds: float = _PATIENCE_SECONDS,
        announce: Callable[[FitCost], None] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._parent = None if folder is None else Path(folder)
        self._n_workers = n_workers
        self._least_pairs = least_pairs
        self._patience_seconds = patience_seconds
        self._announce = announce or partial(_logger.info, "%s")
        self._announced: set[tuple[int, int]] = set()
        self._opened = weakref.WeakSet[DaskBlockMap]()
        self._cluster: Any = None
        self._exits = ExitStack()
        self.client: Any = None
        """The connection, None before the first large problem; another one after the scheduler was lost."""

    def __enter__(self) -> Self:
        self._exits.callback(self.close)
        self._exits.enter_context(use_engine(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def close(self) -> None:
        """Remove what was stored for workers, and end the connection and the workers that were started."""
        for blocks in list(self._opened):  # which tracebacks may keep alive
            blocks.remove()
        self._close_client()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def open(self, pairs: PairBlocks, n_threads: int) -> BlockMap:
        """Write the samples for the workers, unless the problem is small."""
        if pairs.sizes.n_pairs < self._least_pairs:
            return LocalBlockMap(pairs, n_threads)
        if self.client is None:
            self.connect()
        folder = Path(tempfile.mkdtemp(prefix=self.PREFIX, dir=self._parent))
        blocks = DaskBlockMap(self.map, pairs, folder)
        self._opened.add(blocks)
        size = pairs.sizes.n_rows, pairs.sizes.n_columns
        if size not in self._announced:  # a fit opens the same pairs in both precisions
            self._announced.add(size)
            self._announce(FitCost.estimate(pairs.sizes, self._measure_machines(blocks)))
        return blocks

    def connect(self) -> None:
        """Connect, once more if the connection was lost, and wait for a worker.

        EngineError if that takes longer than `patience_seconds`.
        """
        distributed = _import_distributed()
        if self._scheduler is None and self._cluster is None:
            # No limit on the memory: mapped files count there, and the system has limits of its own.
            self._cluster = distributed.LocalCluster(
                n_workers=self._n_workers or os.cpu_count() or 1,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
            )
        deadline, is_known = time.monotonic() + self._patience_seconds, False
        while True:
            seconds = min(max(deadline - time.monotonic(), _LEAST_SECONDS), _RECONNECT_SECONDS)
            try:
                self._close_client()
                if self._scheduler is not None:
                    with ThreadPoolExecutor(1) as apart:  # from the event loop of a notebook
                        apart.submit(asyncio.run, _greet(self._scheduler, seconds)).result()
                self.client = distributed.Client(
                    self._scheduler or self._cluster, timeout=seconds, set_as_default=False
                )
                self.client.wait_for_workers(1, timeout=max(deadline - time.monotonic(), _LEAST_SECONDS))
                return
            except (OSError, TimeoutError, ValueError) as error:
                place = self._scheduler or "this machine"
                if time.monotonic() >= deadline:
                    where = f"{place} for {self._patience_seconds:g} s"
                    raise EngineError(f"no Dask scheduler with a worker at {where}: {error}") from error
                if not is_known:
                    is_known = True
                    _logger.warning(
                        "no Dask scheduler at %s yet, waiting %g s: %s", place, self._patience_seconds, error
                    )
                time.sleep(_LEAST_SECONDS)

    def _connect_again(self, error: BaseException) -> None:
        _logger.warning("the Dask scheduler is lost, connecting again: %s", error)
        self.connect()

    def map(self, function: Callable[..., _Part], arguments: Iterable[tuple[Any, ...]]) -> Iterator[_Part]:
        """Yield what workers return of a function, in order, whatever becomes of workers and scheduler.

        Only as many calls are under way as keep the workers busy, since their results wait in the workers'
        memory, and only a few hundred megabytes of arguments; no more are taken before.

        Parameters
        ----------
        function : callable
            A function of a module that the workers have, too; may be called again for the same arguments.
        arguments : iterable of tuple
            Of each call.

        Raises
        ------
        EngineError
            If the scheduler or all workers are away for longer than `patience_seconds`, or one call kills
            worker after worker; also whatever `function` raises.
        """
        distributed = _import_distributed()
        rest, calls, n_ahead, n_at_once = iter(arguments), deque[_Call](), _LEAST_AHEAD, 1
        if self.client is None:
            self.connect()
        while True:
            _take_ahead(calls, rest, n_ahead)
            if not calls:
                return
            first = calls[0]
            try:
                n_ahead = max(_LEAST_AHEAD, _AHEAD * self.count_threads())
                self._submit(function, calls)
                self.wait(first.future)
                parts = self.fetch([call.future for call in _take_finished(calls, n_at_once)])
            except distributed.KilledWorker as error:
                first.n_kills += 1
                if first.n_kills >= _KILLS:
                    raise EngineError(f"workers died of one task again and again: {error}") from error
                for call in calls:
                    if call.future is not None and call.future.status not in _ALIVE:
                        call.future = None
            except (distributed.CancelledError, distributed.client.ClosedClientError, OSError) as error:
                if first.future is not None and first.future.status == "error":
                    raise  # what the function raised
                self._connect_again(error)
                for call in calls:
                    call.future = None
            else:
                n_at_once = max(_BYTES_AT_ONCE // max(_measure_size(parts[-1]), 1), 1)
                for part in parts:
                    calls.popleft()
                    yield part

    def _submit(self, function: Callable[..., Any], calls: Iterable[_Call]) -> None:
        import dask

        # Factors are what the calls are about, however large: Dask's warning of large arguments is not.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
            for call in calls:
                if call.future is None:
                    key = f"lrbs-{function.__name__}-{uuid.uuid4().hex}"
                    call.future = self.client.submit(
                        _call, function, call.arguments, key=key, retries=_RETRIES
                    )

    def wait(self, future: Any) -> None:
        """Wait until a call is finished or failed.

        EngineError if no worker is there for longer than `patience_seconds`.
        """
        distributed, seen_at = _import_distributed(), time.monotonic()
        while future.status != "finished":
            try:
                with self.client.as_current():
                    distributed.wait([future], timeout=_LOOK_SECONDS)
                return
            except TimeoutError:
                if self.count_threads():
                    seen_at = time.monotonic()
            if time.monotonic() - seen_at > self._patience_seconds:
                raise EngineError(f"no Dask worker for {self._patience_seconds:g} s")

    def count_threads(self) -> int:
        """Return how many threads the workers have; raises OSError where the scheduler is lost or silent."""
        if self.client.status == "closed":  # by itself, once it could not connect again
            raise OSError("the connection was given up")
        threads = self.client.sync(self.client.scheduler.ncores, callback_timeout=self._patience_seconds)
        return sum(threads.values())

    def fetch(self, futures: list[Any]) -> list[Any]:
        """Return results that are finished, or raise what has failed; OSError as of `count_threads`."""
        results: list[Any] = self.client.sync(
            partial(self.client.gather, futures, asynchronous=True), callback_timeout=_FETCH_SECONDS
        )
        return results

    def _measure_machines(self, blocks: DaskBlockMap) -> Machines:
        """Measure how fast the workers compute, all at once, and how fast the network is."""
        payload, seconds = np.zeros(_PROBE_BYTES, np.uint8), np.inf
        for _ in range(_PROBES):
            began = time.perf_counter()
            list(self.map(np.positive, [(payload,)]))
            seconds = min(seconds, time.perf_counter() - began)
        while True:
            try:
                n_threads = self.count_threads()
                break
            except OSError as error:
                self._connect_again(error)
        # Twice, since the first time a worker loads the samples.
        times = np.array([blocks.time_tiles(n_threads, least) for least in (0.0, _TIMED_SECONDS)][-1])
        wall, processor = times.mean(axis=0)
        return Machines(n_threads, float(wall), 2 * _PROBE_BYTES / seconds, float(processor))

    def _close_client(self) -> None:
        if self.client is not None:
            with suppress(OSError, TimeoutError):
                self.client.close(timeout=_LOOK_SECONDS)
            self.client = None


def _take_ahead(calls: deque[_Call], rest: Iterator[tuple[Any, ...]], n_ahead: int) -> None:
    """Add calls while there are fewer than `n_ahead`, and few bytes; the first one whatever it takes."""
    n_bytes = sum(len(call.arguments) for call in calls)
    while len(calls) < n_ahead and n_bytes < _BYTES_AHEAD:
        arguments = next(rest, None)
        if arguments is None:
            return
        calls.append(_Call(pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL)))
        n_bytes += len(calls[-1].arguments)


def _take_finished(calls: Sequence[_Call], n_calls: int) -> list[_Call]:
    """Return the first call, and those after it that are finished, too, at most `n_calls` together."""
    rest = itertools.islice(calls, 1, n_calls)
    return [calls[0], *itertools.takewhile(lambda call: call.future.status == "finished", rest)]


def _measure_size(result: Any) -> int:
    from dask.sizeof import sizeof

    return int(sizeof(result))


def _call(function: Callable[..., _Part], arguments: bytes) -> _Part:
    return function(*pickle.loads(arguments))


async def _greet(scheduler: str, seconds: float) -> None:
    """Raise OSError unless a scheduler answers: a client would wait for the answer as long as it takes."""
    distributed = _import_distributed()
    security = distributed.Security().get_connection_args("client")
    connecting = distributed.comm.connect(scheduler, timeout=seconds, **security)
    (await asyncio.wait_for(connecting, seconds)).abort()


def _import_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise EngineError(f"the engine dask needs the extra 'dask': {error}") from error
    return distributed
