"""Work in steps: how long it goes on, and pauses that others are left."""

import itertools
import time
from types import SimpleNamespace

import pytest

from app.services.storage import pacing
from app.services.storage.pacing import Pacer, Round, in_batches


def test_a_batch_ends_with_the_entry_that_makes_it_heavy() -> None:
    texts = ["a", "bb", "cccc", "d", "e", "ffffffff", "g"]
    assert list(in_batches(texts, 3, len, 5)) == [["a", "bb", "cccc"], ["d", "e", "ffffffff"], ["g"]]
    assert list(in_batches(texts, 2)) == [["a", "bb"], ["cccc", "d"], ["e", "ffffffff"], ["g"]]


@pytest.mark.parametrize(("worked", "slept"), [(0.0001, 0.0005), (0.01, 0.01), (7.0, 0.05)])
def test_urgent_work_sleeps_as_long_as_it_computed_within_bounds_and_other_work_three_times_as_long(
    monkeypatch: pytest.MonkeyPatch, worked: float, slept: float
) -> None:
    pauses: list[float] = []
    clock = iter(worked * n for n in range(10))
    monkeypatch.setattr(pacing, "time", SimpleNamespace(thread_time=lambda: next(clock), sleep=pauses.append))
    urgency = [True, False]
    pace = Pacer(lambda: urgency.pop())
    pace()
    pace()
    assert pauses == pytest.approx([3.0 * slept, slept])


def test_nothing_goes_on_when_the_time_is_over() -> None:
    time_left = Round(0.0)
    assert time_left.is_over
    assert not time_left.goes_on()


def test_it_goes_on_until_it_is_to_stop() -> None:
    asked = itertools.count(1)
    time_left = Round(should_stop=lambda: next(asked) == 4)
    assert [time_left.goes_on() for _ in range(4)] == [True, True, True, False]


def test_work_ends_with_its_last_step_or_with_the_time() -> None:
    steps = iter([False, False, True])
    assert Round().finish(lambda: next(steps))
    assert list(steps) == []
    one, more = iter([False, True]), Round(0.0)
    assert not more.finish(lambda: next(one))
    assert list(one) == [True]


def test_others_have_their_turn_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    breaths: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=breaths.append)
    monkeypatch.setattr("app.services.storage.pacing.time", clock)
    time_left = Round(60.0)
    assert time_left.goes_on()
    assert len(breaths) == 1
    assert breaths[0] > 0.0
