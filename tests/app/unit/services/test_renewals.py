"""Renewals that take long, and those that do not: who works when."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from app.domain.errors import OverloadedError
from app.services.serving import renewals as module
from app.services.serving.renewals import Pace, Renewal, Renewals, in_steps
from tests.app.waiting import wait_for

SECONDS = 60.0


class Work:
    """Renewals of which those called "long" have step after step until they are released."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.steps: Counter[int] = Counter()
        self.begun: Counter[int] = Counter()
        self.renewals = Renewals(self.run, most_waiting=100, of_one=100, patience_seconds=SECONDS)

    def run(self, renewal: Renewal, end_step: Callable[[], None]) -> None:
        self.begun[renewal.collection_id] += 1
        while renewal.name == "long" and not self.released.is_set():
            time.sleep(0.002)
            self.steps[renewal.collection_id] += 1
            end_step()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(module, "_QUICK_SECONDS", 0.02)
    return Work()


@pytest.mark.parametrize("n_long", [1, 10])
def test_renewals_that_take_long_hold_up_none_that_does_not(work: Work, n_long: int) -> None:
    long = [work.renewals.ask(number, "long") for number in range(n_long)]
    wait_for(lambda: all(one.is_long for one in long))
    quick = [work.renewals.ask(100 + number, "quick") for number in range(20)]
    assert all(one.done.wait(SECONDS) for one in quick)
    assert not any(one.done.is_set() for one in long)
    work.released.set()
    assert all(one.done.wait(SECONDS) and not one.errors for one in long)
    assert all(one.is_long for one in long)


def test_renewals_that_take_long_take_turns(work: Work) -> None:
    first = work.renewals.ask(1, "long")
    wait_for(lambda: work.steps[1] > 50)
    second = work.renewals.ask(2, "long", is_long=True)
    before = dict(work.steps)
    wait_for(lambda: work.steps[2] > 50)
    assert work.steps[1] - before[1] > 25, "the first one goes on, too"
    work.released.set()
    assert first.done.wait(SECONDS)
    assert second.done.wait(SECONDS)


def test_a_collection_is_renewed_later_when_the_system_has_no_thread(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        refused = work.renewals.ask(1, "quick")
    with pytest.raises(OverloadedError):
        work.renewals.wait(refused, None)
    again = work.renewals.ask(1, "quick")
    assert again is not refused
    work.renewals.wait(again, None)
    assert work.begun[1] == 1


def test_a_step_ends_with_the_entry_that_makes_it_heavy() -> None:
    texts = ["a", "bb", "cccc", "d", "e", "ffffffff", "g"]
    assert list(in_steps(texts, 3, len, 5)) == [["a", "bb", "cccc"], ["d", "e", "ffffffff"], ["g"]]
    assert list(in_steps(texts, 2)) == [["a", "bb"], ["cccc", "d"], ["e", "ffffffff"], ["g"]]


@pytest.mark.parametrize("worked", [0.0001, 0.01, 7.0])
def test_what_is_not_urgent_leaves_more_to_the_others(monkeypatch: pytest.MonkeyPatch, worked: float) -> None:
    pauses: list[float] = []
    clock = iter(worked * n for n in range(10))
    monkeypatch.setattr(module, "time", SimpleNamespace(thread_time=lambda: next(clock), sleep=pauses.append))
    answers = [True, False]
    pace = Pace(lambda: answers.pop())
    pace()
    pace()
    assert pauses[0] == pytest.approx(module._LEISURE * pauses[1])
    assert 0.0 < pauses[1] <= module._LONGEST_SECONDS


def test_whether_somebody_waits_aside_is_known(work: Work) -> None:
    with contextlib.ExitStack() as until_waited:
        assert not work.renewals.are_awaited
        assert work.renewals.has_place(1, until_waited)
        assert work.renewals.are_awaited
    assert not work.renewals.are_awaited
