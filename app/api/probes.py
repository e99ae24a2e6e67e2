"""Answers for those who watch over the service, which nothing keeps from coming.

They get threads of their own, since whoever asks about an overloaded service should not wait with the others.
There are few: a database that hangs holds them all, and then the next one to ask is told so at once.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
from anyio import to_thread

from app.domain.errors import OverloadedError

_THREADS = 2
_STALE_SECONDS = 2.0
"""An answer that old serves nobody, although the next one is being found."""
_Result = TypeVar("_Result")


class Watching:
    """Runs what those who watch ask for.

    Parameters
    ----------
    patience_seconds : float
        How long each of them waits; the thread goes on without it, and keeps its place until it is done.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._places = threading.Semaphore(_THREADS)
        self._limiter = anyio.CapacityLimiter(math.inf)  # counts no thread that is waited for no longer

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Return what `work` returns; raises OverloadedError when that takes long or all are busy."""
        if not self._places.acquire(blocking=False):
            raise OverloadedError("this is being asked already, and takes long")
        place = [self._places]
        has_begun = threading.Event()

        def leave() -> None:
            with contextlib.suppress(IndexError):  # left already
                place.pop().release()

        def work_and_leave() -> _Result:
            has_begun.set()
            try:
                return work()
            finally:
                leave()

        try:
            with anyio.move_on_after(self._patience_seconds):
                return await to_thread.run_sync(work_and_leave, abandon_on_cancel=True, limiter=self._limiter)
        finally:
            if not has_begun.is_set():
                leave()
        raise OverloadedError("the answer takes long")


class Remembered(Generic[_Result]):
    """An answer that serves all who ask within a moment, and while it is found anew.

    Parameters
    ----------
    watching : Watching
        Where it is found.
    work : callable
        Finds it.
    seconds : float
        How long it serves.
    """

    def __init__(self, watching: Watching, work: Callable[[], _Result], seconds: float) -> None:
        self._watching = watching
        self._work = work
        self._seconds = seconds
        self._found: tuple[float, _Result] | None = None
        self._is_looking = False

    async def get(self) -> _Result:
        """Return the answer; raises what `Watching.run` raises."""
        if self._found is not None:
            age = time.monotonic() - self._found[0]
            if age < self._seconds or (self._is_looking and age < _STALE_SECONDS):
                return self._found[1]
        self._is_looking = True
        try:
            began = time.monotonic()
            found = await self._watching.run(self._work)
            self._found = (began, found)
            return found
        finally:
            self._is_looking = False
