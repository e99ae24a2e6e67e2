"""The contracts of KeyRepository, of counts of calls, and of rate limits over several hosts."""

import time
from pathlib import Path

import pytest
import sqlalchemy

from app.db.session import Database
from app.domain.entities import CallCount
from app.domain.errors import ServiceError
from app.domain.names import Scope
from app.services.access import RateLimits
from tests.app.refused import refused

SECRETS = {scope: str(number) * 64 for number, scope in enumerate(Scope)}


def test_keys_are_listed_oldest_first_with_what_they_were_given(database: Database) -> None:
    made = []
    for scope, secret in SECRETS.items():
        with database.write() as work:
            made.append(work.keys.add(secret, scope, f"for {scope} 🔑"))
    with database.read() as work:
        assert work.keys.list() == made
        assert [key.scope for key in made] == list(Scope)
        assert [key.name for key in made] == [f"for {scope} 🔑" for scope in Scope]
        assert [work.keys.find(secret) for secret in SECRETS.values()] == made
    assert len({key.id for key in made}) == len(made)


def test_a_hash_is_stored_once(database: Database) -> None:
    with database.write() as work:
        key = work.keys.add("a" * 64, Scope.SEARCH)
    with pytest.raises(sqlalchemy.exc.IntegrityError), database.write() as work:
        work.keys.add("a" * 64, Scope.ADMIN)
    with database.read() as work:
        assert work.keys.list() == [key]


def test_only_the_very_hash_finds_a_key(database: Database) -> None:
    with database.write() as work:
        work.keys.add("a" * 64, Scope.ADMIN)
    with database.read() as work:
        assert [work.keys.find(pattern) for pattern in ("%", "_" * 64, "A" * 64, "")] == [None] * 4


def test_a_revoked_key_is_gone_and_the_others_stay(database: Database) -> None:
    with database.write() as work:
        kept, gone = (work.keys.add(letter * 64, Scope.WRITE) for letter in "ab")
    with database.write() as work:
        work.keys.delete(gone.id)
    with database.read() as work:
        assert work.keys.list() == [kept]
        assert work.keys.find("b" * 64) is None
    for unknown in (gone.id, "", "%", "\x00"):
        with refused("key-not-found"), database.write() as work:
            work.keys.delete(unknown)


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
