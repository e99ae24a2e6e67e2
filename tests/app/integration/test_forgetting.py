"""What a process holds of collections that are gone, or were made anew under the same name."""

import gc
import threading
from typing import Any

import pytest

from app.bootstrap import build
from app.domain.entities import Collection
from app.domain.errors import CollectionNotFoundError
from app.domain.ports import UnitOfWork
from app.services.snapshots import Snapshot, Snapshots
from tests.app.integration.conftest import Pairs


def trained(pairs: Pairs, *names: str) -> None:
    for name in names:
        pairs.fill(name)
        pairs.train(name)
        pairs.search(name)


def test_the_process_that_deletes_a_collection_frees_its_memory(either: Any) -> None:
    trained(either, "a", "b")
    assert len(either.services.snapshots.held()) == 2
    either.services.catalogue.delete_collection("a")
    held = either.services.snapshots.held()
    assert [one.collection.name for one in held.values()] == ["b"]


def test_the_others_free_it_when_they_are_looked_at(either: Any) -> None:
    trained(either, "a", "b")
    for look in (lambda found: found.readiness.look(), lambda found: found.status.collections(10)):
        other = Pairs(build(either.services.settings), either.data)
        for name in ("a", "b"):
            other.search(name)
        either.services.catalogue.delete_collection("a")
        assert len(other.services.snapshots.held()) == 2, "nobody has told it"
        look(other.services)
        held = other.services.snapshots.held()
        assert [one.collection.name for one in held.values()] == ["b"]
        other.services.database.engine.dispose()
        trained(either, "a")


def test_locks_are_gone_with_those_who_waited(either: Any) -> None:
    trained(either, "a")
    either.services.catalogue.delete_collection("a")
    with pytest.raises(CollectionNotFoundError):
        either.search("a")
    gc.collect()
    assert len(either.services.snapshots._locks) == 0


def test_a_collection_made_anew_is_renewed_by_one_thread_at_a_time(
    either: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(either, "a")
    either.services.catalogue.add_items("a", [either.item("x", "new", either.data.X[0])])
    snapshots = either.services.snapshots
    renew, database_read = Snapshots._renew, either.services.database.read
    waiting, recreated = threading.Event(), threading.Event()
    inside: dict[int, int] = {}
    most: list[int] = []
    second_in = threading.Event()

    def watched(self: Snapshots, held: Snapshot | None, collection: Collection, work: UnitOfWork) -> Snapshot:
        inside[collection.id] = inside.get(collection.id, 0) + 1
        most.append(inside[collection.id])
        if inside[collection.id] == 1:
            second_in.wait(1.0)  # time for another one to come in, if it could
        else:
            second_in.set()
        try:
            return renew(self, held, collection, work)
        finally:
            inside[collection.id] -= 1

    def read_late() -> Any:
        """Open the transaction of the late thread's renewal only after the name has passed on."""
        if threading.current_thread().name == "late" and reads.pop():
            waiting.set()
            recreated.wait(60.0)
        return database_read()

    monkeypatch.setattr(Snapshots, "_renew", watched)
    monkeypatch.setattr(type(either.services.database), "read", lambda self: read_late())
    reads = [False, False, False, True, False]  # from the end: to look, then to renew
    late = threading.Thread(target=lambda: snapshots.current("a"), name="late")
    late.start()
    assert waiting.wait(60.0)
    either.services.catalogue.delete_collection("a")
    either.fill("a", "again-")
    either.train("a")
    recreated.set()
    others = [threading.Thread(target=lambda: snapshots.current("a")) for _ in range(2)]
    for thread in others:
        thread.start()
    for thread in (late, *others):
        thread.join(120.0)
    assert max(most) == 1
    assert all(item_id.startswith("again-") for item_id in either.ids("a"))
