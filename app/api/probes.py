"""Probes (`/readyz`, `/metrics`) run on reserved threads, so that they answer under overload."""
# The threads are few: a database that hangs occupies all of them, and further probes are then refused
# immediately. A thread cannot be ended, so a probe that gives up leaves its thread running; AnyIO's
# `CapacityLimiter` would return that thread's place too early and never refuses, hence the semaphore.

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
from anyio import to_thread

from app.domain.errors import overload

_THREADS = 2  # for each probe: while one thread waits for a database that hangs, another can still answer
_STALE_SECONDS = 2.0  # an older answer is not served, even while the next one is being prepared
_Result = TypeVar("_Result")


class ProbeThreads:
    """Runs probes in a few reserved threads; after the timeout the thread goes on without its caller, and
    keeps its place."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._places = threading.Semaphore(_THREADS)
        self._limiter = anyio.CapacityLimiter(math.inf)  # it would not count abandoned threads

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Return what `work` returns; raises UnavailableError on timeout, or when all threads are busy."""
        if not self._places.acquire(blocking=False):
            raise overload("this is being asked already, and takes long")
        place = [self._places]
        has_started = threading.Event()

        def leave() -> None:
            with contextlib.suppress(IndexError):  # left already
                place.pop().release()

        def work_and_leave() -> _Result:
            has_started.set()
            try:
                return work()
            finally:
                leave()

        try:
            with anyio.move_on_after(self._timeout_seconds):
                return await to_thread.run_sync(work_and_leave, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            if not has_started.is_set():
                leave()
        raise overload("the answer takes long")


class CachedProbe(Generic[_Result]):
    """A probe whose answer is reused for a moment, and while the next one is being prepared."""

    def __init__(self, threads: ProbeThreads, work: Callable[[], _Result], seconds: float) -> None:
        self._threads = threads
        self._work = work
        self._seconds = seconds
        self._latest: tuple[float, _Result] | None = None
        self._is_running = False

    async def get(self) -> _Result:
        """Return the answer; raises what `ProbeThreads.run` raises."""
        if self._latest is not None:
            started_at, result = self._latest
            age = time.monotonic() - started_at
            if age < self._seconds or (self._is_running and age < _STALE_SECONDS):
                return result
        self._is_running = True
        try:
            started_at = time.monotonic()
            result = await self._threads.run(self._work)
            self._latest = (started_at, result)
            return result
        finally:
            self._is_running = False
