"""What there is more than one of behind the services, as protocols: indexes, vector engines, stored files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from app.domain.entities import Content, Features, IndexedItem, Matrix, Vector
from app.domain.filters import NO_FILTER, ItemFilter
from app.domain.reports import IndexSpec

EncodeBatches = Callable[[Mapping[str, Any], Iterable[Sequence[Content]]], Iterator[Features]]
"""Yields what the encoder of some options stores of each batch, in their order."""


class BestRows(NamedTuple):
    """The best rows of an index for a query, of all that were to be searched, with their inner products."""

    rows: npt.NDArray[np.intp]
    scores: Vector

    @property
    def is_exact(self) -> bool:
        """Whether no better row can have been missed."""
        return True


class VisitedRows(BestRows):
    """The best of those rows that a search visited."""

    @property
    @override
    def is_exact(self) -> bool:
        return False


class RowSearch(Protocol):
    """A search among some rows of an index, prepared once for many queries; immutable."""

    size: int  # number of rows that may be returned
    n_bytes: int  # memory, that of the index excluded
    numbers_per_search: int  # as of `GalleryIndex`

    def search(self, query: Vector, k: int) -> BestRows:
        """Return row numbers of the index and scores, as of `GalleryIndex.search`."""


class GalleryIndex(Protocol):
    """Maximum-inner-product search over the rows of a matrix; immutable once built."""

    is_exact: bool  # whether every search returns the true best rows, so that recall need not be measured
    spec: IndexSpec
    size: int  # number of rows
    vectors: Matrix  # the (size, rank) rows themselves
    n_bytes: int  # memory, that of the rows included
    numbers_per_search: int  # about how many numbers a search compares with those of its query

    def rebuild(self, vectors: Matrix, rows_before: npt.NDArray[np.intp] | None = None) -> GalleryIndex:
        """Return an index of the same kind over other rows of the same space, without learning from them.
        `rows_before` has for each its number in this index, which saves time, or -1."""

    def search(self, query: Vector, k: int, alive: npt.NDArray[np.bool] | None) -> BestRows:
        """Return row numbers and scores of the `k` best rows that are alive (None: all), best first.
        Fewer only if fewer are alive; more if some tie with the last: the caller orders equal scores."""

    def restrict(self, alive: npt.NDArray[np.bool]) -> RowSearch:
        """Return a search among the rows that are alive, for a mask that many queries share."""

    def search_many(
        self, queries: Matrix, ks: Sequence[int], alive: npt.NDArray[np.bool] | None
    ) -> list[BestRows]:
        """Return for each query what `search` would return, to the bit, in less time where that is
        possible."""
        return [self.search(query, k, alive) for query, k in zip(queries, ks, strict=True)]


class GalleryKey(NamedTuple):
    """Which gallery: of a collection, as one model sees one of its modalities."""

    collection_id: int
    bundle: str
    modality: str


class PageQuery(NamedTuple):
    """Results offset + 1 to offset + k by a query, of the items of a revision that match a filter."""

    revision: int
    query: Vector
    k: int
    offset: int
    item_filter: ItemFilter


EngineHits = list[tuple[IndexedItem, float]]
"""Items with their scores, best first."""


@dataclass(frozen=True, slots=True)
class GalleryWrite:
    """The changes of a revision: everything that was written or deleted since an earlier one, and of these
    the items that can be ranked, by their projections (n_items, rank), and those that cannot be placed."""

    revision: int
    since: int
    item_ids: Collection[str]
    items: Sequence[IndexedItem]
    vectors: Matrix
    unranked: Collection[str]


@dataclass(frozen=True, slots=True)
class NewGallery:
    """A gallery of a revision: batches of items with their projections, and what the model cannot place. An
    index may learn from `vectors`, (n_items, rank), all or some, and from `queries` of the other modality."""

    key: GalleryKey
    revision: int
    batches: Iterator[tuple[Sequence[IndexedItem], Matrix]]
    vectors: Matrix
    queries: Matrix
    unranked: Collection[str]


class EngineGallery(Protocol):
    """One gallery in an engine; of processes that replay the same changes one writes them.
    Its methods raise VectorEngineUnavailableError."""

    # A row stands for an item from the revision in which it was written to the one in which it was written
    # again or deleted, so that each caller finds what its own revision holds, whatever others write
    # meanwhile.

    is_gone: bool
    """Whether others have removed it, as a method found out, so that it has to be made again."""

    def write(self, change: GalleryWrite) -> int:
        """Make the gallery of a revision, in one step, unless a later one was made; return which one it is.
        VectorEngineUnavailableError also if it does not hold `since` yet, since it is being made again."""
        # Where another process made a later revision, what this one was to hold is true from there on only.

    def latest_revision(self) -> int:
        """Return the latest revision of which everything was written."""

    def item_ids(self, revision: int) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""

    def count(self, revision: int, item_filter: ItemFilter) -> int:
        """Return how many items that match a filter can be ranked."""

    def find_unranked(self, revision: int) -> frozenset[str]:
        """Return the items that the model cannot place."""

    def search(self, page: PageQuery, compares_all: bool = False) -> tuple[EngineHits, bool]:
        """Return a page by inner product, equal ones by id, and whether exact, as it always is if it
        `compares_all`. Fewer than `k` are returned only where fewer match."""

    def search_similar(self, page: PageQuery, left_out: str | None) -> EngineHits:
        """Return the same by cosine; `left_out` is no result."""

    def has_label(self, revision: int, label: str) -> bool:
        """Return whether an item that can be ranked carries a label."""

    def count_labels(self, revision: int, item_filter: ItemFilter) -> dict[str, int]:
        """Return how many items that match a filter carry each label."""

    def count_values(self, revision: int, key: str, item_filter: ItemFilter) -> dict[Hashable, int]:
        """Return how many of them have each value under a metadata key, by what `comparable` makes of it."""

    def sample(
        self, revision: int, count: int, item_filter: ItemFilter = NO_FILTER
    ) -> Iterator[tuple[IndexedItem, Vector]]:
        """Yield some items that match a filter with their projections, the same ones for one revision."""

    def purge(self, before: int) -> int:
        """Remove the rows that no revision from `before` on holds; return how many. Earlier ones are answered
        by it. What others may still be reading is left to later calls."""


class VectorEngine(Protocol):
    """Keeps galleries."""

    def open(self, key: GalleryKey) -> EngineGallery | None:
        """Return a gallery that is complete; None where there is none."""

    def claim(self, key: GalleryKey) -> AbstractContextManager[object]:
        """Be the only one who makes a gallery, and those made with it, within a ``with`` statement.
        VectorEngineUnavailableError while another process is, after some seconds."""

    def create(self, new: NewGallery) -> EngineGallery:
        """Make a gallery, or finish one that another process left unfinished."""

    def replace(self, key: GalleryKey, by: GalleryKey) -> bool:
        """Put a gallery in the place of another of the same model, in one step, under the other's key.
        False, and nothing is done, while the new one is of an earlier revision."""
        # What is answered from then on is the new one's, also by those who had opened the old one.

    def belongs_to(self, installation: str) -> bool:
        """Return whether all galleries are those of one installation; the first that asks has the engine."""

    def keys(self) -> list[GalleryKey]:
        """Return the galleries there are."""

    def drop(self, key: GalleryKey) -> None:
        """Remove a gallery, if there is one."""

    def remove_unfinished(self) -> int:
        """Remove what processes that were killed left of galleries, which no key names; return how many."""

    def close(self) -> None:
        """Close the connections."""
