"""Versions of a collection's model: published, activated, pruned, and drawn."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from app.answers import Activation
from app.db.session import Database, UnitOfWork
from app.domain import errors
from app.domain.entities import BuiltModel, Collection, Job, JobState, ModelVersion
from app.domain.names import check_storable
from app.domain.reports import Curve, TrainingReport
from app.services.models.model_bundles import ModelBundles
from app.services.storage.sweeping import GarbageCollector
from solver import Reliability, RetrievalCurves, plots

_logger = logging.getLogger(__name__)
NONE_ACTIVE = 0
"""As an expected version: no version is active."""


@dataclass(eq=False)
class ModelRegistry:
    """Publishes model versions and activates one of them; `prune` keeps `n_inactive` beside it and the one
    before it."""

    # A collection's active version is one column of its row, changed only by compare-and-swap and never back
    # to null: there is at most one, and always one once there was one.

    _database: Database
    _bundles: ModelBundles
    _garbage_collector: GarbageCollector
    _n_inactive: int

    def models(self, name: str) -> list[ModelVersion]:
        """Return all versions, newest first."""
        with self._database.read() as work:
            return work.models.list(work.collections.get(name))

    def model(self, name: str, version: int) -> ModelVersion:
        """Return one version."""
        with self._database.read() as work:
            return work.models.get(work.collections.get(name), version)

    def history(self, name: str, limit: int) -> Sequence[Activation]:
        """Return the latest activations, newest first."""
        with self._database.read() as work:
            return work.models.activations(work.collections.get(name), limit)

    def activate(
        self, name: str, version: int, by: str, reason: str | None = None, expected: int | None = None
    ) -> ModelVersion:
        """Make a version the active one after checking its bundle; `by` and `reason` go into the history."""
        # Raises NotFoundError, ConflictError unless `expected` (or
        # `NONE_ACTIVE`) is active.
        check_storable("reason", reason)
        with self._database.read_of(name) as (work, collection):
            model = work.models.get(collection, version)
        try:
            self._bundles.load(collection, model)
        except errors.DamagedBundleError as error:
            raise errors.damaged_version(name, version, str(error)) from error
        with self._database.write() as work:
            collection = work.collections.lock(name)
            work.models.get(collection, version)  # it may have been deleted meanwhile
            active = collection.active_version
            if expected is not None and (expected or None) != active:
                raise errors.other_version_active(name, expected or None, active)
            _activate(work, collection, version, by, reason)
            model = work.models.get(collection, version)
        _logger.info("%s: version %d was activated", name, version)
        return model

    def roll_back(
        self, name: str, by: str, reason: str | None = None, expected: int | None = None
    ) -> ModelVersion:
        """Activate the version that served before, as `activate` does; raises ConflictError."""
        with self._database.read_of(name) as (work, collection):
            previous = _find_previous(work, collection)
        if previous is None:
            message = f"collection {name!r} had no other version active before: nothing was changed"
            raise errors.ConflictError("no-previous-version", message)
        if expected is None:
            # Which one is the previous depends on the active one, which must not change in between.
            expected = collection.active_version
        return self.activate(name, previous, by, reason or "rolled back", expected)

    def publish(self, job: Job, built: BuiltModel, lease_seconds: float) -> ModelVersion:
        """Record a new version, activate it unless a gate refused it, and finish its job: in one transaction,
        for which the lease is extended; raises JobCancelledError if the job is another worker's by now."""
        # A version that was activated by hand meanwhile stays active: the new one is recorded as inactive,
        # and its report says why.
        end = built.report.fit.convergence
        progress: dict[str, Any] = {"phase": "done", "percent": 100.0, "seconds_left": 0}
        progress |= {} if end is None else asdict(end)
        with self._database.write() as work:
            collection = work.collections.lock(job.collection)
            work.jobs.heartbeat(job, lease_seconds, progress)
            reason = built.report.not_activated
            if reason is None and collection.active_version != built.expected_active:
                reason = f"version {collection.active_version} was activated while this one was trained"
            report = replace(built.report, not_activated=reason)
            entry: ModelVersion = replace(built, report=report, created_at=work.now())
            work.models.add(collection, entry)
            if reason is None:
                _activate(work, collection, entry.version, f"job {job.id}", "trained")
            work.jobs.finish(job, JobState.SUCCEEDED, None, entry.version)
        return replace(entry, is_active=reason is None)

    def prune(self, name: str) -> list[int]:
        """Delete old versions and return their numbers; kept are the active one, the one before it, and the
        newest inactive ones. Features by encoders that none of these has are removed, too."""
        with self._database.write() as work:
            collection = work.collections.lock(name)
            protected = {collection.active_version, _find_previous(work, collection)}
            inactive = [model for model in work.models.list(collection) if model.version not in protected]
            deleted = inactive[self._n_inactive :]
            work.models.delete(collection, [model.version for model in deleted])
            modalities = [model.modalities or () for model in work.models.list(collection)]
            used = itertools.chain(collection.modalities, *modalities)
            work.encoded.keep_only(collection, {modality.encoding for modality in used})
        if deleted:
            self._garbage_collector.sweep_after_delete([], [model.bundle for model in deleted])
        return [model.version for model in deleted]


def _activate(work: UnitOfWork, collection: Collection, version: int, by: str, reason: str | None) -> None:
    """Make a version of a locked collection the active one, its encoders with it, and record it."""
    active = collection.active_version
    if active == version:
        return
    if not work.models.replace_active(collection, version, active):
        raise errors.other_version_active(collection.name, active, None)
    work.models.record_activation(collection, Activation(version, active, work.now(), by, reason))
    modalities = work.models.get(collection, version).modalities
    if modalities is not None and modalities != collection.modalities:
        work.collections.set_modalities(collection, modalities)


def _find_previous(work: UnitOfWork, collection: Collection) -> int | None:
    """Return the number of the version that was active before the present one."""
    newest = work.models.activations(collection, 1)
    return newest[0].previous if newest else None


PlotKind = Literal["singular-values", "convergence", "precision-recall", "precision-scope", "reliability"]


def draw_report(
    report: TrainingReport, kind: PlotKind, theme: plots.Theme, direction: str | None = None
) -> plots.Plot:
    """Return a plot of a training report; of curves, those of one direction, such as ``"image-to-text"``.
    Raises NotFoundError without what it is drawn from, UnavailableError without Matplotlib."""
    try:
        plot = _draw(report, kind, theme, direction)
    except ImportError as error:
        reason = "the service has no Matplotlib to draw with: pip install 'lrbs[plots]'"
        raise errors.UnavailableError("plots-unavailable", reason) from error
    if plot is None:
        of_direction = "" if direction is None else f" of {direction!r}"
        raise errors.NotFoundError(
            "plot-not-found", f"the report holds nothing to plot {kind}{of_direction} from"
        )
    return plot


def _draw(
    report: TrainingReport, kind: PlotKind, theme: plots.Theme, direction: str | None
) -> plots.Plot | None:
    fit, held_out = report.fit, report.held_out
    match kind:
        case "singular-values":
            has_any = any(value > 0.0 for value in fit.singular_values)
            return plots.plot_singular_values(fit.singular_values, theme=theme) if has_any else None
        case "convergence":
            return plots.plot_convergence(fit.history, theme=theme) if fit.history else None
        case "reliability":
            bins = held_out.reliability
            if bins is None:
                return None
            parts = np.array(bins.probabilities), np.array(bins.shares), np.array(bins.counts, np.intp)
            return plots.plot_reliability(Reliability(*parts), theme=theme)
    directions, chance = _curves(report, direction, with_scopes=kind == "precision-scope")
    if not directions:
        return None
    plot = plots.plot_precision_scope if kind == "precision-scope" else plots.plot_precision_recall
    return plot(directions, chance, theme=theme)


def _curves(
    report: TrainingReport, direction: str | None, with_scopes: bool
) -> tuple[dict[str, dict[str, RetrievalCurves]], dict[str, float]]:
    """Return the curves of each direction by method, the chosen one first, and chance."""
    directions, chance = {}, {}
    for name, quality in report.held_out.directions.items():
        curve = quality.curve
        if curve is None or direction not in (None, name) or (with_scopes and not curve.scopes):
            continue
        title = name.replace("-to-", " to ")
        curves = {report.method: curve, **quality.rivals}
        directions[title] = {method: _retrieval_curves(entry) for method, entry in curves.items()}
        if quality.chance is not None:
            chance[title] = quality.chance
    return directions, chance


def _retrieval_curves(curve: Curve) -> RetrievalCurves:
    return RetrievalCurves(
        np.array(curve.recall),
        np.array(curve.precision),
        np.array(curve.scopes, np.intp),
        np.array(curve.precision_at_scope),
    )
