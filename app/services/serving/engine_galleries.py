"""Galleries whose rows an engine keeps; this process holds their name and a revision."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, MutableMapping, Sequence
from collections.abc import Collection as AbstractCollection
from contextlib import ExitStack
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from typing_extensions import override

from app.domain import ports
from app.domain.entities import Collection, IndexedItem, Matrix, Vector
from app.domain.errors import ServiceError
from app.domain.filters import NO_FILTER, Condition, ItemFilter
from app.services.models.model_bundles import LoadedModel
from app.services.serving.galleries import Gallery, Page
from app.services.serving.reloads import Background, outside_turns
from app.services.serving.snapshot import Snapshot
from app.services.storage.pacing import in_batches, no_pause

COUNT_THREAD_NAME = "count"
WATCH_THREAD_NAME = "watch"
_SECONDS_BETWEEN_COUNTS = 60.0  # a count may read every row of a gallery
_SECONDS_BETWEEN_LOOKS = 5.0  # whether an engine answers is found out by a small question
_ITEMS_PER_BATCH = 250  # bounds how long a batch holds the interpreter, to some ten milliseconds
_Answer = TypeVar("_Answer")
_logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class LatestAnswer(Generic[_Answer]):
    """What was last answered to a question that may take long, for those who must not wait for it."""

    ask: Callable[[], _Answer]
    seconds: float  # between two questions
    background: Background[LatestAnswer[_Answer]]
    _value: _Answer | None = None
    _due_at: float = -math.inf  # on the monotonic clock

    def read(self) -> _Answer | None:
        """Return the answer, None if there was none yet, and have it asked for again if it is that old."""
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now + self.seconds
            self.background.request(self)
        return self._value

    def update(self) -> None:
        """Ask; keep the earlier answer while that is not possible."""
        try:
            self._value = self.ask()
        except ServiceError as error:
            _logger.info("%s: %s", self.background.complaint, error)


_counts: Background[LatestAnswer[int]] = Background(
    LatestAnswer.update, COUNT_THREAD_NAME, "items could not be counted"
)
_watches: Background[LatestAnswer[str | None]] = Background(
    LatestAnswer.update, WATCH_THREAD_NAME, "the engine could not be asked"
)


def count_items(ask: Callable[[], int]) -> LatestAnswer[int]:
    """Return the latest known size of a gallery; `ask` counts the items of the latest revision."""
    return LatestAnswer(ask, _SECONDS_BETWEEN_COUNTS, _counts)


def watch_engine(ask: Callable[[], object]) -> LatestAnswer[str | None]:
    """Return why an engine did not answer when it was last asked; `ask` raises what prevents an answer."""

    def find_fault() -> str | None:
        try:
            ask()
        except ServiceError as error:
            return str(error)
        except Exception as error:
            _logger.exception("the engine could not be asked")
            return f"the vector engine fails: {type(error).__name__}"
        return None

    return LatestAnswer(find_fault, _SECONDS_BETWEEN_LOOKS, _watches)


class RemoteGallery(Gallery):
    """A gallery of an engine at one revision, which has no segments here; the count is shared by those of all
    revisions, exact compares every row."""

    def __init__(
        self,
        rows: ports.EngineGallery,
        revision: int,
        is_exact: bool = False,
        known_count: LatestAnswer[int] | None = None,
    ) -> None:
        self.segments = ()
        self._rows = rows
        self._revision = revision
        self.is_exact = is_exact
        self.index_kind = "exact" if is_exact else "hnsw"
        self._known_count = known_count or count_items(lambda: rows.count(rows.latest_revision(), NO_FILTER))

    @cached_property
    @override
    def unranked(self) -> frozenset[str]:
        return self._rows.find_unranked(self._revision)

    @cached_property
    @override
    def size(self) -> int:
        return self._rows.count(self._revision, NO_FILTER)

    @property
    @override
    def known_size(self) -> int | None:
        return self._known_count.read()

    @property
    @override
    def is_gone(self) -> bool:
        return self._rows.is_gone

    @override
    def numbers_per_search(self, item_filter: ItemFilter) -> float:
        return math.inf

    @override
    def item_ids(self) -> Iterator[str]:
        return self._rows.item_ids(self._revision)

    @override
    def first_items(self, count: int) -> Iterator[IndexedItem]:
        return (item for item, _ in self.sample(count))

    @override
    def sample(self, count: int) -> Iterator[tuple[IndexedItem, Vector]]:
        return self._rows.sample(self._revision, count)

    @override
    def vectors_of(self, item_ids: Sequence[str]) -> dict[str, Vector]:
        vectors = {}
        for batch in in_batches(item_ids, _ITEMS_PER_BATCH):
            are_meant = ItemFilter((Condition("id", "in", tuple(batch)),))
            for item, vector in self._rows.sample(self._revision, len(batch), are_meant):
                vectors[item.id] = vector
        return vectors

    @override
    def has_label(self, label: str) -> bool:
        return self._rows.has_label(self._revision, label)

    @override
    def count_matching(self, item_filter: ItemFilter) -> int:
        return self._rows.count(self._revision, item_filter)

    @override
    def count_labels(self, item_filter: ItemFilter = NO_FILTER) -> Counter[str]:
        return Counter(self._rows.count_labels(self._revision, item_filter))

    @override
    def count_values(self, key: str, item_filter: ItemFilter = NO_FILTER) -> Counter[Hashable]:
        return Counter(self._rows.count_values(self._revision, key, item_filter))

    @override
    def advance(self, revision: int) -> RemoteGallery | None:
        latest = self._rows.latest_revision()
        # Of revisions that were written in one step, only the last is there.
        return self._at(latest) if latest >= revision else None

    @override
    def held_revision(self, revision: int) -> int:
        return min(self._rows.latest_revision(), revision)

    @override
    def exactly(self, made: MutableMapping[ports.GalleryIndex, ports.GalleryIndex]) -> RemoteGallery:
        return RemoteGallery(self._rows, self._revision, True, self._known_count)

    @override
    def apply_write(
        self,
        item_ids: AbstractCollection[str],
        items: Sequence[IndexedItem],
        vectors: Matrix,
        unranked: AbstractCollection[str] = (),
        pause: Callable[[], None] = no_pause,
        *,
        revision: int = 0,
        since: int = 0,
    ) -> RemoteGallery:
        change = ports.GalleryWrite(revision, since, item_ids, items, with_a_column(vectors), unranked)
        with outside_turns():
            return self._at(self._rows.write(change))

    def _at(self, revision: int) -> RemoteGallery:
        return RemoteGallery(self._rows, revision, self.is_exact, self._known_count)

    @override
    def search(self, queries: Matrix, k: int, offset: int, item_filter: ItemFilter) -> list[Page]:
        return self.find_rows(queries, [(k, offset)] * len(queries), item_filter)

    @override
    def find_rows(
        self, queries: Matrix, pages: Sequence[tuple[int, int]], item_filter: ItemFilter = NO_FILTER
    ) -> list[Page]:
        wide = zip(map(with_a_column, queries), pages, strict=True)
        of_queries = (ports.PageQuery(self._revision, query, *page, item_filter) for query, page in wide)
        return [Page(*self._rows.search(page, self.is_exact)) for page in of_queries]

    @override
    def pages(self, rows: list[Page], pages: Sequence[tuple[int, int]]) -> list[Page]:
        return rows

    @override
    def search_similar(
        self, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None = None
    ) -> Page:
        page = ports.PageQuery(self._revision, with_a_column(query), k, offset, item_filter)
        return Page(self._rows.search_similar(page, left_out), True)


@dataclass(frozen=True, slots=True)
class EngineGalleries:
    """Opens the galleries of versions in an engine, and brings there what is missing.
    The suffix of modalities' names is of galleries that are built beside those that serve."""

    engine: ports.VectorEngine
    suffix: str = ""

    def key(self, collection: Collection, bundle: str, modality: str) -> ports.GalleryKey:
        """Return the key of a gallery."""
        return ports.GalleryKey(collection.id, bundle, modality + self.suffix)

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
                    until_made.enter_context(self.engine.claim(next(iter(keys.values()))))
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

    def _open_present(self, keys: dict[str, ports.GalleryKey]) -> dict[str, ports.EngineGallery]:
        opened = {name: self.engine.open(key) for name, key in keys.items()}
        return {name: gallery for name, gallery in opened.items() if gallery is not None}

    def _create_missing(
        self,
        keys: dict[str, ports.GalleryKey],
        opened: dict[str, ports.EngineGallery],
        local: Snapshot,
        rank: int,
        pause: Callable[[], None],
    ) -> None:
        """Bring galleries that were not opened to the engine, and add them to those that were."""
        for name, queries_of in zip(keys, reversed(keys), strict=True):
            if name not in opened:
                revision, gallery = local.collection.revision, local.galleries[name]
                vectors, queries = _rows_of(gallery, rank), _rows_of(local.galleries[queries_of], rank)
                batches = _batches_of(gallery, pause)
                new = ports.NewGallery(keys[name], revision, batches, vectors, queries, gallery.unranked)
                with outside_turns():
                    opened[name] = self.engine.create(new)


def _batches_of(gallery: Gallery, pause: Callable[[], None]) -> Iterator[tuple[list[IndexedItem], Matrix]]:
    """Yield the items of a gallery with their projections, as an engine takes them."""
    for view in gallery.segments:
        pairs = zip(view.live_items(), view.live_vectors(), strict=True)
        for batch in in_batches(pairs, _ITEMS_PER_BATCH):
            yield ([item for item, _ in batch], with_a_column(np.stack([vector for _, vector in batch])))
            pause()


def _rows_of(gallery: Gallery, rank: int) -> Matrix:
    vectors = [view.live_vectors() for view in gallery.segments]
    return with_a_column(np.concatenate(vectors) if vectors else np.zeros((0, rank), np.float32))


def with_a_column(numbers: Matrix) -> Matrix:
    """Return vectors of one number at least, as engines take them: those of a model of rank 0 have none."""
    return numbers if numbers.shape[-1] else np.zeros((*numbers.shape[:-1], 1), np.float32)
