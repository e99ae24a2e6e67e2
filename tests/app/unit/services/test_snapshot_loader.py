"""Which versions stand in for a damaged one, and garbage collections while items are loaded."""

import gc
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from app.answers import Activation
from app.services.serving.snapshot_loader import stand_ins, suspended_garbage_collection

NOW = datetime(2024, 1, 1, tzinfo=UTC)


class Node:
    """What may be part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


def test_collections_go_on_after_the_last_thread_that_suspends_them() -> None:
    inside, leave = threading.Event(), threading.Event()

    def suspend() -> None:
        with suspended_garbage_collection():
            inside.set()
            leave.wait(30)

    other = threading.Thread(target=suspend)
    assert gc.isenabled()
    with suspended_garbage_collection():
        other.start()
        assert inside.wait(30)
        assert not gc.isenabled()
    assert not gc.isenabled(), "the other one goes on"
    leave.set()
    other.join()
    assert gc.isenabled()


def test_no_cycle_is_visited_while_they_are_suspended() -> None:
    before = [stats["collections"] for stats in gc.get_stats()]
    with suspended_garbage_collection():
        for _ in range(20_000):
            Node()
        assert [stats["collections"] for stats in gc.get_stats()] == before


def test_what_was_off_before_stays_off() -> None:
    gc.disable()
    try:
        with suspended_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def versions(*numbers: int) -> list[Any]:
    return [SimpleNamespace(version=number) for number in numbers]


def history(*numbers: int) -> list[Activation]:
    return [Activation(number, None, NOW, "test", None) for number in numbers]


def test_the_versions_that_served_last_stand_in_first() -> None:
    existing = versions(1, 2, 3, 4, 5)
    found = stand_ins(existing[4], existing, history(5, 2, 5, 4, 2, 1, 5))
    assert [version.version for version in found] == [2, 4, 1], "3 never served"


def test_a_version_that_is_gone_does_not_stand_in() -> None:
    existing = versions(3, 1)
    assert [found.version for found in stand_ins(existing[0], existing, history(3, 2, 1))] == [1]
    assert list(stand_ins(existing[0], existing, history(3))) == []
