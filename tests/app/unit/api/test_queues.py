"""The queue in front of the work: who gets the next turn, and who makes room."""

from collections import Counter

import anyio
import pytest

from app.api.admission import Asker, ConcurrencyLimiter
from app.domain.errors import UnavailableError
from tests.app.refused import refused

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("size", [2, 3])  # two more than of the newcomer are a crowd
@pytest.mark.parametrize(
    ("crowd", "newcomer"),
    [
        (Asker("big", "one"), Asker("small", "one")),
        (Asker("big", "one"), Asker("big", "other")),
    ],
    ids=["another collection", "another caller of the same collection"],
)
async def test_a_crowd_takes_turns_with_a_newcomer_and_makes_room_for_it(
    crowd: Asker, newcomer: Asker, size: int
) -> None:
    limiter = ConcurrencyLimiter("read", 1, size)
    order: list[str] = []

    async def ask(name: str, asker: Asker) -> None:
        try:
            await limiter.enter(asker)
        except UnavailableError:
            order.append(f"{name} refused")
        else:
            order.append(name)
            await anyio.sleep(0)
            limiter.leave(asker)

    async with anyio.create_task_group() as tasks:
        await limiter.enter(crowd)
        for number in range(size):
            tasks.start_soon(ask, f"crowd {number}", crowd)
        await anyio.wait_all_tasks_blocked()
        with refused("overloaded"):
            await limiter.enter(crowd)
        tasks.start_soon(ask, "newcomer", newcomer)
        await anyio.wait_all_tasks_blocked()
        assert order == [f"crowd {size - 1} refused"]
        assert limiter.waiting == size
        limiter.leave(crowd)
    others = [f"crowd {number}" for number in range(1, size - 1)]
    assert order == [f"crowd {size - 1} refused", "crowd 0", "newcomer", *others]
    assert (limiter.running, limiter.waiting, limiter._callers, limiter._working) == (0, 0, {}, {})


async def test_who_always_waits_gets_as_many_turns_as_those_who_come_and_go() -> None:
    limiter = ConcurrencyLimiter("read", 4, 40, of_collection=3)
    served: Counter[str] = Counter()
    closing = anyio.Event()

    async def ask_again_and_again(asker: Asker) -> None:
        while not closing.is_set():
            await limiter.enter(asker)
            served[asker.collection] += 1
            await anyio.sleep(0.001)
            limiter.leave(asker)

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(ask_again_and_again, Asker(f"small {number}"))
        for number in range(4):
            tasks.start_soon(ask_again_and_again, Asker("big", f"caller {number}"))
        while served.total() < 600:
            await anyio.sleep(0.01)
        closing.set()
    small = [served[f"small {number}"] for number in range(12)]
    assert served["big"] >= max(small)
    assert max(small) <= 2 * min(small)


async def test_who_waits_alone_is_not_sent_away_for_another() -> None:
    limiter = ConcurrencyLimiter("read", 1, 2)
    async with anyio.create_task_group() as tasks:
        await limiter.enter(Asker("a"))
        tasks.start_soon(limiter.enter, Asker("b"))
        tasks.start_soon(limiter.enter, Asker("c"))
        await anyio.wait_all_tasks_blocked()
        with refused("overloaded"):
            await limiter.enter(Asker("d"))
        assert limiter.waiting == 2
        tasks.cancel_scope.cancel()
