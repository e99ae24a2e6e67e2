"""Loading active models before anything is asked of them."""

import contextlib

from app.bootstrap import Services
from app.domain.errors import ServiceError
from app.services.health.readiness import Readiness
from app.services.health.status import PATIENCE_SECONDS
from app.services.serving.loading import Snapshot
from app.services.serving.snapshots import Snapshots


def load(services: Services) -> Readiness:
    """Return how the service stands after the load of every active model."""
    try:
        active = [collection.name for collection, _ in services.snapshots.keep_up(PATIENCE_SECONDS)]
    except ServiceError:
        active = []  # `look` says why
    for name in active:
        # What went wrong is logged and remembered there, and `look` tells it.
        with contextlib.suppress(Exception):
            current(services.snapshots, name)
    return services.readiness.look()


def current(snapshots: Snapshots, name: str) -> Snapshot:
    """Return what a search would be answered from; raises what `Snapshots.reading` raises."""
    with snapshots.reading(name) as (snapshot, _):
        return snapshot
