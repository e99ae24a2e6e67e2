"""Percent done and seconds left, from the shares that stages report."""

from typing import Any

from app.services.training.progress import StagedReport, add_time_left


def test_the_share_of_a_stage_becomes_that_of_the_whole_and_never_falls() -> None:
    events: list[Any] = []
    staged = StagedReport(events.append)
    staged({"phase": "loading"})
    staged.enter(0.2, 0.8)
    inner = StagedReport(staged)
    inner.enter(0.0, 0.5)
    inner({"phase": "one", "share": 0.5})
    inner({"phase": "one"})
    inner({"phase": "one", "share": 0.25})
    inner.enter(0.5, 1.0)
    inner({"phase": "two", "share": 2.0})
    staged.enter(0.8, 1.0)
    staged({"phase": "writing"})
    assert [round(event["share"], 6) for event in events] == [0.0, 0.35, 0.35, 0.35, 0.8, 0.8]
    assert events[1]["phase"] == "one"


def test_the_time_left_is_estimated_from_the_time_so_far() -> None:
    events: list[Any] = []
    seconds = iter([100.0, 101.0, 104.0, 110.0, 130.0])
    report = add_time_left(events.append, now=lambda: next(seconds))
    report({"phase": "loading", "share": 0.0})
    report({"phase": "fitting", "step": 1, "share": 0.1})
    report({"phase": "fitting", "step": 3, "share": 0.25})
    report({"phase": "fitting", "share": 0.75})
    assert events == [
        {"phase": "loading", "percent": 0.0},
        {"phase": "fitting", "step": 1, "percent": 10.0},  # too soon to tell
        {"phase": "fitting", "step": 3, "percent": 25.0, "seconds_left": 30},
        {"phase": "fitting", "percent": 75.0, "seconds_left": 10},
    ]
