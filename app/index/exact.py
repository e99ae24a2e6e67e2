"""Exact maximum-inner-product search with FAISS."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt

from app.domain.entities import Matrix, Vector
from app.domain.errors import DamagedBundleError

# The published types describe the C++ constructors, not the Python ones.
_faiss: Any = faiss


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Search without OpenMP's team, whose start costs more than a query; each thread has its own setting."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class ExactIndex:
    """A flat inner-product index; immutable once built.

    Parameters
    ----------
    vectors : ndarray of shape (size, rank)
        Projected gallery. Rank 0 (a model that learned nothing) is allowed: all scores are 0.
    """

    def __init__(self, vectors: Matrix) -> None:
        self._vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        self._index: Any = faiss.IndexFlatIP(max(self._vectors.shape[1], 1))
        if self._vectors.shape[1] and len(self._vectors):
            self._index.add(self._vectors)

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._vectors)

    @property
    def vectors(self) -> Matrix:
        """The rows themselves."""
        return self._vectors

    def search(
        self, queries: Matrix, k: int, allowed: npt.NDArray[np.bool] | None
    ) -> list[tuple[npt.NDArray[np.intp], Vector]]:
        """Return rows and scores of the k best for each query, best first.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, rank)
            Projected queries.
        k : int
            Fewer come back only when fewer are allowed.
        allowed : ndarray of bool, shape (size,), optional
            Which rows may be returned.

        Notes
        -----
        Rows that tie with the k-th are all returned, so that the caller can order equal scores
        by a rule of its own.
        """
        n_allowed = self.size if allowed is None else int(np.count_nonzero(allowed))
        if n_allowed == 0 or k <= 0:
            return [(np.zeros(0, np.intp), np.zeros(0, np.float32)) for _ in queries]
        if self._vectors.shape[1] == 0:
            rows = np.arange(self.size) if allowed is None else np.flatnonzero(allowed)
            return [(rows, np.zeros(len(rows), np.float32)) for _ in queries]
        with _one_thread():
            return [self._search_one(query, min(k, n_allowed), n_allowed, allowed) for query in queries]

    def save(self, path: Path) -> None:
        """Write the FAISS file; raises OSError, where FAISS itself would name no errno."""
        with path.open("wb") as stream:
            faiss.write_index(self._index, _faiss.PyCallbackIOWriter(stream.write))

    @classmethod
    def load(cls, path: Path, rank: int) -> ExactIndex:
        """Read a FAISS file of vectors of the given rank; raises DamagedBundleError."""
        try:
            index = faiss.read_index(str(path))
            vectors = index.reconstruct_n(0, index.ntotal)
        except (RuntimeError, AttributeError) as error:
            raise DamagedBundleError(f"{path.name} is not a readable flat index") from error
        if rank and index.d != rank:
            raise DamagedBundleError(f"{path.name} has dimension {index.d}, the model has rank {rank}")
        return cls(vectors if rank else np.zeros((0, 0), np.float32))

    def _search_one(
        self, query: Vector, k: int, n_allowed: int, allowed: npt.NDArray[np.bool] | None
    ) -> tuple[npt.NDArray[np.intp], Vector]:
        parameters = None
        if allowed is not None:
            bitmap = np.packbits(allowed, bitorder="little")
            parameters = _faiss.SearchParameters(sel=_faiss.IDSelectorBitmap(bitmap))
        wanted = min(k + 1, n_allowed)
        while True:
            scores, rows = self._index.search(query[None, :], wanted, params=parameters)
            if wanted == n_allowed or scores[0, -1] < scores[0, k - 1]:
                break
            wanted = min(wanted * 2, n_allowed)
        # FAISS fills up with row -1 where it has nothing to say, as for scores that are no numbers.
        kept = (rows[0] >= 0) & (scores[0] >= scores[0, k - 1])
        return rows[0][kept].astype(np.intp), scores[0][kept]


class ExactIndexFiles:
    """Stores galleries as flat FAISS files."""

    def save(self, vectors: Matrix, path: Path) -> None:
        """Write an index over the rows."""
        ExactIndex(vectors).save(path)

    def load(self, path: Path, rank: int) -> ExactIndex:
        """Read an index; raises DamagedBundleError."""
        return ExactIndex.load(path, rank)
