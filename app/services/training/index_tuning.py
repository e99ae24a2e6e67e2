"""The choice of a gallery's index: the fastest that finds what the exact ranking has, or the exact one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from app.domain.entities import Matrix, Vector
from app.domain.ports import GalleryIndex
from app.domain.reports import IndexChoice, IndexRecall, IndexSpec, IndexTrial
from app.index import ExactIndex, InvertedLists, build_candidates
from app.services.models.model_bundles import LoadedModel

_DEPTH = 10  # recall is that of a first page of results
_QUERIES, _MIN_QUERIES = 400, 50
"""Queries that recall is measured with: 400 of ten hits give a recall of 0.99 to about two thousandths."""
_LEARNED_FROM = 50_000
"""Other queries that an index may learn from: enough for a second moment of some hundred dimensions."""
_MIN_SPEEDUP = 1.5  # an index that is not clearly faster is not worth its misses
_TIE = 1.1  # latencies within a tenth are noise of the measurement: the first candidate is chosen
_FIRST_PROBES, _GROWTH = 4, 1.5
"""Numbers of probes that are tried: 4, 6, 9, 13, ..."""
_USUAL_RANK = 128
"""An item of a higher rank counts for as many as it takes longer to compare: names alone may add hundreds."""
_ROUNDING = 1e-5  # relative difference of two float32 scores that may be rounding


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """A candidate with the probes that it needs, and its figures."""

    index: InvertedLists
    trial: IndexTrial


@dataclass(eq=False)
class IndexTuner:
    """Chooses the index of each gallery of a model by its recall@10; smaller ones than `min_items`, and than
    fewer of a higher rank, are searched exactly, unmeasured."""

    _needed_recall: float
    _min_items: int

    def tune(self, model: LoadedModel, queries: Mapping[str, Matrix]) -> tuple[LoadedModel, IndexRecall]:
        """Return a model with the approximate indexes that are to serve, and how they were chosen; `queries`
        are projections of content, by modality."""
        first, second = model.modality_names
        choices: dict[str, IndexChoice] = {}
        indexes: dict[str, GalleryIndex] = {}
        recalls: dict[str, float] = {}
        for target, source in ((first, second), (second, first)):
            vectors = model.galleries[target][1]
            size, rank = vectors.shape
            if size * max(rank / _USUAL_RANK, 1.0) < self._min_items or rank == 0:
                continue
            chosen, choices[target] = self.choose(vectors, queries[source])
            if chosen is not None:
                indexes[target] = chosen.index
                recalls[target] = chosen.trial.recall_at_10
        report = IndexRecall(recalls, self._needed_recall, is_exact=not indexes, choices=choices)
        return replace(model, indexes=indexes), report

    def choose(self, vectors: Matrix, queries: Matrix) -> tuple[_Attempt | None, IndexChoice]:
        """Return the candidate to publish, None for the exact index, and how it was chosen. Of the queries
        (projections of the other modality) some are asked, an index may learn from the others."""
        if len(queries) < 2 * _MIN_QUERIES:
            reason = f"{len(queries)} items of the other modality are too few to measure the recall with"
            return None, IndexChoice(IndexSpec(), reason)
        sample, others = _split(queries)
        exact_scores, exact_milliseconds = _time_searches(ExactIndex(vectors), sample)
        least_scores = [
            scores.min(initial=np.inf) - _ROUNDING * float(np.abs(scores).max(initial=0.0))
            for scores in exact_scores
        ]
        attempts: list[_Attempt] = []
        began = time.perf_counter()
        for candidate in build_candidates(vectors, others):
            build_seconds = time.perf_counter() - began
            attempts.append(self._try(candidate, sample, least_scores, exact_milliseconds, build_seconds))
            began = time.perf_counter()
        trials = tuple(entry.trial for entry in attempts)
        passing = [entry for entry in attempts if entry.trial.rejected is None]
        if not passing:
            reason = (
                f"no candidate reached a recall@10 of {self._needed_recall:g} "
                f"at {_MIN_SPEEDUP:g} times the speed of the exact search"
            )
            return None, IndexChoice(IndexSpec(), reason, exact_milliseconds, trials)
        bound = _TIE * min(entry.trial.milliseconds for entry in passing)
        chosen = next(entry for entry in passing if entry.trial.milliseconds <= bound)
        speedup = exact_milliseconds / chosen.trial.milliseconds
        reason = (
            f"the fastest with a recall@10 of {self._needed_recall:g}: {speedup:.1f} times the exact search"
        )
        return chosen, IndexChoice(chosen.trial.spec, reason, exact_milliseconds, trials)

    def _try(
        self,
        candidate: InvertedLists,
        sample: Matrix,
        least_scores: Sequence[np.float32],
        exact_milliseconds: float,
        build_seconds: float,
    ) -> _Attempt:
        """Return a candidate with the fewest probes that reach the recall, or the first that are too slow."""
        probes = _FIRST_PROBES
        while True:
            index = candidate.with_probes(min(probes, candidate.spec.lists))
            answers, milliseconds = _time_searches(index, sample)
            n_found = [
                np.count_nonzero(scores >= least) for scores, least in zip(answers, least_scores, strict=True)
            ]
            recalls = np.array(n_found) / min(_DEPTH, index.size)
            is_fast = milliseconds * _MIN_SPEEDUP <= exact_milliseconds
            # On both halves, as the probes are chosen by the same queries.
            reaches = min(half.mean() for half in (recalls[::2], recalls[1::2])) >= self._needed_recall
            if reaches or not is_fast or probes >= candidate.spec.lists:
                break
            probes = int(probes * _GROWTH)
        size = max(index.size, 1)
        figures = float(recalls.mean()), milliseconds, build_seconds, index.n_bytes / size
        rejected = None
        if not (reaches and is_fast):
            speedup = f"{exact_milliseconds / milliseconds:.2g} times the speed of the exact search"
            needed = f"{self._needed_recall:g} on both halves of the queries, at {_MIN_SPEEDUP:g} times"
            rejected = f"recall@10 is {figures[0]:.4f} at {speedup}; {needed}, is needed"
        return _Attempt(index, IndexTrial(index.spec, *figures, rejected))


def _split(queries: Matrix) -> tuple[Matrix, Matrix]:
    """Return some queries to ask, and some of the others."""
    n_sampled = min(_QUERIES, len(queries) // 2)
    is_sampled = np.zeros(len(queries), np.bool)
    is_sampled[np.linspace(0, len(queries) - 1, n_sampled).astype(np.intp)] = True
    others = queries[~is_sampled]
    return queries[is_sampled], others[:: max(len(others) // _LEARNED_FROM, 1)]


def _time_searches(index: GalleryIndex, sample: Matrix) -> tuple[list[Vector], float]:
    """Return the scores of each query's first page, and the median time of a search in ms."""
    answers, milliseconds = [], []
    for query in sample:
        began = time.perf_counter()
        _, scores = index.search(query, _DEPTH, None)
        milliseconds.append(1000.0 * (time.perf_counter() - began))
        answers.append(scores[:_DEPTH])
    return answers, median(milliseconds)
