"""Vector engines: where galleries are searched that no process holds in its memory."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from app.domain.entities import ItemFilter, Matrix, Vector


class GalleryKey(NamedTuple):
    """Which gallery: of a collection, as one model sees one of its modalities."""

    collection_id: int
    bundle: str
    modality: str


class EngineItem(NamedTuple):
    """An item as an engine keeps it beside its projection."""

    id: str
    labels: tuple[str, ...]
    metadata: dict[str, Any]


class EngineHit(NamedTuple):
    """An item with its score."""

    item: EngineItem
    score: float


class EngineGallery(Protocol):
    """One gallery in an engine.

    A row stands for an item from the revision in which it was written to the one in which it was written
    again or deleted, so that each caller finds what its own revision holds, whatever others write meanwhile.
    Of processes that replay the same changes one writes them. Its methods raise VectorEngineUnavailableError.
    """

    is_gone: bool
    """Whether a method raised GalleriesGoneError: others have removed it, and it has to be made again."""

    def write(
        self,
        revision: int,
        since: int,
        item_ids: Collection[str],
        items: Sequence[EngineItem],
        vectors: Matrix,
        unranked: Collection[str],
    ) -> int:
        """Make the gallery of a revision, in one step, unless a later one was made.

        Parameters
        ----------
        revision : int
            What it holds from then on.
        since : int
            An earlier one.
        item_ids : collection of str
            Everything that was written or deleted since that.
        items : sequence of EngineItem
            Those of them that can be ranked.
        vectors : ndarray of shape (n_items, rank)
            Their projections.
        unranked : collection of str
            Those that the model cannot place.

        Returns
        -------
        int
            The revision, or the later one that another process has made: what this one was to hold is true
            from there on only.

        Raises
        ------
        VectorEngineUnavailableError
            Also if the gallery does not hold `since` yet: it was lost, and is being made again.
        """
        ...

    def latest_revision(self) -> int:
        """Return the latest revision of which everything was written."""
        ...

    def item_ids(self, revision: int) -> Iterator[str]:
        """Yield the id of each item, including those that cannot be ranked."""
        ...

    def count(self, revision: int, item_filter: ItemFilter) -> int:
        """Return how many items that match a filter can be ranked."""
        ...

    def find_unranked(self, revision: int) -> frozenset[str]:
        """Return the items that the model cannot place."""
        ...

    def search(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> tuple[list[EngineHit], bool]:
        """Return results offset + 1 to offset + k by inner product, equal ones by id, and whether exact.

        Fewer than `k` are returned only where fewer match.
        """
        ...

    def search_exactly(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter
    ) -> list[EngineHit]:
        """Return the same, compared with every row."""
        ...

    def search_similar(
        self, revision: int, query: Vector, k: int, offset: int, item_filter: ItemFilter, left_out: str | None
    ) -> list[EngineHit]:
        """Return the same by cosine; `left_out` is no result."""
        ...

    def has_label(self, revision: int, label: str) -> bool:
        """Return whether an item that can be ranked carries a label."""
        ...

    def count_labels(self, revision: int) -> dict[str, int]:
        """Return how many items carry each label."""
        ...

    def count_values(self, revision: int, key: str) -> dict[Hashable, int]:
        """Return how many items have each value under a metadata key, by what `comparable` makes of it."""
        ...

    def sample(self, revision: int, count: int) -> Iterator[tuple[EngineItem, Vector]]:
        """Yield some items with their projections, the same ones for the same revision."""
        ...

    def purge(self, before: int) -> int:
        """Remove the rows that no revision from `before` on holds; return how many.

        An earlier revision is answered by `before` from then on. What others may still be reading is left to
        later calls.
        """
        ...


class VectorEngine(Protocol):
    """Keeps galleries."""

    def open(self, key: GalleryKey) -> EngineGallery | None:
        """Return a gallery that is complete; None where there is none."""
        ...

    def claim(self, key: GalleryKey) -> AbstractContextManager[None]:
        """Be the only one who makes a gallery, and those that are made with it, within a ``with`` statement.

        Raises VectorEngineUnavailableError while another process is, after some seconds.
        """
        ...

    def create(
        self,
        key: GalleryKey,
        revision: int,
        batches: Iterator[tuple[Sequence[EngineItem], Matrix]],
        vectors: Matrix,
        queries: Matrix,
        unranked: Collection[str],
    ) -> EngineGallery:
        """Make a gallery, or finish one that another process left unfinished.

        Parameters
        ----------
        key : GalleryKey
            Which one.
        revision : int
            Which it holds.
        batches : iterator of (sequence of EngineItem, ndarray)
            Its items with their projections.
        vectors : ndarray of shape (n_items, rank)
            The same projections, or a sample of them, from which an index may learn.
        queries : ndarray of shape (n_queries, rank)
            Projections of the other modality, from which it may learn what will be asked.
        unranked : collection of str
            Items that the model cannot place.
        """
        ...

    def replace(self, key: GalleryKey, by: GalleryKey) -> bool:
        """Put a gallery in the place of another of the same model, in one step, under the other's key.

        What is answered from then on is the new one's, also by those who had opened the old one.

        Parameters
        ----------
        key : GalleryKey
            Which one is replaced, if it is there.
        by : GalleryKey
            By which.

        Returns
        -------
        bool
            False, and nothing is done, while the new one is of an earlier revision.
        """
        ...

    def belongs_to(self, installation: str) -> bool:
        """Return whether all galleries are those of one installation; the first that asks has the engine.

        Parameters
        ----------
        installation : str
            Identity of a database.
        """
        ...

    def keys(self) -> list[GalleryKey]:
        """Return the galleries there are."""
        ...

    def drop(self, key: GalleryKey) -> None:
        """Remove a gallery, if there is one."""
        ...

    def remove_unfinished(self) -> int:
        """Remove what processes that were killed left of galleries, which no key names; return how many."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...
