"""Repair of damaged or lost model bundles: found by checksum and trained again from the database."""

from __future__ import annotations

import logging
from collections.abc import Callable

from app.domain.entities import Collection, ModelVersion
from app.domain.errors import DamagedBundleError, TrainingAlreadyRunningError, TrainingDataError
from app.domain.ports import Database
from app.services.models.model_bundles import ModelBundles
from app.services.training.requests import TrainingService

_logger = logging.getLogger(__name__)


class BundleRepair:
    """Asks for a retrain where the active version's bundle cannot be trusted.

    Processes that hold the version go on serving it; in others an earlier one stands in for it (see
    `app.services.serving.fallback`). No other version is made the active one: that is for people to decide.

    Parameters
    ----------
    database : Database
        The truth.
    bundles : ModelBundles
        Model versions on disk.
    training : TrainingService
        Takes the requests.
    owns_files : callable
        Whether the files belong to this database: without that none of them says anything.
    """

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

    def request_what_is_damaged(self) -> list[str]:
        """Ask for a retrain, with the parameters of the damaged version; return of which collections."""
        if not self._owns_files():
            return []
        with self._database.read() as work:
            active = [
                (collection, work.models.get(collection, collection.active_version))
                for collection in work.collections.list()
                if collection.active_version is not None
            ]
        return [
            collection.name for collection, version in active if self._request_repair(collection, version)
        ]

    def _request_repair(self, collection: Collection, version: ModelVersion) -> bool:
        try:
            self._bundles.check(version)
            return False
        except DamagedBundleError as error:
            _logger.error("%s, version %d: %s: training it again", collection.name, version.version, error)
        try:
            self._training.request(collection.name, version.report.parameters)
        except (TrainingAlreadyRunningError, TrainingDataError) as error:
            _logger.error("%s: %s", collection.name, error)
            return False
        return True
