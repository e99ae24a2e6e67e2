"""What the reload of one collection costs searches of another, and a swap of versions those of its own."""

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from app.domain.entities import Content
from app.services.serving.reloads import MAX_WAITING_PER_COLLECTION
from app.services.serving.search import Query
from tests.app.integration.conftest import CopyOf, Pairs, train_all
from tests.app.integration.loading import pace
from tests.app.integration.searching import find
from tests.app.waiting import wait_for

SECONDS = 60.0


@contextlib.contextmanager
def release_slot() -> Iterator[None]:
    """As a request does that gives its concurrency slot to others."""
    yield


def search_as_request(pairs: Pairs, name: str) -> Any:
    query = [Query(Content(vector=pairs.data.Z[0].tolist()))]
    (result,) = find(pairs.services, name, "z", "x", query, 5, release_slot=release_slot)
    return result


def in_threads(count: int, work: Callable[[], Any]) -> list[Any]:
    """Do the same in several threads; return the results, errors included."""
    outcomes: list[Any] = []

    def run() -> None:
        try:
            outcomes.append(work())
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return outcomes


def write(pairs: Pairs, name: str, count: int, prefix: str = "new") -> int:
    rows = np.random.default_rng(count).normal(size=(count, pairs.data.X.shape[1]))
    items = [pairs.item("x", f"{prefix}{number}", row, "class 0") for number, row in enumerate(rows)]
    return pairs.services.catalogue.add_items(name, items, replace=True).revision


def test_a_long_replay_does_not_delay_other_collections(
    copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were written to by this process, and so both searches need their replay."""
    pairs, _ = copy_of(train_all, "ab")
    for name in "ab":
        pairs.search(name)
    released, reached = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        released.wait(0.1)

    monkeypatch.setattr("app.services.serving.snapshot._MAX_INLINE_CHANGES", 5)
    pace(monkeypatch, loading=pause)
    monkeypatch.setattr("app.services.serving.snapshot._ITEMS_PER_BATCH", 1)
    revision = write(pairs, "a", 700)
    large: list[Any] = []
    thread = threading.Thread(target=lambda: large.append(pairs.search("a")))
    thread.start()
    assert reached.wait(SECONDS)
    own = write(pairs, "b", 10)
    (result,) = in_threads(1, lambda: search_as_request(pairs, "b"))
    assert result.index_revision == own
    assert not large, "all this while the other replay goes on"
    released.set()
    thread.join(SECONDS)
    assert large[0].index_revision == revision


@pytest.fixture
def swapped(trained_pairs: Pairs) -> tuple[Pairs, int]:
    """A small collection whose first version is in memory, and the second of which is activated."""
    pairs = trained_pairs
    pairs.search("a")
    version = pairs.train("a")
    pairs.services.versions.activate("a", version, "test")
    return pairs, version


def test_a_swap_rejects_no_search_however_many_there_are(
    swapped: tuple[Pairs, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, version = swapped
    is_open = threading.Event()
    pace(monkeypatch, loading=lambda: is_open.wait(SECONDS))
    results = in_threads(MAX_WAITING_PER_COLLECTION + 6, lambda: search_as_request(pairs, "a"))
    assert [result.model_version for result in results] == [1] * len(results), (
        "it serves until the other one is loaded"
    )
    own = pairs.services.catalogue.add_items("a", [pairs.item("x", "new", pairs.data.X[0])]).revision
    results = in_threads(MAX_WAITING_PER_COLLECTION + 6, lambda: search_as_request(pairs, "a"))
    assert [result.index_revision for result in results] == [own] * len(results), (
        "with what was written meanwhile"
    )
    is_open.set()
    # A load that took long by now is not waited for: the version before answers until it ends.
    wait_for(lambda: pairs.search("a").model_version == version)
    assert search_as_request(pairs, "a").model_version == version


def test_a_version_that_cannot_be_loaded_leaves_the_one_before_serving(
    swapped: tuple[Pairs, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, version = swapped
    attempts = []

    def fail() -> None:
        attempts.append(time.monotonic())
        raise OSError("the disk does not answer")

    with monkeypatch.context() as patch:
        pace(patch, loading=fail)
        assert [search_as_request(pairs, "a").model_version for _ in range(20)] == [1] * 20
    assert len(attempts) < 10, "not every search tries again"
    monkeypatch.setattr("app.services.serving.snapshot.RETRY_SECONDS", 0.0)
    assert search_as_request(pairs, "a").model_version == version


def test_reloads_do_not_freeze_garbage(trained_pairs: Pairs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.services.serving.snapshot._MAX_INLINE_CHANGES", 5)
    monkeypatch.setattr("app.services.serving.snapshot._LARGE_COLLECTION_ITEMS", 20)
    gc.unfreeze()
    gc.collect()
    gc.disable()
    try:
        for _ in range(12):
            for _ in range(300):  # as requests leave it behind
                knot: list[Any] = []
                knot.append(knot)
            revision = write(trained_pairs, "a", 12)
            assert trained_pairs.search("a").index_revision == revision
        gc.collect()
        assert gc.get_freeze_count() > 0, "the rows of the first load are passed over"
        gc.unfreeze()
        assert gc.collect() < 500
    finally:
        gc.unfreeze()
        gc.enable()
