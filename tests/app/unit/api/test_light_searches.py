"""Light searches that arrive together are ranked in one call; what fails is told to each of them."""

import threading
from collections.abc import Callable, Sequence

import anyio
import pytest

from app.api.search_batches import Answer, LightSearches, SharedRanking
from app.domain.entities import Content
from app.services.serving.search import Query, SingleSearch


class Ranking:
    """Answers each search with its own text."""

    def __init__(self, searches: Sequence[SingleSearch], rank: Callable[[], None]) -> None:
        self.searches = searches
        self.rank = rank
        self.thread: threading.Thread | None = None

    def answers(self) -> list[Answer]:
        return [text_of(search) for search in self.searches]


class Ranker:
    """Begins rankings, and remembers them."""

    def __init__(self, rank: Callable[[], None] = lambda: None) -> None:
        self.batches: list[list[bytes]] = []
        self.threads: list[threading.Thread] = []
        self._rank = rank

    def begin(self, searches: Sequence[SingleSearch]) -> SharedRanking | None:
        self.batches.append([text_of(search) for search in searches])
        return Ranking(searches, self._note_and_rank)

    def _note_and_rank(self) -> None:
        self.threads.append(threading.current_thread())
        self._rank()


def search_for(number: int) -> SingleSearch:
    return SingleSearch(Query(Content(text=str(number))), 10, 0, frozenset(), None)


def text_of(search: SingleSearch) -> bytes:
    assert search.query.content is not None
    return str(search.query.content.text).encode()


def ask_all(
    light: LightSearches,
    begin: Callable[[Sequence[SingleSearch]], SharedRanking | None],
    numbers: Sequence[int],
    group_of: Callable[[int], str] = lambda _: "group",
) -> list[Answer]:
    """Return the answers to searches that arrive in the same step of the event loop."""
    answers: dict[int, Answer] = {}

    async def ask(number: int) -> None:
        answers[number] = await light.answer(group_of(number), search_for(number), begin)

    async def run() -> None:
        with anyio.fail_after(30.0):
            async with anyio.create_task_group() as tasks:
                for number in numbers:
                    tasks.start_soon(ask, number)

    anyio.run(run)
    return [answers[number] for number in numbers]


def test_one_search_is_ranked_by_the_event_loop() -> None:
    ranker = Ranker()
    assert ask_all(LightSearches(1), ranker.begin, [7]) == [b"7"]
    assert ranker.threads == [threading.current_thread()]


def test_several_searches_are_ranked_in_one_call_beside_the_event_loop() -> None:
    ranker = Ranker()
    assert ask_all(LightSearches(1), ranker.begin, range(5)) == [b"0", b"1", b"2", b"3", b"4"]
    assert ranker.batches == [[b"0", b"1", b"2", b"3", b"4"]]
    assert threading.current_thread() not in ranker.threads


def test_searches_of_different_groups_are_ranked_apart() -> None:
    ranker = Ranker()
    answers = ask_all(
        LightSearches(1), ranker.begin, range(6), lambda number: "odd" if number % 2 else "even"
    )
    assert answers == [str(number).encode() for number in range(6)]
    assert sorted(ranker.batches) == [[b"0", b"2", b"4"], [b"1", b"3", b"5"]]


def test_a_ranking_is_bounded_and_nobody_is_forgotten() -> None:
    ranker = Ranker()
    assert ask_all(LightSearches(2), ranker.begin, range(100)) == [str(n).encode() for n in range(100)]
    assert sum(map(len, ranker.batches)) == 100
    assert max(map(len, ranker.batches)) == 16


def test_searches_that_arrive_during_a_ranking_are_the_next_one() -> None:
    light, is_ranking, may_end = LightSearches(1), threading.Event(), threading.Event()

    def wait() -> None:
        is_ranking.set()
        assert may_end.wait(30.0)

    ranker = Ranker(wait)
    answers: dict[int, Answer] = {}

    async def ask(number: int) -> None:
        answers[number] = await light.answer("group", search_for(number), ranker.begin)

    async def run() -> None:
        with anyio.fail_after(30.0):
            async with anyio.create_task_group() as tasks:
                for number in (0, 1):
                    tasks.start_soon(ask, number)
                await anyio.to_thread.run_sync(is_ranking.wait)
                for number in (2, 3, 4):
                    tasks.start_soon(ask, number)
                await anyio.wait_all_tasks_blocked()
                assert ranker.batches == [[b"0", b"1"]]
                may_end.set()

    anyio.run(run)
    assert ranker.batches == [[b"0", b"1"], [b"2", b"3", b"4"]]
    assert answers == {number: str(number).encode() for number in range(5)}


@pytest.mark.parametrize("numbers", [range(1), range(3)])
def test_an_error_of_a_ranking_is_told_to_all_of_it_and_the_next_one_runs(numbers: range) -> None:
    light, error = LightSearches(1), ValueError("no memory")

    def fail() -> None:
        raise error

    assert ask_all(light, Ranker(fail).begin, numbers) == [error] * len(numbers)
    assert ask_all(light, Ranker().begin, numbers) == [str(number).encode() for number in numbers]


def test_an_error_of_a_beginning_is_told_to_all_and_the_next_one_runs() -> None:
    light, error = LightSearches(1), ValueError("no snapshot")

    def begin(_: Sequence[SingleSearch]) -> SharedRanking | None:
        raise error

    assert ask_all(light, begin, range(3)) == [error] * 3
    assert ask_all(light, Ranker().begin, range(3)) == [b"0", b"1", b"2"]


def test_searches_that_would_wait_are_given_back() -> None:
    assert ask_all(LightSearches(1), lambda _: None, range(3)) == [None] * 3


def test_a_cancelled_search_does_not_disturb_the_others() -> None:
    light, ranker = LightSearches(1), Ranker()

    async def run() -> list[Answer]:
        answers = [light.answer("group", search_for(number), ranker.begin) for number in range(3)]
        answers[1].cancel()
        return [await answers[0], await answers[2]]

    assert anyio.run(run) == [b"0", b"2"]


def test_a_burst_over_many_groups_is_not_ranked_by_the_event_loop_in_one_step() -> None:
    ranker = Ranker()
    answers = ask_all(LightSearches(1), ranker.begin, range(8), str)
    assert answers == [str(number).encode() for number in range(8)]
    assert ranker.threads.count(threading.current_thread()) <= 1


def test_of_many_groups_some_have_to_be_answered_otherwise() -> None:
    answers = ask_all(LightSearches(1), Ranker().begin, range(40), str)
    assert None in answers
    assert sum(answer is not None for answer in answers) >= 8
    assert all(answer in (None, str(number).encode()) for number, answer in enumerate(answers))


def test_searches_go_on_after_a_thread_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    light = LightSearches(1)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert ask_all(light, Ranker().begin, range(3)) == [None] * 3
    assert ask_all(light, Ranker().begin, range(3)) == [b"0", b"1", b"2"]
