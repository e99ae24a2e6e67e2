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

    def purge(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Purge what is old enough, for half a minute at most.

        Parameters
        ----------
        should_stop : callable
            Asked between steps.
        """
        deadline = time.monotonic() + _LONGEST_ROUND_SECONDS
        with self._database.read() as work:
            found = [(each, work.items.newest_tombstone(each)) for each in work.collections.list()]
        for collection, newest in found:
            try:
                while newest is not None and self._purge_some(collection, newest):
                    if should_stop() or time.monotonic() >= deadline:
                        return
                    time.sleep(BREATH_SECONDS)
            except (CollectionNotFoundError, ImportRunningError) as error:
                _logger.info("%s: tombstones stay for now: %s", collection.name, error)

    def _purge_some(self, collection: Collection, newest: int) -> bool:
        # An import has planned what to write by the rows that were there.
        with writing(self._database, collection, 0.0) as (work, current):
            return work.items.purge_tombstones(current, newest, self._grace_seconds, _ROWS_PER_STEP)
