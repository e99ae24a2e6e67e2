"""What a process has in memory of collections that are deleted, made again, or evicted for others."""

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
from tests.app.integration.conftest import CopyOf, Pairs, train_all
from tests.app.integration.loading import current, load


@pytest.mark.parametrize(
    "look",
    [lambda services: services.health.check(), lambda services: services.health.collections(10)],
    ids=["a probe", "metrics"],
)
def test_memory_is_freed_at_once_and_by_other_processes_when_they_are_checked(
    copy_of: CopyOf, look: Callable[[Services], object]
) -> None:
    pairs, _ = copy_of(train_all, "ab")
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
    pairs = trained_pairs
    pairs.search("a")
    pairs.services.catalogue.delete_collection("a")
    with pytest.raises(CollectionNotFoundError):
        pairs.search("a")
    gc.collect()
    assert len(pairs.services.snapshots._locks) == 0


def test_a_collection_created_again_is_changed_by_one_thread_at_a_time(
    trained_either: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = trained_either
    pairs.search("a")
    served = pairs.services.snapshots
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
    pairs.services.catalogue.add_items("a", [pairs.item("x", "new", pairs.data.X[0])])
    late.start()
    pairs.services.catalogue.delete_collection("a")
    pairs.fill("a", "again-")
    pairs.train("a")
    for _ in range(2):
        others = [threading.Thread(target=lambda: current(served, "a")) for _ in range(3)]
        for thread in others:
            thread.start()
        for thread in others:
            thread.join(120.0)
        pairs.services.catalogue.add_items("a", [pairs.item("x", "again-new", pairs.data.X[0])], replace=True)
    late.join(120.0)
    assert max(most) == 1
    assert all(item_id.startswith("again-") for item_id in pairs.ids("a"))


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
    pairs = trained_either
    pairs.services.catalogue.add_items("a", [pairs.item("x", "more", pairs.data.X[0])])
    own = pairs.services.catalogue.collection("a")[0].revision
    assert loading.pairs.search("a").index_revision == own, "what serves is ahead of what is loaded"
    pairs.services.catalogue.delete_collection("a")
    pairs.fill("a", "again-")
    pairs.train("a")
    pairs.services.versions.activate("a", pairs.train("a"), "test")
    loading.end()
    assert {item_id[:6] for item_id in loading.pairs.ids("a")} == {"again-"}


def test_a_load_that_ends_late_takes_nothing_of_the_successor(trained_either: Any, loading: Loading) -> None:
    pairs = trained_either
    pairs.services.catalogue.delete_collection("a")
    pairs.make("a")
    for side, rows, labels in (
        ("x", pairs.data.X[:30], pairs.data.x_labels),
        ("z", pairs.data.Z[:30], pairs.data.z_labels),
    ):
        items = [pairs.item(side, f"{side}{n}", row, f"class {labels[n]}") for n, row in enumerate(rows)]
        pairs.services.catalogue.add_items("a", items)
    pairs.train("a")
    assert loading.pairs.search("a").hits
    successor = pairs.services.catalogue.collection("a")[0].id
    loading.end()
    assert list(loading.pairs.services.snapshots.peek_all()) == [successor]


NAMES = "abc"


@pytest.fixture
def three(copy_of: CopyOf) -> Pairs:
    pairs, _ = copy_of(train_all, NAMES)
    return pairs


def bounded(of: Pairs, max_bytes: int) -> Pairs:
    settings = of.services.settings.model_copy(update={"max_snapshot_bytes": max_bytes})
    return Pairs(build(settings), of.data)


@pytest.fixture
def two_fit(three: Pairs) -> Iterator[Pairs]:
    """A process with room for two of three collections."""
    three.search("a")
    (size,) = (snapshot.estimated_bytes for snapshot in three.services.snapshots.peek_all().values())
    services = bounded(three, int(2.5 * size))
    yield services
    close(services.services)


def names(of: Pairs) -> set[str]:
    return {snapshot.collection.name for snapshot in of.services.snapshots.peek_all().values()}


def test_the_least_recently_searched_is_evicted(two_fit: Pairs) -> None:
    for name, expected in (("a", "a"), ("b", "ab"), ("a", "ab"), ("c", "ac"), ("b", "bc"), ("b", "bc")):
        two_fit.search(name)
        assert names(two_fit) == set(expected)


def test_an_evicted_collection_answers_as_before_with_later_writes(two_fit: Pairs) -> None:
    before = two_fit.search("a").hits
    for name in "bc":
        two_fit.search(name)
    assert "a" not in names(two_fit)
    two_fit.services.catalogue.add_items("a", [two_fit.item("x", "new", two_fit.data.X[0])])
    two_fit.services.catalogue.delete_item("a", "x05")
    scores = {hit.id: hit.score for hit in two_fit.search("a").hits}
    expected = {hit.id: hit.score for hit in before if hit.id != "x05"}
    assert scores.keys() - expected.keys() == {"new"}
    assert {item_id: scores[item_id] for item_id in expected} == pytest.approx(expected, rel=1e-5)


def test_a_process_is_ready_although_not_all_fit(two_fit: Pairs) -> None:
    health = two_fit.services.health
    assert load(two_fit.services).is_ready
    in_memory = names(two_fit)
    assert len(in_memory) == 2
    for _ in range(3):
        state = health.check()
        assert (state.is_ready, state.reason) == (True, None)
    assert names(two_fit) == in_memory, "a check loads nothing that was evicted"
    _, statuses = two_fit.services.health.collections(10)
    assert {status.name for status in statuses if status.served_version is not None} == in_memory


def test_one_collection_stays_however_large_it_is(three: Pairs) -> None:
    tiny = bounded(three, 1)
    for name in (*NAMES, *NAMES):
        assert len(tiny.ids(name)) == 60
        assert names(tiny) == {name}
    close(tiny.services)
