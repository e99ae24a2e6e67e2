"""Whether this process can serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.domain.errors import ServiceError
from app.services.health.status import DATABASE_TIMEOUT_SECONDS
from app.services.serving.snapshot_reader import SnapshotReader
from app.services.storage.ownership import OwnershipStatus


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests should be routed to this process."""

    is_ready: bool
    reason: str | None = None  # why not; or, when they should, what is wrong all the same


class ReadinessService:
    """Determines readiness from what the process knows, without a write or a wait for models."""

    # A process becomes ready once the schema is current, the data folder belongs to the database, and the
    # first load of every active model has ended. It is not ready while there are active models and none of
    # their collections can be searched. Once it was ready, a model that is loaded for the first time changes
    # nothing.
    #
    # Faults that leave something to serve do not make it unready; the reason names them: a damaged bundle,
    # where an earlier version stands in for the active one, or other collections can be searched; an
    # approximate index that is damaged or was given up: its gallery is searched exactly; a missing or changed
    # file of an encoder: what needs no encoder is served; a schema that a newer release made while this
    # process ran, as long as a rolling update takes; a database older than the files: what it holds is
    # served, and nothing is removed; a disk or database that rejects writes, or an object store that cannot
    # be used: every process would reject writes, and all still answer searches; a vector engine that does not
    # answer: every process would reject searches, and all still store.

    def __init__(
        self,
        snapshots: SnapshotReader,
        find_fault_of_schema: Callable[[], str | None],
        look_at_folder: Callable[[], OwnershipStatus],
        find_faults: Callable[[], Sequence[str]],
    ) -> None:
        self._snapshots = snapshots
        self._find_fault_of_schema = find_fault_of_schema
        self._look_at_folder = look_at_folder
        self._find_faults = find_faults
        self._has_started = False

    def check(self) -> Readiness:
        """Return the readiness, and request missing loads; waits for nothing but the database."""
        try:
            newer = self._find_fault_of_schema()
            standing = self._look_at_folder()
            if not standing.belongs:
                return Readiness(False, standing.reason)
            faults = self._find_faults()
            collections = [health for _, health in self._snapshots.reload_stale(DATABASE_TIMEOUT_SECONDS)]
        except ServiceError as error:
            return Readiness(False, str(error))
        except OSError as error:
            return Readiness(False, f"the data folder cannot be used: {error.strerror}")
        self._has_started = self._has_started or all(health.has_started for health in collections)
        can_serve = not collections or any(
            health.is_searchable or not health.has_started for health in collections
        )
        problems = [newer, standing.reason, *faults, *(health.problem for health in collections)]
        reason = "; ".join(problem for problem in problems if problem is not None)
        return Readiness(self._has_started and can_serve, reason or None)


def find_write_faults(
    paths: Mapping[str, Path],
    fault_of_disk: Callable[[Path], str | None],
    fault_of_database: Callable[[], str | None],
    fault_of_store: Callable[[], str | None],
) -> list[str]:
    """Return the faults of disks, database and object store as messages, without a write to find out; `paths`
    are what is written to, by their names in messages. Raises OSError, DatabaseUnavailableError."""
    faults: dict[str | None, str] = {}
    for name, path in paths.items():
        # Usually all are on one disk, whose fault is reported once.
        faults.setdefault(fault_of_disk(path), name)
    refusals = [fault_of_database(), fault_of_store()]
    of_disks = [f"{name} is {fault}" for fault, name in faults.items() if fault is not None]
    return [*(refusal for refusal in refusals if refusal is not None), *of_disks]
