"""Blocks computed by the workers of a Dask cluster (extra `dask`).

Workers need nothing from each other, so that one that dies costs its unfinished blocks, which others compute
again at once. The same blocks give the same bits as in this process, where machines have the same kind of
processor and the same versions of the libraries.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import pickle
import tempfile
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from solver.linalg.matrices import FloatArray
from solver.losses.costs import FitCost, Machines
from solver.losses.dask_blocks import DaskBlockMap
from solver.losses.engine import BlockMap, LocalBlockMap, use_engine
from solver.losses.pair_blocks import PairBlocks
from solver.validation.errors import EngineError

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

_Part = TypeVar("_Part")


@dataclass(slots=True)
class _Call:
    """A call on a worker; without a future until it is submitted, or again once that is lost."""

    arguments: bytes  # pickled, so that their size is known, whatever they are
    future: Any = None
    n_kills: int = 0

    @classmethod
    def of(cls, arguments: tuple[Any, ...]) -> Self:
        return cls(pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL))


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
        self._announce = announce or _log_cost
        self._announced: set[tuple[int, int]] = set()
        self._opened = weakref.WeakSet[DaskBlockMap]()
        self._cluster: Any = None
        self._context: AbstractContextManager[None] | None = None
        self.client: Any = None
        """The connection, None before the first large problem; another one after the scheduler was lost."""

    def __enter__(self) -> Self:
        self._context = use_engine(self)
        self._context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None:
            self._context.__exit__(kind, error, trace)
        self.close()

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
        blocks = DaskBlockMap(self.map, pairs, self._make_folder())
        self._opened.add(blocks)
        size = pairs.sizes.n_rows, pairs.sizes.n_columns
        if size not in self._announced:  # a fit opens the same pairs in both precisions
            self._announced.add(size)
            self._announce(FitCost.estimate(pairs.sizes, self._measure_machines(blocks)))
        return blocks

    def connect(self) -> None:
        """Connect, once more if the connection was lost, and wait for a worker.

        Raises
        ------
        EngineError
            If that takes longer than `patience_seconds`.
        """
        distributed = _import_distributed()
        if self._scheduler is None and self._cluster is None:
            self._cluster = _start_cluster(distributed, self._n_workers or os.cpu_count() or 1)
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

        Raises
        ------
        EngineError
            If no worker is there for longer than `patience_seconds`.
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
            list(self.map(_keep, [(payload,)]))
            seconds = min(seconds, time.perf_counter() - began)
        while True:
            try:
                n_threads = self.count_threads()
                break
            except OSError as error:
                self._connect_again(error)
        # Twice, since the first time a worker loads the samples.
        times = np.array([blocks.time_tiles(n_threads) for _ in range(2)][-1])
        wall, processor = times.mean(axis=0)
        return Machines(n_threads, float(wall), 2 * _PROBE_BYTES / seconds, float(processor))

    def _make_folder(self) -> Path:
        return Path(tempfile.mkdtemp(prefix=self.PREFIX, dir=self._parent))

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
        calls.append(_Call.of(arguments))
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


def _keep(array: FloatArray) -> FloatArray:
    return array


def _log_cost(cost: FitCost) -> None:
    _logger.info("%s", cost)


def _start_cluster(distributed: Any, n_workers: int) -> Any:
    # No limit on the memory: mapped files count there, and the system has limits of its own.
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=0
    )


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
