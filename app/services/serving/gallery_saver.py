"""Saving of galleries in the background, when a start would otherwise have much to read."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace as replace_fields

from app.domain.errors import ServiceError
from app.services.serving.galleries import SegmentGallery
from app.services.serving.saved_galleries import SavedGalleries
from app.services.serving.snapshot import Snapshot
from app.services.storage.pacing import Pacer

_MIN_UNSAVED_FRACTION = 0.1
"""Below this fraction of unsaved items a start is hardly shortened, while saving writes all items again."""
_logger = logging.getLogger(__name__)


class GallerySaver:
    """Saves galleries in a thread, one collection at a time; never those with few unsaved items."""

    def __init__(self, saved_galleries: SavedGalleries, min_unsaved_items: int) -> None:
        self._saved_galleries = saved_galleries
        self._min_unsaved_items = min_unsaved_items
        self._lock = threading.Lock()  # held while galleries are saved

    def save_if_worthwhile(self, snapshot: Snapshot) -> Snapshot:
        """Start saving a snapshot's galleries if a start would read many items; return the snapshot to hold.
        Not those of a stand-in: other processes, and the next start, look for those of the active version."""
        if snapshot.load_failure is None and self._is_worthwhile(snapshot) and self._start(snapshot):
            return replace_fields(snapshot, n_unsaved=0)
        return snapshot

    def _is_worthwhile(self, snapshot: Snapshot) -> bool:
        if any(not isinstance(gallery, SegmentGallery) for gallery in snapshot.galleries.values()):
            return False  # an engine keeps them
        return snapshot.n_unsaved >= max(self._min_unsaved_items, _MIN_UNSAVED_FRACTION * snapshot.size)

    def _start(self, snapshot: Snapshot) -> bool:
        """Start a thread, unless galleries are being saved; return whether it was started."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            threading.Thread(target=self._save, args=(snapshot,), name="save-galleries").start()
        except RuntimeError as error:  # the system has no thread left
            self._lock.release()
            _logger.warning("%s: could not save galleries: %s", snapshot.collection.name, error)
            return False
        return True

    def _save(self, snapshot: Snapshot) -> None:
        try:
            self._saved_galleries.save(
                snapshot.collection, snapshot.model_bundle, snapshot.galleries, Pacer(lambda: False)
            )
        except (OSError, ServiceError) as error:
            _logger.warning("%s: could not save galleries: %s", snapshot.collection.name, error)
        finally:
            self._lock.release()
