"""What a search must answer, computed from the database and the model files without the service."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Engine, text

from solver.artifacts import load_projector
from solver.projector import Projector
from tests.faults.material import X

FloatArray = npt.NDArray[np.floating[Any]]
TOLERANCE = 1e-4
"""Of a score, relative to the lengths of both projections: single precision, summed in another order."""

_ACTIVE = """
SELECT m.version, m.bundle FROM collections c
JOIN model_versions m ON m.collection_id = c.id AND m.version = c.active_version WHERE c.name = :name
"""
_BUNDLE = """
SELECT m.bundle FROM collections c JOIN model_versions m ON m.collection_id = c.id
WHERE c.name = :name AND m.version = :version
"""
_ITEMS = """
SELECT i.item_id, i.features, CAST(i.labels AS TEXT) AS labels, CAST(i.metadata AS TEXT) AS metadata
FROM collections c JOIN items i ON i.collection_id = c.id
WHERE c.name = :name AND i.modality = :modality AND NOT i.is_deleted ORDER BY i.item_id
"""


@dataclass(frozen=True)
class Gallery:
    """Ids in order, their features, and what items carry by facet."""

    ids: list[str]
    features: npt.NDArray[np.float32]
    carried: dict[str, list[tuple[str, ...]]]


def carried_by(labels: Sequence[str], metadata: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return what an item of the campaigns carries, by facet."""
    return {"label": tuple(labels), **{key: (str(value),) for key, value in metadata.items()}}


def by_facet(carried: Sequence[Mapping[str, tuple[str, ...]]]) -> dict[str, list[tuple[str, ...]]]:
    """Return what each item carries, for each facet that any does."""
    return {
        name: [entry.get(name, ()) for entry in carried] for name in {key for one in carried for key in one}
    }


class Expectation:
    """Reads the truth of one collection."""

    def __init__(self, engine: Engine, find_bundle: Callable[[str], Path], collection: str) -> None:
        self._engine = engine
        self._find_bundle = find_bundle
        self._name = collection
        self._projectors: dict[int, Projector] = {}
        self._lock = threading.Lock()

    def active(self) -> int:
        """Return the version that serves."""
        with self._engine.connect() as connection:
            row = connection.execute(text(_ACTIVE), {"name": self._name}).one()
        return int(row.version)

    def gallery(self, modality: str) -> Gallery:
        """Return the items of one side."""
        with self._engine.connect() as connection:
            rows = connection.execute(text(_ITEMS), {"name": self._name, "modality": modality}).all()
        vectors = [np.frombuffer(bytes(row.features), dtype="<f4") for row in rows]
        carried = [carried_by(json.loads(row.labels), json.loads(row.metadata)) for row in rows]
        return Gallery([row.item_id for row in rows], np.stack(vectors), by_facet(carried))

    def projector(self, version: int) -> Projector:
        """Return the maps of a version, read from its bundle."""
        with self._lock:
            if version not in self._projectors:
                values = {"name": self._name, "version": version}
                with self._engine.connect() as connection:
                    bundle = connection.execute(text(_BUNDLE), values).scalar_one()
                self._projectors[version], _ = load_projector(self._find_bundle(bundle))
            return self._projectors[version]

    def scores(
        self,
        version: int,
        source: str,
        query: FloatArray,
        features: FloatArray,
        carried: dict[str, list[tuple[str, ...]]],
    ) -> FloatArray:
        """Return the score of each row of features of the other side, and how far each may be off: (2, n)."""
        projector = self.projector(version)
        maps = (projector.project_x, projector.project_z)
        of_query, of_gallery = maps if source == X else maps[::-1]
        left = np.asarray(of_query(query[None, :]), np.float64)[0]
        projected = of_gallery(features)  # none has partners
        values = {name: carried[name] for name in projector.facets}
        nothing, side = np.full_like(projected, np.nan), "z" if source == X else "x"
        right = np.asarray(projector.place(projected, nothing, values, side=side), np.float64)
        allowed = TOLERANCE * (np.linalg.norm(left) * np.linalg.norm(right, axis=1) + 1e-6)
        return np.stack([right @ left, allowed])

    def recall(
        self, source: str, query: FloatArray, gallery: Gallery, answer: dict[str, Any], k: int
    ) -> float:
        """Return which share of the k best of a gallery, by score and then by id, an answer has."""
        # An item counts when its score reaches the k-th best within the tolerance: equal scores may be
        # rounded either way.
        version = answer["model_version"]
        scores, allowed = self.scores(version, source, query, gallery.features, gallery.carried)
        least = np.sort(scores)[::-1][min(k, len(scores)) - 1]
        good = {
            item_id
            for item_id, score, off in zip(gallery.ids, scores, allowed, strict=True)
            if score >= least - 2.0 * off
        }
        hits = [hit["id"] for hit in answer["hits"]][:k]
        return len(good & set(hits)) / min(k, len(gallery.ids))
