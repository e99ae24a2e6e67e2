"""Merging of segments in the background, beside the searches that visit them one by one meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from app.services.storage.pacing import Pacer

THREAD_NAME = "merge-galleries"
_logger = logging.getLogger(__name__)


class GalleryMerger:
    """Merges in a thread, one collection after the other; `merge` makes those that are due, with pauses."""

    def __init__(self, merge: Callable[[int, Callable[[], None]], None]) -> None:
        self._merge = merge
        self._lock = threading.Lock()
        self._waiting: dict[int, None] = {}  # collections by identity, in the order of the requests
        self._is_running = False

    def request(self, collection_id: int) -> None:
        """Merge what is due in a collection, soon; waits for nothing."""
        with self._lock:
            self._waiting[collection_id] = None
            if self._is_running:
                return
            try:
                threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()
            except RuntimeError as error:  # the system has no thread left: the next write tries again
                _logger.warning("segments are not merged: %s", error)
                return
            self._is_running = True

    def _run(self) -> None:
        while (collection_id := self._take()) is not None:
            try:
                self._merge(collection_id, Pacer(lambda: False))
            except Exception:
                _logger.exception("segments could not be merged")

    def _take(self) -> int | None:
        """Return the next collection; None when there is none, after which the thread ends."""
        with self._lock:
            collection_id = next(iter(self._waiting), None)
            if collection_id is None:
                self._is_running = False
            else:
                del self._waiting[collection_id]
            return collection_id
