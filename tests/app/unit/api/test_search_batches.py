"""The searches of a ride are one call; the next ride starts before their answers are sent."""

import threading
from collections.abc import Sequence
from functools import partial

import anyio
import pytest

from app.api.middleware.queues import Asker, ConcurrencyLimiter, Ride
from app.api.search_batches import Answer, SearchBatches
from app.domain.entities import Content
from app.services.serving.search import Query, SingleSearch


def search_for(number: int) -> SingleSearch:
    return SingleSearch(Query(Content(text=str(number))), 10, 0, frozenset(), None)


def text_of(search: SingleSearch) -> bytes:
    assert search.query.content is not None
    return str(search.query.content.text).encode()


@pytest.mark.parametrize("fails", [False, True])
def test_the_next_ride_starts_before_the_first_answer_of_one_is_sent(fails: bool) -> None:
    limiter, batches = ConcurrencyLimiter("read", 1, 8), SearchBatches(1)
    is_next_waiting = threading.Event()
    outcomes: dict[int, Answer] = {}
    waiting: list[int] = []

    def answer_all(searches: Sequence[SingleSearch]) -> list[Answer]:
        assert is_next_waiting.wait(30.0)
        if fails:
            raise ValueError("no snapshot")
        return [text_of(search) for search in searches]

    async def ask(number: int) -> None:
        asker = Asker("a")
        ride = await limiter.enter(asker, "group")
        release = partial(limiter.leave, asker, ride)
        try:
            outcomes[number] = await batches.answer(ride, search_for(number), answer_all, release)
        except ValueError as error:
            outcomes[number] = error
        waiting.append(limiter.waiting)

    async def run() -> None:
        first = Asker("a")
        ride = await limiter.enter(first, "group")
        with anyio.fail_after(30.0):
            await run_rides(first, ride)

    async def run_rides(first: Asker, ride: Ride) -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(ask, number)
            await anyio.wait_all_tasks_blocked()
            limiter.leave(first, ride)  # the three ride together
            tasks.start_soon(ask, 3)
            await anyio.wait_all_tasks_blocked()
            assert limiter.waiting == 1
            is_next_waiting.set()

    anyio.run(run)
    assert waiting == [0, 0, 0, 0]
    assert limiter.running == 0
    if fails:
        assert [type(outcomes[number]) for number in range(4)] == [ValueError] * 4
    else:
        assert outcomes == {number: str(number).encode() for number in range(4)}
