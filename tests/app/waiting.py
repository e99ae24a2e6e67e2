"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable
from typing import TypeVar

_PAUSE_SECONDS = 0.02
_Found = TypeVar("_Found")


def wait_for(condition: Callable[[], _Found], seconds: float = 180.0) -> _Found:
    """Return what `condition` returns once it holds; fails if that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(_PAUSE_SECONDS)
    return found
