"""A trained collection of vectors to be searched: drawn from a seed, its rank the length of the vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from app.bootstrap import Services
from app.cli.local_training import train
from app.domain.entities import Content, Modality, Scope
from app.services.catalogue.preparation import NewItem
from app.services.training.requests import TrainingParameters

NAME = "bench"
SOURCE, TARGET = "text", "image"
SEED = 0
HUNDREDTH = "hundredth"
"""Metadata key of which each of a hundred values is that of every hundredth item."""
_TRAINED_PER_CLASS = 6
_SPREAD, _CENTRE = 0.3, 3.0
"""Deviation within a class, and length of its centre: every class is learned, and the rank is full."""
_DRAWN_AT_ONCE = 10_000
"""Bounds the memory of drawing."""
_Rows = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BenchKeys:
    """Keys of the service: for the load, and for what runs beside it."""

    search: str
    admin: str


def prepare(services: Services, dim: int, n_versions: int) -> BenchKeys:
    """Create keys and a trained collection, whose image gallery is still small.

    Parameters
    ----------
    services : Services
        Over an empty database.
    dim : int
        Numbers of each vector, classes, and rank of the model.
    n_versions : int
        Versions to train; the first is active.
    """
    services.schema.upgrade()
    services.catalogue.create(NAME, [Modality(side, {"type": "vector"}) for side in (SOURCE, TARGET)])
    count = _TRAINED_PER_CLASS * max(dim, 2)
    for number, side in enumerate((SOURCE, TARGET)):
        rows, labels = _draw(dim, 0, count, stream=number)
        services.catalogue.add_items(
            NAME,
            [
                NewItem(side, Content(vector=row), f"{side}-{n}", (f"class {label}",))
                for n, (row, label) in enumerate(zip(rows.tolist(), labels.tolist(), strict=True))
            ],
        )
    for version in range(n_versions):
        train_version(services, seed=version)
    services.versions.activate(NAME, 1, "bench", None, None)
    _, search = services.access.create(Scope.SEARCH)
    _, admin = services.access.create(Scope.ADMIN)
    return BenchKeys(search, admin)


def train_version(services: Services, seed: int) -> int:
    """Train a version, and return its number."""
    # Figures of speed do not depend on how well it has learned: the rank is full after a few iterations.
    parameters = TrainingParameters(
        method="squared", alpha=1e-6, scaling="standard", max_iter=30, tol=0.1, seed=seed
    )
    return train(services, NAME, parameters, lambda *_: None)


def draw_queries(dim: int, count: int) -> _Rows:
    """Return query vectors, of shape (count, dim)."""
    return _draw(dim, 0, count, stream=3)[0].round(6)


def item_lines(dim: int, start: int, count: int) -> Iterator[bytes]:
    """Yield items `start` to `start + count` of the gallery as pieces of NDJSON."""
    for first in range(start, start + count, _DRAWN_AT_ONCE):
        rows, labels = _draw(dim, first, min(_DRAWN_AT_ONCE, start + count - first), stream=2)
        entries = zip(rows.round(6).tolist(), labels.tolist(), strict=True)
        items = (
            {
                "id": f"item-{number:08d}",
                "modality": TARGET,
                "vector": row,
                "labels": [f"class {label}"],
                "metadata": {"split": "test", "number": number, HUNDREDTH: number % 100},
                "train": False,
            }
            for number, (row, label) in enumerate(entries, first)
        )
        yield b"".join(json.dumps(item).encode() + b"\n" for item in items)


def _draw(dim: int, start: int, count: int, stream: int) -> tuple[_Rows, npt.NDArray[np.int64]]:
    """Return vectors around the centres of as many classes as dimensions, and their classes."""
    n_classes = max(dim, 2)
    labels = np.arange(start, start + count) % n_classes
    basis = np.linalg.qr(np.random.default_rng(SEED).standard_normal((n_classes, n_classes)))[0]
    centres = _CENTRE * basis[:, :dim]
    noise = np.random.default_rng((SEED, stream, start)).standard_normal((count, dim))
    return centres[labels] + _SPREAD * noise, labels
