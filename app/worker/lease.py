"""Keeping a claimed job: the thread that renews its lease, writes progress, and notices a cancellation.

A busy database ends no lease. While it cannot be renewed the thread tries again with growing pauses; a lease
that ran out meanwhile is taken up again unless another worker claimed the job, which its fencing token tells.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from app.bootstrap import Services
from app.domain.entities import Job
from app.domain.errors import DatabaseUnavailableError
from app.worker.outcome import WorkerStoppingError
from app.worker.patience import LONGEST_WAIT_SECONDS, patiently, pause_after

_TICK_SECONDS = 0.25
_MOST_WAITING = 2000

_Result = TypeVar("_Result")


class Lease:
    """A claimed job while it is worked on.

    Parameters
    ----------
    services : Services
        As built by `app.bootstrap.build`.
    job : Job
        As claimed.
    should_stop : callable
        Whether the worker was asked to end.
    """

    def __init__(self, services: Services, job: Job, should_stop: Callable[[], bool]) -> None:
        self.job = job
        self._database = services.database
        self._seconds = services.settings.lease_seconds
        self._should_stop = should_stop
        self._waiting: list[Mapping[str, Any]] = []
        self._lost: Exception | None = None
        self._on_lost: Callable[[], None] = lambda: None
        self._kept_at = time.monotonic()
        self._failures, self._next_try = 0, 0.0
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def report(self, progress: Mapping[str, Any]) -> None:
        """Have progress written soon; raise what ended the lease."""
        self.require()
        with self._guard:
            self._waiting.append(dict(progress))
            del self._waiting[:-_MOST_WAITING]

    def require(self) -> None:
        """Raise what ended the lease, if it has ended."""
        if self._lost is not None:
            raise self._lost

    def insist(self, act: Callable[[], _Result]) -> _Result:
        """Return what `act` returns, which is tried again while the database is busy and the lease holds.

        Raises what ended the lease; DatabaseUnavailableError only after hours.
        """

        def pause(seconds: float) -> None:
            self._ended.wait(seconds)
            self.require()

        self.require()
        return patiently(act, pause=pause)

    def when_lost(self, act: Callable[[], None]) -> None:
        """Have something done as soon as the lease ends, from its thread; at once when it has ended."""
        with self._guard:
            self._on_lost = act
            is_lost = self._lost is not None
        if is_lost:
            act()

    def write(self) -> None:
        """Write what was reported and renew the lease; raises JobCancelledError when it has ended."""
        self.require()
        with self._guard:
            steps, self._waiting = self._waiting, []
        try:
            with self._database.write() as work:
                work.jobs.heartbeat(self.job, self._seconds, steps[-1] if steps else {}, steps[:-1])
        except DatabaseUnavailableError:
            with self._guard:
                self._waiting = steps + self._waiting
            raise
        self._kept_at = time.monotonic()

    def _keep(self) -> None:
        while not self._closed.wait(_TICK_SECONDS):
            try:
                self._tick()
            except Exception as error:
                # Whatever it was, the training must end; whoever waits for it learns why.
                with self._guard:
                    self._lost = error
                    act = self._on_lost
                self._ended.set()
                act()
                return

    def _tick(self) -> None:
        if self._should_stop():
            raise WorkerStoppingError
        now = time.monotonic()
        wants_to_write = bool(self._waiting) or now - self._kept_at >= self._seconds / 3.0
        try:
            if wants_to_write and now >= self._next_try:
                self.write()
                self._failures = 0
            else:
                with self._database.read() as work:
                    work.jobs.check(self.job)
        except DatabaseUnavailableError:
            if time.monotonic() - self._kept_at > LONGEST_WAIT_SECONDS:
                raise
            self._failures += 1
            # Whoever finds the lease expired gives notice of it, no shorter than this pause.
            self._next_try = time.monotonic() + min(pause_after(self._failures), self._seconds / 4.0)
