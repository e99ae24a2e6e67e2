"""Purge tombstones of deleted items, which other processes learn of deletions by, once they are old."""

from __future__ import annotations

import logging

from app.db.session import Database
from app.domain.entities import Collection
from app.domain.errors import ServiceError
from app.services.storage.rounds import ROWS_PER_STEP, Round
from app.services.storage.writing import writing

_logger = logging.getLogger(__name__)


class Tombstones:
    """Purges tombstones older than the grace, a bounded number of rows at a time.
    A process that was away for longer reads all ids of a collection instead."""

    def __init__(self, database: Database, grace_seconds: float) -> None:
        self._database = database
        self._grace_seconds = grace_seconds
        self._last_id = 0

    def purge(self, time_left: Round) -> bool:
        """Purge old tombstones in steps, starting after the collection where the last round ended; return
        whether all were."""
        with self._database.read() as work:
            collections = work.collections.list()
        for collection in sorted(collections, key=lambda entry: (entry.id <= self._last_id, entry.id)):
            if time_left.is_over:
                return False
            # Before the work: a collection that fails does not block the others.
            self._last_id = collection.id
            try:
                if not self._purge(collection, time_left):
                    return False
            except ServiceError as error:
                if error.code not in ("collection-not-found", "import-running"):
                    raise
                _logger.info("%s: tombstones are purged later: %s", collection.name, error)
        return True

    def _purge(self, collection: Collection, time_left: Round) -> bool:
        """Return whether nothing remains to be purged."""
        with self._database.read() as work:
            newest = work.items.newest_tombstone(collection)
        return newest is None or time_left.finish(lambda: self._purge_some(collection, newest))

    def _purge_some(self, collection: Collection, newest: int) -> bool:
        """Return whether nothing remains up to a tombstone."""
        # An import plans its writes by the rows that exist.
        with writing(self._database, collection, 0.0) as (work, current):
            return not work.items.purge_tombstones(current, newest, self._grace_seconds, ROWS_PER_STEP)
