"""Whether this process can serve."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from app.domain.errors import (
    CollectionNotFoundError,
    DamagedBundleError,
    DatabaseUnavailableError,
    ServiceError,
)
from app.services.snapshots import Snapshots
from app.services.status import PATIENCE_SECONDS

_logger = logging.getLogger(__name__)


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
    """Loads what is to be served and says how that went.

    A process is ready once the schema is current and every active model is loaded. A damaged bundle does not
    take the whole service away: where an earlier version stands in for the active one, or some collections
    can be searched although others cannot, the process is ready and the reason names what is damaged. So it
    is where the file of an encoder is missing or another one: what needs no encoder is served. It is not
    ready when there are active models and none of their collections can be searched.

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

    def look(self) -> Readiness:
        """Return how it stands, after loading every active model that is not loaded yet."""
        try:
            if not self._schema_is_current():
                return Readiness(False, "the database schema is not current: run lrbs db upgrade")
            found_now = self._snapshots.collections(PATIENCE_SECONDS)
            active = [one for one in found_now if one.active_version is not None]
            found = [self._damage_of(one.name) for one in active]
        except ServiceError as error:
            return Readiness(False, str(error))
        can_serve = not found or any(is_served for is_served, _ in found)
        reason = "; ".join(damage for _, damage in found if damage is not None)
        return Readiness(can_serve, reason or None)

    def _damage_of(self, name: str) -> tuple[bool, str | None]:
        """Return whether a collection can be searched, and what is damaged of it."""
        try:
            snapshot = self._snapshots.current(name)
        except CollectionNotFoundError:
            return True, None  # deleted since it was listed
        except DamagedBundleError as error:
            return False, f"{name}: {error}"
        except DatabaseUnavailableError:
            raise
        except Exception as error:
            # Whatever one collection holds, the others are served.
            _logger.exception("%s: cannot be loaded", name)
            return False, f"{name}: cannot be loaded: {type(error).__name__}"
        found = [
            f"{name}: the encoder of {modality!r}: {fault}"
            for modality, encoder in snapshot.model.encoders.items()
            if (fault := encoder.fault()) is not None
        ]
        if snapshot.damage is not None:
            active, served = snapshot.collection.active_version, snapshot.model.version
            found.append(f"{name}: version {served} serves instead of {active}: {snapshot.damage.reason}")
        return True, "; ".join(found) or None
