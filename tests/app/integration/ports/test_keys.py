"""The contract of KeyRepository, for every database."""

import pytest
import sqlalchemy

from app.db.session import Database
from app.domain.names import Scope
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


@pytest.mark.parametrize("pattern", ["%", "_" * 64, "A" * 64, ""])
def test_only_the_very_hash_finds_a_key(database: Database, pattern: str) -> None:
    with database.write() as work:
        work.keys.add("a" * 64, Scope.ADMIN)
    with database.read() as work:
        assert work.keys.find(pattern) is None


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
