"""Whether this process can serve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.domain.errors import ServiceError
from app.services.health.status import PATIENCE_SECONDS
from app.services.serving.snapshots import Snapshots
from app.services.storage.ownership import Standing


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

    A process is ready once the schema is current, the data folder is that of the database, and the first load
    of every active model has ended. A damaged bundle does not take the whole service away: where an earlier
    version stands in for the active one, or some collections can be searched although others cannot, the
    process is ready and the reason names what is damaged. So it is where the file of an encoder is missing or
    another one: what needs no encoder is served; where the database is older than the files: what it
    holds is served, and nothing is removed; and where the disk or the database takes no writes: every process
    would refuse these, and all of them still answer searches. It is not ready when there are active
    models and none of their collections can be searched. Once it was ready, a model that is loaded for the
    first time changes nothing.

    Parameters
    ----------
    snapshots : Snapshots
        What this process serves.
    require_schema : callable
        Raises a ServiceError unless the database has the schema this code expects.
    look_at_folder : callable
        How database and data folder stand to each other; raises OSError where the folder cannot be used.
    faults_of_writes : callable
        Why writes are refused, or soon will be; must not write to find out.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        require_schema: Callable[[], None],
        look_at_folder: Callable[[], Standing],
        faults_of_writes: Callable[[], Sequence[str]],
    ) -> None:
        self._snapshots = snapshots
        self._require_schema = require_schema
        self._look_at_folder = look_at_folder
        self._faults_of_writes = faults_of_writes
        self._has_started = False

    def look(self) -> Readiness:
        """Return how it stands, and have loaded what is not; waits for nothing but the database."""
        try:
            self._require_schema()
            standing = self._look_at_folder()
            if not standing.belongs:
                return Readiness(False, standing.reason)
            refusals = self._faults_of_writes()
            found = [outlook for _, outlook in self._snapshots.keep_up(PATIENCE_SECONDS)]
        except ServiceError as error:
            return Readiness(False, str(error))
        except OSError as error:
            return Readiness(False, f"the data folder cannot be used: {error.strerror}")
        self._has_started = self._has_started or all(one.is_tried for one in found)
        can_serve = not found or any(one.is_served or not one.is_tried for one in found)
        wrong = [standing.reason, *refusals, *(one.reason for one in found)]
        reason = "; ".join(one for one in wrong if one is not None)
        return Readiness(self._has_started and can_serve, reason or None)
