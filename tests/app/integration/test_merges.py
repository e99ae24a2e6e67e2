"""Merges of large segments: made in the background, while searches are answered from what is to be merged."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.bootstrap import build
from app.services.serving import segments
from app.services.serving.segments import SegmentView
from app.services.serving.snapshots import MERGE_THREAD_NAME
from app.services.serving.stored_items import StoredItems
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.loading import current, pace
from tests.app.integration.test_background_reloads import Gate
from tests.app.integration.test_saved_galleries import wait
from tests.app.waiting import wait_for


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Stands between the steps of merges; 60 items are more than a write merges."""
    barrier = Gate()
    monkeypatch.setattr(segments, "_ROWS_OF_A_WRITE", 8)
    pace(monkeypatch, merging=barrier.pause)
    barrier.is_open.set()
    yield barrier
    barrier.is_open.set()


@pytest.fixture
def saved(trained_pairs: Pairs, gate: Gate) -> Iterator[Pairs]:
    """A process that has read its galleries from files."""
    settings, vectors = trained_pairs.services.settings, trained_pairs.data
    first = Pairs(build(settings.model_copy(update={"save_after_items": 10})), vectors)
    write(first, *range(12), label="saved")
    first.search("a")
    wait()
    close(first.services)
    pairs = Pairs(build(settings.model_copy(update={"save_after_items": 10**9})), vectors)
    yield pairs
    gate.is_open.set()
    close(pairs.services)


def write(pairs: Pairs, *numbers: int, label: str = "new") -> None:
    items = [pairs.item("x", f"x{n:02d}", pairs.data.X[-n], label, metadata={"n": n}) for n in numbers]
    pairs.services.catalogue.add_items("a", items, replace=True)


def views(pairs: Pairs) -> tuple[SegmentView, ...]:
    return current(pairs.services.snapshots, "a").galleries["x"].segments


def hits(pairs: Pairs) -> list[tuple[str, float, tuple[str, ...]]]:
    return [(hit.id, hit.score, hit.item.labels) for hit in pairs.search("a").hits]


def test_a_search_is_answered_while_what_it_visits_is_merged(saved: Pairs, gate: Gate) -> None:
    (view,) = views(saved)
    assert isinstance(view.segment.items, StoredItems)
    merges: list[str] = []
    merge = SegmentView.merge

    def watched(*arguments: Any) -> SegmentView:
        merges.append(threading.current_thread().name)
        return merge(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentView, "merge", watched)
        gate.is_open.clear()
        gate.reached.clear()
        write(saved, *range(20))
        before = hits(saved)
        assert gate.reached.wait(60), "more than a quarter of the rows were replaced"
        assert hits(saved) == before
        assert len(views(saved)) == 2
        write(saved, 30)
        saved.services.catalogue.delete_item("a", "x00")
        saved.services.catalogue.delete_item("a", "x40")
        during = hits(saved)
        assert {item_id for item_id, _, labels in during if labels == ("new",)} == {
            f"x{n:02d}" for n in (*range(1, 20), 30)
        }
        assert not gate.is_open.is_set(), "all this while the merge stands still"
        gate.is_open.set()
        wait_for(lambda: len(views(saved)) == 1 or not_due(saved))
    assert set(merges) == {MERGE_THREAD_NAME}
    assert hits(saved) == during, "nothing that was deleted comes back"
    assert isinstance(views(saved)[0].segment.items, StoredItems), "text stays text"


def not_due(pairs: Pairs) -> bool:
    return not current(pairs.services.snapshots, "a").galleries["x"].due_merge()


def test_a_merge_during_a_reload_is_not_lost(
    saved: Pairs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reload began from the segments that are merged."""
    reload_gate = Gate()
    reload_gate.is_open.set()
    monkeypatch.setattr("app.services.serving.snapshot._MAX_INLINE_CHANGES", 5)
    pace(monkeypatch, loading=reload_gate.pause)
    views(saved)
    gate.is_open.clear()
    gate.reached.clear()
    for n in range(0, 20, 5):
        write(saved, *range(n, n + 5))
        saved.search("a")
    assert gate.reached.wait(60)
    reload_gate.is_open.clear()
    reload_gate.reached.clear()
    waiting = threading.Thread(target=lambda: (write(saved, *range(50, 58)), saved.search("a")))
    waiting.start()
    assert reload_gate.reached.wait(60)
    gate.is_open.set()
    (snapshot,) = saved.services.snapshots.peek_all().values()
    wait_for(lambda: next(iter(saved.services.snapshots.peek_all().values())) is not snapshot)
    merged = next(iter(saved.services.snapshots.peek_all().values())).galleries["x"].segments[0].segment
    gate.is_open.clear()
    reload_gate.is_open.set()
    waiting.join()
    (after,) = saved.services.snapshots.peek_all().values()
    assert merged in [view.segment for view in after.galleries["x"].segments]
    found = hits(saved)
    gate.is_open.set()
    wait_for(lambda: not_due(saved))
    assert hits(saved) == found
    assert {item_id for item_id, _, labels in found if labels == ("new",)} == {
        f"x{n:02d}" for n in (*range(20), *range(50, 58))
    }


def test_the_first_write_to_a_saved_gallery_finds_its_table(
    saved: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    views(saved)
    decoded: list[None] = []
    ids = StoredItems.ids

    def watched(self: StoredItems) -> Iterator[str]:
        decoded.append(None)
        return ids(self)

    monkeypatch.setattr(StoredItems, "ids", watched)
    write(saved, 1, 2)
    assert len(hits(saved)) == 60
    assert not decoded, "it was built while the gallery was loaded"
