"""Whether this process can serve."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from app.domain.errors import ServiceError
from app.services.snapshots import Snapshots
from app.services.status import PATIENCE_SECONDS


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests should be sent here.

    Parameters
    ----------
    is_ready : bool
        Whether they should.
    reason : str or None
        Why not; or what is wrong all the same, when they should.
    """

    is_ready: bool
    reason: str | None = None


class ReadinessService:
    """Says whether this process can serve, by what it knows; loads go on in the background.

    A process is ready once the schema is current and the first load of every active model has ended. A
    damaged bundle does not take the whole service away: where an earlier version stands in for the active
    one, or some collections can be searched although others cannot, the process is ready and the reason
    names what is damaged. So it is where the file of an encoder is missing or another one: what needs no
    encoder is served. It is not ready when there are active models and none of their collections can be
    searched. Once it was ready, a model that is loaded for the first time changes nothing.

    Parameters
    ----------
    snapshots : Snapshots
        What this process serves.
    schema_is_current : callable
        Whether the database has the schema this code expects.
    """

    def __init__(self, snapshots: Snapshots, schema_is_current: Callable[[], bool]) -> None:
        self._snapshots = snapshots
        self._schema_is_current = schema_is_current
        self._has_started = False

    def look(self) -> Readiness:
        """Return how it stands, and have loaded what is not; waits for nothing but the database."""
        try:
            if not self._schema_is_current():
                return Readiness(False, "the database schema is not current: run lrbs db upgrade")
            found = [outlook for _, outlook in self._snapshots.keep_up(PATIENCE_SECONDS)]
        except ServiceError as error:
            return Readiness(False, str(error))
        self._has_started = self._has_started or all(one.is_tried for one in found)
        can_serve = not found or any(one.is_served or not one.is_tried for one in found)
        reason = "; ".join(one.reason for one in found if one.reason is not None)
        return Readiness(self._has_started and can_serve, reason or None)

    def load(self) -> Readiness:
        """Return how it stands after the load of every active model."""
        try:
            active = [collection.name for collection, _ in self._snapshots.keep_up(PATIENCE_SECONDS)]
        except ServiceError:
            active = []  # `look` says why
        for name in active:
            # What went wrong is logged and remembered there, and `look` tells it.
            with contextlib.suppress(Exception):
                self._snapshots.current(name)
        return self.look()
