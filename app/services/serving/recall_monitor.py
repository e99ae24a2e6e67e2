"""The recall of approximate indexes, measured with live queries in the background."""
# A training chooses an index by the queries that it knows. Later writes go into the same lists, and people
# ask for other things, so that an index may come to miss neighbours. A share of the queries is therefore
# answered once more, and compared with the exact ranking; an index that is below the gate with confidence is
# given up.
#
# Of a search only its projected query is kept, in memory until it was compared, and a hash of it afterwards.
# It is compared without the search's filter, on a first page: those that a filter leaves few rows for are
# answered exactly, and would hide what the others miss.
#
# A sampled query counts as one trial, not as ten: the neighbours of a query are missed together. The bounds
# are those of Clopper and Pearson (Biometrika 26, 1934), with the sum of the recalls as the number of
# successes; shares between 0 and 1 vary no more than successes and failures of the same mean do.

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import betaincinv

from app.domain.entities import Matrix, Vector
from app.domain.ports import GalleryKey
from app.index import ExactIndex
from app.services.serving.galleries import Gallery
from app.services.serving.reloads import Background
from app.services.serving.snapshot import Snapshot, SnapshotCache
from app.services.storage.pacing import Pacer

THREAD_NAME = "recall"
_ONE_IN = 8  # queries for each one that may be compared
_MAX_PENDING = 64  # queries that wait to be compared; others are not kept meanwhile
_BATCH = 16  # queries that are compared in one pass over the rows
_DEPTH = 10  # recall is that of a first page of results
_ROUNDING = 1e-5
"""Relative difference of two float32 scores that may be rounding: indexes sum in different orders."""
_ROWS_PER_STEP = 1 << 15  # rows between two pauses: some milliseconds for a batch
_REST = 49.0  # rest in relation to the work before it: comparisons take a fiftieth of a core
_FAILURE_SECONDS = 60.0  # pause after an error, which is likely to come again
_QUERIES = 4000  # size of the window: a recall of 0.98 is distinguished from 0.99 after some 2500 queries
_MIN_QUERIES = 50  # fewer say nothing: a page that asks for the same few things decides about no index
_ERROR = 1e-6
"""Probability that a bound is wrong. Bounds are compared with the gate after every sample, for years."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecallEstimate:
    """Recall@10 of an index, the mean over live queries; each bound is wrong with a probability of 1e-6."""

    recall: float
    lower: float
    upper: float
    n_queries: int  # different ones


@dataclass(slots=True, eq=False)
class RecallWindow:
    """Recalls of the last sampled queries of a gallery's approximate indexes; one that comes again counts
    once."""

    indexes: tuple[weakref.ref[object], ...] = ()
    estimate: RecallEstimate | None = None  # None while there are too few queries
    _recalls: dict[int, float] = field(default_factory=dict)  # by hash of the query, the last ones last

    def add(self, queries: Matrix, recalls: Sequence[float]) -> None:
        """Add queries with their recalls; those before `_QUERIES` are forgotten."""
        for query, recall in zip(queries, recalls, strict=True):
            key = hash(query.tobytes())
            self._recalls.pop(key, None)
            self._recalls[key] = recall
        while len(self._recalls) > _QUERIES:
            del self._recalls[next(iter(self._recalls))]
        count = len(self._recalls)
        if count >= _MIN_QUERIES:
            n_found = float(sum(self._recalls.values()))
            n_missed = count - n_found
            lower = float(betaincinv(n_found, n_missed + 1.0, _ERROR)) if n_found else 0.0
            upper = float(betaincinv(n_found + 1.0, n_missed, 1.0 - _ERROR)) if n_missed else 1.0
            self.estimate = RecallEstimate(n_found / count, lower, upper, count)


class RecallMonitor:
    """Samples queries, and measures the recall@10 of the indexes that answer them; one that is too low is
    given up: the gallery of that snapshot is searched exactly from then on, for a reason that is kept."""

    def __init__(
        self, cache: SnapshotCache, needed_recall: float, give_up: Callable[[Snapshot, str, str], None]
    ) -> None:
        self._cache = cache
        self._needed_recall = needed_recall
        self._give_up = give_up
        self._n_seen = 0
        self._pending: dict[GalleryKey, list[Vector]] = {}
        """Projected queries, by the gallery that was searched."""
        self._watched: dict[GalleryKey, RecallWindow] = {}
        self._lock = threading.Lock()  # held while these two are changed
        self._measuring = Background(self._measure_pending, THREAD_NAME, "recall is not measured")
        cache.on_evict(self._drop)

    def see(self, snapshot: Snapshot, modality: str, queries: Matrix) -> None:
        """Take note of a search, and keep one projected query of some; costs a search next to nothing."""
        gallery = snapshot.galleries[modality]
        if not len(queries) or gallery.is_exact:
            return
        # Threads that count at the same time lose a count, and nothing else.
        before = self._n_seen
        self._n_seen = before + len(queries)
        if before // _ONE_IN == self._n_seen // _ONE_IN:
            return
        query = queries[before % len(queries)].copy()
        key = GalleryKey(snapshot.collection.id, snapshot.model_bundle, modality)
        with self._lock:
            if sum(map(len, self._pending.values())) >= _MAX_PENDING:
                return
            self._pending.setdefault(key, []).append(query)
        self._measuring.request(key)

    def estimate(self, snapshot: Snapshot, modality: str) -> RecallEstimate | None:
        """Return the recall of a gallery's approximate indexes; None while too few queries were compared."""
        key = GalleryKey(snapshot.collection.id, snapshot.model_bundle, modality)
        watched = self._watched.get(key)
        return None if watched is None else watched.estimate

    def _measure_pending(self, key: GalleryKey) -> None:
        """Compare some queries of a gallery, and rest; the others wait for those of other galleries."""
        with self._lock:
            queries = self._pending.pop(key, [])
            if rest := queries[_BATCH:]:
                self._pending[key] = rest
        if rest:
            self._measuring.request(key)
        if not queries:
            return
        began, computed = time.monotonic(), time.thread_time()
        try:
            is_remote = self._measure(key, np.stack(queries[:_BATCH]))
            self._drop_unserved()
        except Exception:
            _logger.exception("recall could not be measured")
            time.sleep(_FAILURE_SECONDS)
            return
        # What an engine does takes no time of this thread.
        time.sleep(_REST * (time.monotonic() - began if is_remote else time.thread_time() - computed))

    def _drop(self, collection_id: int) -> None:
        """Forget what is known of a collection that is gone."""
        with self._lock:
            for by_gallery in (self._pending, self._watched):
                for key in [key for key in by_gallery if key.collection_id == collection_id]:
                    del by_gallery[key]

    def _drop_unserved(self) -> None:
        """Forget the galleries of collections and models that are no longer in memory."""
        snapshots = self._cache.snapshots()
        serving = {(number, snapshot.model_bundle) for number, snapshot in snapshots.items()}
        with self._lock:
            for key in [key for key in self._watched if key[:2] not in serving]:
                del self._watched[key]

    def _measure(self, key: GalleryKey, queries: Matrix) -> bool:
        """Compare some queries of one gallery, and give its index up if it misses too much.
        Returns whether an engine has compared them."""
        snapshot = self._cache.peek(key.collection_id)
        if snapshot is None or snapshot.model_bundle != key.bundle:
            return False
        gallery = snapshot.galleries[key.modality]
        if gallery.is_exact:
            return False
        recalls = measure_recalls(gallery, queries, Pacer(lambda: False))
        watched = self._watch(key, gallery)
        watched.add(queries, recalls)
        estimate = watched.estimate
        if estimate is not None and estimate.upper < self._needed_recall:
            reason = (
                f"recall@10 of {estimate.n_queries} live queries is {estimate.recall:.4f}, "
                f"at most {estimate.upper:.4f}; {self._needed_recall:g} is needed"
            )
            self._give_up(snapshot, key.modality, reason)
        return not gallery.segments

    def _watch(self, key: GalleryKey, gallery: Gallery) -> RecallWindow:
        """Return what is known of the indexes of a gallery: nothing yet of those that a merge has built."""
        indexes = [view.segment.index for view in gallery.segments if not view.segment.index.is_exact]
        with self._lock:
            watched = self._watched.get(key)
            if watched is None or [reference() for reference in watched.indexes] != indexes:
                watched = self._watched[key] = RecallWindow(tuple(map(weakref.ref, indexes)))
        return watched


def measure_recalls(gallery: Gallery, queries: Matrix, pause: Callable[[], None]) -> list[float]:
    """Return the recall@10 of each projected query, compared with the exact ranking of the same gallery."""
    depth = min(_DEPTH, gallery.size)
    if not depth:
        return [1.0] * len(queries)
    pages = gallery.search_many(queries, [(depth, 0)] * len(queries))
    pause()
    best = _best_scores(gallery, queries, depth, pause)
    recalls = []
    for page, scores in zip(pages, best, strict=True):
        least = float(scores[0] - _ROUNDING * np.abs(scores).max())
        recalls.append(sum(score >= least for _, score in page) / depth)
    return recalls


def _best_scores(gallery: Gallery, queries: Matrix, depth: int, pause: Callable[[], None]) -> Matrix:
    """Return the largest scores of each query, shape (n_queries, depth), the smallest first."""
    if not gallery.segments:  # an engine keeps them
        pages = gallery.exactly({}).search_many(queries, [(depth, 0)] * len(queries))
        return np.array([[score for _, score in reversed(page)] for page in pages], np.float32)
    best = np.full((len(queries), depth), -np.inf, np.float32)
    for view in gallery.segments:
        vectors = view.segment.index.vectors
        for start in range(0, len(vectors), _ROWS_PER_STEP):
            step = slice(start, start + _ROWS_PER_STEP)
            alive = None if view.alive is None else view.alive[step]
            answers = ExactIndex(vectors[step]).search_many(queries, [depth] * len(queries), alive)
            for number, (_, scores) in enumerate(answers):
                best[number] = np.sort(np.concatenate([best[number], scores]))[-depth:]
            pause()
    return best
