"""What a process holds in memory has a bound, and what had to go comes back when it is asked for."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.bootstrap import build
from app.services.serving.snapshot_cache import estimate_bytes
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
    (size,) = (estimate_bytes(one) for one in three.services.snapshots.peek_all().values())
    made = bounded(three, int(2.5 * size))
    yield made
    close(made.services)


def names(of: Pairs) -> set[str]:
    return {one.collection.name for one in of.services.snapshots.peek_all().values()}


def test_those_not_searched_for_longest_make_room(two_fit: Pairs) -> None:
    for name, expected in (("a", "a"), ("b", "ab"), ("a", "ab"), ("c", "ac"), ("b", "bc"), ("b", "bc")):
        two_fit.search(name)
        assert names(two_fit) == set(expected)


def test_what_had_to_go_answers_as_before_with_what_was_written_since(two_fit: Pairs) -> None:
    before = two_fit.search("a").hits
    for name in "bc":
        two_fit.search(name)
    assert "a" not in names(two_fit)
    two_fit.services.catalogue.add_items("a", [two_fit.item("x", "new", two_fit.data.X[0])])
    two_fit.services.catalogue.delete_item("a", "x05")
    found = {hit.id: hit.score for hit in two_fit.search("a").hits}
    expected = {hit.id: hit.score for hit in before if hit.id != "x05"}
    assert found.keys() - expected.keys() == {"new"}
    assert {item_id: found[item_id] for item_id in expected} == pytest.approx(expected, rel=1e-5)


def test_a_process_is_ready_although_not_all_fit(two_fit: Pairs) -> None:
    readiness = two_fit.services.readiness
    assert load(two_fit.services).is_ready
    held = names(two_fit)
    assert len(held) == 2
    for _ in range(3):
        found = readiness.check()
        assert (found.is_ready, found.reason) == (True, None)
    assert names(two_fit) == held, "looking loads nothing that had to go"
    _, statuses = two_fit.services.status.collections(10)
    assert {one.name for one in statuses if one.served_version is not None} == held


def test_one_collection_is_held_however_large_it_is(three: Any) -> None:
    tiny = bounded(three, 1)
    for name in (*NAMES, *NAMES):
        assert len(tiny.ids(name)) == 60
        assert names(tiny) == {name}
    close(tiny.services)
