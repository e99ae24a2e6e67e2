"""One line a cause a minute, with the number of those left out."""

import io
import logging

import pytest

from app import logs


class Clock:
    """What the handler asks for the time."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_what_repeats_is_one_line_a_minute_with_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, text = Clock(), io.StringIO()
    monkeypatch.setattr(logs, "time", clock)
    handler, logger = logs.CollapsingHandler(), logging.Logger("app.test")
    handler.setStream(text)
    logger.addHandler(handler)

    def written() -> list[str]:
        lines = text.getvalue().splitlines()
        text.seek(0)
        text.truncate()
        return lines

    for number in range(5):
        logger.warning("port %d is away", number)
        logger.error("a bug", extra={"cause": ValueError})
        logger.error("the same bug in other words", extra={"cause": ValueError})
        logger.info("a deed")
    assert written() == ["port 0 is away", "a bug", *["a deed"] * 5]
    logger.warning("port one is away")  # other words, and so another cause
    assert written() == ["port one is away"]
    clock.now = 59.9
    logger.warning("port 7 is away")
    assert written() == []
    clock.now = 60.0
    logger.warning("port 8 is away")
    assert written() == [
        "the same bug in other words (9 more in the minute before)",
        "port 8 is away (5 more in the minute before)",
    ]
    clock.now = 119.9
    logger.warning("port 9 is away")
    clock.now = 200.0
    logger.info("a deed")
    assert written() == ["port 9 is away (1 more in the minute before)", "a deed"]
    clock.now = 300.0
    logger.warning("port 9 is away")
    assert written() == ["port 9 is away"]


def test_errors_of_two_kinds_are_two_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    handler, logger = logs.CollapsingHandler(), logging.Logger("app.test")
    handler.setStream(text)
    logger.addHandler(handler)
    for error in (ValueError("a"), KeyError("a"), ValueError("a")):
        logger.error("it failed", exc_info=error)
    assert text.getvalue().count("it failed") == 2
