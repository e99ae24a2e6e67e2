"""Search of a gallery."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from app.domain.entities import Matrix, Vector
from app.domain.entities.index_choice import IndexSpec


class BestRows(NamedTuple):
    """The best rows of an index for a query, of all that were to be searched.

    Parameters
    ----------
    rows : ndarray of int
        Their numbers.
    scores : ndarray of float
        Inner products with the query.
    """

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

    @property
    def size(self) -> int:
        """Number of rows that may be returned."""
        ...

    @property
    def n_bytes(self) -> int:
        """Memory, that of the index excluded."""
        ...

    @property
    def numbers_per_search(self) -> int:
        """As of `GalleryIndex`."""
        ...

    def search(self, query: Vector, k: int) -> BestRows:
        """Return row numbers of the index and scores, as of `GalleryIndex.search`."""
        ...


class GalleryIndex(Protocol):
    """Maximum-inner-product search over the rows of a matrix; immutable once built."""

    @property
    def is_exact(self) -> bool:
        """Whether every search returns the true best rows, so that its recall need not be measured."""
        ...

    @property
    def spec(self) -> IndexSpec:
        """What it is."""
        ...

    @property
    def size(self) -> int:
        """Number of rows."""
        ...

    @property
    def vectors(self) -> Matrix:
        """The (size, rank) rows themselves."""
        ...

    @property
    def n_bytes(self) -> int:
        """Memory, that of the rows included."""
        ...

    @property
    def numbers_per_search(self) -> int:
        """About how many numbers a search compares with those of its query."""
        ...

    def rebuild(self, vectors: Matrix, rows_before: npt.NDArray[np.intp] | None = None) -> GalleryIndex:
        """Return an index of the same kind over other rows of the same space, without learning from them.

        Parameters
        ----------
        vectors : ndarray of shape (n_rows, rank)
            The rows.
        rows_before : ndarray of int, shape (n_rows,), or None
            For each the number of the same row in this index, which saves time, or -1; None for no such row.
        """
        ...

    def search(self, query: Vector, k: int, alive: npt.NDArray[np.bool] | None) -> BestRows:
        """Return row numbers and scores of the `k` best rows, best first.

        Parameters
        ----------
        query : ndarray of shape (rank,)
            A projected query.
        k : int
            Fewer rows are returned only if fewer are alive; more if some tie with the last one, so that the
            caller can order equal scores by a rule of its own.
        alive : ndarray of bool, shape (size,), or None
            Which rows may be returned; None for all.
        """
        ...

    def restrict(self, alive: npt.NDArray[np.bool]) -> RowSearch:
        """Return a search among the rows that are alive, for a mask that many queries share.

        Parameters
        ----------
        alive : ndarray of bool, shape (size,)
            As of `search`.
        """
        ...

    def search_many(
        self, queries: Matrix, ks: Sequence[int], alive: npt.NDArray[np.bool] | None
    ) -> list[BestRows]:
        """Return for each query what `search` would return, to the bit, in less time where that is possible.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, rank)
            Projected queries.
        ks : sequence of int
            `k` of each.
        alive : ndarray of bool, shape (size,), or None
            As of `search`.
        """
        return [self.search(query, k, alive) for query, k in zip(queries, ks, strict=True)]


class ApproximateIndex(GalleryIndex, Protocol):
    """An index that visits a part of the rows; `GalleryIndex.search` returns `k` rows when `k` are alive.

    Its scores are exact. A search that a part of the rows could not answer compares all that are alive.
    """

    def with_probes(self, probes: int) -> Self:
        """Return the same index with another number of probes; they share their memory."""
        ...


class ApproximateIndexes(Protocol):
    """Builds approximate indexes, and keeps them in files."""

    def candidates(self, vectors: Matrix, queries: Matrix) -> Iterator[ApproximateIndex]:
        """Yield indexes over the rows, built one after the other; seeded.

        Parameters
        ----------
        vectors : ndarray of shape (size, rank)
            The gallery, finite.
        queries : ndarray of shape (n_queries, rank)
            Projections of the other modality, finite, from which an index may learn what will be asked.
        """
        ...

    def save(self, index: GalleryIndex, path: Path) -> bool:
        """Write an index without its rows; return False, and write nothing, for one that is exact."""
        ...

    def load(self, path: Path, vectors: Matrix) -> GalleryIndex:
        """Read an index over the rows that it was built over; raises DamagedBundleError."""
        ...
