"""Searches that wait together are one call; what fails is told to each of them, and nobody is forgotten."""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from fastapi import Request

from app.api.admission import Asker, ConcurrencyLimits, Place
from app.api.search_batches import SearchBatches
from app.domain.entities import Content
from app.domain.errors import UnavailableError
from app.domain.filters import ItemFilter
from app.services.serving.search import MOMENT_NUMBERS, Outcome, Query, Search

pytestmark = pytest.mark.anyio

DIRECTION = ("a", "x", "z")


class Service:
    """Answers each search with its own text; long ones must wait for others' work."""

    def __init__(self, work: Callable[[], None] = lambda: None, is_long: bool = False) -> None:
        self.calls: list[list[str]] = []
        self.threads: list[threading.Thread] = []
        self.work, self.is_long, self.must_go_alone = work, is_long, False
        self.is_written = False  # meanwhile, so that what was found cannot be shown
        self.large = ""

    def numbers_per_search(self, collection: str, *_: Any) -> float:
        return MOMENT_NUMBERS if collection == self.large else 1.0

    def begin(self, collection: str, source: str, target: str, searches: Sequence[Search]) -> Any:
        numbers = self.numbers_per_search(collection) * len(searches)
        return None if self.is_long else SimpleNamespace(searches=searches, numbers=numbers)

    def rank(self, ranking: Any) -> None:
        self.calls.append([text_of(search) for search in ranking.searches])
        self.threads.append(threading.current_thread())
        self.work()

    def finish(self, ranking: Any) -> list[Outcome]:
        if self.is_written:
            return [BlockingIOError() for _ in ranking.searches]
        return [[text_of(search)] for search in ranking.searches]  # type: ignore[list-item]

    def search(self, *arguments: Any) -> list[Outcome]:
        *_, searches, _, may_wait = arguments
        self.rank(SimpleNamespace(searches=searches))
        if self.must_go_alone and not may_wait:
            return [BlockingIOError()] * len(searches)
        return [[text_of(search)] for search in searches]  # type: ignore[list-item]


def text_of(search: Search) -> str:
    content = search.queries[0].content
    assert content is not None
    return str(content.text)


class Requests:
    """Requests that pass the batches of one service, with places of their own."""

    def __init__(self, service: Service, running: int = 4, waiting: int = 13) -> None:
        self.concurrency = ConcurrencyLimits((), running, waiting, 1)
        self.batches = SearchBatches(service)  # type: ignore[arg-type]
        self.batches._threads = 1
        self.answers: dict[int, bytes | Exception] = {}
        self.order: list[int] = []

    async def ask(
        self,
        number: int,
        caller: str = "",
        direction: tuple[str, str, str] = DIRECTION,
        k: int = 10,
        **more: Any,
    ) -> None:
        place = Place(self.concurrency.reads, direction[0], True)
        place._asker = Asker(direction[0], caller)

        class Body:
            pass

        body = Body()
        body.caller = caller  # type: ignore[attr-defined]
        request = Request({"type": "http", "state": {"place": place, "body": body}})
        search = Search([Query(Content(text=str(number)))], k, **more)
        try:
            self.answers[number] = await self.batches.answer(
                request, direction, search, lambda results: f"{results[0]}".encode()
            )
        except Exception as error:
            self.answers[number] = error
        finally:
            place.give_back()
        self.order.append(number)

    def run(self, numbers: Sequence[int], **options: Callable[[int], Any]) -> list[bytes | Exception]:
        """Return the answers to searches that arrive in the same step of the event loop."""

        async def run() -> None:
            with anyio.fail_after(30.0):
                async with anyio.create_task_group() as tasks:
                    for number in numbers:
                        given = {name: of(number) for name, of in options.items()}
                        tasks.start_soon(lambda number=number, given=given: self.ask(number, **given))

        anyio.run(run)
        reads = self.concurrency.reads
        assert (reads.running, reads.waiting, self.batches._gathered) == (0, 0, {})
        return [self.answers[number] for number in numbers]


class Held:
    """Work that stands still until it may end; `only_beside` the event loop."""

    def __init__(self, only_beside: bool = False) -> None:
        self._is_busy, self._may_end, self._only_beside = threading.Event(), threading.Event(), only_beside
        self.end = self._may_end.set

    def __call__(self) -> None:
        if not self._only_beside or threading.current_thread() is not threading.main_thread():
            self._is_busy.set()
            assert self._may_end.wait(30.0)

    async def begun(self) -> None:
        await anyio.to_thread.run_sync(self._is_busy.wait)


async def settle() -> None:
    """Let everything happen that waits for no thread."""
    for _ in range(20):
        await anyio.sleep(0)


def texts(numbers: Sequence[int]) -> list[bytes]:
    return [str(number).encode() for number in numbers]


def test_what_arrives_together_is_answered_in_one_call_by_the_event_loop() -> None:
    service = Service()
    assert Requests(service).run(range(5)) == texts(range(5))
    assert service.calls == [["0", "1", "2", "3", "4"]]
    assert service.threads == [threading.current_thread()]


def test_other_directions_and_filters_are_answered_apart() -> None:
    service = Service()
    filters = [ItemFilter(), ItemFilter.of(("red",)), ItemFilter.of(("red",))]
    answers = Requests(service).run(
        range(6),
        direction=lambda number: DIRECTION if number < 3 else ("a", "z", "x"),
        item_filter=lambda number: filters[number % 3],
    )
    assert answers == texts(range(6))
    assert service.calls == [["0"], ["1", "2"], ["3"], ["4", "5"]]


def test_a_call_is_bounded_and_nobody_is_forgotten() -> None:
    service = Service()
    assert Requests(service).run(range(100)) == texts(range(100))
    assert [len(call) for call in service.calls] == [16] * 6 + [4]


def test_more_than_the_event_loop_answers_in_a_moment_takes_turns() -> None:
    service = Service()
    answers = Requests(service, waiting=3).run(range(40), direction=lambda number: ("a", "x", str(number)))
    assert answers[:8] == texts(range(8))
    refused = [answer for answer in answers if isinstance(answer, UnavailableError)]
    assert 0 < len(refused) < 30
    assert service.threads[:8] == [threading.current_thread()] * 8
    assert threading.current_thread() not in service.threads[8:]


async def test_a_thread_ranks_what_is_quick_alone_but_not_together_while_the_next_ones_gather() -> None:
    held = Held(only_beside=True)
    service = Service(held)
    service.large = DIRECTION[0]
    requests = Requests(service)

    with anyio.fail_after(30.0):
        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(requests.ask, number)
            await held.begun()
            for number in range(2, 40):
                tasks.start_soon(requests.ask, number)
                await settle()
            assert service.calls == [["0", "1"]]
            await requests.ask(40, direction=("small", "x", "z"))  # does not wait for the others
            assert requests.concurrency.reads.running == 0  # nobody took a place
            held.end()
    assert requests.answers == dict(enumerate(texts(range(41))))
    assert service.calls[1:] == [["40"], *(texts_of(range(n, min(n + 16, 40))) for n in (2, 18, 34))]
    assert threading.main_thread() is service.threads[1]


async def test_a_batch_too_many_whose_size_was_not_at_hand_lets_no_more_pass() -> None:
    held = Held()
    service = Service(held)
    service.large = DIRECTION[0]
    requests = Requests(service)
    number_of, unknown = service.numbers_per_search, [float("inf")]

    def number_once_known(*given: Any) -> float:
        return unknown.pop() if unknown else number_of(*given)

    with anyio.fail_after(30.0):
        async with anyio.create_task_group() as tasks:
            for number in range(2):
                tasks.start_soon(requests.ask, number)
            await held.begun()
            service.numbers_per_search = number_once_known  # type: ignore[method-assign]
            for number in range(2, 40):
                tasks.start_soon(requests.ask, number)
                if number % 2:
                    await settle()
            assert requests.batches._n_ranking == 2
            held.end()
    assert requests.answers == dict(enumerate(texts(range(40))))


async def test_searches_that_gather_while_a_thread_is_busy_are_its_next_call_wherever_they_wait() -> None:
    held = Held()
    service = Service(held, is_long=True)
    requests = Requests(service)

    with anyio.fail_after(30.0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(requests.ask, 0)
            await held.begun()
            for number in range(1, 9):
                tasks.start_soon(requests.ask, number)
            await settle()
            assert (requests.concurrency.reads.running, requests.concurrency.reads.waiting) == (3, 6)
            held.end()
    assert service.calls[0] == ["0"]
    assert sorted(service.calls[1]) == texts_of(range(1, 9))
    assert threading.current_thread() not in service.threads
    assert requests.answers == dict(enumerate(texts(range(9))))
    assert (requests.concurrency.reads.running, requests.concurrency.reads.waiting) == (0, 0)


def texts_of(numbers: Sequence[int]) -> list[str]:
    return [str(number) for number in numbers]


async def test_the_next_call_takes_callers_in_turn() -> None:
    held = Held()
    service = Service(held, is_long=True)
    requests = Requests(service, running=2, waiting=40)

    with anyio.fail_after(30.0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(requests.ask, 0, "crowd")
            await held.begun()
            for number in range(1, 30):
                tasks.start_soon(requests.ask, number, "crowd")
            await settle()
            tasks.start_soon(requests.ask, 30, "newcomer")
            await settle()
            held.end()
    assert "30" in service.calls[1]
    assert len(service.calls[1]) == 16
    assert requests.answers == dict(enumerate(texts(range(31))))


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("numbers", [range(1), range(3)])
def test_an_error_is_told_to_all_and_the_next_call_runs(numbers: range, is_long: bool) -> None:
    error = ValueError("no memory")

    def fail() -> None:
        raise error

    service = Service(fail, is_long)
    requests = Requests(service)
    assert requests.run(numbers) == [error] * len(numbers)
    service.work = lambda: None
    assert requests.run(numbers) == texts(numbers)


async def test_an_answer_that_cannot_be_written_is_the_error_of_its_own_search() -> None:
    requests = Requests(Service())
    error = ValueError("this one")

    def encode(results: Any) -> bytes:
        if results[0] == "1":
            raise error
        return b"0"

    answer = requests.batches.answer
    requests.batches.answer = lambda *given: answer(*given[:3], encode)  # type: ignore[method-assign]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(requests.ask, 0)
        tasks.start_soon(requests.ask, 1)
    assert requests.answers == {0: b"0", 1: error}


def test_those_who_have_to_wait_for_a_reload_go_on_alone() -> None:
    service = Service(is_long=True)
    service.must_go_alone = True
    assert Requests(service).run(range(8)) == texts(range(8))
    assert sorted(service.calls[1:]) == [[text] for text in texts_of(range(8))]


def test_what_was_written_meanwhile_is_read_by_a_thread() -> None:
    service = Service()
    service.is_written = True
    assert Requests(service).run(range(3)) == texts(range(3))
    assert service.calls[0] == ["0", "1", "2"]
    assert threading.current_thread() not in service.threads[1:]


def test_large_answers_and_new_filters_go_alone() -> None:
    service = Service(is_long=True)
    requests = Requests(service)
    assert requests.run(range(3), k=lambda _: 101) == texts(range(3))
    assert requests.run(range(3), item_filter=lambda _: ItemFilter.of(("red",))) == texts(range(3))
    assert sorted(service.calls) == sorted([[text] for text in texts_of(range(3))] * 2)


@pytest.mark.parametrize("is_long", [False, True])
async def test_a_cancelled_search_does_not_disturb_the_others(is_long: bool) -> None:
    requests = Requests(Service(is_long=is_long))

    with anyio.fail_after(30.0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(requests.ask, 0)
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(requests.ask, 1)
                await anyio.sleep(0)
                leaving.cancel_scope.cancel()
            tasks.start_soon(requests.ask, 2)
    assert {number: requests.answers[number] for number in (0, 2)} == {0: b"0", 2: b"2"}
    assert (requests.concurrency.reads.running, requests.concurrency.reads.waiting) == (0, 0)


async def test_of_more_long_searches_than_may_wait_some_are_refused() -> None:
    held = Held()
    service = Service(held, is_long=True)
    requests = Requests(service, running=2, waiting=3)

    with anyio.fail_after(30.0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(requests.ask, 0)
            await settle()
            for number in range(1, 9):
                tasks.start_soon(requests.ask, number)
            await settle()
            held.end()
    answers = list(requests.answers.values())
    assert sum(isinstance(answer, UnavailableError) for answer in answers) == 5
    assert sum(isinstance(answer, bytes) for answer in answers) == 4
