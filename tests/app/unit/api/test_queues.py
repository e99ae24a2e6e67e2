"""The queue in front of the work: who gets the next turn, and who makes room."""

from collections import Counter

import anyio
import pytest

from app.api.middleware.queues import Asker, ConcurrencyLimiter, Ride
from app.domain.errors import OverloadedError


@pytest.mark.parametrize(
    ("crowd", "newcomer"),
    [
        (Asker("big", "one"), Asker("small", "one")),
        (Asker("big", "one"), Asker("big", "other")),
    ],
    ids=["another collection", "another caller of the same collection"],
)
def test_a_crowd_takes_turns_with_a_newcomer_and_makes_room_for_it(crowd: Asker, newcomer: Asker) -> None:
    async def scenario() -> None:
        limiter = ConcurrencyLimiter("read", 1, 3)
        order: list[str] = []

        async def ask(name: str, asker: Asker) -> None:
            try:
                await limiter.enter(asker)
            except OverloadedError:
                order.append(f"{name} refused")
            else:
                order.append(name)
                await anyio.sleep(0)
                limiter.leave(asker)

        async with anyio.create_task_group() as tasks:
            await limiter.enter(crowd)
            for number in range(3):
                tasks.start_soon(ask, f"crowd {number}", crowd)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(OverloadedError):
                await limiter.enter(crowd)
            tasks.start_soon(ask, "newcomer", newcomer)
            await anyio.wait_all_tasks_blocked()
            assert order == ["crowd 2 refused"]
            assert limiter.waiting == 3
            limiter.leave(crowd)
        assert order == ["crowd 2 refused", "crowd 0", "newcomer", "crowd 1"]
        assert (limiter.running, limiter.waiting, limiter._callers, limiter._working) == (0, 0, {}, {})

    anyio.run(scenario)


def test_who_always_waits_gets_as_many_turns_as_those_who_come_and_go() -> None:
    async def scenario() -> None:
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

    anyio.run(scenario)


def test_who_waits_alone_is_not_sent_away_for_another() -> None:
    async def scenario() -> None:
        limiter = ConcurrencyLimiter("read", 1, 2)
        async with anyio.create_task_group() as tasks:
            await limiter.enter(Asker("a"))
            tasks.start_soon(limiter.enter, Asker("b"))
            tasks.start_soon(limiter.enter, Asker("c"))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(OverloadedError):
                await limiter.enter(Asker("d"))
            assert limiter.waiting == 2
            tasks.cancel_scope.cancel()

    anyio.run(scenario)


class TestRides:
    """Requests of one group share a place."""

    def test_those_who_wait_ride_together_and_hold_one_place_until_all_have_left(self) -> None:
        async def scenario() -> None:
            limiter = ConcurrencyLimiter("read", 4, 10, of_collection=3)
            rides: list[Ride] = []
            may_leave = anyio.Event()

            async def ask(number: int) -> None:
                asker = Asker("a", f"caller {number}")
                rides.append(await limiter.enter(asker, "group"))
                await may_leave.wait()
                limiter.leave(asker, rides[number])

            first = Asker("a", "first")
            alone = await limiter.enter(first, "group")
            async with anyio.create_task_group() as tasks:
                for number in range(5):
                    tasks.start_soon(ask, number)
                await anyio.wait_all_tasks_blocked()
                assert (limiter.running, limiter.waiting, alone.size, rides) == (1, 5, 1, [])
                limiter.leave(first, alone)
                await anyio.wait_all_tasks_blocked()
                assert (limiter.running, limiter.waiting) == (1, 0)
                assert [ride is rides[0] for ride in rides] == [True] * 5
                assert rides[0].size == 5
                other = await limiter.enter(first, "other group")
                assert limiter.running == 2
                limiter.leave(first, other)
                may_leave.set()
            assert (limiter.running, limiter.waiting, limiter._callers, limiter._working) == (0, 0, {}, {})
            assert limiter._rides == {}

        anyio.run(scenario)

    def test_a_ride_is_one_turn_of_its_collection(self) -> None:
        async def scenario() -> None:
            limiter = ConcurrencyLimiter("read", 1, 10)
            order: list[str] = []

            async def ask(asker: Asker, group: str | None) -> None:
                ride = await limiter.enter(asker, group)
                order.append(asker.collection)
                await anyio.sleep(0)
                limiter.leave(asker, ride)

            holder = Asker("a")
            await limiter.enter(holder)
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(ask, Asker("a"), "group")
                    tasks.start_soon(ask, Asker("b"), None)
                tasks.start_soon(ask, Asker("a"), None)
                await anyio.wait_all_tasks_blocked()
                limiter.leave(holder)
            assert order == ["a", "a", "a", "b", "a", "b", "b"]

        anyio.run(scenario)

    def test_as_many_are_taken_as_if_each_had_its_own_place(self) -> None:
        async def scenario() -> None:
            limiter = ConcurrencyLimiter("read", 4, 2, of_collection=3)
            asker = Asker("a")

            async def ask() -> None:
                limiter.leave(asker, await limiter.enter(asker, "group"))

            first = await limiter.enter(asker, "group")
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                assert limiter.waiting == 4
                with pytest.raises(OverloadedError):
                    await limiter.enter(asker, "group")
                limiter.leave(asker, first)
            assert limiter.running == limiter.waiting == 0

        anyio.run(scenario)

    def test_one_that_gives_up_leaves_the_others_their_ride(self) -> None:
        async def scenario() -> None:
            limiter = ConcurrencyLimiter("read", 1, 4)
            asker = Asker("a")
            rides: list[Ride] = []

            async def ask() -> None:
                rides.append(await limiter.enter(asker, "group"))

            first = await limiter.enter(asker, "group")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                async with anyio.create_task_group() as leaving:
                    leaving.start_soon(ask)
                    await anyio.wait_all_tasks_blocked()
                    leaving.cancel_scope.cancel()
                assert limiter.waiting == 1
                limiter.leave(asker, first)
            assert [ride.size for ride in rides] == [1]
            limiter.leave(asker, rides[0])
            assert (limiter.running, limiter._rides, limiter._present) == (0, {}, {})

        anyio.run(scenario)
