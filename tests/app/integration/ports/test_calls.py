"""The contract of counts of calls, and rate limits over several hosts, for every database."""

import time
from pathlib import Path

import pytest

from app.db.session import Database
from app.domain.entities import CallCount
from app.domain.errors import ServiceError
from app.services.access import RateLimits

LIMIT = 4


def test_a_host_learns_what_the_others_counted_of_late(database: Database) -> None:
    told = {"key a": CallCount(3, 20.0), "address b": CallCount(1, 0.5)}
    with database.write() as work:
        assert work.keys.exchange_calls("first", told, 60.0) == []
    with database.write() as work:
        (learned,) = work.keys.exchange_calls("second", {}, 60.0)
    assert {caller: count.calls for caller, count in learned.items()} == {"key a": 3, "address b": 1}
    assert 20.0 <= learned["key a"].age_seconds < 60.0
    with database.write() as work:
        assert work.keys.exchange_calls("first", {"key a": CallCount(4, 21.0)}, 60.0) == [{}]
    with database.write() as work:
        # What is too old is not told, and the next process that begins removes it.
        assert work.keys.exchange_calls("second", {}, 0.0) == []
        assert work.keys.exchange_calls("third", {}, 0.0) == []
    with database.write() as work:
        assert work.keys.exchange_calls("third", {}, 60.0) == []


def counted(rates: RateLimits, times: int) -> int:
    """Call again and again; return how many calls were allowed."""
    waits = []
    for _ in range(times):
        try:
            rates.count("key a", None)
        except ServiceError as error:
            waits.append(error.facts["wait"])
    assert all(1 <= seconds <= 60 for seconds in waits)
    return times - len(waits)


def test_a_limit_holds_for_all_hosts_together(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two processes of one host, and one of another.
    first, beside, second = (RateLimits(LIMIT, tmp_path / host) for host in ("a", "a", "b"))
    first.exchange(database)  # nothing yet: no process writes without a reason
    with database.write() as work:
        assert work.keys.exchange_calls("observer", {}, 60.0) == []
    assert (counted(first, 2), counted(beside, 1), counted(second, 1)) == (2, 1, 1)
    for rates in (first, beside, second, first):
        rates.exchange(database)
    assert (counted(first, 3), counted(second, 3)) == (0, 0)
    assert counted(beside, 3) == 1, "what its own host counted is not counted twice"
    beside.exchange(database)
    assert counted(beside, 1) == 0
    second.count("key a", 9)  # a key with a limit of its own
    # One that has heard of nothing allows some until the next exchange, and no more.
    third = RateLimits(LIMIT)
    assert counted(third, 2) == 2
    third.exchange(database)
    assert counted(third, 9) == 0
    later = time.monotonic() + 10.0
    monkeypatch.setattr("time.monotonic", lambda: later)
    assert counted(third, 9) == LIMIT - 2, "what others said long ago does not count"
