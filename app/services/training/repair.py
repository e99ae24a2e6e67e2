"""Repair of damaged or lost model bundles: found by checksum and trained again from the database."""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.db.session import Database
from app.domain.errors import CollectionNotFoundError, ConflictError, DamagedBundleError, ServiceError
from app.services.models.model_bundles import ModelBundles
from app.services.storage.pacing import Round
from app.services.training.requests import TrainingService

_logger = logging.getLogger(__name__)


class BundleRepair:
    """Asks for a retrain where the active version's bundle is damaged, if its files are this database's."""

    # Processes that hold the version go on serving it; in others an earlier one stands in for it (see
    # `app.services.serving.fallback`). No other version is made the active one: that is for people to decide.

    def __init__(
        self,
        database: Database,
        bundles: ModelBundles,
        training: TrainingService,
        owns_files: Callable[[], bool],
    ) -> None:
        self._database = database
        self._bundles = bundles
        self._training = training
        self._owns_files = owns_files
        self._names: list[str] = []

    def go_on(self, time_left: Round) -> bool:
        """Ask for retrains with the parameters of the damaged versions, one collection after the other;
        return whether all were looked at."""
        # Later rounds go on; what keeps one from being looked at is logged, and it comes again.
        if not self._owns_files():
            return True
        self._names = self._names or self._find_names()
        failures: list[str] = []

        def look_at_next() -> bool:
            if self._names:
                name = self._names.pop(0)
                try:
                    self._request_repair(name)
                except (ServiceError, OSError) as error:
                    _logger.warning("%s: damage is looked for later: %s", name, error)
                    failures.append(name)
            return not self._names

        time_left.finish(look_at_next)
        self._names += failures
        return not self._names

    def _find_names(self) -> list[str]:
        with self._database.read() as work:
            return [one.name for one in work.collections.list() if one.active_version is not None]

    def _request_repair(self, name: str) -> None:
        try:
            with self._database.read() as work:
                collection = work.collections.get(name)
                if collection.active_version is None:
                    return
                version = work.models.get(collection, collection.active_version)
        except CollectionNotFoundError:  # deleted in the meantime
            return
        try:
            self._bundles.check(version)
            return
        except DamagedBundleError as error:
            _logger.error("%s, version %d: %s: training it again", collection.name, version.version, error)
        try:
            self._training.request(collection.name, version.report.parameters)
        except ConflictError as error:
            _logger.error("%s: %s", collection.name, error)
