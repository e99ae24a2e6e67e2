"""What callers wrote: their own searches find it, also while others are served from before."""

from __future__ import annotations

import threading

_MOST_KNOWN = 10_000


class OwnWrites:
    """Revisions that a process acknowledged, by caller and collection; the oldest are forgotten."""

    def __init__(self) -> None:
        self._revisions: dict[tuple[str, str], int] = {}
        self._guard = threading.Lock()

    def note(self, caller: str, collection: str, revision: int) -> None:
        """Be told of a write."""
        with self._guard:
            # Of two writes at once the earlier one may be the later to tell.
            known = self._revisions.pop((caller, collection), 0)
            self._revisions[caller, collection] = max(known, revision)
            if len(self._revisions) > _MOST_KNOWN:
                del self._revisions[next(iter(self._revisions))]

    def revision(self, caller: str, collection: str) -> int:
        """Return the revision that the caller's next search has to know; 0 when it wrote nothing."""
        return self._revisions.get((caller, collection), 0)
