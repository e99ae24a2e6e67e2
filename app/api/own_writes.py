"""Read your own writes: a caller's search includes its last write, while others may get an older revision."""

from __future__ import annotations

import threading

from app.api.newest import set_newest

_MAX_KNOWN = 10_000
"""Pairs of caller and collection that are remembered; bounds the memory."""


class OwnWrites:
    """Last revision that this process acknowledged to each caller, by collection; the oldest are dropped."""

    def __init__(self) -> None:
        self._revisions: dict[tuple[str, str], int] = {}
        self._guard = threading.Lock()

    def note(self, caller: str, collection: str, revision: int) -> None:
        """Record a write."""
        with self._guard:
            # Of two simultaneous writes the earlier one may be recorded last.
            previous = self._revisions.get((caller, collection), 0)
            set_newest(self._revisions, (caller, collection), max(previous, revision), _MAX_KNOWN)

    def revision(self, caller: str, collection: str) -> int:
        """Return the revision that the caller's next search has to include; 0 if it wrote nothing."""
        return self._revisions.get((caller, collection), 0)
