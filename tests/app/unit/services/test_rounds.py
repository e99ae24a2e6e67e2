"""How long work goes on that is done a step at a time."""

import itertools
import time
from types import SimpleNamespace

import pytest

from app.services.storage.pacing import Round


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
