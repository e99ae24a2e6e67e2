import itertools
import threading
import time

import anyio
import pytest

from app.api.probes import CachedProbe
from app.domain.errors import UnavailableError
from tests.app.refused import refused

pytestmark = pytest.mark.anyio


def test_who_asks_while_all_threads_hang_is_told_at_once_and_they_recover() -> None:
    may_go_on = threading.Event()

    async def scenario() -> None:
        hanging = CachedProbe(lambda: may_go_on.wait(60.0), 0.0, 0.2)
        n_refused = 0

        async def ask() -> None:
            nonlocal n_refused
            with refused("overloaded", match="the answer takes long"):
                await hanging.get()
            n_refused += 1

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            with refused("overloaded", match="asked already"):
                await hanging.get()
            assert n_refused == 0, "it did not wait for the others"
        # Nobody waits for the threads any longer, but they still hang.
        with refused("overloaded", match="asked already"):
            await hanging.get()
        may_go_on.set()
        with anyio.fail_after(60):
            while True:
                try:
                    assert await hanging.get()
                    break
                except UnavailableError:
                    await anyio.sleep(0.01)

    anyio.run(scenario)


async def test_errors_and_cancelled_callers_give_their_places_back() -> None:
    divisor = 0
    probe = CachedProbe(lambda: 1 // divisor, 0.0, 60.0)
    for _ in range(5):
        divisor = 0
        with pytest.raises(ZeroDivisionError):
            await probe.get()
        divisor = 1
        with anyio.CancelScope() as scope:
            scope.cancel()
            await probe.get()
    assert await probe.get() == 1


async def test_an_answer_is_remembered_for_a_moment() -> None:
    asked: list[float] = []

    def look() -> int:
        asked.append(time.monotonic())
        return len(asked)

    readiness = CachedProbe(look, 0.2, 60.0)
    for _ in range(50):
        await readiness.get()
    await anyio.sleep(0.25)
    await readiness.get()
    assert all(later - earlier >= 0.2 for earlier, later in itertools.pairwise(asked))
    assert len(asked) >= 2
