"""The recall of live searches: measured in the background, and what happens when it falls."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap import build
from app.domain.entities import IndexedItem
from app.domain.reports import IndexSpec
from app.index import ExactIndex
from app.services.health import IndexStatus
from app.services.serving import recall_monitor
from app.services.serving.galleries import Gallery
from app.services.serving.recall_monitor import RecallWindow, measure_recalls
from app.services.serving.segments import Segment
from app.services.storage.pacing import no_pause
from app.settings import Settings
from solver.datasets import SyntheticPairs, make_low_rank_pairs
from tests.app.closing import close
from tests.app.integration.conftest import FINE, Pairs, choose_at_any_speed
from tests.app.integration.test_metrics import read
from tests.app.integration.test_saved_galleries import wait
from tests.app.waiting import wait_for

_N_X, _N_Z, _TRAINED = 3000, 400, 300
_GATE = 0.99


@pytest.fixture(scope="module")
def clusters() -> SyntheticPairs:
    """3000 rows, and 400 of the other modality that a training knows; the rest of these is asked."""
    return make_low_rank_pairs(_N_X, 6400, n_features_x=12, n_features_z=12, n_classes=12, random_state=3)


def fill(pairs: Pairs, name: str, n_x: int = _N_X) -> None:
    pairs.make(name)
    data = pairs.data
    sides = (("x", data.X[:n_x], data.x_labels), ("z", data.Z[:_N_Z], data.z_labels))
    for side, rows, labels in sides:
        items = [
            pairs.item(side, f"{side}{number:04d}", row, f"class {label}", train=number < _TRAINED)
            for number, (row, label) in enumerate(zip(rows, labels, strict=False))
        ]
        for start in range(0, len(items), 1000):
            pairs.services.catalogue.add_items(name, items[start : start + 1000])


@pytest.fixture(scope="module")
def kept(
    tmp_path_factory: pytest.TempPathFactory, clusters: SyntheticPairs, copy_migrated: Callable[[Path], None]
) -> Settings:
    """Settings of what `served` is a copy of."""
    folder = tmp_path_factory.mktemp("clusters")
    copy_migrated(folder)
    settings = Settings(
        data_dir=folder,
        database_url="",
        approximate_from_items=2000,
        max_snapshot_bytes=1,
        save_after_items=1000,
    )
    pairs = Pairs(build(settings), clusters)
    fill(pairs, "a")
    with pytest.MonkeyPatch.context() as patch:
        choose_at_any_speed(patch)
        pairs.train("a", FINE)
    close(pairs.services)
    return settings


@pytest.fixture
def served(
    kept: Settings,
    tmp_path: Path,
    clusters: SyntheticPairs,
    any_speed: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pairs]:
    """Services that hold one collection in memory at a time, and search "a" by inverted lists."""
    monkeypatch.setattr(recall_monitor, "_REST", 0.0)
    shutil.copytree(kept.data_dir, tmp_path, dirs_exist_ok=True)
    pairs = Pairs(build(kept.model_copy(update={"data_dir": tmp_path})), clusters)
    yield pairs
    close(pairs.services)


def write_elsewhere(pairs: Pairs, count: int, prefix: str = "far", name: str = "a") -> None:
    """Write items that are spread over all directions, far from the clusters that the index knows."""
    rng = np.random.default_rng(len(prefix))
    rows = 2.0 * pairs.data.X.std() * rng.normal(size=(count, 12))
    for start in range(0, count, 250):
        items = [
            pairs.item("x", f"{prefix}{number:04d}", rows[number]) for number in range(start, start + 250)
        ]
        pairs.services.catalogue.add_items(name, items)
        pairs.search(name, k=1)


def status_of(pairs: Pairs) -> IndexStatus:
    _, (status, *_) = pairs.services.health.collections(1)
    return status.indexes["x"]


def ask_until(pairs: Pairs, is_reached: Callable[[], bool]) -> None:
    """Search with new queries until something is reached."""
    deadline = time.monotonic() + 120.0
    while not is_reached():
        for number, row in enumerate(pairs.data.Z[_N_Z:]):
            pairs.search("a", k=10, row=row)
            if number % 16 == 15:
                if is_reached():
                    return
                assert time.monotonic() < deadline
                time.sleep(0.02)  # leaves the interpreter to the thread that compares


def best_ids(pairs: Pairs, row: Any) -> list[str]:
    """Return the ten best items of x for a vector of z, from scores in double precision."""
    (snapshot,) = pairs.services.snapshots.peek_all().values()
    query = snapshot.model.project("z", np.asarray(row, np.float32)[None])[0].astype(np.float64)
    scored = [
        (-float(vector.astype(np.float64) @ query), item.id)
        for view in snapshot.galleries["x"].segments
        for vector, item in zip(view.live_vectors(), view.live_items(), strict=True)
    ]
    return [item_id for _, item_id in sorted(scored)[:10]]


def test_an_index_that_falls_below_the_gate_is_given_up(
    served: Pairs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "app.services.serving")
    client = served.client()
    assert not served.search("a", k=1).exact

    def n_compared() -> int:
        live = status_of(served).live
        return 0 if live is None else live.n_queries

    ask_until(served, lambda: n_compared() >= 80)
    healthy = status_of(served)
    assert healthy.live is not None
    assert healthy.live.recall > 0.98
    assert healthy.live.lower < healthy.live.recall <= healthy.live.upper
    assert not served.search("a", k=1).exact
    found = read(client)
    of_x = 'collection="a",modality="x"'
    assert found[f"lrbs_index_recall{{{of_x}}}"] > 0.98
    assert found[f"lrbs_index_published_recall{{{of_x}}}"] >= _GATE
    assert found[f"lrbs_index_fallback{{{of_x}}}"] == 0
    assert found[f'lrbs_index_serves{{collection="a",kind="{healthy.kind}",modality="x"}}'] == 1
    assert found['lrbs_index_serves{collection="a",kind="exact",modality="z"}'] == 1
    assert "reason" not in client.get("/readyz").json()

    write_elsewhere(served, 1000)
    assert not served.search("a", k=1).exact, "a merge puts them into the same lists"
    ask_until(served, lambda: status_of(served).is_fallback)

    query = served.data.Z[-1].tolist()
    answer = client.post("/v1/collections/a/search/z-to-x", json={"vector": query, "k": 10}).json()
    assert answer["exact"]
    assert [hit["id"] for hit in answer["hits"]] == best_ids(served, query)
    time.sleep(1.1)  # an answer of the probes is reused for a moment
    found = read(client)
    assert found[f"lrbs_index_fallback{{{of_x}}}"] == 1
    assert found[f"lrbs_index_recall{{{of_x}}}"] == 1
    assert found['lrbs_index_serves{collection="a",kind="exact",modality="x"}'] == 1
    assert f"lrbs_index_recall_queries{{{of_x}}}" not in found
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert "a: 'x' is searched exactly: recall@10 of" in ready.json()["reason"]
    (line,) = [record.getMessage() for record in caplog.records if "exactly" in record.getMessage()]
    assert line in f"a: x is searched exactly from now on: {ready.json()['reason'].partition('exactly: ')[2]}"

    fill(served, "b", _TRAINED)
    served.train("b")
    served.search("b")
    assert served.search("a", k=1).exact, "it was loaded again, from files that have the index"
    served.services.catalogue.delete_item("a", "x0000")
    write_elsewhere(served, 1500, "further")
    assert served.search("a", k=1).exact, "merges do not bring it back"
    wait()
    fresh = Pairs(build(served.services.settings), served.data)
    assert fresh.search("a", k=1).exact, "saved galleries leave it out"
    assert (
        "'x' is searched exactly: it was saved without an index, which was given up, or whose items had all"
        in (fresh.services.health.check().reason or "")
    )
    close(fresh.services)
    assert served.train("a", FINE) == 2
    wait_for(lambda: served.search("a").model_version == 2)
    assert not served.search("a", k=1).exact, "the next version has an index of its own"
    assert not status_of(served).is_fallback


def test_a_gallery_that_is_as_good_as_it_was_chosen_for_keeps_its_index(served: Pairs) -> None:
    """6000 queries that no training knew, in the order and batches of live ones."""
    served.search("a")
    (snapshot,) = served.services.snapshots.peek_all().values()
    gallery, window = snapshot.galleries["x"], RecallWindow()
    assert gallery.index_kind != IndexSpec().kind
    queries = snapshot.model.project("z", served.data.Z[_N_Z:].astype(np.float32))
    recalls: list[float] = []
    for start in range(0, len(queries), 16):
        batch = queries[start : start + 16]
        recalls += measure_recalls(gallery, batch, no_pause)
        window.add(batch, recalls[start:])
        estimate = window.estimate
        assert estimate is None or estimate.upper >= _GATE
    assert 0.98 < np.mean(recalls) < 1.0, "some neighbours are missed, all the same"


def test_at_the_gate_itself_chance_decides_nothing() -> None:
    """A hundred thousand queries, one in a hundred of which finds nothing: the largest variance there is."""
    rng = np.random.default_rng(0)
    recalls = (rng.random(100_000) < _GATE).astype(float).tolist()
    queries = np.arange(100_000, dtype=np.float32)[:, None]
    window, smallest = RecallWindow(), 1.0
    for start in range(0, 100_000, 16):
        window.add(queries[start : start + 16], recalls[start : start + 16])
        estimate = window.estimate
        smallest = min(smallest, 1.0 if estimate is None else estimate.upper)
    assert smallest > _GATE


@pytest.mark.parametrize(("recall", "most"), [(0.7, 80), (0.9, 400), (0.95, 1200)])
def test_what_misses_more_is_noticed_after_so_many_queries(recall: float, most: int) -> None:
    rng = np.random.default_rng(1)
    window, count = RecallWindow(), 0
    while (estimate := window.estimate) is None or estimate.upper >= _GATE:
        window.add(np.full((1, 1), count, np.float32), [float(rng.binomial(10, recall)) / 10.0])
        count += 1
        assert count <= most
    assert estimate.n_queries == count
    assert estimate.lower < recall


def test_a_query_that_comes_again_and_again_counts_once() -> None:
    window = RecallWindow()
    for _ in range(100):
        window.add(np.ones((10, 3), np.float32), [0.0] * 10)
    assert window.estimate is None
    window.add(np.arange(60, dtype=np.float32)[:, None], [1.0] * 60)
    estimate = window.estimate
    assert estimate is not None
    assert (estimate.n_queries, estimate.recall) == (61, 60 / 61)


def test_a_query_that_comes_again_is_forgotten_after_those_that_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recall_monitor, "_QUERIES", 100)
    window, queries = RecallWindow(), np.arange(150, dtype=np.float32)[:, None]
    window.add(queries[:100], [0.0] + [1.0] * 99)
    window.add(queries[:1], [0.0])
    window.add(queries[100:], [1.0] * 50)
    estimate = window.estimate
    assert estimate is not None
    assert (estimate.n_queries, estimate.recall) == (100, 0.99)


class Forgetful(ExactIndex):
    """Finds only the first half of its rows."""

    is_exact = False

    def search(self, query: Any, k: int, alive: Any) -> Any:
        half = np.arange(self.size) < self.size // 2
        return super().search(query, k, half if alive is None else half & alive)

    def search_many(self, queries: Any, ks: Any, alive: Any) -> Any:
        return [self.search(query, k, alive) for query, k in zip(queries, ks, strict=True)]


def gallery_of(vectors: Any, kind: type[ExactIndex] = ExactIndex) -> Gallery:
    items = [IndexedItem(str(number), (), {}) for number in range(len(vectors))]
    return Gallery.of_segment(Segment(items, kind(vectors)))


def mean_recall(gallery: Gallery, queries: Any) -> float:
    return float(np.mean(measure_recalls(gallery, queries, no_pause)))


def test_recall_is_that_of_the_whole_gallery() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(400, 8)).astype(np.float32)
    queries = rng.normal(size=(60, 8)).astype(np.float32)
    assert mean_recall(gallery_of(vectors), queries) == 1
    forgetful = gallery_of(vectors, Forgetful)
    assert 0.4 < mean_recall(forgetful, queries) < 0.6
    grown = Gallery([*forgetful.segments, *gallery_of(vectors).segments])
    assert 0.7 < mean_recall(grown, queries) < 0.8, "half of its rows are in an index that misses neighbours"
    only_known = forgetful.apply_write([str(number) for number in range(200, 400)], [], vectors[:0])
    assert mean_recall(only_known, queries) == 1, "rows that were deleted are not missed"
    assert mean_recall(gallery_of(np.ones((30, 8), np.float32)), queries) == 1, "ties are no misses"
    assert mean_recall(gallery_of(np.zeros((0, 8), np.float32)), queries) == 1


def test_a_large_gallery_is_compared_in_steps() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(100_000, 4)).astype(np.float32)
    queries = rng.normal(size=(3, 4)).astype(np.float32)
    steps: list[None] = []
    recalls = measure_recalls(gallery_of(vectors, Forgetful), queries, lambda: steps.append(None))
    assert len(steps) > 3
    best = np.sort(queries @ vectors.T, axis=1)[:, -10:]
    known = np.sort(queries @ vectors[:50_000].T, axis=1)
    expected = [float((known[row] >= best[row, 0] - 1e-5).sum()) / 10.0 for row in range(3)]
    assert recalls == pytest.approx(expected)
