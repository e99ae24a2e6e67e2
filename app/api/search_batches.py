"""Searches of one direction that wait for the same thing are one call of the service, from one snapshot."""
# What takes a moment is answered by the event loop, for all requests that have arrived together: a thread
# would take longer to start than most searches take, and the two would wait for Python's lock. Where only all
# of them together take longer, a thread ranks them, and the next ones gather meanwhile.
#
# The others take a place of the fair queue, and a thread. While a direction has its threads, its short
# searches gather; the next thread answers them together, also those that still wait for a place, callers in
# turn.

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from app.api.admission import aside, place_of
from app.api.gate import body_of
from app.domain.hosts import usable_cores
from app.domain.searches import SearchResult
from app.services.serving.search import MOMENT_NUMBERS, Outcome, Ranking, Search, SearchService, results_of

Encode = Callable[[list[SearchResult]], bytes]
"""Makes the answer to a request of the results of its search."""
Direction = tuple[str, str, str]
"""Names of a collection, and of the modalities of query and results."""
_LARGEST_BATCH = 16
"""Searches that are answered in one call: the first of them waits for all."""
_MOST_BATCHES = 8
"""That wait for the event loop; of more, searches take their turns, where no caller comes first."""
_logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Waiter:
    """A short search that waits for its answer; `place` is there while it asks for one."""

    request: Request
    search: Search
    encode: Encode
    answer: asyncio.Future[bytes | Exception] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future(), init=False
    )
    place: asyncio.Task[None] | None = None


@dataclass(eq=False, slots=True)
class _Gathered:
    """Searches that gather while the threads of their direction are busy."""

    running: set[asyncio.Task[None]] = field(default_factory=set)
    waiting: list[_Waiter] = field(default_factory=list)

    def take(self) -> list[_Waiter]:
        """Return those that are answered next: who has a place already, then callers in turn."""
        turns: Counter[str] = Counter()
        order: list[tuple[bool, int, int]] = []
        for number, waiter in enumerate(self.waiting):
            caller = body_of(waiter.request).caller
            turns[caller] += 1
            order.append((not _has_place(waiter), turns[caller], number))
        taken = [self.waiting[number] for _, _, number in sorted(order)[:_LARGEST_BATCH]]
        self.waiting = [waiter for waiter in self.waiting if waiter not in taken]
        return taken


class SearchBatches:
    """Answers searches, those that wait together in one call."""

    def __init__(self, service: SearchService) -> None:
        self._service = service
        self._open: dict[Hashable, list[_Waiter]] = {}
        """Batches for the event loop that take more searches."""
        self._queue: deque[tuple[Hashable, Direction, list[_Waiter]]] = deque()
        self._gathered: dict[Direction, _Gathered] = {}
        self._threads = max(usable_cores() - 1, 1)  # of a direction; one core is left for the event loop
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="ranking")
        self._n_ranking = 0  # batches whose ranking would keep the event loop

    async def answer(self, request: Request, direction: Direction, search: Search, encode: Encode) -> bytes:
        """Return the answer to a request; raises what the service does."""
        if search.is_short:
            group = (*direction, search.item_filter.fingerprint)
            batch = self._open.get(group)
            if (batch is None or len(batch) >= _LARGEST_BATCH) and len(self._queue) < _MOST_BATCHES:
                batch = self._open[group] = []
                self._queue.append((group, direction, batch))
                # After the requests that have arrived with it.
                asyncio.get_running_loop().call_soon(self._run_next)
            answer: bytes | Exception = BlockingIOError()  # where it would take long
            if batch is not None and len(batch) < _LARGEST_BATCH:
                batch.append(waiter := _Waiter(request, search, encode))
                answer = await waiter.answer
            if isinstance(answer, BlockingIOError) and search.item_filter.is_empty:
                answer = await self._in_turn(direction, _Waiter(request, search, encode))
            if isinstance(answer, bytes):
                return answer
            if not isinstance(answer, BlockingIOError):
                raise answer
        await place_of(request.scope).take()
        alone = [_Waiter(request, search, encode)]
        (answer,) = await run_in_threadpool(self._answer_all, direction, alone, may_wait=True)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer_all(
        self, direction: Direction, batch: Sequence[_Waiter], may_wait: bool = False
    ) -> list[bytes | Exception]:
        searches = [waiter.search for waiter in batch]
        try:
            return _encode(batch, self._service.search(*direction, searches, aside, may_wait))
        except Exception as error:
            return [error] * len(batch)

    def _run_next(self) -> None:
        """Answer the first batch that need not wait for a thread."""
        for entry in self._queue:
            group, direction, batch = entry
            if self._n_ranking >= self._threads and self._may_need_thread(direction, batch[0].search):
                continue
            self._queue.remove(entry)
            if self._open.get(group) is batch:
                del self._open[group]
            try:
                ranking = self._service.begin(*direction, [waiter.search for waiter in batch])
                if ranking is None:
                    _tell(batch, [BlockingIOError()] * len(batch))
                elif ranking.numbers <= MOMENT_NUMBERS:
                    self._service.rank(ranking)
                    _tell(batch, _encode(batch, self._service.finish(ranking)))
                else:
                    self._rank_in_thread(batch, ranking)
            except Exception as error:
                _tell(batch, [error] * len(batch))
            break

    def _may_need_thread(self, direction: Direction, search: Search) -> bool:
        """Return whether one such search is short, and a batch of them may not be."""
        numbers = self._service.numbers_per_search(direction[0], direction[2], search.item_filter)
        return numbers <= MOMENT_NUMBERS < numbers * _LARGEST_BATCH

    def _rank_in_thread(self, batch: Sequence[_Waiter], ranking: Ranking) -> None:
        # All else is done by the event loop: two threads of Python would only wait for each other.
        try:
            done = asyncio.get_running_loop().run_in_executor(self._pool, self._service.rank, ranking)
        except RuntimeError:  # the system has no thread left
            _tell(batch, [BlockingIOError()] * len(batch))
            return
        self._n_ranking += 1
        done.add_done_callback(partial(self._finish_ranking, batch, ranking))

    def _finish_ranking(self, batch: Sequence[_Waiter], ranking: Ranking, done: asyncio.Future[None]) -> None:
        self._n_ranking -= 1
        try:
            for _ in range(len(self._queue)):
                self._run_next()  # in a thread while these answers are made
            done.result()
            _tell(batch, _encode(batch, self._service.finish(ranking)))
        except Exception as error:
            _tell(batch, [error] * len(batch))

    async def _in_turn(self, direction: Direction, waiter: _Waiter) -> bytes | Exception:
        """Return the answer of a thread, together with others; BlockingIOError if it has to go alone."""
        gathered = self._gathered.setdefault(direction, _Gathered())
        gathered.waiting.append(waiter)
        waiter.place = asyncio.ensure_future(place_of(waiter.request.scope).take())
        try:
            await asyncio.wait((waiter.place, waiter.answer), return_when=asyncio.FIRST_COMPLETED)
            if waiter in gathered.waiting:
                waiter.place.result()
                self._start(direction, gathered)
            return await waiter.answer
        finally:
            if not waiter.place.cancel() and not waiter.place.cancelled():
                waiter.place.exception()  # others may have led to the answer meanwhile
            if waiter in gathered.waiting:
                gathered.waiting.remove(waiter)
            if not gathered.waiting and not gathered.running:
                self._gathered.pop(direction, None)

    def _start(self, direction: Direction, gathered: _Gathered) -> None:
        """Answer those that wait, if a thread is free for them and one of them has a place."""
        if len(gathered.running) < self._threads and any(map(_has_place, gathered.waiting)):
            batch = gathered.take()
            gathered.running.add(asyncio.ensure_future(self._run(direction, gathered, batch)))

    async def _run(self, direction: Direction, gathered: _Gathered, batch: Sequence[_Waiter]) -> None:
        """Answer a batch in a thread; where none can be had, each goes alone."""
        for waiter in batch:
            if waiter.place is not None:
                waiter.place.cancel()  # unless it has one
        answers: Sequence[bytes | Exception] = [BlockingIOError()] * len(batch)
        try:
            answers = await run_in_threadpool(self._answer_all, direction, batch)
        except RuntimeError as error:
            _logger.warning("searches are answered one by one: %s", error)
        finally:
            gathered.running = {task for task in gathered.running if task is not asyncio.current_task()}
            for waiter in batch:
                place_of(waiter.request.scope).give_back()  # the next ones are answered while these are sent
            _tell(batch, answers)
            self._start(direction, gathered)


def _has_place(waiter: _Waiter) -> bool:
    place = waiter.place
    return place is not None and place.done() and not place.cancelled() and place.exception() is None


def _encode(batch: Sequence[_Waiter], outcomes: Sequence[Outcome]) -> list[bytes | Exception]:
    """Return the answers; what cannot be encoded is an error of its own."""
    answers: list[bytes | Exception] = []
    for waiter, outcome in zip(batch, outcomes, strict=True):
        try:
            answers.append(waiter.encode(results_of(outcome)))
        except Exception as error:
            answers.append(error)
    return answers


def _tell(batch: Sequence[_Waiter], answers: Sequence[bytes | Exception]) -> None:
    for waiter, answer in zip(batch, answers, strict=True):
        if not waiter.answer.done():  # its request was not cancelled
            waiter.answer.set_result(answer)
