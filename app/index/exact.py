"""Exact maximum-inner-product search, of several queries from one product of matrices."""
# A product of matrices reads the rows once for all queries, but rounds otherwise than a comparison of one
# query with one row. Either differs from the true inner product by at most ``gamma ||q|| ||v||`` with ``gamma
# = d u / (1 - d u)`` for d dimensions and a unit roundoff u, in whatever order it is summed (Higham, Accuracy
# and Stability of Numerical Algorithms, 2002, sections 3.1 and 3.5). So a row among the k best by the one has
# at least the k-th best score by the other less four times that bound.

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from app.domain.entities import Matrix, Vector
from app.domain.errors import DamagedBundleError
from app.domain.ports import BestRows, GalleryIndex, RowSearch
from app.domain.reports import IndexSpec
from solver import single_threaded_blas

BLOCK = 64
"""Rows whose best score is kept: few enough that the best blocks hold few other rows."""
_ROWS_AT_ONCE = 1 << 15
"""Rows of one product, a multiple of `BLOCK`: its scores for eight queries take a megabyte."""
_COLUMNS = 4
"""Products are of a multiple of these many columns, 0 where there are fewer queries: BLAS and the search for
maxima take longer for five to seven columns than for eight."""
_UNIT_ROUNDOFF = 2.0**-24
_Maxima = npt.NDArray[np.float32]


def best_of_blocks(vectors: Matrix, queries: Matrix, alive: npt.NDArray[np.bool] | None) -> _Maxima:
    """Return the best score of each block of `BLOCK` rows, of shape (n_blocks, n_queries); None: all rows
    count. A block of (n_rows, rank) without any row that counts has the score -inf."""
    n_rows, n_columns = len(vectors), -(-len(queries) // _COLUMNS) * _COLUMNS
    transposed = np.zeros((queries.shape[1], n_columns), np.float32)
    transposed[:, : len(queries)] = queries.T
    maxima = np.empty((-(-n_rows // BLOCK), n_columns), np.float32)
    dead = None if alive is None else np.flatnonzero(~alive)
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        end = min(start + _ROWS_AT_ONCE, n_rows)
        n_blocks = -(-(end - start) // BLOCK)
        scores = np.empty((n_blocks * BLOCK, n_columns), np.float32)
        np.matmul(vectors[start:end], transposed, out=scores[: end - start])
        scores[end - start :] = -np.inf
        if dead is not None:
            first, last = np.searchsorted(dead, (start, end))
            scores[dead[first:last] - start] = -np.inf
        maxima[start // BLOCK : start // BLOCK + n_blocks] = _halve(scores.reshape(n_blocks, -1), n_columns)
    return maxima[:, : len(queries)]


def candidate_rows(maxima: Vector, k: int, n_rows: int, error: float) -> npt.NDArray[np.intp]:
    """Return rows among which are the k best of one query and all that tie with the last of these.
    `maxima` are the best scores of at least k blocks, `error` bounds that of a score (`score_errors`)."""
    # The best of k blocks are k rows: the k-th best row is no worse than the k-th best block.
    least = float(np.partition(maxima, len(maxima) - k)[len(maxima) - k])
    threshold = np.nextafter(np.float32(least - 4.0 * error), np.float32(-np.inf))
    blocks = np.flatnonzero(maxima >= threshold)
    rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return rows[rows < n_rows]


def score_errors(largest_norm: float, queries: Matrix) -> Sequence[float]:
    """Return for each query a bound on how far a score in single precision is from the true one, by the rows'
    largest norm."""
    rank = queries.shape[1]
    gamma = rank * _UNIT_ROUNDOFF / (1.0 - rank * _UNIT_ROUNDOFF)
    smallest = rank * float(np.finfo(np.float32).tiny)  # results below it round by an absolute amount
    norms = np.linalg.norm(queries.astype(np.float64), axis=1)
    return [gamma * norm * largest_norm + smallest for norm in norms.tolist()]


def _halve(scores: _Maxima, n_columns: int) -> _Maxima:
    """Return the largest score of each query in each row of `BLOCK` rows' scores, by halves: long loops."""
    while scores.shape[1] > n_columns:
        half = scores.shape[1] // 2
        scores = np.maximum(scores[:, :half], scores[:, half:])
    return scores


_NUMBERS_WORTH_A_PRODUCT = 1 << 22
"""Of fewer numbers (100,000 rows of 40) each query is scanned for in .4 ms, all in one call without Python's
lock. A product takes three quarters of that in dozens of calls, and waits for the lock before each."""
QUERIES_AT_ONCE = 16
"""Of fewer than 20 queries, every version of FAISS compares each with one row after the other."""
GATHERED_ONE_IN = 8
"""Rows of an index for each one that a prepared search copies at most, so that a copy takes little memory.
Side by side, a tenth of 1,000,000 rows were compared in a thirtieth of the time that all of them took."""
_QUERIES_WORTH_A_PRODUCT = 4
"""Of fewer queries each is scanned for in less time than a product of so few columns takes."""
_NORMS_AT_ONCE = 1 << 16  # bounds the memory of rows in double precision
# The published types describe the C++ constructors, not the Python ones.
_faiss: Any = faiss


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Search without OpenMP's threads, which cost more to start than a query; the setting is per thread."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class _StoredRows:
    """The rows of a flat FAISS index, where FAISS keeps them, so that memory holds them once; it takes no
    more rows. An array made of it refers to it, and so keeps the index."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self.__array_interface__ = {
            "version": 3,
            "shape": (index.ntotal, index.d),
            "typestr": np.dtype(np.float32).str,
            "data": (int(index.get_xb()), True),
        }


class ExactIndex(GalleryIndex):
    """A flat inner-product index over (size, rank), which compares a query with every row.
    Rank 0 (a model that learned nothing) is allowed: all scores are 0."""

    is_exact = True

    def __init__(self, vectors: Matrix) -> None:
        self._index: Any = faiss.IndexFlatIP(max(vectors.shape[1], 1))
        self.vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        if self.vectors.size:
            self._index.add(self.vectors)
            self.vectors = np.asarray(_StoredRows(self._index))
        self.spec = IndexSpec()
        self.size = len(self.vectors)
        self.n_bytes = self.vectors.nbytes
        self.numbers_per_search = self.vectors.size

    @override
    def rebuild(self, vectors: Matrix, rows_before: npt.NDArray[np.intp] | None = None) -> ExactIndex:
        return ExactIndex(vectors)

    @override
    def search(self, query: Vector, k: int, alive: npt.NDArray[np.bool] | None) -> BestRows:
        if alive is not None:
            return self._filter(alive).search(query, k)
        return self.search_selected(query, k, self.size, None)

    @override
    def restrict(self, alive: npt.NDArray[np.bool]) -> RowSearch:
        if np.count_nonzero(alive) * GATHERED_ONE_IN <= self.size:
            return GatheredRows(self.vectors, np.flatnonzero(alive))
        return self._filter(alive)

    def _filter(self, alive: npt.NDArray[np.bool]) -> RowSearch:
        if self.vectors.shape[1] == 0:  # all rows tie, and there is nothing to copy
            return GatheredRows(self.vectors, np.flatnonzero(alive))
        return FilteredRows(self, alive, self.numbers_per_search)

    @override
    def search_many(
        self, queries: Matrix, ks: Sequence[int], alive: npt.NDArray[np.bool] | None
    ) -> list[BestRows]:
        n_blocks = self.size // BLOCK
        are_few = len(queries) < _QUERIES_WORTH_A_PRODUCT or self.vectors.size < _NUMBERS_WORTH_A_PRODUCT
        if are_few or max(ks, default=0) > n_blocks // 2:
            return self._scan_many(queries, ks, alive)
        # With several threads a product of this size is no faster, and takes cores from the event loop.
        with single_threaded_blas():
            maxima = best_of_blocks(self.vectors, queries, alive)
        errors = score_errors(self._largest_norm, queries)
        return [
            self._search_blocks(query, k, alive, np.ascontiguousarray(maxima[:, number]), errors[number])
            for number, (query, k) in enumerate(zip(queries, ks, strict=True))
        ]

    def _scan_many(
        self, queries: Matrix, ks: Sequence[int], alive: npt.NDArray[np.bool] | None
    ) -> list[BestRows]:
        """Return what `search` would for each query, from one call of FAISS for many of them."""
        n_alive = self.size if alive is None else int(np.count_nonzero(alive))
        if not self.vectors.size or min(ks, default=0) <= 0 or not n_alive:
            return [self.search(query, k, alive) for query, k in zip(queries, ks, strict=True)]
        parameters = _parameters(None if alive is None else np.packbits(alive, bitorder="little"))
        depth = min(max(ks) + 1, n_alive)  # one more shows whether any row ties with the last one
        results = []
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            chunk = slice(start, start + QUERIES_AT_ONCE)
            with single_threaded():
                scores, rows = self._index.search(queries[chunk], depth, params=parameters)
            for query, k, of_scores, of_rows in zip(queries[chunk], ks[chunk], scores, rows, strict=True):
                last = min(k, n_alive) - 1
                is_plain = last + 1 == n_alive or of_scores[last] > of_scores[last + 1]
                if is_plain and of_rows[last] >= 0:
                    results.append(BestRows(of_rows[: last + 1], of_scores[: last + 1]))
                else:
                    results.append(self.search(query, k, alive))
        return results

    def _search_blocks(
        self, query: Vector, k: int, alive: npt.NDArray[np.bool] | None, maxima: Vector, error: float
    ) -> BestRows:
        """Search among the candidates; everywhere if they are many, or not enough blocks have live rows."""
        n_live_blocks = int(np.count_nonzero(maxima > -np.inf))
        if k <= 0 or n_live_blocks < k or not np.isfinite(maxima.max()):
            return self.search(query, k, alive)
        rows = candidate_rows(maxima, k, self.size, error)
        if alive is not None:
            rows = rows[alive[rows]]
        if len(rows) > self.size // 2:
            return self.search(query, k, alive)
        best, scores = ExactIndex(self.vectors[rows]).search(query, k, None)
        return BestRows(rows[best], scores)

    @cached_property
    def _largest_norm(self) -> float:
        """The largest norm of a row, in double precision."""
        blocks = (
            self.vectors[start : start + _NORMS_AT_ONCE] for start in range(0, self.size, _NORMS_AT_ONCE)
        )
        squares = (np.square(block, dtype=np.float64).sum(axis=1).max() for block in blocks)
        return math.sqrt(max(squares, default=0.0))

    def search_selected(
        self, query: Vector, k: int, n_alive: int, bitset: npt.NDArray[np.uint8] | None
    ) -> BestRows:
        """Search among the `n_alive` rows whose bits are set, the lowest first; None for all."""
        if n_alive == 0 or k <= 0:
            return BestRows(np.zeros(0, np.intp), np.zeros(0, np.float32))
        if self.vectors.shape[1] == 0:
            return BestRows(np.arange(self.size), np.zeros(self.size, np.float32))
        with single_threaded():
            return self._search_flat(query, min(k, n_alive), n_alive, _parameters(bitset))

    def _search_flat(self, query: Vector, k: int, n_alive: int, parameters: Any) -> BestRows:
        # One more than asked for shows whether any row ties with the last one.
        depth = min(k + 1, n_alive)
        while True:
            scores, rows = self._index.search(query[None, :], depth, params=parameters)
            if depth == n_alive or scores[0, -1] < scores[0, k - 1]:
                break
            depth = min(depth * 2, n_alive)
        # FAISS pads with row -1 where it has no result, as for scores that are not numbers.
        is_result = (rows[0] >= 0) & (scores[0] >= scores[0, k - 1])
        return BestRows(rows[0][is_result].astype(np.intp), scores[0][is_result])

    def save(self, path: Path) -> None:
        """Write the FAISS file; raises OSError with an errno, which FAISS itself would not set."""
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


class GatheredRows(RowSearch):
    """A copy of some rows of an index, side by side: an exact search reads only these, in their order."""

    def __init__(self, vectors: Matrix, rows: npt.NDArray[np.intp]) -> None:
        self._rows = rows
        self._index = ExactIndex(vectors[rows])
        self.size = len(rows)
        self.n_bytes = rows.nbytes + self._index.n_bytes
        self.numbers_per_search = self._index.numbers_per_search

    @override
    def search(self, query: Vector, k: int) -> BestRows:
        best, scores = self._index.search(query, k, None)
        return BestRows(self._rows[best], scores)


class FilteredRows(RowSearch):
    """Many rows of an index of rank 1 at least, each of which is looked up in a bitset."""

    def __init__(self, index: Any, alive: npt.NDArray[np.bool], numbers_per_search: int) -> None:
        self._index = index
        self._bitset = np.packbits(alive, bitorder="little")
        self.size = int(np.count_nonzero(alive))
        self.n_bytes = self._bitset.nbytes
        self.numbers_per_search = numbers_per_search

    @override
    def search(self, query: Vector, k: int) -> BestRows:
        best: BestRows = self._index.search_selected(query, k, self.size, self._bitset)
        return best


def _parameters(bitset: npt.NDArray[np.uint8] | None) -> Any:
    """Return the parameters of a search of FAISS among the rows whose bits are set; None for all."""
    return None if bitset is None else _faiss.SearchParameters(sel=_faiss.IDSelectorBitmap(bitset))
