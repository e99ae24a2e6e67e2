"""Purging tombstones of deleted items once every process has heard of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from app.domain.entities import Collection
from app.domain.errors import CollectionNotFoundError, ImportRunningError
from app.domain.ports import Database
from app.services.writing import BREATH_SECONDS, writing

_ROWS_PER_STEP = 500
_LONGEST_ROUND_SECONDS = 30.0
"""Of a worker, which has jobs to run."""
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

    def purge(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Purge what is old enough, for half a minute at most, beginning after the collection it ended with.

        Parameters
        ----------
        should_stop : callable
            Asked between steps.

        Returns
        -------
        bool
            Whether it came to the end of every collection.
        """
        deadline = time.monotonic() + _LONGEST_ROUND_SECONDS
        with self._database.read() as work:
            found = work.collections.list()
        for collection in sorted(found, key=lambda each: (each.id <= self._last_id, each.id)):
            if should_stop() or time.monotonic() >= deadline:
                return False
            # Noted before: one that fails keeps no other from its turn.
            self._last_id = collection.id
            try:
                if not self._purge(collection, deadline, should_stop):
                    return False
            except (CollectionNotFoundError, ImportRunningError) as error:
                _logger.info("%s: tombstones stay for now: %s", collection.name, error)
        return True

    def _purge(self, collection: Collection, deadline: float, should_stop: Callable[[], bool]) -> bool:
        """Return whether there is no more to purge."""
        with self._database.read() as work:
            newest = work.items.newest_tombstone(collection)
        while newest is not None and self._purge_some(collection, newest):
            if should_stop() or time.monotonic() >= deadline:
                return False
            time.sleep(BREATH_SECONDS)
        return True

    def _purge_some(self, collection: Collection, newest: int) -> bool:
        # An import has planned what to write by the rows that were there.
        with writing(self._database, collection, 0.0) as (work, current):
            return work.items.purge_tombstones(current, newest, self._grace_seconds, _ROWS_PER_STEP)
