"""Snapshots in memory are bounded; an evicted one is loaded again when it is searched."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.bootstrap import build
from tests.app.closing import close
from tests.app.integration.conftest import Pairs
from tests.app.integration.loading import load

NAMES = ("a", "b", "c")


@pytest.fixture
def three(pairs: Any) -> Any:
    for name in NAMES:
        pairs.fill(name)
        pairs.train(name)
    return pairs


def bounded(of: Pairs, max_bytes: int) -> Pairs:
    settings = of.services.settings.model_copy(update={"max_snapshot_bytes": max_bytes})
    return Pairs(build(settings), of.data)


@pytest.fixture
def two_fit(three: Any) -> Iterator[Pairs]:
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


def test_one_collection_stays_however_large_it_is(three: Any) -> None:
    tiny = bounded(three, 1)
    for name in (*NAMES, *NAMES):
        assert len(tiny.ids(name)) == 60
        assert names(tiny) == {name}
    close(tiny.services)
