"""Trainings without a request: of damaged versions, and as the policies of collections say."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.db.session import Database, UnitOfWork
from app.domain import errors
from app.domain.entities import Collection, JobState
from app.domain.reports import TrainingParameters
from app.services.models.model_bundles import ModelBundles
from app.services.storage.pacing import Round
from app.services.training.requests import TrainingService

_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Rounds(ABC):
    """Looks at one collection after the other, as the time of its rounds allows."""

    _database: Database
    _training: TrainingService
    _names: list[str] = field(default_factory=list, init=False)

    @abstractmethod
    def _concerns(self, collection: Collection) -> bool:
        """Return whether a collection is to be looked at."""

    @abstractmethod
    def _look_at(self, name: str) -> None:
        """Request a training if one is due."""

    def go_on(self, time_left: Round) -> bool:
        """Look at the next collections; return whether all were looked at."""
        # Later rounds go on; what keeps one from being looked at is logged, and it comes again.
        if not self._names:
            with self._database.read() as work:
                self._names = [one.name for one in work.collections.list() if self._concerns(one)]
        failures: list[str] = []

        def look_at_next() -> bool:
            if self._names:
                name = self._names.pop(0)
                try:
                    self._look_at(name)
                except errors.CollectionNotFoundError:  # deleted in the meantime
                    pass
                except (errors.ServiceError, OSError) as error:
                    _logger.warning("%s: looked at later: %s", name, error)
                    failures.append(name)
            return not self._names

        time_left.finish(look_at_next)
        self._names += failures
        return not self._names

    def _request(self, name: str, parameters: TrainingParameters) -> errors.ServiceError | None:
        """Request a training; return why there can be none."""
        try:
            self._training.request(name, parameters)
        except (errors.ConflictError, errors.InvalidFieldError) as error:
            if error.code != "training-already-running":  # requested by another worker at the same time
                return error
        return None


@dataclass(eq=False)
class BundleRepair(_Rounds):
    """Asks for a retrain where the active version's bundle is damaged, if its files are this database's."""

    # Processes that hold the version go on serving it; in others an earlier one stands in for it
    # (`app.services.serving.snapshots`). No other version is made the active one: people decide that.

    _bundles: ModelBundles
    _owns_files: Callable[[], bool]

    def go_on(self, time_left: Round) -> bool:
        return not self._owns_files() or super().go_on(time_left)

    def _concerns(self, collection: Collection) -> bool:
        return collection.active_version is not None

    def _look_at(self, name: str) -> None:
        with self._database.read_of(name) as (work, collection):
            if collection.active_version is None:
                return
            version = work.models.get(collection, collection.active_version)
        try:
            self._bundles.check(version)
        except errors.DamagedBundleError as error:
            _logger.error("%s, version %d: %s: training it again", name, version.version, error)
            reason = f"version {version.version} was damaged"
            refusal = self._request(name, replace(version.report.parameters, reason=reason))
            if refusal is not None:
                _logger.error("%s: %s", name, refusal)


_PAUSE = timedelta(hours=6)
"""After a training that failed or was stopped: the same items would fail again."""
_HOUR = timedelta(hours=1)
"""For which writes that go on hold a training back, and so do items that do not suffice."""


@dataclass(eq=False)
class AutomaticRetraining(_Rounds):
    """Requests trainings as the policies of collections say, with the parameters of the active version."""

    _now: Callable[[UnitOfWork], datetime] = UnitOfWork.now
    _due: dict[str, tuple[datetime, int]] = field(default_factory=dict, init=False)
    """Since when one is due, and the revision at the last look, by collection."""
    _refused: dict[str, datetime] = field(default_factory=dict, init=False)
    """When something was in the way, such as too few items."""

    def _concerns(self, collection: Collection) -> bool:
        policy = collection.retraining
        return any((policy.changed_items, policy.judgements, policy.hours))

    def _look_at(self, name: str) -> None:
        with self._database.read() as work:
            now = self._now(work)
            if name in self._refused and now - self._refused[name] < _HOUR:
                return
            collection = work.collections.get(name)
            reason = _reason(work, collection, now)
            parameters = TrainingParameters()
            if collection.active_version is not None:
                parameters = work.models.get(collection, collection.active_version).report.parameters
        if reason is None:
            for of_last in (self._due, self._refused):
                of_last.pop(name, None)
            return
        since, revision = self._due.get(name, (now, -1))
        self._due[name] = since, collection.revision
        is_written = revision != collection.revision and now - since < _HOUR
        if is_written or not _is_quiet(collection.retraining.quiet_hours, now.hour):
            return
        del self._due[name]
        refusal = self._request(name, replace(parameters, reason=reason))
        if refusal is None:
            self._refused.pop(name, None)
            return
        if name not in self._refused:  # a collection that is filled slowly is no fault of every hour
            _logger.warning("%s: not trained by itself until this changes: %s", name, refusal)
        self._refused[name] = now


def _is_quiet(hours: tuple[int, int] | None, hour: int) -> bool:
    """Return whether an hour of the day is among those from the first to the second, over midnight too."""
    return hours is None or (hour - hours[0]) % 24 < (hours[1] - hours[0]) % 24


def _reason(work: UnitOfWork, collection: Collection, now: datetime) -> str | None:
    """Return why a training is due; None if it is not."""
    policy = collection.retraining
    for last in work.jobs.recent(collection, 1):
        is_unsuccessful = last.state is not JobState.SUCCEEDED
        if is_unsuccessful and (last.finished_at is None or now - last.finished_at < _PAUSE):
            return None
    revision, began, judged_from, since = 0, collection.created_at, collection.created_at, ""
    number = work.models.next_version(collection) - 1  # one that was refused, too, or it would be made again
    if number:
        newest = work.models.get(collection, number)
        revision, began, since = newest.index_revision, newest.created_at, f" since version {number}"
        # What was judged while it was trained it has not learned from.
        jobs = work.jobs.recent(collection, 10)
        judged_from = next((job.started_at or began for job in jobs if job.model_version == number), began)
    limit = policy.changed_items or 1
    # Those of whose deletion there is no trace any more are not counted.
    n_changed = work.items.count_changes(replace(collection, purged_through=0), revision, limit)
    if policy.changed_items and n_changed >= limit:
        return f"changed items{since}: {limit} or more"
    n_judged = 0
    if policy.judgements or policy.hours:
        n_judged = work.feedback.count_since(collection, judged_from)
    if policy.judgements and n_judged >= policy.judgements:
        return f"judgements{since}: {n_judged}"
    if policy.hours and (n_changed or n_judged) and now - began >= timedelta(hours=policy.hours):
        return f"hours{since}: {policy.hours:g}, with changes"
    return None
