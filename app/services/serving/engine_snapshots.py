"""Snapshots whose galleries an engine keeps, and galleries that are built again from the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace as replace_fields

import numpy as np

from app.domain.entities import Collection, Matrix
from app.domain.ports import EngineGallery, EngineItem, GalleryKey, VectorEngine
from app.services.models.model_bundles import LoadedModel
from app.services.serving.engine_galleries import RemoteGallery, with_a_column
from app.services.serving.gallery import Gallery
from app.services.serving.reload_scheduler import outside_turns
from app.services.serving.snapshot import Snapshot
from app.services.storage.pacing import in_batches

_ITEMS_PER_BATCH = 250  # bounds how long a batch holds the interpreter, to some ten milliseconds


class EngineGalleries:
    """Opens the galleries of versions in an engine, and brings there what is missing.
    The suffix of modalities' names is of galleries that are built beside those that serve."""

    def __init__(self, engine: VectorEngine, suffix: str = "") -> None:
        self._engine = engine
        self._suffix = suffix

    def key(self, collection: Collection, bundle: str, modality: str) -> GalleryKey:
        """Return the key of a gallery."""
        return GalleryKey(collection.id, bundle, modality + self._suffix)

    def open(
        self,
        collection: Collection,
        model: LoadedModel,
        bundle: str,
        load_local: Callable[[], Snapshot],
        pause: Callable[[], None],
    ) -> Snapshot:
        """Return a snapshot of a version, as of some revision that is not later than the collection's.
        `load_local` returns one with galleries in memory; called if the engine lacks one."""
        keys = {name: self.key(collection, bundle, name) for name in model.galleries}
        opened = self._open_present(keys)
        if len(opened) < len(keys):
            # One process reads the items: of all of them each would for nothing.
            with ExitStack() as until_made:
                with outside_turns():
                    until_made.enter_context(self._engine.claim(next(iter(keys.values()))))
                opened = self._open_present(keys)
                if len(opened) < len(keys):
                    self._create_missing(keys, opened, load_local(), model.projector.rank, pause)
        latest = [gallery.latest_revision() for gallery in opened.values()]
        revision = min([collection.revision, *latest])
        galleries = {name: RemoteGallery(opened[name], revision) for name in keys}
        model = replace_fields(model, galleries={}, indexes={})
        # Whether tombstones were purged since that revision is not known: a replay has to look.
        as_written = replace_fields(collection, revision=revision, purged_through=0)
        return Snapshot(as_written, model, galleries, bundle)

    def _open_present(self, keys: dict[str, GalleryKey]) -> dict[str, EngineGallery]:
        opened = {name: self._engine.open(key) for name, key in keys.items()}
        return {name: gallery for name, gallery in opened.items() if gallery is not None}

    def _create_missing(
        self,
        keys: dict[str, GalleryKey],
        opened: dict[str, EngineGallery],
        local: Snapshot,
        rank: int,
        pause: Callable[[], None],
    ) -> None:
        """Bring galleries that were not opened to the engine, and add them to those that were."""
        for name, queries_of in zip(keys, reversed(keys), strict=True):
            if name not in opened:
                vectors, queries = (_rows_of(local.galleries[of], rank) for of in (name, queries_of))
                with outside_turns():
                    opened[name] = self._engine.create(
                        keys[name],
                        local.collection.revision,
                        _batches_of(local.galleries[name], pause),
                        vectors,
                        queries,
                        local.galleries[name].unranked,
                    )


def _batches_of(gallery: Gallery, pause: Callable[[], None]) -> Iterator[tuple[list[EngineItem], Matrix]]:
    """Yield the items of a gallery with their projections, as an engine takes them."""
    for view in gallery.segments:
        pairs = zip(view.live_items(), view.live_vectors(), strict=True)
        for batch in in_batches(pairs, _ITEMS_PER_BATCH):
            items = [EngineItem(item.id, item.labels, dict(item.metadata)) for item, _ in batch]
            yield items, with_a_column(np.stack([vector for _, vector in batch]))
            pause()


def _rows_of(gallery: Gallery, rank: int) -> Matrix:
    vectors = [view.live_vectors() for view in gallery.segments]
    return with_a_column(np.concatenate(vectors) if vectors else np.zeros((0, rank), np.float32))
