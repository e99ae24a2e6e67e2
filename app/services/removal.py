"""Deleting collections: gone for everybody at once, removed a bounded number of rows at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from app.domain.errors import ServiceError
from app.domain.ports import Database
from app.services.housekeeping import Housekeeping
from app.services.writing import BREATH_SECONDS

_ROWS_PER_STEP = 500
_BYTES_PER_STEP = 4 << 20
_LONGEST_SECONDS = 1.0
"""Of a request; what is left then is removed by a worker."""
_LONGEST_ROUND_SECONDS = 30.0
"""Of a worker, which has jobs to run."""
_logger = logging.getLogger(__name__)


class Removal:
    """Deletes collections, and removes what is left of them.

    Parameters
    ----------
    database : Database
        Where they are.
    housekeeping : Housekeeping
        Removes their files.
    on_deleted : callable
        Gets the identity of a collection that was deleted.
    """

    def __init__(
        self, database: Database, housekeeping: Housekeeping, on_deleted: Callable[[int], None]
    ) -> None:
        self._database = database
        self._housekeeping = housekeeping
        self._on_deleted = on_deleted

    def delete(self, name: str) -> None:
        """Delete a collection; raises CollectionNotFoundError.

        Nobody finds it from then on, and its name is free. Rows that could not be removed within a second
        are left to `go_on`.
        """
        with self._database.write() as work:
            collection, bundles = work.collections.delete(name)
        self._on_deleted(collection.id)
        self._housekeeping.sweep_after_delete([], bundles)
        try:
            self._remove(collection.id, time.monotonic() + _LONGEST_SECONDS, lambda: False)
        except ServiceError as error:
            _logger.warning("%s: rows of the deleted collection stay for now: %s", name, error)

    def go_on(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Remove what is left of deleted collections, for half a minute at most.

        Parameters
        ----------
        should_stop : callable
            Asked between steps.

        Returns
        -------
        bool
            Whether all of it is removed.
        """
        deadline = time.monotonic() + _LONGEST_ROUND_SECONDS
        with self._database.read() as work:
            found = work.collections.deleted()
        for collection_id in found:
            if should_stop() or time.monotonic() >= deadline:
                return False
            if not self._remove(collection_id, deadline, should_stop):
                return False
        return True

    def _remove(self, collection_id: int, deadline: float, should_stop: Callable[[], bool]) -> bool:
        """Return whether nothing is left; one step is done in any case."""
        while True:
            with self._database.write() as work:
                pictures = work.collections.remove_some(collection_id, _ROWS_PER_STEP, _BYTES_PER_STEP)
            if pictures is None:
                return True
            self._housekeeping.sweep_after_delete(sorted(pictures))
            if should_stop() or time.monotonic() >= deadline:
                return False
            time.sleep(BREATH_SECONDS)
