"""Replays and loads in the background: which searches are answered meanwhile, from what, and which wait."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from app.bootstrap import build
from app.domain.entities import Content, Modality
from app.domain.errors import ContentTooLargeError, ServiceError, UnavailableError
from app.domain.filters import ItemFilter
from app.domain.names import Scope
from app.main import create_app
from app.services.catalogue.preparation import NewItem
from app.services.serving import segments
from app.services.serving.reloads import MAX_WAITING_PER_COLLECTION
from app.services.serving.search import Query
from app.services.storage import pacing
from app.settings import Settings
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.e2e.refusals import client_of
from tests.app.integration.conftest import EITHER, FINE, Pairs, copy_services, keep_trained
from tests.app.integration.loading import pace
from tests.app.integration.searching import find
from tests.app.waiting import wait_for

SECONDS = 60.0
STRANGER = frozenset({"a key that writes nothing"})


IN_MEMORY = pytest.mark.parametrize("kept_two", ["sqlite"], indirect=True)
"""For who waits for what in memory, whichever database it comes from."""


class Gate:
    """Stands between the steps of background work, which goes on when it is opened."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.reached = threading.Event()

    def pause(self) -> None:
        self.reached.set()
        assert self.is_open.wait(SECONDS)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Make collections of more than 100 items, and more than five changes, work for the background."""
    barrier = Gate()
    monkeypatch.setattr("app.services.serving.snapshot._MAX_INLINE_CHANGES", 5)
    monkeypatch.setattr("app.services.serving.snapshot._LARGE_COLLECTION_ITEMS", 100)
    pace(monkeypatch, loading=barrier.pause)
    barrier.is_open.set()
    yield barrier
    barrier.is_open.set()


@pytest.fixture(scope="module", params=EITHER)
def kept_two(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, vectors: SyntheticPairs
) -> Iterator[Settings]:
    """Settings of what `two` is a copy of."""
    with keep_trained(request, tmp_path_factory.mktemp("two"), vectors, request.param) as settings:
        pairs = Pairs(build(settings), vectors)
        pairs.make("b")
        for side, rows in (("x", vectors.X), ("z", vectors.Z)):
            labels = vectors.x_labels if side == "x" else vectors.z_labels
            items = [pairs.item(side, f"{side}{n}", rows[n], f"class {labels[n]}") for n in range(30)]
            pairs.services.catalogue.add_items("b", items)
        pairs.train("b")
        close(pairs.services)
        yield settings


@pytest.fixture
def two(
    kept_two: Settings, tmp_path: Path, vectors: SyntheticPairs, gate: Gate
) -> Iterator[tuple[Pairs, Pairs]]:
    """A process that writes and another one, both of which serve "a" and the small "b"."""
    with copy_services(kept_two, tmp_path, open_search=False, sweep_grace_seconds=0.0) as services:
        both = Pairs(services, vectors), Pairs(build(services.settings), vectors, STRANGER)
        for pairs in both:
            for name in ("a", "b"):
                pairs.search(name)
        yield both
        gate.is_open.set()
        close(both[1].services)


def shut(gate: Gate) -> None:
    gate.is_open.clear()
    gate.reached.clear()


def write_much(pairs: Pairs, label: str, count: int = 12) -> int:
    items = [
        pairs.item("x", f"x{n:02d}", pairs.data.X[(n + 7) % 60], label, metadata={"of": label})
        for n in range(count)
    ]
    return pairs.services.catalogue.add_items("a", items, replace=True).revision


def test_the_state_before_serves_while_another_process_replays_much(
    two: tuple[Pairs, Pairs], gate: Gate
) -> None:
    writer, other = two
    before = other.search("a")
    shut(gate)
    revision = write_much(writer, "late")
    writer.services.catalogue.delete_item("a", "x20")
    result = other.search("a")
    assert result.index_revision == before.index_revision < revision
    # Scores, labels and metadata of one state, also of what was changed or deleted since.
    assert [(h.id, h.score, h.item.labels, h.item.metadata) for h in result.hits] == [
        (h.id, h.score, h.item.labels, h.item.metadata) for h in before.hits
    ]
    assert gate.reached.wait(SECONDS)
    assert other.search("b").hits, "no search waits for another collection"
    assert other.services.health.check().is_ready
    _, (status, _) = other.services.health.collections(10)
    assert status.revision_lag == 2
    assert not gate.is_open.is_set(), "all this while the replay stands still"
    gate.is_open.set()
    wait_for(lambda: other.search("a").index_revision == revision + 1)
    result = other.search("a")
    assert "x20" not in {hit.id for hit in result.hits}
    assert {hit.id for hit in result.hits if "late" in hit.item.labels} == {f"x{n:02d}" for n in range(12)}
    np.testing.assert_allclose(
        [hit.score for hit in result.hits], [hit.score for hit in writer.search("a").hits], rtol=1e-5
    )


def test_texts_of_hits_that_were_changed_since_are_not_shown(either: Any, gate: Gate) -> None:
    """They would be of another state than the scores."""
    writer = either
    writer.services.catalogue.create(
        "a", [Modality("x", {"type": "vector"}), Modality("t", {"type": "tfidf"})]
    )
    words = ("boat sea sail", "tree leaf forest", "tower street city")
    items = [writer.item("x", f"x{n:02d}", writer.data.X[n], f"c{n % 3}") for n in range(54)]
    items += [
        NewItem("t", Content(text=f"{words[n % 3]} {n}"), f"t{n:02d}", (f"c{n % 3}",)) for n in range(54)
    ]
    writer.services.catalogue.add_items("a", items)
    writer.train("a", FINE)
    other = Pairs(build(writer.services.settings), writer.data)

    def texts(of: Pairs) -> dict[str, str | None]:
        query = [Query(Content(vector=writer.data.X[0].tolist()))]
        (result,) = find(of.services, "a", "x", "t", query, 100, 0, ItemFilter(), readers=STRANGER)
        return {hit.id: hit.item.text for hit in result.hits}

    before = texts(other)
    shut(gate)
    changed = [NewItem("t", Content(text=f"changed {n}"), f"t{n:02d}", ("c0",)) for n in range(10)]
    writer.services.catalogue.add_items("a", changed, replace=True)
    shown = texts(other)
    assert {item_id for item_id, text in shown.items() if text is None} == {f"t{n:02d}" for n in range(10)}
    assert {item_id: text for item_id, text in shown.items() if text} == {
        item_id: text for item_id, text in before.items() if shown[item_id]
    }
    gate.is_open.set()
    wait_for(lambda: texts(other)["t00"] == "changed 0")
    close(other.services)


@IN_MEMORY
def test_a_writer_of_much_waits_for_its_replay_and_few_requests_do(
    two: tuple[Pairs, Pairs], gate: Gate
) -> None:
    writer, _ = two
    shut(gate)
    revision = write_much(writer, "own")
    released = threading.Semaphore(0)
    outcomes: list[int | str] = []

    @contextlib.contextmanager
    def release_slot() -> Iterator[None]:
        released.release()
        yield

    def search() -> None:
        query = [Query(Content(vector=writer.data.Z[0].tolist()))]
        try:
            (result,) = find(
                writer.services, "a", "z", "x", query, 5, 0, ItemFilter(), release_slot=release_slot
            )
            outcomes.append(result.index_revision)
        except UnavailableError as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=search) for _ in range(MAX_WAITING_PER_COLLECTION + 3)]
    for thread in threads:
        thread.start()
    for _ in range(MAX_WAITING_PER_COLLECTION):
        assert released.acquire(timeout=SECONDS)
    wait_for(lambda: len(outcomes) == 3)
    assert all("'a' is being brought up to date" in str(outcome) for outcome in outcomes), (
        "rejected immediately"
    )
    query = [Query(Content(vector=writer.data.Z[0].tolist()))]
    (small,) = find(writer.services, "b", "z", "x", query, 5, 0, ItemFilter(), release_slot=release_slot)
    assert small.hits
    assert writer.services.health.check().is_ready
    gate.is_open.set()
    for thread in threads:
        thread.join(SECONDS)
    assert outcomes[3:] == [revision] * MAX_WAITING_PER_COLLECTION


@pytest.fixture
def event_loop() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@IN_MEMORY
@pytest.mark.parametrize("is_open", [False, True], ids=["keys are known", "search is open"])
def test_only_the_writer_waits_for_it_where_keys_are_known(
    two: tuple[Pairs, Pairs], gate: Gate, event_loop: BlockingPortal, is_open: bool
) -> None:
    writer, _ = two
    before = writer.search("a").index_revision
    application = create_app(writer.services)
    application.state.api = replace(application.state.api, open_search=is_open)
    keys = [writer.services.access.create(Scope.ADMIN)[1] for _ in range(2)]
    own, other = (client_of(application, {"Authorization": f"Bearer {key}"}, event_loop) for key in keys)
    query = {"item_id": "z00", "k": 5}

    def revision_for(client: httpx.Client) -> int:
        answer = client.post("/v1/collections/a/search/z-to-x", json=query).raise_for_status()
        return int(answer.json()["index_revision"])

    shut(gate)
    items = [{"id": f"n{n}", "modality": "x", "vector": writer.data.X[n].tolist()} for n in range(12)]
    written = own.post("/v1/collections/a/items", json={"items": items}).raise_for_status().json()
    revisions: list[int] = []
    thread = threading.Thread(target=lambda: revisions.append(revision_for(own)))
    thread.start()
    assert gate.reached.wait(SECONDS)
    if not is_open:
        assert revision_for(other) == before
    assert not revisions, "the writer waits for it"
    gate.is_open.set()
    thread.join(SECONDS)
    assert revisions == [written["revision"]]
    assert revision_for(other) == written["revision"]


def test_another_version_is_loaded_without_haste_until_a_request_waits(
    trained_either: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    either = trained_either
    urgency: list[Callable[[], bool]] = []
    reached, is_open = threading.Event(), threading.Event()

    def make(is_urgent: Callable[[], bool], *_: Callable[[], bool]) -> Callable[[], None]:
        urgency.append(is_urgent)

        def pause() -> None:
            reached.set()
            assert is_open.wait(SECONDS)

        return pause

    monkeypatch.setattr("app.services.serving.snapshot._MAX_INLINE_CHANGES", 5)
    monkeypatch.setattr("app.services.serving.snapshot._LARGE_COLLECTION_ITEMS", 100)
    monkeypatch.setattr("app.services.serving.snapshots.Pacer", make)
    is_open.set()
    either.search("a")
    assert urgency[-1](), "a start waits for the first load"
    write_much(either, "late")
    either.search("a")
    assert urgency[-1](), "a writer waits for the replay"
    version = either.train("a")
    is_open.clear()
    reached.clear()
    either.services.versions.activate("a", version, "test")
    assert either.search("a").model_version < version
    assert reached.wait(SECONDS)
    assert not urgency[-1]()
    assert either.search("a").model_version < version
    recalled, mark = either.services.snapshots.recall("a"), either.services.database.change_mark()
    assert (recalled is None) == (mark is None), "it is known to hold every write"
    assert recalled is None or recalled.model.version < version
    write_much(either, "later")
    assert either.services.snapshots.recall("a") is None
    thread = threading.Thread(target=lambda: search_as_request(either))
    thread.start()
    wait_for(urgency[-1])
    is_open.set()
    thread.join(SECONDS)
    wait_for(lambda: either.search("a").model_version == version)


def test_an_import_pauses_while_searches_are_answered(
    trained_pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = trained_pairs.client()

    def count_pauses(prefix: str) -> int:
        threads: list[str] = []
        lines = [
            json.dumps(
                {"id": f"{prefix}{n}", "modality": "x", "vector": trained_pairs.data.X[n % 60].tolist()}
            )
            for n in range(1200)
        ]
        clock = SimpleNamespace(
            thread_time=time.thread_time,
            monotonic=time.monotonic,
            sleep=lambda _: threads.append(threading.current_thread().name),
        )
        with monkeypatch.context() as patch:
            patch.setattr(pacing, "time", clock)
            answer = client.post("/v1/collections/a/items:import", content="\n".join(lines).encode())
        assert answer.json()["created"] == 1200
        return sum("worker" in name for name in threads)  # not those of what is saved and merged

    monkeypatch.setattr("app.services.serving.snapshots._SEARCHED_SECONDS", -1.0)
    trained_pairs.search("a")
    assert count_pauses("alone") == 0
    monkeypatch.setattr("app.services.serving.snapshots._SEARCHED_SECONDS", SECONDS)
    trained_pairs.search("a")
    # Of reading the lines, preparing them, and writing them in parts.
    assert count_pauses("beside") >= 1200 // 50 + 2 + 2


def search_as_request(pairs: Pairs) -> None:
    query = [Query(Content(vector=pairs.data.Z[0].tolist()))]
    find(pairs.services, "a", "z", "x", query, 5, 0, ItemFilter(), release_slot=contextlib.nullcontext)


def test_what_an_older_state_shows_counts_towards_the_size_of_an_answer(
    trained_pairs: Any, gate: Gate
) -> None:
    pairs = trained_pairs
    large = [
        pairs.item("x", f"x{n:02d}", pairs.data.X[n], "large", metadata={"of": "x" * 19_000})
        for n in range(60)
    ]
    pairs.services.catalogue.add_items("a", large, replace=True)
    other = Pairs(
        build(pairs.services.settings.model_copy(update={"max_answer_bytes": 1 << 20})),
        pairs.data,
        STRANGER,
    )
    with pytest.raises(ContentTooLargeError):
        other.search("a", k=60)
    shut(gate)
    write_much(pairs, "small", 60)
    with pytest.raises(ContentTooLargeError, match="more than 1048576 bytes"):
        other.search("a", k=60)
    gate.is_open.set()
    wait_for(lambda: other.services.snapshots.peek_all() and len(ids_or_nothing(other)) == 60)
    close(other.services)


def ids_or_nothing(pairs: Pairs) -> list[str]:
    try:
        return pairs.ids("a")
    except ContentTooLargeError:
        return []


def test_a_few_own_changes_are_found_while_a_new_version_is_loaded(
    two: tuple[Pairs, Pairs], gate: Gate
) -> None:
    writer, _ = two
    version = writer.train("a")
    writer.services.versions.activate("a", version, "test")
    shut(gate)
    assert writer.search("a").model_version == 1, "it serves until the other one is loaded"
    assert gate.reached.wait(SECONDS)
    writer.services.catalogue.add_items("a", [writer.item("x", "new", writer.data.X[0])])
    writer.services.catalogue.delete_item("a", "x05")
    result = writer.search("a")
    assert result.model_version == 1
    assert "new" in {hit.id for hit in result.hits}
    assert "x05" not in {hit.id for hit in result.hits}
    gate.is_open.set()
    wait_for(lambda: writer.search("a").model_version == version)
    assert {"new"} <= set(writer.ids("a"))
    assert "x05" not in writer.ids("a")


@IN_MEMORY
def test_a_start_is_not_ready_until_each_first_load_has_ended(two: tuple[Pairs, Pairs], gate: Gate) -> None:
    writer, _ = two
    shut(gate)
    late = Pairs(build(writer.services.settings), writer.data)
    state = late.services.health.check()
    assert not state.is_ready
    assert "a: loading" in (state.reason or "")
    assert gate.reached.wait(SECONDS)
    gate.is_open.set()
    wait_for(lambda: late.services.health.check().is_ready)
    assert late.services.health.check().reason is None
    assert set(late.services.snapshots.peek_all()) == set(writer.services.snapshots.peek_all())
    # What is trained for the first time now is loaded without taking the service away.
    writer.fill("c")
    writer.train("c")
    shut(gate)
    state = late.services.health.check()
    assert state.is_ready
    assert state.reason == "c: loading"
    gate.is_open.set()
    wait_for(lambda: late.services.health.check().reason is None)
    close(late.services)


def test_what_is_not_searched_is_reloaded_in_the_background(two: tuple[Pairs, Pairs]) -> None:
    writer, other = two
    revision = write_much(writer, "late")
    a, b = (other.services.catalogue.collection(name)[0].id for name in ("a", "b"))
    other.services.snapshots.reload_stale(2.0)
    wait_for(lambda: other.services.snapshots.peek_all()[a].collection.revision == revision)
    version = writer.train("b")
    other.services.snapshots.reload_stale(2.0)
    wait_for(lambda: other.services.snapshots.peek_all()[b].model.version == version)


def test_searches_are_right_while_much_and_little_is_written(two: tuple[Pairs, Pairs]) -> None:
    """Each answer is of one state, none older than what the process itself has written."""
    writer, other = two
    closing = threading.Event()
    wrong: list[Any] = []

    def search(of: Pairs, is_own: bool) -> None:
        last = 0
        while not closing.is_set():
            expected = acknowledged[0] if is_own else 0
            try:
                result = of.search("a")
            except ServiceError as error:
                wrong.append(error)
                return
            labels = {hit.item.labels for hit in result.hits if hit.id < "x12"}
            if result.index_revision < max(last, expected) or len(labels) != 1 or len(result.hits) != 60:
                wrong.append((result.index_revision, last, expected, labels))
            last = result.index_revision

    acknowledged = [write_much(writer, "round 0")]
    wait_for(lambda: other.search("a").index_revision == acknowledged[0])
    threads = [
        threading.Thread(target=search, args=arguments) for arguments in ((writer, True), (other, False))
    ]
    for thread in threads:
        thread.start()
    for number in range(1, 16):
        acknowledged[0] = write_much(writer, f"round {number}")
        item = writer.item("x", "x30", writer.data.X[number])
        acknowledged[0] = writer.services.catalogue.add_items("a", [item], replace=True).revision
    wait_for(lambda: other.search("a").index_revision == acknowledged[0])
    closing.set()
    for thread in threads:
        thread.join(SECONDS)
    assert wrong == []


@IN_MEMORY
def test_a_search_leaves_a_large_merge_to_the_background(
    two: tuple[Pairs, Pairs], monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs, _ = two
    monkeypatch.setattr(segments, "_ROWS_OF_A_WRITE", 3)
    merge_gate = Gate()
    pace(monkeypatch, merging=merge_gate.pause)
    snapshots, data = pairs.services.snapshots, pairs.data

    def gallery() -> Any:
        collection = next(c for c in snapshots.list_collections(SECONDS) if c.name == "b")
        return snapshots.peek_all()[collection.id].galleries["x"]

    for number in range(12):
        item = pairs.item("x", f"x{number}", data.X[number] + 0.1, "class 0")
        pairs.services.catalogue.add_items("b", [item], replace=True)
        pairs.search("b")
    before = gallery()
    assert before.due_merge()
    merge_gate.is_open.set()
    wait_for(lambda: not gallery().due_merge())
    after = gallery()
    assert len(after.segments) < len(before.segments)
    query = np.ones((1, before.segments[0].segment.index.vectors.shape[1]), np.float32)
    expected = before.search(query, 30, 0, ItemFilter())
    assert after.search(query, 30, 0, ItemFilter()) == expected
