"""Snapshots in memory, within a byte budget."""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.domain.entities import IndexedItem
from app.services.serving.snapshot import Snapshot, SnapshotCache
from tests.app.galleries import gallery_of


def snapshot(collection_id: int, n_items: int = 10) -> Snapshot:
    items = [IndexedItem(f"i{number}", (), {}) for number in range(n_items)]
    gallery = gallery_of(items, np.zeros((n_items, 2), np.float32))
    collection = cast(Any, SimpleNamespace(id=collection_id, name=f"c{collection_id}"))
    return Snapshot(collection, cast(Any, None), {"x": gallery}, "bundle")


def test_a_search_counts_as_a_use_and_a_peek_does_not() -> None:
    cache = SnapshotCache(int(2.5 * snapshot(0).estimated_bytes))
    for number in (1, 2):
        cache.put(snapshot(number))
    cache.peek(1)
    cache.put(snapshot(3))
    assert set(cache.snapshots()) == {2, 3}
    cache.get(2)
    cache.put(snapshot(4))
    assert set(cache.snapshots()) == {2, 4}


def test_a_replacement_does_not_count_as_a_use() -> None:
    cache = SnapshotCache(int(2.5 * snapshot(0).estimated_bytes))
    for number in (1, 2, 1):
        cache.put(snapshot(number))
    cache.put(snapshot(3))
    assert set(cache.snapshots()) == {2, 3}


def test_the_last_one_stays_however_large_and_an_evicted_one_takes_no_memory() -> None:
    cache = SnapshotCache(int(1.5 * snapshot(0).estimated_bytes))
    cache.put(snapshot(1, 50_000))
    assert cache.peek(1) is not None
    cache.evict(1)
    assert cache.get(1) is None
    for number in (2, 3):
        cache.put(snapshot(number))
    assert set(cache.snapshots()) == {3}


@pytest.fixture
def _impatient_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_impatient_threads")
def test_a_snapshot_in_memory_is_always_seen_while_others_use_it() -> None:
    cache = SnapshotCache(1 << 30)
    cache.put(snapshot(1))

    is_over = threading.Event()

    def use() -> None:
        while not is_over.is_set():
            cache.get(1)

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use) for _ in range(3)]
        n_missed = sum(cache.peek(1) is None for _ in range(20_000))
        is_over.set()
    assert [user.result() for user in users] == [None] * 3
    assert n_missed == 0
