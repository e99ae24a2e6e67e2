"""Columns that filters need, read in the background (1 s per million items) while their searches wait."""
# A search that read one itself would hold a thread and a database connection, and with several of them all
# others would be turned away.

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from app.domain.entities import Collection
from app.services.serving.gallery import Gallery
from app.services.serving.item_columns import ROWS_READ_BY_A_SEARCH, ColumnNames
from app.services.serving.reload_scheduler import Reload, ReloadScheduler
from app.services.serving.segments import Segment
from app.services.serving.waiting_room import ReleaseSlot, WaitingRoom
from app.services.storage.pacing import Pacer

Needs = Iterable[tuple[Gallery, ColumnNames]]
"""Galleries, and the columns of each that a search compares."""


class ColumnReader:
    """Reads columns, of several collections in turns, and leaves the interpreter to searches."""

    def __init__(self, waiting_room: WaitingRoom, is_searched: Callable[[], bool]) -> None:
        self._is_searched = is_searched
        self._scheduler = ReloadScheduler(self._read, waiting_room, "is being made ready for this filter")
        self._lock = threading.Lock()
        self._wanted: dict[int, dict[Segment, ColumnNames]] = {}  # by collection

    @staticmethod
    def is_ready(needs: Needs) -> bool:
        """Return whether a search may go on, and read itself what is missing."""
        return sum(gallery.rows_to_read(names) for gallery, names in needs) <= ROWS_READ_BY_A_SEARCH

    def wait(self, collection: Collection, needs: Needs, release_slot: ReleaseSlot | None) -> None:
        """Have columns read, and wait for them; `release_slot` as of `ReloadScheduler.wait`.
        Raises UnavailableError if too many wait already, or this one waited too long; the reading goes on."""
        with self._lock:
            columns = self._wanted.setdefault(collection.id, {})
            for gallery, names in needs:
                for segment in gallery.unread_segments(names):
                    columns[segment] = columns.get(segment, ColumnNames()) | names
        reload = self._scheduler.request(collection.id, collection.name, is_long=True)
        self._scheduler.wait(reload, release_slot)

    def _read(self, reload: Reload, end_step: Callable[[], None]) -> None:
        pace = Pacer(lambda: True, lambda: not self._is_searched())

        def pause() -> None:
            pace()
            end_step()

        while columns := self._take(reload.collection_id):
            for segment, names in columns.items():
                segment.columns.read(names, pause)

    def _take(self, collection_id: int) -> dict[Segment, ColumnNames]:
        with self._lock:
            return self._wanted.pop(collection_id, {})
