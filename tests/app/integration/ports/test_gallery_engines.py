"""What every engine of galleries does, on the engines themselves."""

import contextlib
import fcntl
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import given, settings

from app.api.schemas.filters import read_filter
from app.db.session import make_engine
from app.domain.entities import IndexedItem
from app.domain.errors import DatabaseUnavailableError, VectorEngineUnavailableError
from app.domain.filters import ItemFilter
from app.domain.ports import GalleryKey, GalleryWrite, NewGallery, PageQuery, VectorEngine
from app.engines.common import LARGEST_RANK_OF_A_GRAPH, lock_file
from app.engines.milvus import MilvusEngine
from app.engines.postgresql import PostgresEngine
from app.services.serving.engine_galleries import RemoteGallery
from app.services.serving.galleries import Gallery
from app.services.serving.refinement import Refinement, find_grouped, groups_of, members_of
from tests.app.filters import ASKED, ITEMS, passes
from tests.app.galleries import gallery_of

RANK, N_ITEMS = 8, 120
KEY = GalleryKey(1, "bundle", "image")
COLOURS = ("red", "green", None, 3, 3.5, True, "3.0", "True")
Make = Callable[[list[IndexedItem], Any], Gallery]


def random_rows(n: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(n, RANK)) + 2.0 * rng.normal(size=(5, RANK))[rng.integers(0, 5, n)] + 1.0
    ).astype(np.float32)


def make_items(n: int) -> list[IndexedItem]:
    return [
        IndexedItem(
            f"item é {number:04d}",
            (f"class {number % 4}", "all") if number % 3 else (),
            {"colour": COLOURS[number % len(COLOURS)], "nested": {"a": [number]}} if number % 5 else {},
        )
        for number in range(n)
    ]


@pytest.fixture(scope="module")
def milvus_locks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the locks of Milvus Lite."""
    return tmp_path_factory.mktemp("locks")


@pytest.fixture(scope="module")
def milvus_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File of Milvus Lite, which one process can open."""
    return tmp_path_factory.mktemp("milvus") / "milvus.db"


@pytest.fixture(scope="module")
def milvus(milvus_file: Path, milvus_locks: Path) -> Iterator[MilvusEngine]:
    engine = MilvusEngine(str(milvus_file), "", partial(lock_file, milvus_locks, 0.2))
    yield engine
    engine.close()


def make_impatient_engine(engine: VectorEngine, request: pytest.FixtureRequest) -> VectorEngine:
    """Return the engine of another process, which waits for no lock."""
    if isinstance(engine, MilvusEngine):
        return MilvusEngine("", "", partial(lock_file, request.getfixturevalue("milvus_locks"), 0.0))
    return PostgresEngine(make_engine(request.getfixturevalue("pgvector_url"), 0.1))


def make_vector_engine(kind: str, request: pytest.FixtureRequest) -> VectorEngine:
    if kind == "milvus":
        engine: VectorEngine = request.getfixturevalue("milvus")
        for key in engine.keys():  # noqa: SIM118
            engine.drop(key)
        return engine
    return PostgresEngine(make_engine(request.getfixturevalue("pgvector_url")))


@pytest.fixture(params=["postgresql", "milvus"])
def engine(request: pytest.FixtureRequest) -> Iterator[VectorEngine]:
    engine = make_vector_engine(request.param, request)
    yield engine
    if request.param == "postgresql":
        engine.close()


@pytest.fixture(params=["faiss", "postgresql", "milvus"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    if request.param == "faiss":
        yield gallery_of
        return
    engine = make_vector_engine(request.param, request)

    def make_in_engine(items: list[IndexedItem], vectors: Any) -> Gallery:
        rows = [IndexedItem(item.id, item.labels, dict(item.metadata)) for item in items]
        batches = (
            (rows[start : start + 100], vectors[start : start + 100]) for start in range(0, len(rows), 100)
        )
        return RemoteGallery(engine.create(NewGallery(KEY, 1, batches, vectors, random_rows(20, 1), ())), 1)

    yield make_in_engine
    if request.param == "postgresql":
        engine.close()


def test_results_have_their_vectors_and_are_grouped(make: Make) -> None:
    items, vectors = make_items(N_ITEMS), random_rows(N_ITEMS)
    gallery, query = make(items, vectors), random_rows(1, 2)
    wanted = [items[number].id for number in (0, 7, N_ITEMS - 1)]
    stored = gallery.vectors_of([*wanted, "nothing"])
    assert {item: row.tolist() for item, row in stored.items()} == {
        item.id: row.tolist() for item, row in zip(items, vectors, strict=True) if item.id in wanted
    }
    ranked = gallery.search(query, N_ITEMS, 0, ItemFilter())[0]
    seen: set[str] = set()
    one_each = []
    for item, _ in ranked:
        colour = item.metadata.get("colour")
        if colour is None or json.dumps(colour) not in seen:
            one_each.append(item.id)
        seen.add(json.dumps(colour))
    page = find_grouped(
        lambda k, rest: gallery.search(query, k, 0, rest)[0],
        partial(groups_of, name="colour"),
        Refinement(group_by="colour"),
        len(one_each),
        N_ITEMS,
    )
    assert [item.id for item, _ in page] == one_each


def best(
    items: list[IndexedItem], vectors: Any, query: Any, k: int, offset: int, item_filter: ItemFilter
) -> list[tuple[str, float]]:
    scores = vectors @ query
    rows = [n for n, item in enumerate(items) if item_filter.accepts(item)]
    rows.sort(key=lambda n: (-scores[n], items[n].id))
    return [(items[n].id, float(scores[n])) for n in rows[offset : offset + k]]


FILTERS = [
    ItemFilter(),
    ItemFilter.of(labels=("class 1", "class 2")),
    ItemFilter.of(labels=()),
    ItemFilter.of(labels=("no such label",)),
    ItemFilter.of(metadata={"colour": ("red", True)}),
    ItemFilter.of(metadata={"colour": (None,)}),
    ItemFilter.of(metadata={"colour": (3.0,)}),
    ItemFilter.of(metadata={"colour": ("3", "true")}),
    ItemFilter.of(labels=("all",), metadata={"colour": ("green",), "absent": (None,)}),
]


def test_the_best_items_that_match_are_returned_in_order(make: Make) -> None:
    items, vectors = make_items(N_ITEMS), random_rows(N_ITEMS)
    vectors[7] = vectors[3]  # equal scores are ordered by id
    gallery = make(items, vectors)
    queries = np.concatenate([random_rows(4, 2), vectors[3:4]])
    for (k, offset), item_filter in itertools.product(((10, 0), (5, 8), (1000, 0), (3, 5000)), FILTERS):
        pages = gallery.search(queries, k, offset, item_filter)
        n_accepted = sum(item_filter.accepts(item) for item in items)
        assert gallery.count_matching(item_filter) == n_accepted
        for query, page in zip(queries, pages, strict=True):
            expected = best(items, vectors, query, k, offset, item_filter)
            assert [item.id for item, _ in page] == [item_id for item_id, _ in expected]
            np.testing.assert_allclose(
                [score for _, score in page], [s for _, s in expected], rtol=1e-5, atol=1e-5
            )
            assert page.is_exact
            assert all(item == items[int(item.id[-4:])] for item, _ in page)


def test_a_filter_means_the_same_to_every_engine(make: Make) -> None:
    stored = [IndexedItem(item.id, item.labels, item.metadata) for item in ITEMS]
    gallery = make(stored, random_rows(len(stored)))
    query = random_rows(1, 3)

    @settings(max_examples=60, deadline=None, database=None)
    @given(ASKED)
    def compare(asked: dict[str, Any]) -> None:
        (page,) = gallery.search(query, 1000, 0, read_filter(asked, "filter"))
        assert sorted(item.id for item, _ in page) == [item.id for item in ITEMS if passes(asked, item)]

    compare()


def test_members_of_a_group_are_those_with_the_very_value(make: Make) -> None:
    stored = [IndexedItem(item.id, item.labels, item.metadata) for item in ITEMS]
    gallery = make(stored, random_rows(len(stored)))
    for name in ("label", *{key for item in stored for key in item.metadata}):
        members: dict[Any, list[str]] = {}
        for item, groups in zip(stored, groups_of(stored, name), strict=True):
            for group in groups:
                members.setdefault(group, []).append(item.id)
        for group, ids in members.items():
            (page,) = gallery.search(random_rows(1, 3), 1000, 0, members_of(name, [group], looks_into=True))
            assert sorted(item.id for item, _ in page) == sorted(ids), (name, group)


def test_items_of_the_same_modality_are_ranked_by_cosine(make: Make) -> None:
    items, vectors = make_items(N_ITEMS), random_rows(N_ITEMS)
    gallery = make(items, vectors)
    page = gallery.search_similar(vectors[5], 4, 1, ItemFilter.of(labels=("all",)), items[5].id)
    cosines = vectors @ vectors[5] / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vectors[5])
    rows = [n for n in np.argsort(-cosines) if "all" in items[n].labels and n != 5][1:5]
    assert [item.id for item, _ in page] == [items[n].id for n in rows]
    np.testing.assert_allclose([score for _, score in page], cosines[rows], rtol=1e-5)


def test_a_write_makes_another_gallery_and_leaves_the_one_before(make: Make) -> None:
    items, vectors = make_items(40), random_rows(40)
    before = make(items, vectors)
    moved = IndexedItem(items[0].id, ("moved",), {"colour": "blue"})
    new = IndexedItem("new", ("moved",), {})
    ids = [items[0].id, items[1].id, items[2].id, "new", "never stored"]
    written = np.stack([-5 * vectors[0], 9 * vectors[0]])
    for _ in range(2):  # as two processes would, each for itself
        after = before.apply_write(ids, [moved, new], written, [items[2].id], revision=2)
        assert (before.size, after.size) == (40, 39)
        assert (before.unranked, after.unranked) == (frozenset(), frozenset({items[2].id}))
    assert sorted(after.item_ids()) == sorted([*(item.id for item in items if item is not items[1]), "new"])
    (page,) = after.search(vectors[:1], 1, 0, ItemFilter())
    assert page[0][0] == new
    (page,) = before.search(vectors[:1], 40, 0, ItemFilter())
    assert {item.id for item, _ in page} == {item.id for item in items}
    assert (before.has_label("moved"), after.has_label("moved")) == (False, True)
    assert (before.count_labels()["moved"], after.count_labels()["moved"]) == (0, 2)
    assert after.count_values("colour")["blue"] == 1
    assert before.count_values("colour")[(bool, True)] == sum(
        item.metadata.get("colour") is True for item in items
    )
    assert {item.id for item, _ in after.sample(1000)} == {
        item.id for item, _ in after.search(vectors[:1], 40, 0, ItemFilter())[0]
    }


def test_values_are_counted_as_json_compares_them(make: Make) -> None:
    values = [True, 1, 1.0, "1", None, ["a list"], {"an": "object"}]
    items = [IndexedItem(f"{number}", (), {"value": value}) for number, value in enumerate(values)]
    counts = make(items, random_rows(len(items))).count_values("value")
    assert {value: counts[value] for value in ((bool, True), 1, "1")} == {(bool, True): 1, 1: 2, "1": 1}


def test_a_page_may_lie_beyond_the_longest_answer_of_milvus(
    milvus: MilvusEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A gallery of more than 16,384 takes long to fill.
    monkeypatch.setattr("app.engines.milvus._MOST_HITS", 64)
    for key in milvus.keys():  # noqa: SIM118
        milvus.drop(key)
    items, vectors = make_items(100), random_rows(100)
    vectors[50:90] = vectors[49]  # more equal scores than one answer has
    rows = [IndexedItem(item.id, item.labels, dict(item.metadata)) for item in items]
    gallery = RemoteGallery(
        milvus.create(NewGallery(KEY, 1, iter([(rows, vectors)]), vectors, vectors, ())), 1
    )
    for query, (k, offset) in itertools.product(
        (vectors[0], vectors[49]), ((10, 0), (10, 60), (30, 80), (5, 300))
    ):
        (page,) = gallery.search(query[None], k, offset, ItemFilter())
        expected = best(items, vectors, query, k, offset, ItemFilter())
        assert [item.id for item, _ in page] == [item_id for item_id, _ in expected]


def test_a_write_that_comes_after_a_later_one_brings_nothing_back(engine: VectorEngine) -> None:
    items, vectors = make_items(4), random_rows(4)
    rows = [IndexedItem(item.id, item.labels, dict(item.metadata)) for item in items]
    base = RemoteGallery(engine.create(NewGallery(KEY, 1, iter([(rows, vectors)]), vectors, vectors, ())), 1)
    changed = items[0]._replace(labels=("later",))
    later = base.apply_write([items[0].id, items[1].id], [changed], vectors[:1], revision=3)
    late = base.apply_write([items[0].id, items[1].id], items[:2], vectors[:2], revision=2)
    between = base.advance(2)  # was never written for itself
    assert between is not None
    for gallery in (later, late, between):
        (page,) = gallery.search(vectors[:1], 10, 0, ItemFilter())
        assert sorted(item for item, _ in page) == sorted([changed, *items[2:]])
    (page,) = base.search(vectors[:1], 10, 0, ItemFilter())
    assert len(page) == 4


def test_revisions_that_were_purged_are_answered_by_the_earliest_that_is_there(
    engine: VectorEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, vectors = make_items(3), random_rows(3)
    rows = [IndexedItem(item.id, item.labels, dict(item.metadata)) for item in items]
    gallery = engine.create(NewGallery(KEY, 1, iter([(rows, vectors)]), vectors, vectors, ()))
    of_another = engine.open(KEY)
    assert of_another is not None
    assert of_another.count(1, ItemFilter()) == 3
    of_another.write(GalleryWrite(2, 1, [item.id for item in items[:2]], rows[:1], vectors[:1], ()))
    assert [gallery.count(revision, ItemFilter()) for revision in (1, 2)] == [3, 2]
    assert gallery.purge(2) + gallery.purge(2) == (2 if isinstance(engine, PostgresEngine) else 0)
    # Who looked at it before finds everything that its revision, or the earliest that is there, holds.
    assert of_another.count(1, ItemFilter()) == (2 if isinstance(engine, PostgresEngine) else 3)
    monkeypatch.setattr("app.engines.milvus._LOOK_SECONDS", 0.0)
    assert sum(gallery.purge(2) for _ in range(3)) == (0 if isinstance(engine, PostgresEngine) else 2)
    assert of_another.count(1, ItemFilter()) == 2
    assert [gallery.count(revision, ItemFilter()) for revision in (1, 2)] == [2, 2]
    assert gallery.latest_revision() == 2
    assert engine.keys() == [KEY]
    engine.drop(KEY)
    assert engine.open(KEY) is None


def test_a_writer_that_loses_its_lock_writes_nothing_more(milvus_file: Path, milvus: MilvusEngine) -> None:
    n_checks = 0

    @contextlib.contextmanager
    def hold_until_lost(_: str) -> Iterator[Callable[[], None]]:
        """Have a lock that another process gets after a writer has written three parts."""

        def check() -> None:
            nonlocal n_checks
            n_checks += 1
            if n_checks == 4:
                gallery.write(GalleryWrite(3, 1, all_ids, rows[2:], vectors[2:], ()))
                raise DatabaseUnavailableError

        yield check

    for key in milvus.keys():  # noqa: SIM118
        milvus.drop(key)
    items, vectors = make_items(900), random_rows(900)
    rows = [IndexedItem(item.id, item.labels, dict(item.metadata)) for item in items]
    all_ids = [row.id for row in rows]
    gallery = milvus.create(NewGallery(KEY, 1, iter([(rows, vectors)]), vectors, vectors, ()))
    slow = MilvusEngine(str(milvus_file), "", hold_until_lost)
    slow_gallery = slow.open(KEY)
    assert slow_gallery is not None
    with pytest.raises(DatabaseUnavailableError):
        slow_gallery.write(GalleryWrite(2, 1, all_ids, rows, vectors, ()))
    assert gallery.latest_revision() == 3
    assert gallery.count(3, ItemFilter()) == 898
    slow.close()


def test_a_gallery_takes_the_place_of_another_unless_it_is_behind(engine: VectorEngine) -> None:
    items, vectors = make_items(3), random_rows(3)
    rows = [IndexedItem(item.id, item.labels, dict(item.metadata)) for item in items]
    beside = KEY._replace(modality="image (rebuilt)")
    old = engine.create(NewGallery(KEY, 1, iter([(rows, vectors)]), vectors, vectors, ()))
    new = engine.create(NewGallery(beside, 1, iter([(rows[:2], vectors[:2])]), vectors, vectors, ()))
    old.write(GalleryWrite(2, 1, [items[0].id], [], vectors[:0], ()))
    assert not engine.replace(KEY, beside)
    assert old.count(2, ItemFilter()) == 2
    new.write(GalleryWrite(3, 1, [items[0].id], [], vectors[:0], ()))
    assert engine.replace(KEY, beside)
    assert engine.keys() == [KEY]
    assert (old.count(3, ItemFilter()), old.latest_revision()) == (1, 3)
    engine.drop(KEY)
    engine.create(NewGallery(beside, 1, iter([(rows, vectors)]), vectors, vectors, ()))
    assert engine.replace(KEY, beside)  # where there is none to replace
    assert old.count(1, ItemFilter()) == 3
    with pytest.raises(VectorEngineUnavailableError, match="gone"):
        engine.replace(KEY, beside)
    engine.drop(beside)  # as the next rebuild begins, whatever the one before left
    assert old.count(1, ItemFilter()) == 3


def test_changes_since_a_revision_that_a_gallery_does_not_hold_are_refused(engine: VectorEngine) -> None:
    vectors = random_rows(3)
    gallery = engine.create(NewGallery(KEY, 4, iter([]), vectors[:0], vectors, ()))
    with pytest.raises(VectorEngineUnavailableError, match="is being made again"):
        gallery.write(GalleryWrite(7, 6, [], [IndexedItem("late", (), {})], vectors[:1], ()))
    assert (gallery.latest_revision(), list(gallery.item_ids(7))) == (4, [])
    assert gallery.write(GalleryWrite(7, 2, [], [IndexedItem("late", (), {})], vectors[:1], ())) == 7


def test_an_engine_that_cannot_be_used_says_why(engine: VectorEngine, postgres_url: str) -> None:
    without_extension = make_engine(postgres_url)
    with without_extension.connect() as connection:
        available = connection.exec_driver_sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
        if available.first() is not None:
            without_extension.dispose()
            pytest.skip("the server of LRBS_TEST_POSTGRES_URL has pgvector, too")
    with pytest.raises(VectorEngineUnavailableError, match="has no extension pgvector"):
        PostgresEngine(without_extension).open(KEY)
    without_extension.dispose()
    gallery = engine.create(NewGallery(KEY, 1, iter([]), random_rows(0), random_rows(1), ()))
    engine.drop(KEY)
    with pytest.raises(VectorEngineUnavailableError, match="its galleries are gone, and are made again"):
        gallery.count(1, ItemFilter())


def test_vectors_too_long_for_a_graph_are_compared(engine: VectorEngine) -> None:
    vectors = np.random.default_rng(0).normal(size=(4, LARGEST_RANK_OF_A_GRAPH + 1)).astype(np.float32)
    rows = [IndexedItem(f"{number}", (), {}) for number in range(4)]
    gallery = engine.create(NewGallery(KEY, 1, iter([(rows[:3], vectors[:3])]), vectors, vectors, ()))
    gallery.write(GalleryWrite(2, 1, ["3"], rows[3:], vectors[3:], ()))
    hits, is_exact = gallery.search(PageQuery(2, vectors[3], 2, 0, ItemFilter()))
    assert is_exact
    assert [item.id for item, _ in hits] == [str(row) for row in np.argsort(-vectors @ vectors[3])[:2]]


def test_an_index_finds_nearly_all_that_comparing_every_row_finds(engine: VectorEngine) -> None:
    n = 6000
    vectors, queries = random_rows(n), random_rows(10, 3)
    rows = [
        IndexedItem(f"{number:04d}", (f"half {number % 2}", f"tenth {number % 10}"), {})
        for number in range(n)
    ]
    gallery = engine.create(NewGallery(KEY, 1, iter([(rows, vectors)]), vectors, queries, ()))
    n_hits = {"all": 0, "half": 0, "tenth": 0}
    for query in queries:
        for name, step, labels in (("all", 1, None), ("half", 2, ("half 0",)), ("tenth", 10, ("tenth 0",))):
            hits, is_exact = gallery.search(PageQuery(1, query, 10, 0, ItemFilter.of(labels=labels)))
            assert not is_exact or name == "tenth"  # 600 rows are few
            best = step * np.argsort(-(vectors[::step] @ query), kind="stable")[:10]
            n_hits[name] += len(set(best.tolist()) & {int(item.id) for item, _ in hits})
    assert min(n_hits.values()) >= 0.99 * 10 * len(queries)


def test_the_index_of_a_gallery_is_asked_in_its_own_space_also_after_it_was_replaced(
    engine: VectorEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Galleries that are large otherwise take long to fill.
    monkeypatch.setattr("app.engines.common.ROWS_COMPARED", 100)
    vectors, queries = random_rows(1000), random_rows(10, 3)
    rows = [IndexedItem(f"{number:04d}", (), {}) for number in range(1000)]
    gallery = engine.create(NewGallery(KEY, 1, iter([(rows, vectors)]), vectors, queries, ()))
    assert not gallery.search(PageQuery(1, queries[0], 10, 0, ItemFilter()))[1]
    moved = (vectors * np.geomspace(30, 0.03, RANK) + 50).astype(np.float32)
    beside = KEY._replace(modality="image (rebuilt)")
    engine.create(NewGallery(beside, 1, iter([(rows[:900], moved[:900])]), moved, queries, ()))
    assert engine.replace(KEY, beside)
    gallery.write(GalleryWrite(2, 1, [row.id for row in rows[900:]], rows[900:], moved[900:], ()))
    n_found = 0
    for query in queries:
        hits, is_exact = gallery.search(PageQuery(2, query, 10, 0, ItemFilter()))
        assert not is_exact
        n_found += len(set(np.argsort(-(moved @ query))[:10]) & {int(item.id) for item, _ in hits})
    assert n_found >= 0.97 * 10 * len(queries)


def test_one_process_at_a_time_makes_the_galleries_of_a_version(
    engine: VectorEngine, request: pytest.FixtureRequest
) -> None:
    other = make_impatient_engine(engine, request)
    with (
        engine.claim(KEY),
        pytest.raises(VectorEngineUnavailableError, match="another process"),
        other.claim(KEY),
    ):
        raise AssertionError
    with engine.claim(KEY), other.claim(KEY._replace(bundle="another")):
        pass
    with other.claim(KEY):
        pass
    other.close()


def test_who_waits_in_vain_for_a_writer_learns_why(
    engine: VectorEngine, request: pytest.FixtureRequest
) -> None:
    items, vectors = make_items(4), random_rows(4)
    rows = [IndexedItem(item.id, item.labels, dict(item.metadata)) for item in items]
    other = make_impatient_engine(engine, request)

    def make_slowly() -> Iterator[tuple[list[IndexedItem], Any]]:
        yield rows[:2], vectors[:2]
        with pytest.raises(VectorEngineUnavailableError, match="another process is making or writing"):
            other.create(NewGallery(KEY, 1, iter([]), vectors[:0], vectors, ()))
        yield rows[2:], vectors[2:]

    engine.create(NewGallery(KEY, 1, make_slowly(), vectors, vectors, ()))
    opened = engine.open(KEY)
    assert opened is not None
    assert opened.count(1, ItemFilter()) == 4
    other.close()


def test_what_a_killed_process_left_of_a_gallery_is_removed_and_no_gallery_that_is_being_made(
    engine: VectorEngine,
) -> None:
    vectors = random_rows(4)
    rows = [IndexedItem(f"{number}", (), {}) for number in range(4)]

    def make_half() -> Iterator[tuple[list[IndexedItem], Any]]:
        yield rows[:2], vectors[:2]
        raise InterruptedError

    def make_meanwhile() -> Iterator[tuple[list[IndexedItem], Any]]:
        yield rows[:2], vectors[:2]
        assert engine.remove_unfinished() == n_left
        yield rows[2:], vectors[2:]

    n_left = 1 if isinstance(engine, MilvusEngine) else 0  # which has no transactions
    with pytest.raises(InterruptedError):
        engine.create(NewGallery(KEY, 1, make_half(), vectors, vectors, ()))
    if isinstance(engine, MilvusEngine):  # killed between the removals of a collection and of its maps
        engine._client.insert("lrbs_galleries", {"name": "maps_gallery_1", "text": [""], "nowhere": [0, 0]})
    kept = engine.create(NewGallery(KEY._replace(modality="text"), 1, make_meanwhile(), vectors, vectors, ()))
    assert engine.remove_unfinished() == 0
    assert engine.keys() == [KEY._replace(modality="text")]
    assert kept.count(1, ItemFilter()) == 4
    if isinstance(engine, MilvusEngine):
        names = {row["name"] for row in engine._client.query("lrbs_galleries", 'name != ""', ["name"])}
        (collection,) = set(engine._client.list_collections()) - {"lrbs_galleries"}
        assert names == {collection.rpartition("_")[0], f"maps_{collection}"}


def test_callers_do_not_queue_for_a_server_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engines.milvus.SECONDS", 3.0)
    monkeypatch.setattr("app.engines.milvus._PATIENCE_SECONDS", 0.1)
    errors: list[Exception] = []

    def open_gallery() -> None:
        try:
            silent_engine.open(KEY)
        except VectorEngineUnavailableError as error:
            errors.append(error)

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        silent_engine = MilvusEngine(url, "", partial(lock_file, tmp_path, 30.0))
        callers = [threading.Thread(target=open_gallery) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(5.0)
    assert len(errors) == 4
    assert {str(error).rpartition(": ")[2] for error in errors} == {
        "the Milvus server does not answer (LRBS_MILVUS_URI)"
    }


def test_a_lock_of_a_file_that_was_just_removed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, held = fcntl.flock, tmp_path / "gallery.lock"

    def lock_late(file: IO[str], how: int) -> None:
        monkeypatch.undo()
        held.unlink()  # by the one who held it, after which another one came
        other.enter_context(lock_file(tmp_path, 0.0, "gallery"))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with contextlib.ExitStack() as other:
        with (
            pytest.raises(VectorEngineUnavailableError, match="another process"),
            lock_file(tmp_path, 0.0, "gallery"),
        ):
            pass
        assert held.exists(), "it is the other one's"


def test_a_lock_of_a_file_is_held_by_one_and_leaves_no_file(tmp_path: Path) -> None:
    inside: list[int] = []

    def take_turns(number: int) -> None:
        for _ in range(30):
            with lock_file(tmp_path, 30.0, "gallery"):
                inside.append(number)
                assert inside == [number]
                inside.remove(number)

    threads = [threading.Thread(target=take_turns, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == []
    with lock_file(tmp_path, 0.0, "gallery"), lock_file(tmp_path, 0.0, "another"):
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []
