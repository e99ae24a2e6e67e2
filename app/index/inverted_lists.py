"""Approximate maximum-inner-product search by inverted lists, with FAISS."""
# k-means divides the gallery into lists, in the space of `Balance`. A search visits the lists whose
# centroids have the largest inner products with the query, and ranks what it finds there by the exact scores.

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
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
from app.index.exact import (
    GATHERED_ONE_IN,
    QUERIES_AT_ONCE,
    ExactIndex,
    FilteredRows,
    GatheredRows,
    single_threaded,
)

# The published types describe the C++ constructors, not the Python ones.
_faiss: Any = faiss

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
        centroids = self._centroids()
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
            best = self._rank(query, of_query, k) if len(of_query) >= k else None
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
            return self._rank(query, rows, k)

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
            rows, scores = self._rank(query, candidates, k)
            # All candidates may tie with the last one, and rows that were cut off, too.
            if len(rows) < len(candidates) or len(candidates) < depth or depth == n_alive:
                return (BestRows if len(candidates) == n_alive else VisitedRows)(rows, scores)
            depth = min(depth * 2, n_alive)

    def _rank(self, query: Vector, rows: npt.NDArray[np.int64], k: int) -> BestRows:
        """Return the `k` best of some rows and those that tie with the last; scores as of `ExactIndex`."""
        scores = np.empty(len(rows), np.float32)
        query = np.ascontiguousarray(query, np.float32)
        rank = self.vectors.shape[1]
        pointers = map(_faiss.swig_ptr, (scores, query, self.vectors, rows))
        _faiss.fvec_inner_products_by_idx(*pointers, rank, 1, len(rows))
        is_result = scores >= np.partition(scores, -k)[-k]
        rows, scores = rows[is_result], scores[is_result]
        order = np.argsort(-scores, kind="stable")
        return BestRows(rows[order].astype(np.intp), scores[order])

    def _centroids(self) -> Matrix:
        quantizer = _faiss.downcast_index(self.lists.quantizer)
        centroids: Matrix = quantizer.reconstruct_n(0, quantizer.ntotal)
        return centroids


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
