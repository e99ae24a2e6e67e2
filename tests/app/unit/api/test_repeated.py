import logging
import time
from functools import partial

import anyio
import pytest

from app.api.probes import Repeated
from app.domain.errors import UnavailableError


@pytest.mark.parametrize(
    "error", [UnavailableError("storage-unavailable", "no disk"), RuntimeError("no disk")]
)
def test_failures_and_their_end_are_logged(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    fails = True

    def work() -> None:
        if fails:
            raise error

    task = Repeated("look around", work)
    caplog.set_level(logging.INFO)
    anyio.run(task.run)
    fails = False
    anyio.run(task.run)
    anyio.run(task.run)
    assert [record.levelno >= logging.WARNING for record in caplog.records] == [True, False]
    assert "could not look around" in caplog.text
    assert "no disk" in caplog.text
    assert caplog.records[1].getMessage() == "can look around again"


def test_what_is_no_fault_of_a_service_is_logged_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = [
        UnavailableError("storage-unavailable", "no disk"),
        RuntimeError("a bug"),
        UnavailableError("storage-unavailable", "no disk"),
    ]

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
