"""Deletion of collections: hidden immediately, their rows removed in bounded steps."""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.db.session import Database
from app.domain.errors import ServiceError
from app.services.storage.garbage_collector import GarbageCollector
from app.services.storage.rounds import BYTES_PER_STEP, ROWS_PER_STEP, Round

_LONGEST_SECONDS = 1.0  # of a request; a worker removes the rest
_logger = logging.getLogger(__name__)


class Removal:
    """Deletes collections and removes their rows and files; `on_deleted` gets the id of each."""

    def __init__(
        self, database: Database, garbage_collector: GarbageCollector, on_deleted: Callable[[int], None]
    ) -> None:
        self._database = database
        self._garbage_collector = garbage_collector
        self._on_deleted = on_deleted

    def delete(self, name: str) -> None:
        """Delete a collection, hidden at once, its name free; raises CollectionNotFoundError.
        Rows that could not be removed within a second are left to `go_on`."""
        with self._database.write() as work:
            collection, bundles = work.collections.delete(name)
        _logger.info("collection %s was deleted", name)
        self._on_deleted(collection.id)
        self._garbage_collector.sweep_after_delete([], bundles)
        try:
            self._remove(collection.id, Round(_LONGEST_SECONDS))
        except ServiceError as error:
            _logger.warning("%s: rows of the deleted collection are removed later: %s", name, error)

    def go_on(self, time_left: Round) -> bool:
        """Remove the rest of deleted collections, a transaction each step; return whether none remain."""
        with self._database.read() as work:
            collection_ids = work.collections.deleted_ids()
        for collection_id in collection_ids:
            if time_left.is_over or not self._remove(collection_id, time_left):
                return False
        return True

    def _remove(self, collection_id: int, time_left: Round) -> bool:
        """Return whether no rows remain; takes at least one step."""

        def remove_some() -> bool:
            with self._database.write() as work:
                pictures = work.collections.remove_some(collection_id, ROWS_PER_STEP, BYTES_PER_STEP)
            if pictures is not None:
                self._garbage_collector.sweep_after_delete(sorted(pictures))
            return pictures is None

        return time_left.finish(remove_some)
