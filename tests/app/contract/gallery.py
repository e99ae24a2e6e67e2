"""Trained galleries, served by a real process: what the contract and the fuzz are run on."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from app.bootstrap import Services, build
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.services.catalogue.service import NewItem
from app.services.training.requests import TrainingParameters
from app.settings import Settings
from app.worker.worker import make_worker
from tests.app.contract.material import COLOURS, GALLERIES, PRODUCTS, SPARES, VECTORS, picture
from tests.app.e2e.conftest import Server, servers

_EACH = 4


@dataclass(frozen=True)
class Gallery:
    """A running server, its base URL and a key of each scope."""

    server: Server
    keys: dict[Scope, str]
    key_ids: frozenset[str]

    @property
    def url(self) -> str:
        return self.server.url


@contextlib.contextmanager
def served(folder: Path, *options: str, database_url: str = "", **settings: str) -> Iterator[Gallery]:
    """Serve the two galleries from a folder until the block ends."""
    services = build(Settings(data_dir=folder, database_url=database_url))
    services.schema.upgrade()
    keys = {scope: services.access.create(scope, f"contract {scope.value}") for scope in Scope}
    _fill(services)
    services.database.engine.dispose()
    if database_url:
        settings["LRBS_DATABASE_URL"] = database_url
    with servers() as start:
        secrets = {scope: secret for scope, (_, secret) in keys.items()}
        server = start(folder, ("serve", *options), **settings)
        yield Gallery(server, secrets, frozenset(key.id for key, _ in keys.values()))


def _fill(services: Services) -> None:
    catalogue, random = services.catalogue, np.random.default_rng(7)
    encoders = {PRODUCTS: ("hog-color", "tfidf"), VECTORS: ("vector", "vector")}
    for name, types in encoders.items():
        sides = zip(("image", "text"), types, strict=True)
        catalogue.create(name, [Modality(side, {"type": kind}) for side, kind in sides])
    for name in SPARES:
        catalogue.create(name, [Modality(side, {"type": "vector"}) for side in ("image", "text")])
    for place, label in enumerate(COLOURS):
        for number in range(_EACH):
            text = f"{label} number {number}, a red running thing"
            contents = {
                PRODUCTS: (Content(picture=picture(label, number)), Content(text=text)),
                VECTORS: tuple(
                    Content(vector=[float(value) for value in place + 0.1 * random.standard_normal(dim)])
                    for dim in (2, 1)
                ),
            }
            for name, sides_of in contents.items():
                items = [
                    NewItem(side, content, id=f"{side}-{label}-{number}", labels=(label,))
                    for side, content in zip(("image", "text"), sides_of, strict=True)
                ]
                catalogue.add_items(name, items)
    for name in GALLERIES:
        services.training.request(name, TrainingParameters(alpha=0.01, scaling="center"))
        job = make_worker(services).run_once()
        if job is None or job.model_version != 1:
            raise RuntimeError(f"the gallery {name} was not trained: {job}")
