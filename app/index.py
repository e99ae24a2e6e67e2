"""Maximum-inner-product search with FAISS: exact, of several queries by one product, and by lists."""
# A product of matrices reads the rows once for all queries, but rounds otherwise than a comparison of one
# query with one row. Either differs from the true inner product by at most ``gamma ||q|| ||v||`` with ``gamma
# = d u / (1 - d u)`` for d dimensions and a unit roundoff u, in whatever order it is summed (Higham, Accuracy
# and Stability of Numerical Algorithms, 2002, sections 3.1 and 3.5). So a row among the k best by the one has
# at least the k-th best score by the other less four times that bound.
#
# k-means divides the gallery into lists, in the space of `Balance`. A search visits the lists whose
# centroids have the largest inner products with the query, and ranks what it finds there by the exact scores.

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from app.domain.entities import Matrix, Vector
from app.domain.errors import DamagedBundleError
from app.domain.ports import BestRows, GalleryIndex, RowSearch, VisitedRows
from app.domain.reports import IndexSpec
from solver import single_threaded_blas

BLOCK = 64
"""Rows whose best score is kept: few enough that the best blocks hold few other rows."""
# Each step of fewer rows would wait for Python's lock.
_ROWS_AT_ONCE = 1 << 17  # of one product, a multiple of `BLOCK`: scores for eight queries take four megabytes
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


_NUMBERS_WORTH_A_PRODUCT = 1 << 21
"""Of fewer numbers (50,000 rows of 40) all queries are scanned for in one call without Python's lock. A
product takes half of that for eight queries, in dozens of calls, and waits for the lock before each."""
QUERIES_AT_ONCE = 16
"""Of fewer than 20 queries, every version of FAISS compares each with one row after the other."""
GATHERED_ONE_IN = 8
"""Rows of an index for each one that a prepared search copies at most, so that a copy takes little memory.
Side by side, a tenth of 1,000,000 rows were compared in a thirtieth of the time that all of them took."""
_QUERIES_WORTH_A_PRODUCT = 3
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


def _rank(vectors: Matrix, query: Vector, rows: npt.NDArray[np.int64], k: int) -> BestRows:
    """Return the `k` best of some rows, which are no fewer, and those that tie with the last; scores as of
    `ExactIndex`. Called where FAISS is `single_threaded`."""
    scores = np.empty(len(rows), np.float32)
    query = np.ascontiguousarray(query, np.float32)
    pointers = map(_faiss.swig_ptr, (scores, query, vectors, rows))
    _faiss.fvec_inner_products_by_idx(*pointers, vectors.shape[1], 1, len(rows))
    is_result = scores >= np.partition(scores, -k)[-k]
    rows, scores = rows[is_result], scores[is_result]
    order = np.argsort(-scores, kind="stable")
    return BestRows(rows[order].astype(np.intp), scores[order])


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
        with single_threaded(), single_threaded_blas():
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
        return _rank(self.vectors, query, rows, k)

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


KINDS = ("ivf-flat", "ivf-sq8")
"""In the order in which one is preferred where they are equally fast."""
_LISTS_PER_ROOT = 3.0
"""Lists in relation to the square root of the rows: 1024 for 100,000, where 512 needed as many probes."""
_ROWS_PER_LIST = 64  # rows that k-means sees for each list; FAISS warns below 39
_ITERATIONS = 10
"""Of k-means: with ten, lists of 100,000 rows were filled evenly, the largest factor of imbalance 1.5."""
_SEED = 7
_FLOOR = 1e-6
"""Smallest eigenvalue of a second moment relative to its largest: directions without variance stay finite."""
_PARALLEL_ROWS = 100_000
"""Fewer rows are clustered in one thread: on a busy machine, threads wait for each other for longer."""
_PAGE = 10  # rows of a first page, for which probes are chosen
_MARGIN = 20  # candidates beyond twice the rows asked for: rounding to 8 bits swaps neighbours
_GATHERED_PER_VISITED = 3
"""Rows side by side that are compared in the time of visiting one in a list behind a filter: 2.7 and 10 ns
where a tenth of 1,000,000 rows passed."""
_ID_BYTES = 8  # a list names each of its rows by a 64-bit number


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """The maps of rows and queries into the space of the lists: (rank, rank), symmetric inverses of each
    other."""

    # A ranking by inner products stays the same when a constant is added to all rows of the gallery, and when
    # a map ``A`` is applied to the gallery and ``A^-T`` to the queries. Rows are centred by their mean, so
    # that lists follow their differences, and both sides get the same second moment: then rows that are near
    # each other score alike for the queries that come, and clusters by distance are good lists for inner
    # products.

    mean: Vector  # of the gallery, (rank,)
    row_map: Matrix
    query_map: Matrix

    @classmethod
    def between(cls, vectors: Matrix, queries: Matrix) -> Balance:
        """Return the maps that give centred rows (size, rank) and a sample of queries (n_queries, rank) the
        same second moment."""
        # It is the geometric mean of the two moments, in the sense of positive definite matrices.
        mean = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        of_rows, of_queries = _second_moment(vectors - mean), _second_moment(queries)
        root, inverse_root = _power(of_rows, 0.5), _power(of_rows, -0.5)
        squared_map = inverse_root @ _power(root @ of_queries @ root, 0.5) @ inverse_root
        row_map, query_map = _power(squared_map, 0.5), _power(squared_map, -0.5)
        return cls(mean, row_map.astype(np.float32), query_map.astype(np.float32))

    def map_rows(self, vectors: Matrix) -> Matrix:
        """Return rows of the gallery in the space of the lists, shape (n, rank)."""
        mapped: Matrix = np.ascontiguousarray((vectors - self.mean) @ self.row_map, dtype=np.float32)
        return mapped

    def map_query(self, query: Vector) -> Matrix:
        """Return one query in the space of the lists, shape (1, rank)."""
        mapped: Matrix = np.ascontiguousarray((query @ self.query_map)[None, :], dtype=np.float32)
        return mapped


class InvertedLists(GalleryIndex):
    """Inverted lists over the rows of a matrix (size, rank) of rank 1 at least; scores are inner products
    with these."""

    # `lists` is a faiss.IndexIVF of the rows in order, which visits lists by the inner product of query and
    # centroid.

    is_exact = False

    def __init__(self, vectors: Matrix, space: Balance, lists: Any, spec: IndexSpec) -> None:
        self.vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        self.spec = spec
        self.space = space
        self.lists = lists
        self.size = len(self.vectors)
        self.n_bytes = int(self.vectors.nbytes + self.size * (lists.code_size + _ID_BYTES))
        visited = self.size * spec.probes // lists.nlist
        self.numbers_per_search = int((lists.nlist + visited) * self.vectors.shape[1])

    def with_probes(self, probes: int) -> InvertedLists:
        """Return the same index with another number of probes; they share their memory."""
        return InvertedLists(self.vectors, self.space, self.lists, replace(self.spec, probes=probes))

    @override
    def rebuild(self, vectors: Matrix, rows_before: npt.NDArray[np.intp] | None = None) -> GalleryIndex:
        if not len(vectors):
            return ExactIndex(vectors)
        quantizer = _faiss.downcast_index(self.lists.quantizer)
        centroids: Matrix = quantizer.reconstruct_n(0, quantizer.ntotal)
        lists = _make_lists(self.spec.kind, centroids, self.lists)
        with single_threaded():  # searches go on meanwhile
            mapped = self.space.map_rows(vectors)
            if rows_before is None:
                nearest = _assign(mapped, centroids)
            else:
                nearest = self._list_numbers()[rows_before]
                is_new = rows_before < 0
                nearest[is_new] = _assign(mapped[is_new], centroids)
            _fill(lists, mapped, nearest)
        return InvertedLists(vectors, self.space, lists, self.spec)

    def _list_numbers(self) -> npt.NDArray[np.int64]:
        """Return the number of the list that each row is in."""
        numbers = np.zeros(self.size, np.int64)
        stored = self.lists.invlists
        for number in range(self.lists.nlist):
            rows = _faiss.rev_swig_ptr(stored.get_ids(number), stored.list_size(number))
            numbers[rows] = number
        return numbers

    @override
    def search(self, query: Vector, k: int, alive: npt.NDArray[np.bool] | None) -> BestRows:
        if alive is not None:
            return self._filter(alive).search(query, k)
        return self.search_selected(query, k, self.size, None)

    @override
    def restrict(self, alive: npt.NDArray[np.bool]) -> RowSearch:
        n_alive = int(np.count_nonzero(alive))
        is_small = n_alive * GATHERED_ONE_IN <= self.size
        if is_small and n_alive <= _GATHERED_PER_VISITED * self._count_visited(_PAGE, n_alive):
            return GatheredRows(self.vectors, np.flatnonzero(alive))
        return self._filter(alive)

    def _filter(self, alive: npt.NDArray[np.bool]) -> FilteredRows:
        # All of them where the lists visited hold fewer rows than are asked for.
        return FilteredRows(self, alive, int(np.count_nonzero(alive)) * self.vectors.shape[1])

    @override
    def search_many(
        self, queries: Matrix, ks: Sequence[int], alive: npt.NDArray[np.bool] | None
    ) -> list[BestRows]:
        if alive is not None:
            filtered = self._filter(alive)
            return [filtered.search(query, k) for query, k in zip(queries, ks, strict=True)]
        if len(set(ks)) != 1:
            return super().search_many(queries, ks, alive)
        chunks = (
            queries[start : start + QUERIES_AT_ONCE] for start in range(0, len(queries), QUERIES_AT_ONCE)
        )
        return [best for chunk in chunks for best in self._visit_many(chunk, min(ks[0], self.size))]

    def _visit_many(self, queries: Matrix, k: int) -> Iterator[BestRows]:
        """Yield what `search` would return for each query, most of it from one call of FAISS."""
        if k <= 0 or self._count_visited(k, self.size) >= self.size:
            yield from (self.search(query, k, None) for query in queries)
            return
        depth = min(2 * k + _MARGIN, self.size)
        parameters = _faiss.SearchParametersIVF(nprobe=self._widen_probes(k, self.size))
        mapped = np.concatenate([self.space.map_query(query) for query in queries])
        with single_threaded():
            _, candidates = self.lists.search(mapped, depth, params=parameters)
            for query, of_query in zip(queries, candidates, strict=True):
                of_query = of_query[of_query >= 0]
                best = _rank(self.vectors, query, of_query, k) if len(of_query) >= k else None
                is_whole = best is not None and (len(best[0]) < len(of_query) or len(of_query) < depth)
                yield VisitedRows(*best) if best is not None and is_whole else self.search(query, k, None)

    def search_selected(
        self, query: Vector, k: int, n_alive: int, bitset: npt.NDArray[np.uint8] | None
    ) -> BestRows:
        """Search among the `n_alive` rows whose bits are set, the lowest first; None for all."""
        k = min(k, n_alive)
        if k <= 0:
            return BestRows(np.zeros(0, np.intp), np.zeros(0, np.float32))
        with single_threaded():
            visited = None
            if self._count_visited(k, n_alive) < n_alive:
                visited = self._visit(query, k, n_alive, bitset, self._widen_probes(k, n_alive))
            if visited is not None:
                return visited
            if bitset is None:
                rows = np.arange(self.size)
            else:
                rows = np.flatnonzero(np.unpackbits(bitset, count=self.size, bitorder="little"))
            return _rank(self.vectors, query, rows, k)

    def _count_visited(self, k: int, n_alive: int) -> float:
        """Return about how many rows a visit looks at, dead ones included."""
        return self._widen_probes(k, n_alive) * self.size / self.spec.lists

    def _widen_probes(self, k: int, n_alive: int) -> int:
        """Return how many lists to visit: more for later pages, and where fewer rows are alive."""
        # In proportion to the rows for one that is alive, as a filter may follow the clusters: one that
        # passed the fifth with the largest first coordinate of 100,000 rows left a recall of 0.977 where
        # probes grew with the square root, as they do with k, where that loses nothing.
        return math.ceil(self.spec.probes * math.sqrt(max(k / _PAGE, 1.0)) * self.size / max(n_alive, 1))

    def _visit(
        self, query: Vector, k: int, n_alive: int, bitset: npt.NDArray[np.uint8] | None, probes: int
    ) -> BestRows | None:
        """Return the best rows of the lists; None when they hold fewer than are asked for."""
        selector = None if bitset is None else _faiss.IDSelectorBitmap(bitset)
        parameters = _faiss.SearchParametersIVF(sel=selector, nprobe=probes)
        mapped = self.space.map_query(query)
        depth = min(2 * k + _MARGIN, n_alive)
        while True:
            _, candidates = self.lists.search(mapped, depth, params=parameters)
            candidates = candidates[0][candidates[0] >= 0]
            if len(candidates) < k:
                return None
            rows, scores = _rank(self.vectors, query, candidates, k)
            # All candidates may tie with the last one, and rows that were cut off, too.
            if len(rows) < len(candidates) or len(candidates) < depth or depth == n_alive:
                return (BestRows if len(candidates) == n_alive else VisitedRows)(rows, scores)
            depth = min(depth * 2, n_alive)


def build_candidates(vectors: Matrix, queries: Matrix) -> Iterator[InvertedLists]:
    """Yield an index over the rows of each of `KINDS`, built one after the other, with the same lists and one
    probe. The centroids of the lists are those of k-means by distance, from a seeded sample of the rows."""
    space = Balance.between(vectors, queries)
    mapped = space.map_rows(vectors)
    n_lists = min(max(2 ** round(math.log2(_LISTS_PER_ROOT * math.sqrt(len(mapped)))), 1), len(mapped))
    with _threads_for(len(mapped)):
        centroids = _cluster(mapped, n_lists)
        nearest = _assign(mapped, centroids)
    for kind in KINDS:
        with _threads_for(len(mapped)):
            lists = _make_lists(kind, centroids)
            if not lists.is_trained:
                lists.train(mapped)
            _fill(lists, mapped, nearest)
        yield InvertedLists(vectors, space, lists, IndexSpec(kind, n_lists, 1))


def save_index(index: GalleryIndex, path: Path) -> bool:
    """Write an index without its rows; return False, and write nothing, for one that is exact."""
    if not isinstance(index, InvertedLists):
        return False
    space = index.space
    # A line of JSON, three NumPy arrays, and the lists as FAISS writes them.
    with path.open("wb") as stream:
        stream.write(json.dumps(asdict(index.spec)).encode() + b"\n")
        for array in (space.mean, space.row_map, space.query_map):
            np.save(stream, array, allow_pickle=False)
        faiss.write_index(index.lists, _faiss.PyCallbackIOWriter(stream.write))
    return True


def load_index(path: Path, vectors: Matrix) -> InvertedLists:
    """Read an index over the rows that it was built over; raises DamagedBundleError."""
    try:
        with path.open("rb") as stream:
            spec = IndexSpec(**json.loads(stream.readline()))
            space = Balance(*(np.load(stream, allow_pickle=False) for _ in range(3)))
            lists = faiss.read_index(_faiss.PyCallbackIOReader(stream.read))
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise DamagedBundleError(f"{path.name} is not a readable index") from error
    if spec.kind not in KINDS or (lists.ntotal, lists.d) != vectors.shape:
        raise DamagedBundleError(f"{path.name} is not an index of these {len(vectors)} rows")
    return InvertedLists(vectors, space, lists, spec)


def _second_moment(rows: Matrix) -> npt.NDArray[np.float64]:
    moment = (rows.T @ rows).astype(np.float64)
    return moment / max(len(rows), 1)


def _power(moment: npt.NDArray[np.float64], exponent: float) -> npt.NDArray[np.float64]:
    """Return a power of a symmetric positive semidefinite matrix, its smallest eigenvalues raised."""
    values, axes = np.linalg.eigh(moment)
    smallest = max(float(values.max()) * _FLOOR, float(np.finfo(np.float32).tiny))
    values = np.maximum(values, smallest)
    power: npt.NDArray[np.float64] = (axes * values**exponent) @ axes.T
    return power


def _threads_for(n_rows: int) -> AbstractContextManager[None]:
    return single_threaded() if n_rows < _PARALLEL_ROWS else nullcontext()


def _cluster(mapped: Matrix, n_lists: int) -> Matrix:
    clustering = _faiss.Kmeans(
        mapped.shape[1],
        n_lists,
        niter=_ITERATIONS,
        seed=_SEED,
        min_points_per_centroid=1,
        max_points_per_centroid=_ROWS_PER_LIST,
    )
    clustering.train(mapped)
    centroids: Matrix = clustering.centroids
    return centroids


def _make_lists(kind: str, centroids: Matrix, trained: Any = None) -> Any:
    """Return empty lists around centroids, whose codes are those of other lists, if given."""
    n_lists, rank = centroids.shape
    quantizer = _faiss.IndexFlatL2(rank)
    quantizer.add(centroids)
    if kind == "ivf-flat":
        lists = _faiss.IndexIVFFlat(quantizer, rank, n_lists, faiss.METRIC_INNER_PRODUCT)
    else:
        bits = _faiss.ScalarQuantizer.QT_8bit
        lists = _faiss.IndexIVFScalarQuantizer(
            quantizer, rank, n_lists, bits, faiss.METRIC_INNER_PRODUCT, False
        )
        if trained is not None:
            lists.sq = _faiss.downcast_index(trained).sq
    lists.is_trained = kind == "ivf-flat" or trained is not None
    return lists


def _assign(mapped: Matrix, centroids: Matrix) -> npt.NDArray[np.int64]:
    """Return the number of each row's nearest centroid."""
    quantizer = _faiss.IndexFlatL2(centroids.shape[1])
    quantizer.add(centroids)
    nearest: npt.NDArray[np.int64] = quantizer.search(mapped, 1)[1].ravel()
    return nearest


def _fill(lists: Any, mapped: Matrix, nearest: npt.NDArray[np.int64]) -> None:
    """Put each row into the list of its nearest centroid; from then on lists are found by inner product."""
    rows = np.ascontiguousarray(mapped, np.float32)
    lists.add_core(len(rows), _faiss.swig_ptr(rows), None, _faiss.swig_ptr(nearest))
    by_distance = _faiss.downcast_index(lists.quantizer)
    by_product = _faiss.IndexFlatIP(by_distance.d)
    by_product.add(by_distance.reconstruct_n(0, by_distance.ntotal))
    by_product.this.disown()
    lists.quantizer = by_product
    lists.own_fields = True
