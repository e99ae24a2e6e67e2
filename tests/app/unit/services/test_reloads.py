"""Reloads that take long, and those that do not: which of them runs when, and which requests may wait."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from app.services.serving import reloads
from app.services.serving.reloads import Reload, ReloadScheduler, WaitingRoom
from tests.app.refused import refused
from tests.app.waiting import wait_for

SECONDS = 60.0


class Work:
    """Reloads of which those called "long" take step after step until they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.steps: Counter[int] = Counter()
        self.started: Counter[int] = Counter()
        self.scheduler = ReloadScheduler(self.run, WaitingRoom())

    def run(self, reload: Reload, end_step: Callable[[], None]) -> None:
        self.started[reload.collection_id] += 1
        while reload.name == "long" and not self.released.is_set():
            time.sleep(0.002)
            self.steps[reload.collection_id] += 1
            end_step()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(reloads, "_QUICK_SECONDS", 0.02)
    return Work()


@pytest.mark.parametrize("n_long", [1, 10])
def test_reloads_that_take_long_do_not_delay_quick_ones(work: Work, n_long: int) -> None:
    long = [work.scheduler.request(number, "long") for number in range(n_long)]
    wait_for(lambda: all(reload.is_long for reload in long))
    quick = [work.scheduler.request(100 + number, "quick") for number in range(20)]
    assert all(reload.done.wait(SECONDS) for reload in quick)
    assert not any(reload.done.is_set() for reload in long)
    work.released.set()
    assert all(reload.done.wait(SECONDS) and reload.error is None for reload in long)
    assert all(reload.is_long for reload in long)


def test_reloads_that_take_long_take_turns(work: Work) -> None:
    first = work.scheduler.request(1, "long")
    wait_for(lambda: work.steps[1] > 50)
    second = work.scheduler.request(2, "long", is_long=True)
    before = dict(work.steps)
    wait_for(lambda: work.steps[2] > 50)
    assert work.steps[1] - before[1] > 25, "the first one continues, too"
    work.released.set()
    assert first.done.wait(SECONDS)
    assert second.done.wait(SECONDS)


def test_a_collection_is_reloaded_later_when_no_thread_can_be_started(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        first = work.scheduler.request(1, "quick")
    with refused("overloaded"):
        work.scheduler.wait(first, None)
    again = work.scheduler.request(1, "quick")
    assert again is not first
    work.scheduler.wait(again, None)
    assert work.started[1] == 1


def test_a_request_that_waits_is_known_until_it_leaves() -> None:
    room = WaitingRoom()
    with contextlib.ExitStack() as until_left:
        assert room.is_empty
        assert room.try_enter(1, until_left)
        assert not room.is_empty
    assert room.is_empty


def test_the_room_is_bounded_for_each_collection_and_in_all() -> None:
    room = WaitingRoom(capacity=3, capacity_per_collection=2)
    with contextlib.ExitStack() as until_left:
        assert [room.try_enter(1, until_left) for _ in range(3)] == [True, True, False]
        assert [room.try_enter(2, until_left) for _ in range(2)] == [True, False]
        assert not room.try_enter(3, until_left)
    with contextlib.ExitStack() as until_left:
        assert room.try_enter(3, until_left), "all have left"
