"""Galleries of an engine that are built again from the database, beside those that serve."""

from __future__ import annotations

from dataclasses import replace as replace_fields

from app.domain.entities import Collection, ModelVersion
from app.domain.errors import CollectionNotFoundError, ModelNotTrainedError
from app.domain.ports import Database, UnitOfWork
from app.domain.ports.engine import GalleryKey, VectorEngine
from app.services.serving.engine_snapshots import EngineGalleries
from app.services.serving.replay import replay
from app.services.serving.snapshot_loader import SnapshotLoader
from app.services.storage.pacing import no_pause

_BESIDE = " (rebuilt)"
"""Added to a modality, for the key of its gallery until that takes the place of the one that serves."""


class GalleryRebuild:
    """Builds the galleries of an active version again, whatever became of those that the engine has.

    Services go on with the old ones meanwhile, and find the new ones under the same keys afterwards.

    Parameters
    ----------
    database : Database
        The source of truth.
    loader : SnapshotLoader
        Reads model versions.
    engine : VectorEngine
        Keeps the galleries.
    """

    def __init__(self, database: Database, loader: SnapshotLoader, engine: VectorEngine) -> None:
        self._database = database
        self._loader = loader
        self._engine = engine

    def run(self, name: str) -> dict[str, int]:
        """Build them; return the number of items of each, by modality.

        Parameters
        ----------
        name : str
            Of the collection.

        Raises
        ------
        CollectionNotFoundError
            If there is none of that name.
        ModelNotTrainedError
            If no version is active.
        DamagedBundleError
            If the version's bundle cannot be trusted.
        """
        serving, beside = EngineGalleries(self._engine), EngineGalleries(self._engine, _BESIDE)
        with self._database.read() as work:
            collection, version = _active(work, name)
            for of_killed in collection.modalities:  # whose rebuild was not finished
                self._engine.drop(beside.key(collection, version.bundle, of_killed.name))
            snapshot = self._loader.load_with_engine(work, collection, version, beside, no_pause)
        sizes: dict[str, int] = {}
        while snapshot.galleries:
            with self._database.read() as work:
                current = work.collections.get(name)
                if current.id != collection.id:  # it was deleted, and another one has its name
                    raise CollectionNotFoundError(name)
                snapshot = replay(
                    snapshot, replace_fields(current, active_version=collection.active_version), work
                )
            for modality, gallery in snapshot.galleries.items():
                size = gallery.size
                key, rebuilt = (of.key(collection, version.bundle, modality) for of in (serving, beside))
                if self._engine.replace(key, rebuilt):
                    sizes[modality] = size
                else:
                    self._drop_if_ahead(name, key)
            pending = {name: of for name, of in snapshot.galleries.items() if name not in sizes}
            snapshot = replace_fields(snapshot, galleries=pending)
        return sizes

    def _drop_if_ahead(self, name: str, key: GalleryKey) -> None:
        """Remove a gallery of revisions that the database, restored from a copy, does not have."""
        gallery = self._engine.open(key)
        latest = 0 if gallery is None else gallery.latest_revision()
        with self._database.read() as work:
            is_ahead = latest > work.collections.get(name).revision
        if is_ahead:
            self._engine.drop(key)


def _active(work: UnitOfWork, name: str) -> tuple[Collection, ModelVersion]:
    collection = work.collections.get(name)
    if collection.active_version is None:
        raise ModelNotTrainedError(name)
    return collection, work.models.get(collection, collection.active_version)
