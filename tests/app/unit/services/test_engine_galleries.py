"""Answers of an engine that nobody waits for."""

import threading

import pytest

from app.domain.errors import VectorEngineUnavailableError
from app.services.serving.engine_galleries import count_items, watch_engine
from tests.app.waiting import wait_for


def test_a_slow_count_is_not_waited_for_and_not_begun_twice() -> None:
    may_end = threading.Event()
    asked = []

    def ask() -> int:
        asked.append(1)
        assert may_end.wait(10.0)
        return 5

    count, another = count_items(ask), count_items(lambda: 3)
    assert count.read() is count.read() is another.read() is None
    may_end.set()
    assert wait_for(another.read) == 3  # counted after the slow one
    assert count.read() == 5
    assert asked == [1]


def test_what_was_counted_stays_while_the_engine_is_away() -> None:
    answers = [5]

    def ask() -> int:
        if not answers:
            raise VectorEngineUnavailableError("it is away")
        return answers.pop()

    count = count_items(ask)
    assert wait_for(count.read) == 5
    count.update()
    assert count.read() == 5


def test_an_engine_that_is_away_is_seen_by_those_who_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.serving.engine_galleries._SECONDS_BETWEEN_LOOKS", 0.0)
    faults: list[Exception] = []

    def ask() -> None:
        if faults:
            raise faults[0]

    watch = watch_engine(ask)
    assert watch.read() is None
    faults.append(VectorEngineUnavailableError("it is away"))
    assert wait_for(watch.read) == "the vector engine cannot be used: it is away"
    faults[:] = [KeyError("odd")]
    assert wait_for(lambda: "KeyError" in (watch.read() or ""))
    faults.clear()
    assert wait_for(lambda: watch.read() is None)
