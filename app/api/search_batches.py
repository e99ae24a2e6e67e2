"""Searches answered together: those of one direction are one call of the service, from one snapshot.

Light searches take no place. The event loop prepares and answers them, and a thread ranks the gallery for
those that have arrived together, in few calls, since the two take turns with Python's lock. One that comes
alone is ranked by the event loop itself.

Of others, a search that finds a free place goes alone, and waits for nothing. While it runs, others queue
(see `Ride`), and the next call answers all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from app.api.middleware.queues import Ride
from app.services.serving.search import SingleSearch

Answer = bytes | Exception | None
"""JSON, or the error of a search; None where it has to be answered alone."""
Release = Callable[[], None]
"""Ends the part of a search in its ride."""
AnswerAll = Callable[[Sequence[SingleSearch]], Sequence[Answer]]
_LARGEST_BATCH = 16
"""Light searches that are ranked in one call: some milliseconds at most."""
_MOST_BATCHES = 8
"""That wait; of more, searches take their turns in the queue of all others, where no caller comes first."""


@dataclass(eq=False, slots=True)
class _Batch:
    answer_all: AnswerAll
    searches: list[SingleSearch] = field(default_factory=list)
    answers: list[asyncio.Future[Answer]] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)


class SearchBatches:
    """Runs the searches of each ride in one thread.

    Parameters
    ----------
    threads : int
        Most rides at the same time.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="searches")

    async def answer(
        self, ride: Ride, search: SingleSearch, answer_all: AnswerAll, release: Release
    ) -> Answer:
        """Return the answer to a search, which is looked for together with the others of its ride.

        Parameters
        ----------
        ride : Ride
            Of its request.
        search : SingleSearch
            What is asked for.
        answer_all : callable
            Answers the searches of this direction, in a thread.
        release : callable
            Called once the answer is there, for all of the ride before the first of them is sent: the next
            ride is answered meanwhile.
        """
        loop = asyncio.get_running_loop()
        if ride.size == 1:
            try:
                (answer,) = await loop.run_in_executor(self._pool, answer_all, [search])
            finally:
                release()
            return answer
        batch = ride.load
        if not isinstance(batch, _Batch):
            batch = ride.load = _Batch(answer_all)
            # Those of a ride were admitted together, and come here before what is scheduled now.
            loop.call_soon(self._start, ride, batch)
        batch.searches.append(search)
        batch.answers.append(loop.create_future())
        batch.releases.append(release)
        return await batch.answers[-1]

    def _start(self, ride: Ride, batch: _Batch) -> None:
        ride.load = None  # one that comes late begins another batch
        running = asyncio.get_running_loop().run_in_executor(self._pool, batch.answer_all, batch.searches)
        running.add_done_callback(lambda done: _hand_out(batch, done))


class SharedRanking(Protocol):
    """Light searches that were begun together."""

    def rank(self) -> None:
        """Rank the gallery, mostly without Python's lock."""
        ...

    def answers(self) -> Sequence[Answer]:
        """Return the answers, after `rank`."""
        ...


Begin = Callable[[Sequence[SingleSearch]], SharedRanking | None]
"""Returns None where the searches would have to wait."""


@dataclass(eq=False, slots=True)
class _LightBatch:
    group: Hashable
    begin: Begin
    searches: list[SingleSearch] = field(default_factory=list)
    answers: list[asyncio.Future[Answer]] = field(default_factory=list)

    def hand_out(self, answers: Sequence[Answer]) -> None:
        for waiting, answer in zip(self.answers, answers, strict=True):
            if not waiting.done():  # its request was not cancelled
                waiting.set_result(answer)


class LightSearches:
    """Answers light searches: the event loop does everything but the ranking of several.

    Parameters
    ----------
    threads : int
        Most rankings at the same time beside the event loop.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rankings")
        self._queue: deque[_LightBatch] = deque()
        self._open: dict[Hashable, _LightBatch] = {}
        """Those of the queue that take more searches."""
        self._n_ranking = 0
        self._is_scheduled = False
        self._were_several = False

    def answer(self, group: Hashable, search: SingleSearch, begin: Begin) -> asyncio.Future[Answer]:
        """Return the answer to a search, which waits for no timer; None if it has to be answered otherwise.

        That is where `begin` returns None, where many others wait, and where there is no thread left.

        Parameters
        ----------
        group : hashable
            Searches of one group are begun together.
        search : SingleSearch
            What is asked for.
        begin : callable
            Begins the searches of the group.
        """
        loop = asyncio.get_running_loop()
        batch = self._open.get(group)
        if batch is None or len(batch.searches) == _LARGEST_BATCH:
            if len(self._queue) >= _MOST_BATCHES:
                unanswered: asyncio.Future[Answer] = loop.create_future()
                unanswered.set_result(None)
                return unanswered
            batch = self._open[group] = _LightBatch(group, begin)
            self._queue.append(batch)
        batch.searches.append(search)
        batch.answers.append(loop.create_future())
        if not self._is_scheduled and self._n_ranking < self._threads:
            self._is_scheduled = True
            loop.call_soon(self._start)  # after the requests that have arrived with this one
        return batch.answers[-1]

    def _start(self) -> None:
        self._is_scheduled = False
        while self._queue and self._n_ranking < self._threads:
            batch = self._queue.popleft()
            if self._open.get(batch.group) is batch:
                del self._open[batch.group]
            try:
                self._answer(batch)
            except Exception as error:
                batch.hand_out([error] * len(batch.answers))

    def _answer(self, batch: _LightBatch) -> None:
        ranking = batch.begin(batch.searches)
        if ranking is None:
            batch.hand_out([None] * len(batch.answers))
            return
        is_alone = len(batch.searches) == 1 and not self._were_several and not self._queue
        self._were_several = len(batch.searches) > 1
        if is_alone:
            # Nothing else is to be done meanwhile; a thread would take longer to start.
            ranking.rank()
            batch.hand_out(ranking.answers())
            return
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, ranking.rank)
        except RuntimeError:  # the system has no thread left
            batch.hand_out([None] * len(batch.answers))
            return
        self._n_ranking += 1
        running.add_done_callback(partial(self._finish, batch, ranking))

    def _finish(self, batch: _LightBatch, ranking: SharedRanking, done: asyncio.Future[None]) -> None:
        self._n_ranking -= 1
        self._start()  # the next ranking runs while these answers are prepared
        try:
            done.result()
            batch.hand_out(ranking.answers())
        except Exception as error:
            batch.hand_out([error] * len(batch.answers))


def _hand_out(batch: _Batch, done: asyncio.Future[Sequence[Answer]]) -> None:
    error = done.exception()
    answers = done.result() if error is None else [error] * len(batch.answers)
    try:
        for release in batch.releases:
            release()
    finally:
        for waiting, answer in zip(batch.answers, answers, strict=True):
            if waiting.done():
                continue  # its request was cancelled
            if isinstance(answer, BaseException):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)
