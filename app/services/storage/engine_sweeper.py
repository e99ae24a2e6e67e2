"""Removal of what a vector engine keeps without use: unused galleries, and rows of earlier revisions."""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.db.session import Database
from app.domain.errors import VectorEngineUnavailableError
from app.domain.ports import GalleryKey, VectorEngine

_REVISIONS_KEPT = 1000  # revisions before the latest whose rows stay, for processes that have not caught up

_logger = logging.getLogger(__name__)


class EngineSweeper:
    """Removes it, but for galleries of other databases, which the same engine may hold."""

    def __init__(self, database: Database, engine: VectorEngine, identity: Callable[[], str]) -> None:
        self._database = database
        self._engine = engine
        self._identity = identity

    def sweep(self) -> int:
        """Remove the galleries of bundles that no version refers to, and unfinished ones; return how many.
        None where the engine was another installation's first, whose galleries they may be."""
        if not self._engine.belongs_to(self._identity()):
            _logger.error("unused galleries stay: the vector engine was that of another installation before")
            return 0
        keys = self._engine.keys()  # before what is used: a gallery is made after its version
        with self._database.read() as work:
            used = work.models.used_bundles(sorted({key.bundle for key in keys}))
        n_removed = 0
        for key in keys:
            if key.bundle not in used:
                try:
                    self._engine.drop(key)
                    n_removed += 1
                except VectorEngineUnavailableError as error:  # it may be busy, and the others not
                    _log_kept(key, error)
        return n_removed + self._engine.remove_unfinished()

    def purge(self) -> int:
        """Remove the rows that ended before the latest revisions; return how many."""
        n_removed = 0
        for key in self._engine.keys():  # noqa: SIM118
            try:
                if (gallery := self._engine.open(key)) is not None:
                    n_removed += gallery.purge(gallery.latest_revision() - _REVISIONS_KEPT)
            except VectorEngineUnavailableError as error:  # that gallery may be gone, or in another's place
                _log_kept(key, error)
        return n_removed


def _log_kept(key: GalleryKey, error: VectorEngineUnavailableError) -> None:
    _logger.warning("%s of collection %d is kept as it is: %s", key.modality, key.collection_id, error)
