"""The choice of an index by its recall, and the service that searches with it."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from app.bootstrap import build
from app.cli.commands import index_lines
from app.cli.main import cli
from app.domain.entities import IndexedItem
from app.domain.filters import ItemFilter
from app.domain.reports import IndexSpec, TrainingReport
from app.index import ExactIndex, build_candidates
from app.services.serving.galleries import Gallery
from app.services.serving.segments import Segment, SegmentView
from app.services.training.index_tuning import IndexTuner
from app.settings import Settings
from solver.datasets import make_low_rank_pairs
from tests.app.closing import close
from tests.app.filters import accepts
from tests.app.integration.conftest import FINE, Pairs, copy_services, keep_approximate
from tests.app.integration.index_recall import index_recall
from tests.app.integration.test_saved_galleries import folders, wait
from tests.app.waiting import wait_for
from tests.benchmarks.index import made_gallery


def tuner(needed_recall: float = 0.99) -> IndexTuner:
    return IndexTuner(needed_recall, 1)


@pytest.mark.usefixtures("any_speed")
def test_the_published_index_finds_what_new_queries_look_for() -> None:
    rows, queries = made_gallery(20_000, 2000)
    chosen, choice = tuner().choose(rows, queries[:1000])
    assert chosen is not None
    assert choice.spec == chosen.index.spec
    assert choice.spec.kind in ("ivf-flat", "ivf-sq8")
    assert choice.spec.probes < choice.spec.lists / 4
    assert [trial.recall_at_10 >= 0.99 for trial in choice.trials] == [True, True]
    assert choice.exact_milliseconds is not None
    assert index_recall(chosen.index, queries[1000:]) > 0.98


def test_too_few_queries_measure_nothing() -> None:
    rows, queries = made_gallery(500, 20)
    chosen, choice = tuner().choose(rows, queries)
    assert chosen is None
    assert "20 items of the other modality are too few" in choice.reason
    assert choice.trials == ()


@pytest.mark.parametrize(("rank", "is_measured"), [(128, False), (256, True)])
def test_items_of_a_high_rank_count_for_several(trained_pairs: Pairs, rank: int, is_measured: bool) -> None:
    with trained_pairs.services.snapshots.open("a") as (snapshot, _):
        model = snapshot.model
    rows = np.random.default_rng(0).normal(size=(200, rank)).astype(np.float32)
    ids = tuple(map(str, range(len(rows))))
    model = replace(model, galleries=dict.fromkeys(model.modality_names, (ids, rows)))
    _, recall = IndexTuner(0.99, 300).tune(model, dict.fromkeys(model.modality_names, rows[:20]))
    assert bool(recall.choices) == is_measured


def test_a_gallery_takes_writes_with_an_approximate_index() -> None:
    rows, queries = made_gallery(6000, 200, dim=8)
    items = [IndexedItem(f"i{number:05d}", (), {}) for number in range(6000)]
    index = next(build_candidates(rows[:4000], queries)).with_probes(40)
    gallery = Gallery.of_segment(Segment(items[:4000], index), alive=np.arange(4000) < 3990)
    assert gallery.size == 3990
    later = gallery.apply_write([], items[4000:4100], rows[4000:4100]).apply_write(["i00001"], [], rows[:0])
    assert [type(view.segment.index) for view in later.segments] == [type(index), ExactIndex]
    grown = later.apply_write([], items[4100:], rows[4100:])
    assert [view.segment.index.is_exact for view in grown.segments] == [False, True, True]
    due = grown.due_merge()
    merged = grown.with_merged(due, SegmentView.merge(due))
    assert [view.segment.index.is_exact for view in merged.segments] == [False]
    assert merged.size == 3990 + 2000 - 1
    for number, query in enumerate(queries[:40]):
        for state in (gallery, later, grown, merged):
            (hits,) = state.search(query[None, :], 10, 0, ItemFilter())
            found = {item.id for item, _ in hits}
            assert len(found) == 10, number
            assert not {f"i{row:05d}" for row in range(3990, 4000)} & found
    best = rows[4000:6000] @ queries[0]
    (hits,) = merged.search(queries[:1], 10, 0, ItemFilter())
    if best.max() > hits[-1][1]:
        assert f"i{4000 + int(best.argmax()):05d}" in {item.id for item, _ in hits}


def test_an_answer_says_whether_it_is_exact_whatever_the_index() -> None:
    rows, queries = made_gallery(6000, 40, dim=8)
    items = [
        IndexedItem(f"i{number:05d}", (("few",) if number % 16 == 0 else ()) + ("all",), {"half": number % 2})
        for number in range(6000)
    ]
    index = next(build_candidates(rows[:5900], queries)).with_probes(20)
    gallery = Gallery.of_segment(Segment(items[:5900], index))
    gallery = gallery.apply_write(["i00001"], items[5900:], rows[5900:])
    assert not gallery.is_exact
    alive = [number for number in range(6000) if number != 1]
    for item_filter, k, is_exact in (
        (ItemFilter(), 10, False),
        (ItemFilter.of(("all",)), 10, False),
        (ItemFilter.of(metadata={"half": (0,)}), 10, False),
        (ItemFilter.of(("few",)), 10, True),
        (ItemFilter.of(("few",), {"half": (1,)}), 10, True),
        (ItemFilter(), 5999, True),
    ):
        passing = rows[[n for n in alive if accepts(item_filter, items[n].labels, items[n].metadata)]]
        for page, query in zip(gallery.search(queries, k, 0, item_filter), queries, strict=True):
            assert page.is_exact == is_exact
            if is_exact:
                best = np.sort(passing @ query)[::-1][:k]
                np.testing.assert_allclose([score for _, score in page], best, rtol=1e-4, atol=1e-5)
    (page, whole) = gallery.search_many(queries[:2], [(10, 0), (5999, 0)])
    assert (page.is_exact, whole.is_exact) == (False, True)
    assert not any(page.is_exact for page in gallery.search_many(queries[:2], [(10, 0)] * 2))
    (beyond,) = gallery.search(queries[:1], 10, 6000, ItemFilter())
    assert (beyond, beyond.is_exact) == ([], True)


@pytest.fixture(scope="module")
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vectors: Any
) -> Iterator[Settings]:
    """Settings of what `large` is a copy of."""
    folder = tmp_path_factory.mktemp("large")
    with keep_approximate(request, folder, vectors, save_after_items=12) as settings:
        yield settings


@pytest.fixture
def large(kept: Settings, tmp_path: Path, vectors: Any, any_speed: None) -> Iterator[Pairs]:
    """Services to which a collection of 60 and 50 items is a large one."""
    with copy_services(kept, tmp_path, open_search=False) as services:
        yield Pairs(services, vectors)


def ask(pairs: Pairs) -> tuple[list[tuple[str, float]], bool]:
    """Return the hits of a page, and whether they are said to be exact."""
    result = pairs.search("a", k=5)
    return [(hit.id, hit.score) for hit in result.hits], result.exact


@contextmanager
def new_process(pairs: Pairs) -> Iterator[Pairs]:
    """Start a process that saves no galleries."""
    fresh = build(pairs.services.settings.model_copy(update={"save_after_items": 10**9}))
    yield Pairs(fresh, pairs.data)
    close(fresh)


def ask_a_new_process(pairs: Pairs) -> tuple[list[tuple[str, float]], bool]:
    with new_process(pairs) as fresh:
        return ask(fresh)


def test_the_report_says_what_serves(large: Pairs) -> None:
    report = large.services.versions.model("a", 1).report
    assert not report.index.is_exact
    assert report.index.recall_at_10["x"] >= 0.99
    assert list(report.index.choices) == ["x"], "z is small"
    assert report.index.choices["x"].spec.kind in ("ivf-flat", "ivf-sq8")
    assert TrainingReport.from_json(report.to_json()) == report
    shown = large.client().get("/v1/admin/collections/a/models/1").json()["report"]["index"]
    assert shown["choices"]["x"]["spec"]["lists"] > 0
    assert shown["choices"]["x"]["trials"][0]["milliseconds"] > 0
    assert shown["choices"]["x"]["trials"][0]["rejected"] is None
    choice = report.index.choices["x"]
    assert index_lines(report.to_answer(is_whole=True)) == [
        f"x is searched by {choice.spec.kind} (32 lists, {choice.spec.probes} probes), "
        f"recall@10 {report.index.recall_at_10['x']:.4f}: {choice.reason}"
    ]


def test_a_new_process_serves_the_published_index(large: Pairs) -> None:
    hits, exact = ask(large)
    assert not exact
    ranking = {hit.id: hit.score for hit in large.search("a", k=100).hits}
    assert len(ranking) == 60
    assert [ranking[item_id] for item_id, _ in hits] == [score for _, score in hits]
    assert ask_a_new_process(large) == (hits, False)
    large.services.catalogue.add_items("a", [large.item("x", "new", large.data.X[0])])
    large.services.catalogue.delete_item("a", hits[0][0])
    after, exact = ask(large)
    assert not exact
    assert hits[0][0] not in {item_id for item_id, _ in after}
    assert len(after) == 5
    assert "new" in {hit.id for hit in large.search("a", k=100).hits}
    assert ask_a_new_process(large) == (after, False)


def test_a_damaged_index_is_replaced_by_the_exact_one(large: Pairs, caplog: pytest.LogCaptureFixture) -> None:
    with new_process(large) as fresh:
        expected = [hit.id for hit in fresh.search("a", k=100).hits][:5]
    folder = large.services.settings.data_dir / "models" / large.services.versions.model("a", 1).bundle
    path = folder / "indexes" / "x"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with caplog.at_level(logging.WARNING), new_process(large) as fresh:
        hits, exact = ask(fresh)
        assert fresh.services.health.check().reason == "a: 'x' is searched exactly: its index is damaged"
    assert exact
    assert [item_id for item_id, _ in hits] == expected
    assert "searching exactly" in caplog.text


def test_an_answer_to_a_filter_says_whether_it_is_exact(large: Pairs) -> None:
    assert not ask(large)[1]
    client, body = large.client(), {"vector": large.data.Z[0].tolist(), "k": 3}
    exact = [
        client.post("/v1/collections/a/search/z-to-x", json=body | more).json()["exact"]
        for more in ({}, {"filter": {"metadata": {"n": 1}}}, {"k": 60})
    ]
    assert exact == [False, True, True]


def test_saved_galleries_keep_the_index(large: Pairs) -> None:
    items = [large.item("x", f"new{number:02d}", large.data.X[number] + 0.1) for number in range(14)]
    large.services.catalogue.add_items("a", items)
    hits, exact = ask(large)
    assert not exact
    wait()
    (folder,) = folders(large)
    assert (folder / "indexes" / "x").is_file()
    assert not (folder / "indexes" / "z").exists()
    assert ask_a_new_process(large)[1] is False
    (folder / "indexes" / "x").write_bytes(b"garbage")
    with new_process(large) as fresh:
        again, exact = ask(fresh)
        assert fresh.services.health.check().reason == "a: 'x' is searched exactly: its index is damaged"
    assert exact
    assert len(again) == len(hits) == 5


@pytest.fixture
def formless(tmp_path: Path, copy_migrated: Callable[[Path], None]) -> Iterator[Pairs]:
    """Services over a collection that is almost noise in all of its 48 dimensions, and large to them."""
    copy_migrated(tmp_path)
    data = make_low_rank_pairs(
        2400, 300, n_features_x=48, n_features_z=48, n_classes=12, noise=12.0, random_state=3
    )
    settings = Settings(data_dir=tmp_path, database_url="", approximate_from_items=2000)
    pairs = Pairs(build(settings), data)
    pairs.make("a")
    for side, rows, labels in (("x", data.X, data.x_labels), ("z", data.Z, data.z_labels)):
        items = [
            pairs.item(side, f"{side}{number}", row, f"class {label}", train=number < 300)
            for number, (row, label) in enumerate(zip(rows, labels, strict=True))
        ]
        for start in range(0, len(items), 1000):
            pairs.services.catalogue.add_items("a", items[start : start + 1000])
    yield pairs
    close(pairs.services)


def test_a_training_whose_candidates_all_fail_says_why(
    formless: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert formless.train("a", FINE) == 1
    assert formless.search("a").exact
    report = formless.services.versions.model("a", 1).report.index
    assert (report.is_exact, report.recall_at_10, report.published) == (True, {}, {})
    choice = report.choices["x"]
    assert choice.spec == IndexSpec("exact")
    assert [trial.spec.kind for trial in choice.trials] == ["ivf-flat", "ivf-sq8"]
    with formless.client() as client:
        shown = client.get("/v1/admin/collections/a/models/1").json()["report"]["index"]["choices"]["x"]
        assert (
            'lrbs_index_serves{collection="a",kind="exact",modality="x"} 1.0' in client.get("/metrics").text
        )
        assert "reason" not in client.get("/readyz").json(), "nothing was lost"
    assert shown["reason"].startswith("no candidate reached a recall@10 of 0.99 at 1.5 times the speed")
    for trial, stored in zip(shown["trials"], choice.trials, strict=True):
        assert trial["rejected"] == stored.rejected
        assert stored.rejected is not None
        assert f"recall@10 is {stored.recall_at_10:.4f} at " in stored.rejected
    monkeypatch.setenv("LRBS_DATA_DIR", str(formless.services.settings.data_dir))
    listed = CliRunner().invoke(cli, ["models", "a"]).output
    assert f"x is searched exactly: {choice.reason}" in listed
    assert listed.count("x is not searched by ivf-") == 2


def test_a_gallery_keeps_its_index_however_much_it_grows_until_all_its_items_are_replaced(
    large: Pairs,
) -> None:
    ask(large)
    rng = np.random.default_rng(0)
    for start in range(0, 5000, 1000):
        rows = rng.choice(large.data.X, 1000) + 0.01 * rng.normal(size=(1000, 8))
        items = [large.item("x", f"later{start + number}", row) for number, row in enumerate(rows)]
        large.services.catalogue.add_items("a", items)
        ask(large)
    wait_for(lambda: not any(gallery.due_merge() for gallery in galleries(large).values()))
    assert galleries(large)["x"].size == 5060
    assert galleries(large)["x"].index_kind != "exact"
    assert all(view.n_live < 1000 for view in galleries(large)["x"].segments if view.segment.index.is_exact)
    assert large.services.health.check().reason is None
    for n in range(60):
        large.services.catalogue.delete_item("a", f"x{n:02d}")
    for start in range(0, 5000, 1000):
        items = [
            large.item("x", f"later{start + number}", large.data.X[number % 60]) for number in range(1000)
        ]
        large.services.catalogue.add_items("a", items, replace=True)
    assert ask(large)[1]
    reason = "a: 'x' is searched exactly: the items of its index have all been replaced"
    assert large.services.health.check().reason == reason


def galleries(pairs: Pairs) -> Any:
    (snapshot,) = pairs.services.snapshots.peek_all().values()
    return snapshot.galleries
