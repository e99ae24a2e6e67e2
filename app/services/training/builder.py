"""Building a model version: from the items of a collection to an evaluated bundle on disk."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version as package_version
from typing import TYPE_CHECKING

from app.db.session import Database
from app.domain.entities import BuiltModel, Collection, Item, Matrix, ModelVersion
from app.domain.errors import DISK_FAULTS, DamagedBundleError, DatabaseUnavailableError, not_trainable
from app.domain.reports import Gate, LeftOut, Supervision, TrainingData, TrainingParameters, TrainingReport
from app.domain.searches import WHOLE_ITEM
from app.services.models.model_bundles import LoadedModel, ModelBundles
from app.services.models.originals import Originals
from app.services.models.placement import check_size, fill_galleries, names_of
from app.services.training.data import LabelledItems
from app.services.training.facets import Judgements, judgements_of, weigh
from app.services.training.gate import compare_with_active, compare_with_untrained, refusal_of
from app.services.training.index_tuning import IndexTuner
from app.services.training.progress import Report, StagedReport, add_time_left
from app.services.training.reencoding import Encoders, Reencoder, modalities_with
from solver import EngineError, SolverError

if TYPE_CHECKING:
    from app.services.training.methods import SelectedModel
    from solver import FitCheckpoints

_AS_THEY_ARE: Encoders = {}
_STAGES = {
    "encoding": (0.01, 0.03),
    "learning": (0.03, 0.9),
    "indexing": (0.9, 0.96),
    "judging": (0.96, 0.98),
    "writing": (0.98, 0.99),
}
"""Shares of the time of a training, measured with the default method on some thousands of items."""
_REENCODING = 0.3
"""Share of the time of a training with a new encoder that goes into encoding: some ms for each picture."""
_WRITE_AGAIN_SECONDS = 1.0  # between two attempts to write to a full disk


@dataclass(eq=False)
class ModelBuilder:
    """Trains, judges, and writes a bundle; what it gives is published by who holds the job.
    A finished model waits `patience_seconds` for a disk that takes no writes."""

    # It writes only files that no row refers to, and features by the hash of what they are of, so it can be
    # stopped at any moment. The next attempt goes on from the checkpoints. Within `engine` evaluations of
    # large fits are computed elsewhere.

    _database: Database
    _bundles: ModelBundles
    _originals: Originals
    _reencoder: Reencoder
    _tuner: IndexTuner
    _gate_tolerance: float
    _patience_seconds: float
    _checkpoints: Callable[[], FitCheckpoints]
    _engine: Callable[[], AbstractContextManager[object]]

    def build(
        self, name: str, parameters: TrainingParameters, report: Report, encoders: Encoders = _AS_THEY_ARE
    ) -> BuiltModel:
        """Train and write a bundle, with encoders that replace those of the collection by modality; `report`
        raises to end it."""
        # Raises ConflictError, DatabaseUnavailableError, and EngineError if what computes
        # elsewhere is away.
        staged = StagedReport(add_time_left(report))
        staged({"phase": "loading"})
        staged.enter(0.0, _REENCODING if encoders else 0.0)
        self._reencoder.encode_all(name, encoders, staged)
        inputs = self._read(name, parameters.supervision, encoders)
        checkpoints = self._checkpoints()
        data, described = self._teach(inputs, parameters.supervision, staged)
        selected = self._select(inputs, data, parameters, checkpoints, staged)
        staged.enter(*_STAGES["indexing"])
        model, index_recall = self._tuner.tune(*_place(inputs, data, selected, staged))
        staged.enter(*_STAGES["judging"])
        staged({"phase": "judging"})
        not_ranked = LeftOut.of_each(_not_ranked(model.galleries, inputs.items))
        gate = self._compare(inputs, selected)
        training_report = TrainingReport(
            selected.method,
            parameters,
            package_version("lrbs"),
            replace(
                described,
                not_ranked=not_ranked,
                columns=weigh(described.columns, selected.fit.weights, selected.unused),
                doubtful=selected.doubtful,
            ),
            selected.selection,
            selected.fit,
            selected.held_out_quality,
            gate,
            index_recall,
            not_activated=refusal_of(gate, index_recall),
        )
        staged.enter(*_STAGES["writing"])
        self._reencoder.encode_all(name, encoders, staged)  # what was written since
        staged({"phase": "writing"})
        publish = partial(self._bundles.publish, inputs.collection, model, training_report, selected.judged)
        folder, manifest_hash = self._publish_patiently(publish, staged)
        built = BuiltModel(
            model.version,
            folder,
            manifest_hash,
            model.index_revision,
            training_report,
            inputs.collection.created_at,
            is_active=False,
            modalities=inputs.collection.modalities,
            expected_active=inputs.collection.active_version,
        )
        # A bundle that cannot be read back now could not be served either.
        self._bundles.load(inputs.collection, built)
        checkpoints.discard()
        return built

    def _read(self, name: str, supervision: Supervision, encoders: Encoders) -> _Inputs:
        with self._database.read_of(name) as (work, stored):
            collection = replace(stored, modalities=modalities_with(stored, encoders))
            active = None
            if collection.active_version is not None:
                active = work.models.get(collection, collection.active_version)
            feedback = work.feedback.all(collection) if supervision.feedback else ()
            judgements, queries = judgements_of(collection, feedback)
            items = [change.item for change in work.items.changes_since(collection, 0) if change.item]
            return _Inputs(
                collection,
                work.models.next_version(collection),
                active,
                self._originals.encodable(work, collection, items),
                judgements,
                self._originals.encodable(work, collection, queries),
            )

    def _teach(
        self, inputs: _Inputs, supervision: Supervision, staged: StagedReport
    ) -> tuple[LabelledItems, TrainingData]:
        from app.services.training.data import training_data  # with scikit-learn, as below

        staged.enter(*_STAGES["encoding"])
        staged({"phase": "encoding"})
        return training_data(
            inputs.collection,
            [*inputs.items, *inputs.queries],
            lambda names: self._originals.fit_encoders(
                inputs.collection, [item for item in inputs.items if item.train], names
            ),
            supervision,
            inputs.judgements,
        )

    def _select(
        self,
        inputs: _Inputs,
        data: LabelledItems,
        parameters: TrainingParameters,
        checkpoints: FitCheckpoints,
        staged: StagedReport,
    ) -> SelectedModel:
        # With scikit-learn and the estimators, which no process needs but the one that trains.
        from app.services.training.methods import select_and_fit

        staged.enter(*_STAGES["learning"])
        try:
            with self._engine(), checkpoints:
                served = inputs.active.report.fit.weights if inputs.active is not None else {}
                return select_and_fit(data, parameters, inputs.collection.modality_names, staged, served)
        except EngineError:
            raise
        except SolverError as error:
            raise not_trainable(str(error)) from error

    def _publish_patiently(self, publish: Callable[[], tuple[str, str]], report: Report) -> tuple[str, str]:
        """Write the bundle, and again while the disk is full: a training is not thrown away for that."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return publish()
            except DatabaseUnavailableError as error:
                if error.code not in DISK_FAULTS or time.monotonic() >= deadline:
                    raise
                report({"phase": "writing", "waiting": str(error)})
            time.sleep(_WRITE_AGAIN_SECONDS)

    def _compare(self, inputs: _Inputs, selected: SelectedModel) -> Gate:
        collection, active, tolerance = inputs.collection, inputs.active, self._gate_tolerance
        if active is None:
            names, untrained = collection.modality_names, None
            # It can serve instead.
            if check_size(Counter(item.modality for item in inputs.items), collection) is None:
                untrained = compare_with_untrained(selected.judged, selected.held_out, names, tolerance)
            return untrained or Gate(None, "no version is active")
        try:
            old = self._bundles.load(collection, active), self._bundles.load_held_out_model(active)
        except DamagedBundleError as error:
            # Better a new version than one that no process can load.
            return Gate(active.version, f"the active version is damaged: {error}")
        by_id = self._as_before(old[0], inputs, selected)
        return compare_with_active(
            selected.judged, selected.held_out, old, by_id, selected.selection.objective, tolerance
        )

    def _as_before(self, old: LoadedModel, inputs: _Inputs, selected: SelectedModel) -> dict[str, Item]:
        """Return by id the items that may be compared, with the features of the active version's encoders."""
        collection = inputs.collection
        if old.modalities == collection.modalities or selected.held_out is None:
            return {item.id: item for item in inputs.items}
        ids = sorted({*selected.held_out.x_ids.tolist(), *selected.held_out.z_ids.tolist()})
        by_id: dict[str, Item] = {}
        with self._database.read() as work:
            held_out = work.items.get_many(collection, ids, WHOLE_ITEM).values()
            for name in old.modality_names:
                side = [item for item in held_out if item.modality == name]
                by_id |= {item.id: item for item in old.with_features(work, collection, name, side)}
        return by_id


@dataclass(frozen=True, slots=True, eq=False)
class _Inputs:
    """What a training starts from, all of one revision."""

    collection: Collection
    version: int  # number of the new one
    active: ModelVersion | None
    items: list[Item]
    judgements: Judgements  # feedback
    queries: list[Item]  # of the feedback, that are no items


def _place(
    inputs: _Inputs, data: LabelledItems, selected: SelectedModel, report: Report
) -> tuple[LoadedModel, dict[str, Matrix]]:
    """Return the new version with all items in its galleries, and by modality the projections of their
    content."""
    collection = inputs.collection
    model = LoadedModel(
        inputs.version,
        collection.revision,
        selected.projector,
        dict(zip(collection.modality_names, data.encoders or (), strict=True)),
        collection.modalities,
        {},
        names=names_of(inputs.items),
    )
    return fill_galleries(model, inputs.items, partial(report, {"phase": "indexing"}))


def _not_ranked(
    galleries: Mapping[str, tuple[tuple[str, ...], Matrix]], items: Sequence[Item]
) -> dict[str, list[str]]:
    """Return by modality the items that the model cannot place."""
    return {
        name: sorted({item.id for item in items if item.modality == name}.difference(ids))
        for name, (ids, _) in galleries.items()
    }
