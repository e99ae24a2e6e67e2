"""Work beside requests: probes (`/readyz`, `/metrics`) on reserved threads, and what a server repeats."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError

from app.domain.errors import ServiceError, overload

# The threads are few: a database that hangs occupies all of them, and further probes are then refused
# immediately. A thread cannot be ended, so a probe that gives up leaves its thread running; AnyIO's
# `CapacityLimiter` would return that thread's place too early and never refuses, hence the semaphore.


_THREADS = 2  # for each probe: while one thread waits for a database that hangs, another can still answer
_STALE_SECONDS = 2.0  # an older answer is not served, even while the next one is being prepared
_Result = TypeVar("_Result")


class CachedProbe(Generic[_Result]):
    """A probe in a few reserved threads, whose answer is reused for a moment, and while the next one is being
    prepared. After the timeout the thread goes on without its caller, and keeps its place."""

    def __init__(self, work: Callable[[], _Result], seconds: float, timeout_seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._timeout_seconds = timeout_seconds
        self._places = threading.Semaphore(_THREADS)
        self._limiter = anyio.CapacityLimiter(math.inf)  # it would not count abandoned threads
        self._latest: tuple[float, _Result] | None = None
        self._is_running = False

    async def get(self) -> _Result:
        """Return the answer; raises UnavailableError on timeout, or when all threads are busy."""
        if self._latest is not None:
            started_at, result = self._latest
            age = time.monotonic() - started_at
            if age < self._seconds or (self._is_running and age < _STALE_SECONDS):
                return result
        self._is_running = True
        try:
            started_at = time.monotonic()
            result = await self._run()
            self._latest = (started_at, result)
            return result
        finally:
            self._is_running = False

    async def _run(self) -> _Result:
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
                return self._work()
            finally:
                leave()

        try:
            with anyio.move_on_after(self._timeout_seconds):
                return await to_thread.run_sync(work_and_leave, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            if not has_started.is_set():
                leave()
        raise overload("the answer takes long")


_REST_FACTOR = 10.0
"""The pause is at least this multiple of the time the work took, so that slow work leaves its thread free."""
_logger = logging.getLogger(__name__)


class Repeated:
    """Periodic work in a thread, whose failures and recoveries are logged under its name."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self._name = name
        self._work = work
        self._is_failing = False

    async def repeat(self, pause_seconds: float) -> None:
        """Repeat the work with pauses until cancelled; slow work runs less often."""
        while True:
            started_at = anyio.current_time()
            await self.run()
            await anyio.sleep(max(pause_seconds, _REST_FACTOR * (anyio.current_time() - started_at)))

    async def run(self, *, is_last: bool = False) -> None:
        """Run the work once; after the last time there will be no retry."""
        try:
            await to_thread.run_sync(self._work)
        except (ServiceError, SQLAlchemyError, OSError) as error:
            self._is_failing = True
            hope = "" if is_last else ", will retry"
            _logger.warning("could not %s%s: %s", self._name, hope, error)
        except Exception:
            self._is_failing = True
            _logger.exception("could not %s", self._name)
        else:
            if self._is_failing:
                # A failure may come and go many times a minute.
                _logger.info("can %s again", self._name, extra={"cause": f"can {self._name}"})
            self._is_failing = False
