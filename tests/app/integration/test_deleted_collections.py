"""What a process has in memory of collections that are deleted, or created again under the same name."""

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.domain.entities import Collection
from app.domain.errors import CollectionNotFoundError, ServiceError
from app.services.serving import snapshot_loader, snapshots
from app.services.serving.reloads import THREAD_NAME
from app.services.serving.snapshot import Snapshot, replay
from app.services.serving.snapshot_loader import SnapshotLoader
from app.services.storage.pacing import no_pause
from tests.app.closing import close
from tests.app.integration.conftest import CopyOf, Pairs
from tests.app.integration.loading import current


def train_two(pairs: Pairs) -> None:
    for name in ("a", "b"):
        pairs.fill(name)
        pairs.train(name)


@pytest.mark.parametrize(
    "look",
    [lambda services: services.health.check(), lambda services: services.health.collections(10)],
    ids=["a probe", "metrics"],
)
def test_memory_is_freed_at_once_and_by_other_processes_when_they_are_checked(
    copy_of: CopyOf, look: Callable[[Services], object]
) -> None:
    pairs, _ = copy_of(train_two)
    other = Pairs(build(pairs.services.settings), pairs.data)
    for each in (pairs, other):
        for name in ("a", "b"):
            each.search(name)
    assert len(pairs.services.snapshots.peek_all()) == 2
    pairs.services.catalogue.delete_collection("a")
    assert len(other.services.snapshots.peek_all()) == 2, "it does not know yet"
    look(other.services)
    for each in (pairs, other):
        snapshots = each.services.snapshots.peek_all()
        assert [snapshot.collection.name for snapshot in snapshots.values()] == ["b"]
    close(other.services)


def test_locks_are_freed_with_the_threads_that_waited(trained_pairs: Pairs) -> None:
    trained_pairs.search("a")
    trained_pairs.services.catalogue.delete_collection("a")
    with pytest.raises(CollectionNotFoundError):
        trained_pairs.search("a")
    gc.collect()
    assert len(trained_pairs.services.snapshots._locks) == 0


def test_a_collection_created_again_is_changed_by_one_thread_at_a_time(
    trained_either: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_either.search("a")
    served = trained_either.services.snapshots
    load = SnapshotLoader.load
    inside: dict[int, set[int]] = {}
    most: list[int] = []
    second_in = threading.Event()

    def watched(
        work: Callable[..., Snapshot], collection: Collection, *arguments: Any, **options: Any
    ) -> Snapshot:
        threads = inside.setdefault(collection.id, set())
        is_first = threading.get_ident() not in threads
        threads.add(threading.get_ident())
        most.append(len(threads))
        if len(threads) == 1:
            second_in.wait(0.5)  # time for another one to come in, if it could
        else:
            second_in.set()
        try:
            return work(*arguments, **options)
        finally:
            if is_first:
                threads.discard(threading.get_ident())

    monkeypatch.setattr(SnapshotLoader, "load", lambda *arguments: watched(load, arguments[2], *arguments))
    monkeypatch.setattr(
        snapshot_loader,
        "replay",
        lambda *arguments, **options: watched(replay, arguments[1], *arguments, **options),
    )

    def look() -> None:
        with contextlib.suppress(ServiceError):  # it may come between the deletion and the training
            current(served, "a")

    late = threading.Thread(target=look)
    trained_either.services.catalogue.add_items(
        "a", [trained_either.item("x", "new", trained_either.data.X[0])]
    )
    late.start()
    trained_either.services.catalogue.delete_collection("a")
    trained_either.fill("a", "again-")
    trained_either.train("a")
    for _ in range(2):
        others = [threading.Thread(target=lambda: current(served, "a")) for _ in range(3)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join(120.0)
        trained_either.services.catalogue.add_items(
            "a", [trained_either.item("x", "again-new", trained_either.data.X[0])], replace=True
        )
    late.join(120.0)
    assert max(most) == 1
    assert all(item_id.startswith("again-") for item_id in trained_either.ids("a"))


SECONDS = 60.0


class Loading:
    """Another process that serves "a" and is stopped while it loads the second version of it."""

    def __init__(self, writer: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pairs = Pairs(build(writer.services.settings), writer.data)
        self.pairs.search("a")
        writer.services.versions.activate("a", writer.train("a"), "test")
        reached, self.may_go_on = threading.Event(), threading.Event()

        def wait() -> None:
            reached.set()
            assert self.may_go_on.wait(SECONDS)

        paces = iter([wait])
        monkeypatch.setattr(snapshots, "Pacer", lambda *_: next(paces, no_pause))
        # So that no search waits for it.
        monkeypatch.setattr("app.services.serving.snapshot._LARGE_COLLECTION_ITEMS", 100)
        assert self.pairs.search("a").model_version == 1
        assert reached.wait(SECONDS)

    def end(self) -> None:
        self.may_go_on.set()
        for thread in threading.enumerate():
            if thread.name == THREAD_NAME:
                thread.join(SECONDS)


@pytest.fixture
def loading(trained_either: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loading]:
    loading = Loading(trained_either, monkeypatch)
    yield loading
    loading.end()
    close(loading.pairs.services)


def test_galleries_of_a_deleted_collection_do_not_serve_its_successor(
    trained_either: Any, loading: Loading
) -> None:
    trained_either.services.catalogue.add_items(
        "a", [trained_either.item("x", "more", trained_either.data.X[0])]
    )
    own = trained_either.services.catalogue.collection("a")[0].revision
    assert loading.pairs.search("a").index_revision == own, "what serves is ahead of what is loaded"
    trained_either.services.catalogue.delete_collection("a")
    trained_either.fill("a", "again-")
    trained_either.train("a")
    trained_either.services.versions.activate("a", trained_either.train("a"), "test")
    loading.end()
    assert {item_id[:6] for item_id in loading.pairs.ids("a")} == {"again-"}


def test_a_load_that_ends_late_takes_nothing_of_the_successor(trained_either: Any, loading: Loading) -> None:
    trained_either.services.catalogue.delete_collection("a")
    trained_either.make("a")
    for side, rows, labels in (
        ("x", trained_either.data.X[:30], trained_either.data.x_labels),
        ("z", trained_either.data.Z[:30], trained_either.data.z_labels),
    ):
        items = [
            trained_either.item(side, f"{side}{n}", row, f"class {labels[n]}") for n, row in enumerate(rows)
        ]
        trained_either.services.catalogue.add_items("a", items)
    trained_either.train("a")
    assert loading.pairs.search("a").hits
    successor = trained_either.services.catalogue.collection("a")[0].id
    loading.end()
    assert list(loading.pairs.services.snapshots.peek_all()) == [successor]
