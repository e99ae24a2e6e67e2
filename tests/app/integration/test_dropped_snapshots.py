"""What is left of a collection that is deleted while its snapshot changes, or its searches are compared."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.domain.errors import CollectionNotFoundError
from app.index import ExactIndex
from app.services.serving import recall_monitor
from app.services.serving.recall_monitor import RecallMonitor
from app.services.serving.reloads import Background
from app.services.serving.snapshot import Snapshot, SnapshotCache
from app.settings import Settings
from tests.app.integration.conftest import Pairs, copy_services, keep_approximate
from tests.app.waiting import wait_for


class Interrupted(SnapshotCache):
    """Something happens after one of its snapshots was looked at, or before one is put."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(1 << 30)
        self.put(snapshot)
        self.looks_left = -1
        self.interrupt: Callable[[], None] = lambda: None

    def peek(self, collection_id: int) -> Snapshot | None:
        snapshot = super().peek(collection_id)
        self.looks_left -= 1
        if self.looks_left == 0:
            self.interrupt()
        return snapshot

    def put(self, snapshot: Snapshot, n_dropped: int | None = None) -> bool:
        if n_dropped is not None:
            self.interrupt()
        return super().put(snapshot, n_dropped)


@pytest.fixture(scope="module")
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vectors: Any
) -> Iterator[Settings]:
    """Settings of what `approximate` is a copy of."""
    with keep_approximate(request, tmp_path_factory.mktemp("approximate"), vectors) as settings:
        yield settings


@pytest.fixture
def approximate(kept: Settings, tmp_path: Path, vectors: Any, any_speed: None) -> Iterator[Pairs]:
    """A collection that is searched by inverted lists."""
    with copy_services(kept, tmp_path, open_search=False) as services:
        pairs = Pairs(services, vectors)
        pairs.search("a")
        (snapshot,) = services.snapshots.peek_all().values()
        assert not snapshot.galleries["x"].is_exact
        yield pairs


def interrupted(pairs: Pairs) -> tuple[Interrupted, Snapshot]:
    """Let the services change snapshots in a cache that can be interrupted."""
    (snapshot,) = pairs.services.snapshots.peek_all().values()
    cache = Interrupted(snapshot)
    pairs.services.snapshots._cache = cache
    return cache, snapshot


@pytest.mark.parametrize("n_looks", [1, 2])
def test_an_index_that_is_given_up_does_not_bring_a_deleted_collection_back(
    approximate: Pairs, n_looks: int
) -> None:
    """Whenever it goes: after each look at what serves."""
    cache, snapshot = interrupted(approximate)
    n_deletions = 0

    def delete() -> None:
        nonlocal n_deletions
        n_deletions += 1
        cache.evict(snapshot.collection.id)

    cache.looks_left, cache.interrupt = n_looks, delete
    approximate.services.snapshots.search_exactly(snapshot, "x", "a test")
    assert n_deletions >= (n_looks == 1)
    assert bool(cache.snapshots()) == (n_deletions == 0)


def test_a_replay_does_not_bring_a_deleted_collection_back(approximate: Pairs) -> None:
    cache, snapshot = interrupted(approximate)
    item = approximate.item("x", "new", approximate.data.X[0])
    approximate.services.catalogue.add_items("a", [item])
    (collection,) = approximate.services.snapshots.list_collections(10.0)
    cache.looks_left, cache.interrupt = 1, lambda: cache.evict(snapshot.collection.id)
    with ExitStack() as until_answered:
        opened = approximate.services.snapshots._replay_few(collection, None, until_answered)
    assert opened is None
    assert cache.snapshots() == {}


def test_a_load_does_not_bring_a_deleted_collection_back(approximate: Pairs) -> None:
    cache, snapshot = interrupted(approximate)

    def delete() -> None:
        cache.interrupt = lambda: None
        approximate.services.catalogue.delete_collection("a")
        cache.evict(snapshot.collection.id)

    cache.interrupt = delete
    with pytest.raises(CollectionNotFoundError):
        approximate.services.snapshots._publish_if_newer(snapshot)
    assert cache.snapshots() == {}
    assert snapshot.collection.id not in approximate.services.snapshots._cache._given_up


def test_what_was_sampled_goes_with_its_collection(approximate: Pairs) -> None:
    (snapshot,) = approximate.services.snapshots.peek_all().values()
    cache = SnapshotCache(1 << 30)
    cache.put(snapshot)
    monitor = RecallMonitor(cache, 0.5, lambda *_: None)
    queries = np.random.default_rng(0).normal(size=(800, snapshot.model.projector.rank)).astype(np.float32)
    for query in queries:
        monitor.see(snapshot, "x", query[None])
    wait_for(lambda: monitor.estimate(snapshot, "x") is not None)
    wait_for(lambda: not monitor._pending)
    wait_for(lambda: not monitor._measuring._is_running)
    monitor._measuring = Background(lambda _: None, "idle", "")  # samples wait as if the thread were busy
    monitor.see(snapshot, "x", queries[:16])
    assert monitor._pending
    assert monitor._watched
    cache.evict(snapshot.collection.id)
    assert not monitor._pending
    assert not monitor._watched
    monitor.see(snapshot, "x", queries[:16])
    (key,) = monitor._pending  # of a search that began before
    monitor._measure_pending(key)
    assert not monitor._pending
    assert not monitor._watched


def test_a_query_that_comes_while_others_are_compared_is_compared_after_them(
    approximate: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (snapshot,) = approximate.services.snapshots.peek_all().values()
    cache = SnapshotCache(1 << 30)
    cache.put(snapshot)
    measured: list[int] = []

    def counting_index(vectors: Any) -> ExactIndex:
        measured.append(len(vectors))
        return ExactIndex(vectors)

    monkeypatch.setattr(recall_monitor, "ExactIndex", counting_index)
    monitor = RecallMonitor(cache, 0.5, lambda *_: None)
    query = np.ones((8, snapshot.model.projector.rank), np.float32)
    waiting = [query]
    monitor._drop_unserved = lambda: monitor.see(snapshot, "x", waiting.pop()) if waiting else None
    monitor.see(snapshot, "x", query)
    wait_for(lambda: not monitor._measuring._is_running)
    assert len(measured) == 2
    assert not monitor._pending


def test_a_failure_leaves_no_query_behind(
    approximate: Pairs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (snapshot,) = approximate.services.snapshots.peek_all().values()
    cache = SnapshotCache(1 << 30)
    cache.put(snapshot)
    calls: list[int] = []

    def failing_index(vectors: Any) -> ExactIndex:
        calls.append(len(vectors))
        if len(calls) == 1:
            raise MemoryError
        return ExactIndex(vectors)

    monkeypatch.setattr(recall_monitor, "_FAILURE_SECONDS", 0.0)
    monkeypatch.setattr(recall_monitor, "_BATCH", 1)
    monkeypatch.setattr(recall_monitor, "ExactIndex", failing_index)
    monitor = RecallMonitor(cache, 0.5, lambda *_: None)
    for _ in range(3):
        monitor.see(snapshot, "x", np.ones((8, snapshot.model.projector.rank), np.float32))
    wait_for(lambda: not monitor._measuring._is_running)
    assert len(calls) == 3
    assert not monitor._pending
    assert "recall could not be measured" in caplog.text
