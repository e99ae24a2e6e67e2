import gc
import threading

from app.services.serving.snapshot_loader import suspended_garbage_collection


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
