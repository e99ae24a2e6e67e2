"""Model versions: which one serves, who said so, how to go back, and which ones are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime

from app.domain.entities import Activation, BuiltModel, Collection, Job, JobState, ModelVersion
from app.domain.errors import (
    ActiveVersionConflictError,
    DamagedBundleError,
    DamagedVersionError,
    NoPreviousVersionError,
)
from app.domain.names import check_storable
from app.domain.ports import Database, UnitOfWork
from app.services.models.bundles import ModelBundles
from app.services.storage.garbage_collector import GarbageCollector

NONE_ACTIVE = 0
"""As an expected version: that none is active."""
LARGEST_VERSION = 2**31 - 1
"""What the database holds of a version's number."""


class VersionService:
    """Publishes versions and lets one of them serve.

    A collection's active version is one column of its row, changed by compare-and-swap only and never
    back to nothing: there is never more than one, and never none once there was one.

    Parameters
    ----------
    database : Database
        The truth.
    bundles : ModelBundles
        Model versions on disk.
    garbage_collector : GarbageCollector
        Removes the bundles of forgotten versions.
    kept : int
        How many inactive versions are kept, beside the active one and the one before it.
    """

    def __init__(
        self, database: Database, bundles: ModelBundles, garbage_collector: GarbageCollector, kept: int
    ) -> None:
        self._database = database
        self._bundles = bundles
        self._garbage_collector = garbage_collector
        self._kept = kept

    def models(self, name: str) -> list[ModelVersion]:
        """Return all versions, newest first."""
        with self._database.read() as work:
            return work.models.list(work.collections.get(name))

    def model(self, name: str, version: int) -> ModelVersion:
        """Return one version."""
        with self._database.read() as work:
            return work.models.get(work.collections.get(name), version)

    def history(self, name: str, limit: int) -> Sequence[Activation]:
        """Return which version began to serve when, newest first."""
        with self._database.read() as work:
            return work.models.activations(work.collections.get(name), limit)

    def activate(
        self, name: str, version: int, by: str, reason: str | None = None, expected: int | None = None
    ) -> ModelVersion:
        """Let a version serve, after its bundle was checked.

        Parameters
        ----------
        name : str
            Collection.
        version : int
            The one to serve; nothing happens when it does already.
        by : str
            Who wants it, for the history.
        reason : str, optional
            Why, for the history.
        expected : int, optional
            The version that must be active for this to happen; `NONE_ACTIVE` that none is.

        Raises
        ------
        ModelNotFoundError
            If there is no such version.
        DamagedVersionError
            If its bundle cannot be trusted.
        ActiveVersionConflictError
            If another one is active than was expected.
        """
        check_storable("reason", reason)
        with self._database.read() as work:
            collection = work.collections.get(name)
            model = work.models.get(collection, version)
        try:
            self._bundles.load(collection, model)
        except DamagedBundleError as error:
            raise DamagedVersionError(name, version, str(error)) from error
        with self._database.write() as work:
            collection = work.collections.lock(name)
            work.models.get(collection, version)  # it may have been forgotten meanwhile
            active = collection.active_version
            if expected is not None and (expected or None) != active:
                raise ActiveVersionConflictError(name, expected or None, active)
            _swap(work, collection, version, by, reason)
            return work.models.get(collection, version)

    def roll_back(
        self, name: str, by: str, reason: str | None = None, expected: int | None = None
    ) -> ModelVersion:
        """Let the version serve that served before the active one; parameters as of `activate`.

        Raises
        ------
        NoPreviousVersionError
            If none did.
        """
        with self._database.read() as work:
            collection = work.collections.get(name)
            previous = _previous(work, collection)
        if previous is None:
            raise NoPreviousVersionError(name)
        if expected is None:
            # What is "previous" depends on what is active: both must still be so when it is swapped.
            expected = collection.active_version
        return self.activate(name, previous, by, reason or "rolled back", expected)

    def publish(self, job: Job, built: BuiltModel, lease_seconds: float) -> ModelVersion:
        """Record what a job built, let it serve unless it was refused, and close the job, all at once.

        A version that was activated by hand meanwhile keeps serving: the new one is kept, inactive, and
        says so in its report.

        Parameters
        ----------
        job : Job
            As claimed; nothing is published when the claim was lost.
        built : BuiltModel
            Its bundle is on disk and was read back.
        lease_seconds : float
            Lease to hold meanwhile.

        Raises
        ------
        JobCancelledError
            If the job was cancelled, or is another worker's by now.
        """
        progress = {"phase": "done", **asdict(built.report.fit.convergence)}
        with self._database.write() as work:
            collection = work.collections.lock(job.collection)
            work.jobs.heartbeat(job, lease_seconds, progress)
            reason = built.report.refusal
            if reason is None and collection.active_version != built.expected_active:
                reason = f"version {collection.active_version} was activated while this one was trained"
            entry = ModelVersion(
                built.version,
                built.bundle,
                built.manifest_hash,
                built.index_revision,
                replace(built.report, not_activated=reason),
                datetime.now(UTC),
                is_active=False,
            )
            work.models.add(collection, entry)
            if reason is None:
                _swap(work, collection, entry.version, f"job {job.id}", "trained")
            work.jobs.finish(job, JobState.SUCCEEDED, None, entry.version)
        return replace(entry, is_active=reason is None)

    def prune(self, name: str) -> list[int]:
        """Forget old versions and return their numbers.

        The active version and the one before it stay, and so do the newest inactive ones.
        """
        with self._database.write() as work:
            collection = work.collections.lock(name)
            protected = {collection.active_version, _previous(work, collection)}
            inactive = [m for m in work.models.list(collection) if m.version not in protected]
            forgotten = inactive[self._kept :]
            work.models.delete(collection, [model.version for model in forgotten])
        if forgotten:
            self._garbage_collector.sweep_after_delete([], [model.bundle for model in forgotten])
        return [model.version for model in forgotten]


def _swap(work: UnitOfWork, collection: Collection, version: int, by: str, reason: str | None) -> None:
    """Make a version of a locked collection the active one, and say so in the history."""
    active = collection.active_version
    if active == version:
        return
    if not work.models.replace_active(collection, version, active):
        raise ActiveVersionConflictError(collection.name, active, None)
    work.models.record_activation(collection, Activation(version, active, datetime.now(UTC), by, reason))


def _previous(work: UnitOfWork, collection: Collection) -> int | None:
    """Return the version that served before the active one."""
    newest = work.models.activations(collection, 1)
    return newest[0].previous if newest else None
