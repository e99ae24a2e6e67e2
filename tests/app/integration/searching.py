"""A collection of two vector modalities that is filled, trained and searched."""

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from app.bootstrap import Services
from app.domain.entities import Content, Modality
from app.domain.filters import ItemFilter
from app.domain.reports import TrainingParameters
from app.domain.searches import SearchResult
from app.services.catalogue.preparation import NewItem
from app.services.serving.reloads import ReleaseSlot
from app.services.serving.search import Query, Search, results_of
from solver.datasets import SyntheticPairs
from tests.app.integration.in_process import run_well

NAME = "pairs"
PARAMETERS = TrainingParameters(alpha=1e-1, scaling="standard", max_iter=20)


def vector_item(modality: str, item_id: str, row: Any, *labels: str, **facts: Any) -> NewItem:
    return NewItem(modality, Content(vector=np.asarray(row).tolist()), item_id, labels, **facts)


def train(services: Services, parameters: TrainingParameters = PARAMETERS) -> int:
    services.training.request(NAME, parameters)
    job = run_well(services)
    assert job.model_version is not None
    return job.model_version


def fill(services: Services, vectors: SyntheticPairs) -> None:
    services.catalogue.create(NAME, [Modality("x", {"type": "vector"}), Modality("z", {"type": "vector"})])
    for name, rows, labels in (("x", vectors.X, vectors.x_labels), ("z", vectors.Z, vectors.z_labels)):
        items = [
            vector_item(name, f"{name}{n:02d}", row, f"class {label}", metadata={"odd": n % 2 == 1})
            for n, (row, label) in enumerate(zip(rows, labels, strict=True))
        ]
        services.catalogue.add_items(NAME, items)


def search(
    services: Services, row: Any, k: int = 10, offset: int = 0, item_filter: ItemFilter | None = None
) -> SearchResult:
    """Search x with a vector of z."""
    queries = [Query(Content(vector=np.asarray(row).tolist()))]
    (result,) = find(services, NAME, "z", "x", queries, k, offset, item_filter)
    return result


def find(
    services: Services,
    name: str,
    source: str,
    target: str,
    queries: Sequence[Query],
    k: int = 10,
    offset: int = 0,
    item_filter: ItemFilter | None = None,
    release_slot: ReleaseSlot | None = None,
    readers: Set[str] | None = None,
) -> list[SearchResult]:
    """Return the results of each query of one search."""
    asked = Search(queries, k, offset, item_filter or ItemFilter(), readers=readers)
    (outcome,) = services.search.search(name, source, target, [asked], release_slot)
    return results_of(outcome)


def ids(result: SearchResult) -> list[str]:
    return [hit.id for hit in result.hits]


def bundle_of(services: Services) -> Path:
    return services.settings.data_dir / "models" / services.versions.models(NAME)[0].bundle
