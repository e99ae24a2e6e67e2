"""Loading active models before they are searched."""

import contextlib

from app.bootstrap import Services
from app.domain.errors import ServiceError
from app.services.health import DATABASE_TIMEOUT_SECONDS, Readiness
from app.services.serving.saved_galleries import SavedGalleries
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshot_reader import SnapshotReader


def load(services: Services) -> Readiness:
    """Return how the service stands after the load of every active model."""
    try:
        active = [
            collection.name for collection, _ in services.snapshots.reload_stale(DATABASE_TIMEOUT_SECONDS)
        ]
    except ServiceError:
        active = []  # `check` says why
    for name in active:
        # What went wrong is logged and remembered there, and `check` reports it.
        with contextlib.suppress(Exception):
            current(services.snapshots, name)
    return services.readiness.check()


def current(snapshots: SnapshotReader, name: str) -> Snapshot:
    """Return what a search would be answered from; raises what `SnapshotReader.open` raises."""
    with snapshots.open(name) as (snapshot, _):
        return snapshot


def saved_galleries(services: Services) -> SavedGalleries:
    """Return where a process saves galleries."""
    return services.snapshots._updater._saver._saved_galleries
