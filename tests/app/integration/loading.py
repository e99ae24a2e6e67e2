"""Loading active models before they are searched."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from app.bootstrap import Services
from app.domain.errors import ServiceError
from app.services.health import DATABASE_TIMEOUT_SECONDS, Readiness
from app.services.serving import snapshots
from app.services.serving.saved_galleries import SavedGalleries
from app.services.serving.snapshot import Snapshot
from app.services.serving.snapshots import Snapshots


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
    return services.health.check()


def current(served: Snapshots, name: str) -> Snapshot:
    """Return what a search would be answered from; raises what `Snapshots.open` raises."""
    with served.open(name) as (snapshot, _):
        return snapshot


def pace(monkeypatch: pytest.MonkeyPatch, **pauses: Callable[[], Any]) -> None:
    """Have what is called in the place of pauses of ``loading`` or ``merging``."""
    make = snapshots.Pacer

    def make_pacer(*conditions: Callable[[], bool]) -> Callable[[], Any]:
        kind = "merging" if len(conditions) == 1 else "loading"
        return pauses.get(kind) or make(*conditions)

    monkeypatch.setattr(snapshots, "Pacer", make_pacer)


def saved_galleries(services: Services) -> SavedGalleries:
    """Return where a process saves galleries."""
    return services.snapshots._saved_galleries
