"""Columns that filters compare are read in the background, and hold up nothing but what needs them."""

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from app.answers import ValueCount
from app.domain.entities import Content
from app.domain.errors import UnavailableError
from app.domain.filters import ItemFilter
from app.domain.searches import SearchResult
from app.services.serving import reloads, segments
from app.services.serving.item_columns import ColumnNames
from app.services.serving.reloads import MAX_WAITING_PER_COLLECTION
from app.services.serving.search import Query
from tests.app.integration.conftest import CopyOf, Pairs
from tests.app.integration.searching import find
from tests.app.waiting import wait_for

SECONDS = 60.0
EVEN = ItemFilter.of(None, {"parity": (0,)})


class Slots:
    """Counts the requests that gave their concurrency slot to others."""

    def __init__(self) -> None:
        self.n_released = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def release(self) -> Iterator[None]:
        with self._lock:
            self.n_released += 1
        yield


def search(pairs: Pairs, name: str, item_filter: ItemFilter, slots: Slots) -> SearchResult:
    query = [Query(Content(vector=pairs.data.Z[0].tolist()))]
    (result,) = find(pairs.services, name, "z", "x", query, 100, 0, item_filter, release_slot=slots.release)
    return result


def add(pairs: Pairs, name: str, item_id: str, parity: int) -> None:
    items = [pairs.item("x", item_id, pairs.data.X[0], "new", metadata={"parity": parity})]
    pairs.services.catalogue.add_items(name, items, replace=True)


def fill_shelves(pairs: Pairs) -> None:
    """Train two collections whose items have an even or odd number in their metadata."""
    for name in ("a", "b"):
        pairs.fill(name)
        items = [
            pairs.item("x", f"x{number:02d}", row, f"class {label}", metadata={"parity": number % 2})
            for number, (row, label) in enumerate(zip(pairs.data.X, pairs.data.x_labels, strict=True))
        ]
        pairs.services.catalogue.add_items(name, items, replace=True)
        pairs.train(name)


@pytest.fixture
def shelved(copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch) -> Pairs:
    """Both, large for the reader."""
    pairs, _ = copy_of(fill_shelves)
    for name in ("a", "b"):
        pairs.search(name)
    monkeypatch.setattr(reloads, "ROWS_READ_BY_A_SEARCH", 10)
    monkeypatch.setattr(segments, "ROWS_READ_BY_A_SEARCH", 10)
    return pairs


def test_what_waits_for_a_column_holds_up_nothing_else(
    shelved: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_open, reached = threading.Event(), threading.Event()

    def pause() -> None:
        reached.set()
        is_open.wait(SECONDS)

    monkeypatch.setattr(reloads, "Pacer", lambda *_: pause)
    slots, outcomes = Slots(), []

    def run() -> None:
        try:
            outcomes.append(search(shelved, "a", EVEN, slots))
        except UnavailableError as error:
            outcomes.append(error)

    n_refused = 3
    threads = [threading.Thread(target=run) for _ in range(MAX_WAITING_PER_COLLECTION + n_refused)]
    for thread in threads:
        thread.start()
    try:
        assert reached.wait(SECONDS)
        wait_for(lambda: len(outcomes) == n_refused and slots.n_released == MAX_WAITING_PER_COLLECTION)
        assert {str(refusal) for refusal in outcomes} == {
            "collection 'a' is being made ready for this filter: try again in a moment"
        }
        free = Slots()
        assert len(search(shelved, "a", ItemFilter(), free).hits) == 60
        assert free.n_released == 0
        add(shelved, "a", "meanwhile", 0)
    finally:
        is_open.set()
    for thread in threads:
        thread.join(SECONDS)
    found = [{hit.id for hit in result.hits} for result in outcomes[n_refused:]]
    even = {f"x{number:02d}" for number in range(0, 60, 2)}
    assert found == [even | {"meanwhile"}] * MAX_WAITING_PER_COLLECTION
    assert {hit.id for hit in search(shelved, "a", EVEN, free).hits} == found[0]
    assert free.n_released == 0, "the column is there by now"


def test_columns_outlive_writes_merges_and_other_versions(
    shelved: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Slots()
    assert len(search(shelved, "a", ItemFilter.of(("class 0",), {"parity": (0,)}), first).hits) == np.sum(
        shelved.data.x_labels[::2] == 0
    )
    assert first.n_released == 1, "labels and metadata are read together"
    again = Slots()
    for number in range(30):
        add(shelved, "a", f"n{number}", number % 2)
        n_even = len(search(shelved, "a", EVEN, again).hits)
        assert n_even == 30 + number // 2 + 1
    snapshots = shelved.services.snapshots
    wait_for(lambda: not any(each.galleries["x"].due_merge() for each in snapshots.peek_all().values()))
    assert len(search(shelved, "a", EVEN, again).hits) == 45
    version = shelved.train("a")
    shelved.services.versions.activate("a", version, "test")
    assert search(shelved, "a", EVEN, Slots()).model_version == version
    assert shelved.services.overviews.count_values("a", "x", 10, again.release).metadata == {
        "parity": [ValueCount(0, 45), ValueCount(1, 45)]
    }
    assert again.n_released == 0
    (gallery,) = (
        each.galleries["x"] for each in snapshots.peek_all().values() if each.collection.name == "a"
    )
    assert gallery.columns == ColumnNames(True, frozenset({"parity"}))


def test_a_key_that_no_item_has_is_looked_for_once(shelved: Pairs) -> None:
    slots = Slots()
    for number in range(5):
        nothing = ItemFilter.of(None, {f"key {number}": ("value",)})
        assert search(shelved, "a", nothing, slots).hits == ()
        absent = ItemFilter.of(None, {f"key {number}": (None,)})
        assert len(search(shelved, "a", absent, slots).hits) == 60
    assert slots.n_released == 1
