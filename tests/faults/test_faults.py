import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import miss
from tests.faults.checks import history_faults
from tests.faults.cluster import find_postgres
from tests.faults.ledger import Ledger, Outcome, State
from tests.faults.run import campaign
from tests.faults.tally import Tally

KILLS = 6
SWAPS = 3
IDS = ("a", "b")

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes through /proc")


def judge(tally: Tally) -> None:
    assert tally.violations == []
    assert tally["kills"] == KILLS
    assert tally["writes acknowledged"] > 0
    assert tally["searches"] > 0
    assert tally["retrains succeeded"] > 0
    assert tally["recall@10 after, percent"] == 100
    assert tally["galleries saved at the end"] > 0


def test_kills_lose_nothing_on_sqlite(tmp_path: Path) -> None:
    judge(campaign(KILLS, "sqlite", 7, tmp_path))


@pytest.mark.postgres
def test_kills_lose_nothing_on_postgres(tmp_path: Path) -> None:
    # A cluster of its own: the others share theirs, and this one's postmaster is killed, too.
    if find_postgres() is None:
        miss("postgres", "there is no initdb")
    tally = campaign(KILLS, "postgres", 7, tmp_path, swaps=SWAPS)
    judge(tally)
    assert tally["swaps acknowledged"] >= SWAPS


def written(*writes: tuple[Mapping[str, State], Outcome, int | None]) -> Ledger:
    ledger = Ledger()
    for changes, outcome, revision in writes:
        ledger.close(ledger.begin(changes), outcome, revision)
    return ledger


@pytest.mark.parametrize(
    ("found", "revision", "is_right"),
    [
        ({"a": 1, "b": 1}, 1, True),
        ({"a": 1}, 1, False),  # lost
        ({"a": 2, "b": 1}, 1, False),  # of a later state
        ({"a": 2, "b": 1}, 2, True),
        ({"a": 1, "b": 1}, 2, False),  # of an earlier state
        ({"a": 3, "b": 1}, 2, False),  # never acknowledged nor unsure
        ({"a": 2}, 3, True),
        ({"a": 2, "b": 9}, 3, True),  # an unsure write happened
        ({"a": 2, "b": 1}, 3, False),  # deleted
    ],
)
def test_the_ledger_tells_right_from_wrong(found: dict[str, State], revision: int, is_right: bool) -> None:
    ledger = written(
        ({"a": 1, "b": 1}, Outcome.ACKNOWLEDGED, 1),
        ({"a": 2}, Outcome.ACKNOWLEDGED, 2),
        ({"a": 3}, Outcome.REFUSED, None),
        ({"b": None}, Outcome.ACKNOWLEDGED, 3),
        ({"b": 9}, Outcome.UNSURE, None),
    )
    assert (ledger.wrong(found, revision, IDS) == []) is is_right


def test_the_ledger_misses_half_of_a_pair() -> None:
    ledger = Ledger()
    write = ledger.begin({"a": 1, "b": 1}, IDS)
    ledger.close(write, Outcome.UNSURE)
    assert ledger.wrong({}, 5, IDS) == []
    assert ledger.wrong({"a": 1, "b": 1}, 5, IDS) == []
    assert ledger.wrong({"a": 1}, 5, IDS) != []


def test_the_ledger_notices_a_revision_that_was_given_twice() -> None:
    ledger = written(({"a": 1}, Outcome.ACKNOWLEDGED, 1))
    assert ledger.close(ledger.begin({"b": 1}), Outcome.ACKNOWLEDGED, 1) is not None


def test_the_ledger_tells_how_old_an_answer_was_when_it_was_asked_for() -> None:
    ledger = Ledger()
    began = time.monotonic()
    for revision in (2, 1, 3):  # acknowledgements may overtake each other
        ledger.close(ledger.begin({"a": revision}), Outcome.ACKNOWLEDGED, revision)
    later = time.monotonic() + 5.0
    assert ledger.lag(3, later) == 0.0
    assert 5.0 <= ledger.lag(0, later) <= later - began
    assert ledger.lag(1, later) > ledger.lag(2, later) >= 5.0
    assert ledger.lag(0, began - 1.0) == 0.0, "nothing was acknowledged then"


def entry(version: int, previous: int | None, at: int) -> dict[str, Any]:
    return {"version": version, "previous": previous, "at": f"2026-01-01T00:00:{at:02d}Z"}


@pytest.mark.parametrize(
    ("history", "active", "served", "fault"),
    [
        ([entry(3, 1, 2), entry(1, None, 1)], [3], 3, None),
        ([entry(3, 1, 2), entry(1, None, 1)], [3, 1], 3, "are active"),
        ([entry(3, 1, 2), entry(1, None, 1)], [], 3, "are active"),
        ([entry(3, 1, 2), entry(1, None, 1)], [1], 1, "history ends with"),
        ([entry(3, 1, 2), entry(1, None, 1)], [3], 1, "1 answers"),
        ([entry(3, 2, 2), entry(1, None, 1)], [3], 3, "followed 2"),  # a hole
        ([entry(3, 1, 3), entry(2, 1, 2), entry(1, None, 1)], [3], 3, "followed 1"),  # an overlap
        ([entry(3, 1, 1), entry(1, None, 2)], [3], 3, "began before"),
        ([entry(3, 1, 2)], [3], 3, "not told"),
    ],
)
def test_a_history_without_hole_and_overlap_is_told_from_others(
    history: list[dict[str, Any]], active: list[int], served: int, fault: str | None
) -> None:
    faults = history_faults(history, active, served)
    assert (faults == []) if fault is None else any(fault in found for found in faults), faults
