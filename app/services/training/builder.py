"""Building a model version: from the items of a collection to a bundle on disk that has been judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version as package_version
from typing import Any

import numpy as np

from app.domain.entities import BuiltModel, Collection, Item, Matrix, ModelVersion
from app.domain.errors import DamagedBundleError, StorageFullError, StorageReadOnlyError, TrainingDataError
from app.domain.ports import Database, EncoderSource, GalleryIndex
from app.services.models.bundles import HeldOutModel, LoadedModel, ModelBundles
from app.services.models.features import item_features
from app.services.training.evaluation import PromotionGates, compare, index_recall
from app.services.training.parameters import TrainingParameters
from app.services.training.select_and_fit import Learned, Report, learn, training_data
from solver import SolverError, can_be_ranked

_PROJECTION_BATCH = 2000
_ITEMS_SHOWN = 20
_WRITE_AGAIN_SECONDS = 1.0


class ModelBuilder:
    """Trains, judges, and writes a bundle; what it gives is published by who holds the job.

    It changes nothing but files that no row speaks of, so it can be ended at any moment.

    Parameters
    ----------
    database : Database
        Read, never written.
    bundles : ModelBundles
        Where bundles are written.
    encoders : EncoderSource
        Makes encoders, fitted ones included.
    make_index : callable
        Builds the index whose recall is measured.
    gates : PromotionGates
        What a version has to reach to serve.
    patience_seconds : float
        How long a finished model waits for a disk that takes no writes.
    """

    def __init__(
        self,
        database: Database,
        bundles: ModelBundles,
        encoders: EncoderSource,
        make_index: Callable[[Matrix], GalleryIndex],
        gates: PromotionGates,
        patience_seconds: float,
    ) -> None:
        self._database = database
        self._bundles = bundles
        self._encoders = encoders
        self._make_index = make_index
        self._gates = gates
        self._patience_seconds = patience_seconds

    def build(self, name: str, parameters: TrainingParameters, report: Report) -> BuiltModel:
        """Train and write a bundle.

        Parameters
        ----------
        name : str
            Collection.
        parameters : TrainingParameters
            How to train.
        report : callable
            Takes progress; raises to end the training.

        Raises
        ------
        TrainingDataError
            If the items cannot be trained on.
        StorageFullError, StorageReadOnlyError
            If the disk still takes no writes after some patience.
        """
        report({"phase": "loading"})
        with self._database.read() as work:
            collection = work.collections.get(name)
            version = work.models.next_version(collection)
            active = None
            if collection.active_version is not None:
                active = work.models.get(collection, collection.active_version)
            items = [change.item for change in work.items.changes_since(collection, 0) if change.item]
        report({"phase": "encoding"})
        encoders = self._fit_encoders(collection, items)
        data, data_hash, outliers = training_data(collection, items, encoders)
        try:
            learned = learn(data, parameters, collection.modality_names, report)
        except SolverError as error:
            raise TrainingDataError(str(error)) from error
        model = LoadedModel(
            version, collection.revision, learned.projector, encoders, collection.modality_names, {}
        )
        galleries = {name: _project_all(model, name, items, report) for name in collection.modality_names}
        model = replace(model, galleries=galleries)
        report({"phase": "judging"})
        facts = {
            **learned.facts,
            "data_hash": data_hash,
            "not_learned_from": _shown(outliers),
            "not_ranked": _shown(_not_ranked(galleries, items)),
            "parameters": asdict(parameters),
            "code_version": package_version("lrbs"),
            "index": self._measured(model),
            "gate": self._compared(collection, active, learned, items),
        }
        report({"phase": "writing"})
        folder, manifest_hash = self._patiently_published(collection, model, facts, learned.judged, report)
        return self._read_back(collection, model, facts, folder, manifest_hash)

    def _patiently_published(
        self,
        collection: Collection,
        model: LoadedModel,
        facts: dict[str, Any],
        judged: HeldOutModel | None,
        report: Report,
    ) -> tuple[str, str]:
        """Write the bundle, and again while the disk is full: a training is not thrown away for that."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                return self._bundles.publish(collection, model, facts, judged)
            except (StorageFullError, StorageReadOnlyError) as error:
                if time.monotonic() >= deadline:
                    raise
                report({"phase": "writing", "waiting": str(error)})
            time.sleep(_WRITE_AGAIN_SECONDS)

    def _read_back(
        self,
        collection: Collection,
        model: LoadedModel,
        facts: dict[str, Any],
        folder: str,
        manifest_hash: str,
    ) -> BuiltModel:
        built = BuiltModel(
            model.version,
            folder,
            manifest_hash,
            model.index_revision,
            facts,
            collection.active_version,
            _refusal(facts),
        )
        entry = ModelVersion(
            built.version, folder, manifest_hash, built.index_revision, {}, collection.created_at, False
        )
        # What cannot be read back now would not serve either.
        self._bundles.load(collection, entry)
        return built

    def _fit_encoders(self, collection: Collection, items: Sequence[Item]) -> dict[str, Any]:
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

    def _measured(self, model: LoadedModel) -> dict[str, Any]:
        """Return the recall of each gallery's index, asked with projections of the other modality."""
        first, second = model.modality_names
        recalls = {
            target: index_recall(self._make_index(model.galleries[target][1]), model.galleries[source][1])
            for source, target in ((first, second), (second, first))
        }
        return {"recall_at_10": recalls, "needed": self._gates.index_recall}

    def _compared(
        self, collection: Collection, active: ModelVersion | None, learned: Learned, items: Sequence[Item]
    ) -> dict[str, Any]:
        if active is None:
            return {"compared_with": None, "skipped": "no version is active"}
        try:
            old = self._bundles.load(collection, active), self._bundles.load_judged(active)
        except DamagedBundleError as error:
            # Better a new version than one that no process can load.
            return {"compared_with": active.version, "skipped": f"the active version is damaged: {error}"}
        by_id = {item.id: item for item in items}
        return compare(learned.judged, learned.held_out, old, by_id, self._gates.tolerance)


def _not_ranked(
    galleries: Mapping[str, tuple[tuple[str, ...], Matrix]], items: Sequence[Item]
) -> dict[str, list[str]]:
    """Return by modality the items that the model cannot place."""
    return {
        name: sorted({item.id for item in items if item.modality == name}.difference(ids))
        for name, (ids, _) in galleries.items()
    }


def _shown(item_ids: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Return how many items there are of each modality that has any, and the first of them."""
    return {
        name: {"count": len(ids), "first": list(ids[:_ITEMS_SHOWN])} for name, ids in item_ids.items() if ids
    }


def _refusal(facts: dict[str, Any]) -> str | None:
    """Return why a version should not serve."""
    needed = facts["index"]["needed"]
    for name, recall in facts["index"]["recall_at_10"].items():
        if recall < needed:
            return f"the index of {name!r} has a recall@10 of {recall:.4f}, at least {needed:g} is needed"
    gate = facts["gate"]
    if gate.get("passed", True):
        return None
    figures = gate["map"]
    return (
        f"its held-out MAP of {figures['new']:.4f} is more than {gate['tolerance']:g} below the "
        f"{figures['active']:.4f} of version {gate['compared_with']} on the same items"
    )


def _project_all(
    model: LoadedModel, modality: str, items: Sequence[Item], report: Report
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
