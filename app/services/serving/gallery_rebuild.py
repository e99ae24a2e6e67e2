"""Galleries of an engine that are built again from the database, beside those that serve."""

from __future__ import annotations

from dataclasses import replace as replace_fields

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, ModelVersion
from app.domain.errors import CollectionNotFoundError, model_not_trained
from app.domain.ports import GalleryKey, VectorEngine
from app.services.catalogue.preparation import describe_material
from app.services.serving.engine_snapshots import EngineGalleries
from app.services.serving.replay import replay
from app.services.serving.snapshot_loader import SnapshotLoader
from app.services.storage.pacing import no_pause

_BESIDE = " (rebuilt)"
"""Added to a modality, for the key of its gallery until that takes the place of the one that serves."""


def rebuild_galleries(
    database: Database, loader: SnapshotLoader, engine: VectorEngine, name: str
) -> dict[str, int]:
    """Build the galleries of an active version again, whatever became of those that the engine has; return
    the number of items of each, by modality. Services go on with the old ones meanwhile."""
    # Raises CollectionNotFoundError, ConflictError, and DamagedBundleError if the version's bundle
    # cannot be trusted. Services find the new galleries under the same keys afterwards.
    serving, beside = EngineGalleries(engine), EngineGalleries(engine, _BESIDE)
    with database.read() as work:
        collection, version = _active(work, name)
        for of_killed in collection.modalities:  # whose rebuild was not finished
            engine.drop(beside.key(collection, version.bundle, of_killed.name))
        snapshot = loader.load_with_engine(work, collection, version, beside, no_pause)
    sizes: dict[str, int] = {}
    while snapshot.galleries:
        with database.read() as work:
            current = work.collections.get(name)
            if current.id != collection.id:  # it was deleted, and another one has its name
                raise CollectionNotFoundError(name)
            snapshot = replay(
                snapshot, replace_fields(current, active_version=collection.active_version), work
            )
        for modality, gallery in snapshot.galleries.items():
            size = gallery.size
            key, rebuilt = (of.key(collection, version.bundle, modality) for of in (serving, beside))
            if engine.replace(key, rebuilt):
                sizes[modality] = size
            else:
                _drop_if_ahead(database, engine, name, key)
        pending = {name: of for name, of in snapshot.galleries.items() if name not in sizes}
        snapshot = replace_fields(snapshot, galleries=pending)
    return sizes


def _drop_if_ahead(database: Database, engine: VectorEngine, name: str, key: GalleryKey) -> None:
    """Remove a gallery of revisions that the database, restored from a copy, does not have."""
    gallery = engine.open(key)
    latest = 0 if gallery is None else gallery.latest_revision()
    with database.read() as work:
        is_ahead = latest > work.collections.get(name).revision
    if is_ahead:
        engine.drop(key)


def _active(work: UnitOfWork, name: str) -> tuple[Collection, ModelVersion]:
    collection = work.collections.get(name)
    if collection.active_version is None:
        raise model_not_trained(name, describe_material(work, collection))
    return collection, work.models.get(collection, collection.active_version)
