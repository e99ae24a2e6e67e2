import logging
import time
from functools import partial

import anyio
import pytest

from app.api import log_intervals
from app.api.repeated import Repeated
from app.domain.errors import ServiceError


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize("error", [ServiceError("no disk"), RuntimeError("no disk")])
def test_a_failure_is_logged_once_a_minute_and_its_end_once(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, fails = Clock(), True

    def work() -> None:
        if fails:
            raise error

    monkeypatch.setattr(log_intervals, "time", clock)
    task = Repeated("look around", work)
    caplog.set_level(logging.INFO)
    for clock.now in (0.0, 0.5, 59.5, 60.5, 61.0):
        anyio.run(task.run)
    assert [record.levelno >= logging.WARNING for record in caplog.records] == [True, True]
    assert "could not look around" in caplog.text
    assert "no disk" in caplog.text
    fails = False
    anyio.run(task.run)
    anyio.run(task.run)
    assert [record.message for record in caplog.records[2:]] == ["can look around again"]
    for clock.now in (62.0, 62.5, 63.0, 63.5):  # a failure that comes and goes is not logged each time
        fails = not fails
        anyio.run(task.run)
    assert len(caplog.records) == 3


def test_another_error_and_the_last_one_are_logged_immediately(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = [ServiceError("no disk"), RuntimeError("a bug"), ServiceError("no disk")]

    def work() -> None:
        raise errors.pop(0)

    task = Repeated("look around", work)
    anyio.run(task.run)
    anyio.run(task.run)
    assert caplog.records[1].exc_info is not None
    anyio.run(partial(task.run, is_last=True))
    assert caplog.records[2].message == "could not look around: no disk"


def test_work_is_repeated_and_less_often_where_it_takes_long() -> None:
    runs: list[float] = []

    async def repeat_for(seconds: float, work_seconds: float) -> int:
        def work() -> None:
            runs.append(0.0)
            time.sleep(work_seconds)

        runs.clear()
        with anyio.move_on_after(seconds):
            await Repeated("look around", work).repeat(0.01)
        return len(runs)

    assert anyio.run(repeat_for, 1.0, 0.0) >= 2
    assert anyio.run(repeat_for, 0.4, 0.1) == 1
