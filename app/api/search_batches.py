"""Searches answered together: those of one direction that share a place are one call of the service.

A search that finds a free place goes alone, and waits for nothing. While it runs, others queue (see `Ride`),
and the next call answers all of them from one snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from app.api.middleware.queues import Ride
from app.services.serving.search import SingleSearch

Answer = bytes | Exception | None
"""JSON, or the error of a search; None where it has to be answered alone."""
Release = Callable[[], None]
"""Ends the part of a search in its ride."""
AnswerAll = Callable[[Sequence[SingleSearch]], Sequence[Answer]]


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
