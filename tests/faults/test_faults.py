from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import miss
from tests.faults.cluster import find_postgres
from tests.faults.ledger import Ledger, Outcome, State
from tests.faults.run import campaign
from tests.faults.tally import Tally

KILLS = 6
IDS = ("a", "b")

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes through /proc")


def judge(tally: Tally) -> None:
    assert tally.violations == []
    assert tally["kills"] == KILLS
    assert tally["writes acknowledged"] > 0
    assert tally["searches"] > 0
    assert tally["retrains succeeded"] > 0
    assert tally["recall@10 after, percent"] == 100


def test_kills_lose_nothing_on_sqlite(tmp_path: Path) -> None:
    judge(campaign(KILLS, "sqlite", 7, tmp_path))


@pytest.mark.postgres
def test_kills_lose_nothing_on_postgres(tmp_path: Path) -> None:
    # A cluster of its own: the others share theirs, and this one's postmaster is killed, too.
    if find_postgres() is None:
        miss("postgres", "there is no initdb")
    judge(campaign(KILLS, "postgres", 7, tmp_path))


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
