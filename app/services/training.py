"""Retraining: from the items of a collection to a published, active model version."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from app.domain.entities import Collection, Item, Job, JobState, Matrix, ModelVersion
from app.domain.errors import TrainingDataError
from app.domain.ports import Database
from app.services.bundles import EncoderFactory, LoadedModel, ModelBundles, can_be_ranked
from app.services.features import item_features
from solver.bilinear import LowRankBilinear
from solver.convergence import Progress
from solver.errors import SolverError
from solver.pipeline import Projector
from solver.preprocessing import SCALINGS
from solver.selection import Candidate, LabelledPair, fit_projector, select

_PROJECTION_BATCH = 2000

Report = Callable[[Mapping[str, Any]], None]
"""Takes progress; raises to end the training."""


@dataclass(frozen=True, slots=True)
class TrainingParameters:
    """What a retrain can be told.

    Parameters
    ----------
    method : {"lrbs"}
        The paper's low-rank bilinear similarity.
    alpha : float or None
        Penalty weight; chosen on a held-out part of the training items when None.
    scaling : str or None
        Kind of feature scaling; chosen likewise when None.
    tol : float
        Relative duality gap of the final fit.
    max_iter : int
        Iteration limit of the final fit.
    seed : int
        Of the held-out split.
    """

    method: str = "lrbs"
    alpha: float | None = None
    scaling: str | None = None
    tol: float = 1e-3
    max_iter: int = 8
    seed: int = 0


class TrainingService:
    """Asks for retrains, and runs them in a worker.

    Parameters
    ----------
    database : Database
        The truth.
    bundles : ModelBundles
        Where models are published.
    encoders : EncoderFactory
        Makes encoders, fitted ones included.
    """

    def __init__(self, database: Database, bundles: ModelBundles, encoders: EncoderFactory) -> None:
        self._database = database
        self._bundles = bundles
        self._encoders = encoders

    def request(self, name: str, parameters: TrainingParameters) -> Job:
        """Queue a retrain; raises TrainingAlreadyRunningError, TrainingDataError."""
        with self._database.write() as work:
            collection = work.collections.get(name)
            counts = work.items.counts(collection)
            empty = [modality for modality in collection.modality_names if not counts.get(modality)]
            if empty:
                raise TrainingDataError(f"collection {name!r} has no items of modality {empty[0]!r} yet")
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
        data, data_hash = _training_data(collection, items, encoders)
        try:
            projector, facts = _learn(data, parameters, collection.modality_names, report)
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
        with self._database.write() as work:
            work.jobs.heartbeat(job, lease_seconds, {"phase": "done", **facts["convergence"]})
            work.models.add(collection, entry)
            work.models.activate(collection, version)
            work.jobs.finish(job, JobState.SUCCEEDED, None, version)
        return version

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


def _training_data(
    collection: Collection, items: list[Item], encoders: Mapping[str, Any]
) -> tuple[LabelledPair, str]:
    """Return the labelled training items' features and a hash of all that was learned from."""
    features, labels, digest = [], [], hashlib.sha256()
    for name in collection.modality_names:
        chosen = sorted(
            (item for item in items if item.modality == name and item.train and item.labels),
            key=lambda i: i.id,
        )
        if not chosen:
            raise TrainingDataError(f"no item of modality {name!r} has a label and may be trained on")
        features.append(item_features(chosen, encoders[name]))
        # One class per item: of several labels the first is the class.
        labels.append(np.asarray([item.labels[0] for item in chosen], dtype=np.str_))
        digest.update(features[-1].tobytes())
        digest.update("\x00".join(labels[-1].tolist()).encode())
    return LabelledPair(features[0], features[1], labels[0], labels[1]), digest.hexdigest()


def _learn(
    data: LabelledPair, parameters: TrainingParameters, names: tuple[str, str], report: Report
) -> tuple[Projector, dict[str, Any]]:
    """Choose what was not given, then fit on all training items."""
    candidates = _choose(data, parameters, report)
    best = candidates[0] if candidates else None
    estimator = LowRankBilinear(tol=parameters.tol, max_iter=parameters.max_iter)
    fraction: float | None = best.alpha_fraction if best else None
    if parameters.alpha is not None:
        estimator.set_params(alpha=parameters.alpha)
        fraction = None
    scaling = parameters.scaling or (best.scaling if best else SCALINGS[1])
    projector = fit_projector(
        data, scaling, estimator, fraction, lambda progress: report({"phase": "fitting", **_shown(progress)})
    )
    last = estimator.history_[-1]
    facts = {
        "method": parameters.method,
        "scaling": scaling,
        "alpha": float(estimator.alpha),
        "train_items": {names[0]: len(data.X), names[1]: len(data.Z)},
        "classes": sorted(set(data.x_labels.tolist()) & set(data.z_labels.tolist())),
        "rank": estimator.rank_,
        "singular_values": estimator.singular_values_.tolist(),
        "convergence": {
            "iteration": estimator.n_iter_,
            "objective": estimator.objective_,
            "gap": estimator.duality_gap_,
            "rank": estimator.rank_,
            "converged": estimator.converged_,
            "seconds": last.seconds,
        },
        "held_out": _held_out(best, names),
        "candidates": [asdict(candidate) for candidate in candidates],
    }
    return projector, facts


def _choose(data: LabelledPair, parameters: TrainingParameters, report: Report) -> list[Candidate]:
    if parameters.alpha is not None and parameters.scaling is not None:
        return []

    def on_candidate(done: int, total: int, candidate: Candidate) -> None:
        report({"phase": "choosing", "candidate": done, "candidates": total})

    options: dict[str, Any] = {"scalings": (parameters.scaling,)} if parameters.scaling else {}
    return select(
        data,
        random_state=parameters.seed,
        on_candidate=on_candidate,
        callback=lambda progress: report({"phase": "choosing", **_shown(progress)}),
        **options,
    )


def _held_out(best: Candidate | None, names: tuple[str, str]) -> dict[str, float]:
    if best is None:
        return {}
    return {f"{names[0]}-to-{names[1]}": best.map_x_to_z, f"{names[1]}-to-{names[0]}": best.map_z_to_x}


def _shown(progress: Progress) -> dict[str, Any]:
    return {
        "iteration": progress.iteration,
        "objective": progress.objective,
        "gap": progress.gap,
        "rank": progress.rank,
        "seconds": round(progress.seconds, 3),
    }


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
