"""Weights of the terms, chosen by the quality of the rankings of held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from solver.evaluation.gains import FIRST_PAGE, discounted_gains, ideal_gains
from solver.evaluation.metrics import average_precisions_of_hits
from solver.evaluation.ranking import rank_gallery
from solver.linalg.matrices import FloatArray
from solver.supervision.annotations import Annotations, BoolArray
from solver.supervision.conversion import LABEL
from solver.supervision.queries import Queries

_FACTORS = (0.0, 0.5, 0.7, 1.4, 2.0, 4.0)
"""By which a weight is multiplied in a step of the search."""
_RETURN = 0.5
"""What a weight of 0 is tried with again."""
_MOST_ROUNDS = 4
"""Passes over all terms: a further one hardly changes a weight."""
_MIN_GAIN = 1e-4
"""Steps that gain less are noise."""
_FINE_FACTORS = (0.5, 0.7, 0.85, 1.2, 1.4, 2.0)
"""As `_FACTORS`, of the search for short queries, which starts from weights that are good already."""
_TOLERATED_LOSS = 0.005
"""Of a measure of the samples, relative, for the sake of short queries: less than it varies between folds."""
_FEW_JUDGED = 500
"""Judged pairs whose agreement counts half: that of a few dozen is mostly chance."""
_MOST_QUERIES = 200
"""Queries of a part whose whole ranking is scored, an evenly spaced sample: sorting costs most."""


@dataclass(frozen=True, slots=True, eq=False)
class QueryScores:
    """Scores of the samples of a part by queries that are no samples.

    Parameters
    ----------
    terms : mapping of str to ndarray
        Scores by term, (n_queries, n_gallery) each.
    grades : ndarray of shape (n_queries, n_gallery)
        Relevance, as of `Queries.grades`.
    """

    terms: Mapping[str, FloatArray]
    grades: npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutScores:
    """Scores of one part of the samples that no term has learned from.

    Parameters
    ----------
    terms : mapping of str to ndarray
        Scores by term, (n_x, n_z) each.
    grades : ndarray of shape (n_x, n_z)
        Relevance, as of `Annotations.grades`.
    shared : mapping of str to ndarray of bool, shape (n_x, n_z)
        Which samples share a value, by facet.
    signs : ndarray of int8, shape (n_x, n_z)
        +1 for pairs that were judged relevant, -1 for those that were not, 0 for all others.
    is_match : ndarray of bool, shape (n_x, n_z)
        Which samples agree in every facet that is known of both, in one at least; without facets, which
        belong together.
    queries : tuple of QueryScores
        Of short queries of each modality that has any.
    """

    terms: Mapping[str, FloatArray]
    grades: npt.NDArray[np.int8]
    shared: Mapping[str, BoolArray]
    signs: npt.NDArray[np.int8]
    is_match: BoolArray
    queries: tuple[QueryScores, ...] = ()

    @classmethod
    def of(
        cls,
        terms: Mapping[str, tuple[FloatArray, FloatArray]],
        annotations: Annotations,
        queries: tuple[Queries | None, Queries | None] = (None, None),
    ) -> HeldOutScores:
        """Return the scores of projections of the samples that the annotations describe.

        Parameters
        ----------
        terms : mapping of str to tuple of ndarray
            Projections of both modalities by term; those of the queries follow those of the samples.
        annotations : Annotations
            Of the samples.
        queries : tuple of Queries or None
            Short queries of either modality.
        """
        n_x, n_z = annotations.shape
        rows = np.arange(n_x), np.arange(n_z)
        scores = {name: _inner(x[:n_x], z[:n_z]) for name, (x, z) in terms.items()}
        shared = {name: facet.is_shared(*rows) for name, facet in annotations.facets.items()}
        query_scores: list[QueryScores] = []
        if queries[0] is not None:
            of_x = {name: _inner(x[n_x:], z[:n_z]) for name, (x, z) in terms.items()}
            gallery = {name: facet.z_indicators for name, facet in annotations.facets.items()}
            query_scores.append(QueryScores(of_x, queries[0].grades(gallery)))
        if queries[1] is not None:
            of_z = {name: _inner(z[n_z:], x[:n_x]) for name, (x, z) in terms.items()}
            gallery = {name: facet.x_indicators for name, facet in annotations.facets.items()}
            query_scores.append(QueryScores(of_z, queries[1].grades(gallery)))
        signs = np.zeros(annotations.shape, np.int8)
        if annotations.signs is not None:
            signs = annotations.signs.toarray().astype(np.int8)
        is_match = _match(annotations, tuple(shared.values()))
        return cls(scores, annotations.grades(*rows), shared, signs, is_match, tuple(query_scores))

    def total(self, weights: Mapping[str, float]) -> FloatArray:
        """Return the weighted sum of the terms' scores."""
        return _weighted_sum(self.terms, weights, self.grades.shape)


@dataclass(frozen=True, slots=True)
class _Measures:
    """Measures of the samples' rankings, averaged over parts and both directions.

    Parameters
    ----------
    gain : float
        Graded nDCG of the first ten results.
    precision : float
        Mean average precision of each facet, averaged over facets; 0 where there is none.
    label_precision : float
        That of the facet of the labels; of all facets where there is no such.
    agreement : float
        Of judged pairs.
    """

    gain: float
    precision: float
    label_precision: float
    agreement: float

    @property
    def quality(self) -> float:
        """Sum of the measures of everything."""
        return self.gain + self.precision + self.agreement

    def is_within(self, other: _Measures) -> bool:
        """Return whether the measures that people look at first are hardly worse than those of another."""
        least = 1.0 - _TOLERATED_LOSS
        return (
            self.gain >= least * other.gain
            and self.label_precision >= least * other.label_precision
            and self.agreement >= least * other.agreement
        )


class WeightSearch:
    """Coordinate ascent on the quality of rankings, averaged over parts and both directions.

    The quality is the graded nDCG of the first ten results, plus the mean average precision of each facet,
    averaged over facets, where there are any: the first judges what is seen, the second the whole ranking.
    Where pairs were judged, the share of relevant ones that score higher than others (the area under the ROC
    curve, over the judged pairs of all parts) is added, shrunk where they are few.

    Samples say more than people type: from the best weights for them, a second ascent goes on to better ones
    for short queries, if there are any, by their graded nDCG. It takes no step after which the gain, the
    average precision of the labels, or the agreement with judged pairs is half a percent below that of the
    first weights, so that queries that mean nothing do no harm.

    Parameters
    ----------
    parts : sequence of HeldOutScores
        Each is ranked by itself.
    bases : mapping of str to str
        Terms that cannot be without another one, which is named.
    """

    def __init__(
        self, parts: Sequence[HeldOutScores], bases: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._parts = parts
        self._bases = {term: base for term, base in bases.items() if term in parts[0].terms}
        self._directions = [
            (GradedGain(part.grades), GradedGain(np.ascontiguousarray(part.grades.T))) for part in parts
        ]

        self._query_gains = [GradedGain(scores.grades) for part in parts for scores in part.queries]

    @property
    def most_steps(self) -> int:
        """Steps that `run` takes at most."""
        n_factors = len(_FACTORS) + (len(_FINE_FACTORS) if self._query_gains else 0)
        return _MOST_ROUNDS * len(self._parts[0].terms) * n_factors

    def quality(self, weights: Mapping[str, float]) -> float:
        """Return the quality of weights: the sum of up to three measures, each at most 1."""
        return self._measure(weights).quality

    def _measure(self, weights: Mapping[str, float]) -> _Measures:
        gains: list[float] = []
        precisions: list[float] = []
        of_labels: list[float] = []
        for part, (x_to_z, z_to_x) in zip(self._parts, self._directions, strict=True):
            total = part.total(weights)
            gains += [x_to_z.mean(total), z_to_x.mean(total.T)]
            for scores, shared in (
                (total, part.shared),
                (total.T, {name: facet.T for name, facet in part.shared.items()}),
            ):
                by_facet = _facet_precisions(scores, shared)
                precisions += by_facet.values()
                of_labels += [by_facet[LABEL]] if LABEL in by_facet else []
        precision = float(np.mean(precisions)) if precisions else 0.0
        return _Measures(
            float(np.mean(gains)),
            precision,
            float(np.mean(of_labels)) if of_labels else precision,
            self._agreement(weights),
        )

    def _query_gain(self, weights: Mapping[str, float]) -> float:
        """Return the graded nDCG of short queries, averaged over parts and modalities."""
        totals = (
            _weighted_sum(scores.terms, weights, scores.grades.shape)
            for part in self._parts
            for scores in part.queries
        )
        return float(
            np.mean([gain.mean(total) for gain, total in zip(self._query_gains, totals, strict=True)])
        )

    def _agreement(self, weights: Mapping[str, float]) -> float:
        """Return how often a relevant pair scores higher than one that is not; 0 where neither was judged."""
        judged = [part for part in self._parts if part.signs.any()]
        if not judged:
            return 0.0
        scores = np.concatenate([part.total(weights)[part.signs != 0] for part in judged])
        is_relevant = np.concatenate([part.signs[part.signs != 0] for part in judged]) > 0
        n_relevant, n_others = int(is_relevant.sum()), int((~is_relevant).sum())
        if not n_relevant or not n_others:
            return 0.0
        rank_sum = float(rankdata(scores)[is_relevant].sum())
        area = (rank_sum - n_relevant * (n_relevant + 1) / 2) / (n_relevant * n_others)
        return area * len(scores) / (len(scores) + _FEW_JUDGED)

    def run(self, heartbeat: Callable[[], None]) -> tuple[dict[str, float], float]:
        """Return the weights and their quality; the largest weight is 1."""
        equal = dict.fromkeys(self._parts[0].terms, 1.0)
        weights = self._ascend(equal, self.quality, _FACTORS, lambda _: True, heartbeat)
        if self._query_gains:
            measures = self._measure(weights)
            weights = self._ascend(
                weights,
                self._query_gain,
                _FINE_FACTORS,
                lambda trial: self._measure(trial).is_within(measures),
                heartbeat,
            )
        largest = max(weights.values())
        return {name: weight / largest for name, weight in weights.items()}, self.quality(weights)

    def _ascend(
        self,
        weights: Mapping[str, float],
        value: Callable[[Mapping[str, float]], float],
        factors: Sequence[float],
        is_allowed: Callable[[Mapping[str, float]], bool],
        heartbeat: Callable[[], None],
    ) -> dict[str, float]:
        """Return weights of a higher value: one at a time is changed as long as that is allowed and gains."""
        reached, best = dict(weights), value(weights)
        for _ in range(_MOST_ROUNDS):
            before = best
            for name in list(reached):
                for factor in factors:
                    heartbeat()
                    trial = self._with_bases({**reached, name: factor * (reached[name] or _RETURN)})
                    if not any(trial.values()):
                        continue
                    reward = value(trial)
                    if reward > best + _MIN_GAIN and is_allowed(trial):
                        reached, best = trial, reward
            if best <= before:
                break
        return reached

    def _with_bases(self, weights: Mapping[str, float]) -> dict[str, float]:
        """Return the weights without those of terms whose base has none."""
        lost = {term for term, base in self._bases.items() if not weights.get(base)}
        return {name: 0.0 if name in lost else weight for name, weight in weights.items()}


class GradedGain:
    """Normalised discounted cumulative gain of the first ten results, as of `solver.evaluation.gains`.

    Queries without a relevant sample are left out.

    Parameters
    ----------
    grades : ndarray of shape (n_queries, n_gallery)
        Relevance.
    """

    def __init__(self, grades: npt.NDArray[np.int8]) -> None:
        self._grades = grades
        self._depth = min(FIRST_PAGE, grades.shape[1])
        ideal = ideal_gains(grades, self._depth, int(grades.max(initial=0)))
        self._is_query = ideal > 0.0
        self._ideal = ideal[self._is_query]

    def mean(self, scores: FloatArray) -> float:
        """Return the mean over the queries of (n_queries, n_gallery) scores, 0 if there are no queries."""
        if not len(self._ideal):
            return 0.0
        first = np.argpartition(-scores, self._depth - 1, axis=1)[:, : self._depth]
        order = np.argsort(-np.take_along_axis(scores, first, axis=1), axis=1, kind="stable")
        grades = np.take_along_axis(self._grades, np.take_along_axis(first, order, axis=1), axis=1)
        return float(np.mean(discounted_gains(grades)[self._is_query] / self._ideal))


def _match(annotations: Annotations, shared: Sequence[BoolArray]) -> BoolArray:
    rows = np.arange(annotations.shape[0]), np.arange(annotations.shape[1])
    if not shared:
        return annotations.is_paired(*rows)
    agrees: BoolArray = np.ones(annotations.shape, np.bool_)
    is_shared: BoolArray = np.zeros(annotations.shape, np.bool_)
    for facet, one in zip(annotations.facets.values(), shared, strict=True):
        is_known = np.outer(facet.x_indicators.any(axis=1), facet.z_indicators.any(axis=1))
        agrees = np.logical_and(agrees, one | ~is_known)
        is_shared = np.logical_or(is_shared, one)
    match: BoolArray = np.logical_and(agrees, is_shared)
    return match


def _inner(first: FloatArray, second: FloatArray) -> FloatArray:
    products: FloatArray = (first @ second.T).astype(np.float32)
    return products


def _weighted_sum(
    terms: Mapping[str, FloatArray], weights: Mapping[str, float], shape: tuple[int, ...]
) -> FloatArray:
    total: FloatArray = np.zeros(shape, np.float32)
    for name, weight in weights.items():
        if weight > 0.0:
            total += np.float32(weight) * terms[name]
    return total


def _facet_precisions(scores: FloatArray, shared: Mapping[str, BoolArray]) -> dict[str, float]:
    """Return the mean average precision of each facet that any query shares with a sample."""
    if not shared:
        return {}
    queries = np.unique(np.linspace(0, len(scores) - 1, min(len(scores), _MOST_QUERIES)).astype(np.intp))
    order = rank_gallery(scores[queries])
    precisions = {
        name: average_precisions_of_hits(np.take_along_axis(is_shared[queries], order, axis=1))
        for name, is_shared in shared.items()
    }
    # A query that shares the facet with no sample has none.
    return {
        name: float(np.nanmean(values)) for name, values in precisions.items() if not np.isnan(values).all()
    }
