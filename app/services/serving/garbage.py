"""Garbage collection beside large galleries."""
# A full collection visits every object that may be part of a cycle, and stops all threads meanwhile. The
# items of a gallery are such objects, by the million, and in no cycle.

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_n_suspending = 0
_was_enabled = True  # before the first that suspends them


@contextmanager
def suspended_garbage_collection() -> Iterator[None]:
    """Suspend automatic collections while items are made (a quarter more of them cause a full collection).
    Several threads may suspend them at a time; they go on after the last one."""
    global _n_suspending, _was_enabled
    with _lock:
        if not _n_suspending:
            _was_enabled = gc.isenabled()
        _n_suspending += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _n_suspending -= 1
            if not _n_suspending and _was_enabled:
                gc.enable()


def freeze_garbage_collection() -> None:
    """Exempt everything in memory from later collections.
    Existing garbage is collected first: frozen, it would stay for good."""
    gc.collect()
    gc.freeze()
