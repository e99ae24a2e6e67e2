"""Retraining: from the items of a collection to a published, active model version."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from app.domain.entities import Collection, Item, Job, JobState, Matrix, ModelVersion
from app.domain.errors import TrainingDataError
from app.domain.ports import Database, EncoderSource
from app.services.bundles import LoadedModel, ModelBundles, can_be_ranked
from app.services.features import item_features
from app.services.learning import Report, TrainingParameters, check_parameters, learn, training_data
from app.services.trainable import check_labels
from solver.errors import SolverError

__all__ = ["TrainingParameters", "TrainingService"]
_PROJECTION_BATCH = 2000


class TrainingService:
    """Asks for retrains, and runs them in a worker.

    Parameters
    ----------
    database : Database
        The truth.
    bundles : ModelBundles
        Where models are published.
    encoders : EncoderSource
        Makes encoders, fitted ones included.
    """

    def __init__(self, database: Database, bundles: ModelBundles, encoders: EncoderSource) -> None:
        self._database = database
        self._bundles = bundles
        self._encoders = encoders

    def request(self, name: str, parameters: TrainingParameters) -> Job:
        """Queue a retrain.

        Parameters
        ----------
        name : str
            Collection.
        parameters : TrainingParameters
            What to train.

        Raises
        ------
        TrainingAlreadyRunningError
            If one is queued or running.
        TrainingDataError
            If it is plain from the items' labels that it would fail.
        InvalidFieldError
            If a parameter is not as described.
        """
        check_parameters(parameters)
        with self._database.read() as work:
            collection = work.collections.get(name)
            labels = [
                work.items.training_labels(collection, modality) for modality in collection.modality_names
            ]
            check_labels(collection.modality_names, (labels[0], labels[1]), parameters.alpha is None)
        with self._database.write() as work:
            return work.jobs.enqueue(collection, asdict(parameters))

    def job(self, job_id: str) -> Job:
        """Return a job."""
        with self._database.read() as work:
            return work.jobs.get(job_id)

    def cancel(self, job_id: str) -> Job:
        """Ask a job to stop."""
        with self._database.write() as work:
            return work.jobs.request_cancel(job_id)

    def models(self, name: str) -> list[ModelVersion]:
        """Return all versions, newest first."""
        with self._database.read() as work:
            return work.models.list(work.collections.get(name))

    def model(self, name: str, version: int) -> ModelVersion:
        """Return one version."""
        with self._database.read() as work:
            return work.models.get(work.collections.get(name), version)

    def activate(self, name: str, version: int) -> ModelVersion:
        """Let a version serve, after its bundle was checked; raises DamagedBundleError."""
        with self._database.read() as work:
            collection = work.collections.get(name)
            model = work.models.get(collection, version)
        self._bundles.load(collection, model)
        with self._database.write() as work:
            work.models.activate(collection, version)
            return work.models.get(collection, version)

    def run(self, job: Job, report: Report, lease_seconds: float) -> int:
        """Train, publish and activate; returns the new version.

        A version that was activated by hand meanwhile keeps serving: the new one is kept, inactive, and
        says so in its facts.

        Parameters
        ----------
        job : Job
            As claimed; publishing fails when the claim was lost meanwhile.
        report : callable
            Takes progress; raises to end the training.
        lease_seconds : float
            Lease to hold while publishing.
        """
        parameters = TrainingParameters(**job.parameters)
        report({"phase": "loading"})
        with self._database.read() as work:
            collection = work.collections.get(job.collection)
            version = work.models.next_version(collection)
            items = [
                change.item for change in work.items.changes_since(collection, 0) if change.item is not None
            ]
        encoders = self._fit_encoders(collection, items)
        data, data_hash = training_data(collection, items, encoders)
        try:
            projector, facts = learn(data, parameters, collection.modality_names, report)
        except SolverError as error:
            raise TrainingDataError(str(error)) from error
        facts |= {"data_hash": data_hash, "parameters": asdict(parameters)}
        report({"phase": "indexing"})
        model = LoadedModel(version, collection.revision, projector, encoders, collection.modality_names, {})
        galleries = {name: _project_all(model, name, items, report) for name in collection.modality_names}
        model = LoadedModel(
            version, collection.revision, projector, encoders, collection.modality_names, galleries
        )
        folder, manifest_hash = self._bundles.publish(collection, model, facts)
        report({"phase": "publishing"})
        entry = ModelVersion(
            version, folder, manifest_hash, collection.revision, facts, datetime.now(UTC), False
        )
        # What cannot be read back now would not serve either.
        self._bundles.load(collection, entry)
        self._activate_trained(job, lease_seconds, collection, entry)
        return version

    def _activate_trained(
        self, job: Job, lease_seconds: float, collection: Collection, entry: ModelVersion
    ) -> None:
        """Record a version and let it serve, unless another one was chosen since the training began."""
        progress = {"phase": "done", **entry.facts["convergence"]}
        with self._database.write() as work:
            work.jobs.heartbeat(job, lease_seconds, progress)
            if not work.models.replace_active(collection, entry.version, collection.active_version):
                chosen = work.collections.get(collection.name).active_version
                reason = f"version {chosen} was activated while this one was trained"
                entry = replace(entry, facts={**entry.facts, "not_activated": reason})
            work.models.add(collection, entry)
            work.jobs.finish(job, JobState.SUCCEEDED, None, entry.version)

    def _fit_encoders(self, collection: Collection, items: list[Item]) -> dict[str, Any]:
        encoders = {}
        for modality in collection.modalities:
            encoder = self._encoders.make(modality.encoder)
            if encoder.is_fitted_with_model:
                texts = [item.text or "" for item in items if item.modality == modality.name and item.train]
                if not texts:
                    raise TrainingDataError(f"no item of modality {modality.name!r} may be trained on")
                encoder.fit(texts)
            encoders[modality.name] = encoder
        return encoders


def _project_all(
    model: LoadedModel, modality: str, items: list[Item], report: Report
) -> tuple[tuple[str, ...], Matrix]:
    chosen = [item for item in items if item.modality == modality]
    ids: list[str] = []
    parts = []
    for start in range(0, len(chosen), _PROJECTION_BATCH):
        report({"phase": "indexing", "items": start})
        batch = chosen[start : start + _PROJECTION_BATCH]
        projected = model.project(modality, item_features(batch, model.encoders[modality]))
        accepted = can_be_ranked(projected)
        parts.append(projected[accepted])
        ids += [item.id for item, is_ranked in zip(batch, accepted, strict=True) if is_ranked]
    return tuple(ids), np.concatenate(parts)
