"""Purging tombstones of deleted items once every process has heard of them."""

from __future__ import annotations

import logging

from app.domain.entities import Collection
from app.domain.errors import CollectionNotFoundError, ImportRunningError
from app.domain.ports import Database
from app.services.storage.rounds import Round
from app.services.storage.writing import writing

_ROWS_PER_STEP = 500
_logger = logging.getLogger(__name__)


class Tombstones:
    """Purges tombstones, a bounded number of rows at a time.

    Parameters
    ----------
    database : Database
        Where they are.
    grace_seconds : float
        For how long at least a tombstone stays. A process that was away for longer reads all ids of a
        collection instead.
    """

    def __init__(self, database: Database, grace_seconds: float) -> None:
        self._database = database
        self._grace_seconds = grace_seconds
        self._last_id = 0

    def purge(self, time_left: Round) -> bool:
        """Purge what is old enough, beginning after the collection it ended with.

        Parameters
        ----------
        time_left : Round
            Each step is a transaction.

        Returns
        -------
        bool
            Whether it came to the end of every collection.
        """
        with self._database.read() as work:
            found = work.collections.list()
        for collection in sorted(found, key=lambda each: (each.id <= self._last_id, each.id)):
            if time_left.is_over:
                return False
            # Noted before: one that fails keeps no other from its turn.
            self._last_id = collection.id
            try:
                if not self._purge(collection, time_left):
                    return False
            except (CollectionNotFoundError, ImportRunningError) as error:
                _logger.info("%s: tombstones stay for now: %s", collection.name, error)
        return True

    def _purge(self, collection: Collection, time_left: Round) -> bool:
        """Return whether there is no more to purge."""
        with self._database.read() as work:
            newest = work.items.newest_tombstone(collection)
        while newest is not None and self._purge_some(collection, newest):
            if not time_left.goes_on():
                return False
        return True

    def _purge_some(self, collection: Collection, newest: int) -> bool:
        # An import has planned what to write by the rows that were there.
        with writing(self._database, collection, 0.0) as (work, current):
            return work.items.purge_tombstones(current, newest, self._grace_seconds, _ROWS_PER_STEP)
