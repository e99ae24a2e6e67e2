"""Weights of the terms, chosen by the quality of the rankings of held-out samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from solver.linalg.matrices import FloatArray
from solver.supervision.annotations import Annotations, BoolArray

_DEPTH = 10
"""Of the gain: a first page of results."""
_FACTORS = (0.0, 0.5, 0.7, 1.4, 2.0, 4.0)
"""By which a weight is multiplied in a step of the search."""
_RETURN = 0.5
"""What a weight of 0 is tried with again."""
_MOST_ROUNDS = 4
"""Passes over all terms: a further one hardly changes a weight."""
_MIN_GAIN = 1e-4
"""Steps that gain less are noise."""
_FEW_JUDGED = 500
"""Judged pairs whose agreement counts half: that of a few dozen is mostly chance."""
_MOST_QUERIES = 200
"""Queries of a part whose whole ranking is scored, an evenly spaced sample: sorting costs most."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutScores:
    """Scores of one part of the samples that no term has learned from.

    Parameters
    ----------
    terms : mapping of str to ndarray
        Scores by term, (n_x, n_z) each.
    grades : ndarray of shape (n_x, n_z)
        Relevance, as of `Annotations.grades`.
    shared : tuple of ndarray of bool, shape (n_x, n_z)
        Which samples share a value, for each facet.
    signs : ndarray of int8, shape (n_x, n_z)
        +1 for pairs that were judged relevant, -1 for those that were not, 0 for all others.
    is_match : ndarray of bool, shape (n_x, n_z)
        Which samples agree in every facet that is known of both, in one at least; without facets, which
        belong together.
    """

    terms: Mapping[str, FloatArray]
    grades: npt.NDArray[np.int8]
    shared: tuple[BoolArray, ...]
    signs: npt.NDArray[np.int8]
    is_match: BoolArray

    @classmethod
    def of(
        cls, terms: Mapping[str, tuple[FloatArray, FloatArray]], annotations: Annotations
    ) -> HeldOutScores:
        """Return the scores of projections of the samples that the annotations describe."""
        rows = np.arange(annotations.shape[0]), np.arange(annotations.shape[1])
        scores = {name: (x @ z.T).astype(np.float32) for name, (x, z) in terms.items()}
        shared = tuple(facet.is_shared(*rows) for facet in annotations.facets.values())
        signs = np.zeros(annotations.shape, np.int8)
        if annotations.signs is not None:
            signs = annotations.signs.toarray().astype(np.int8)
        return cls(scores, annotations.grades(*rows), shared, signs, _match(annotations, shared))

    def total(self, weights: Mapping[str, float]) -> FloatArray:
        """Return the weighted sum of the terms' scores."""
        total: FloatArray = np.zeros(self.grades.shape, np.float32)
        for name, weight in weights.items():
            if weight > 0.0:
                total += np.float32(weight) * self.terms[name]
        return total


class WeightSearch:
    """Coordinate ascent on the quality of rankings, averaged over parts and both directions.

    The quality is the graded nDCG of the first ten results, plus the mean average precision of each facet,
    averaged over facets, where there are any: the first judges what is seen, the second the whole ranking.
    Where pairs were judged, the share of relevant ones that score higher than others (the area under the ROC
    curve, over the judged pairs of all parts) is added, shrunk where they are few.

    Parameters
    ----------
    parts : sequence of HeldOutScores
        Each is ranked by itself.
    """

    def __init__(self, parts: Sequence[HeldOutScores]) -> None:
        self._parts = parts
        self._directions = [
            (GradedGain(part.grades), GradedGain(np.ascontiguousarray(part.grades.T))) for part in parts
        ]

    def quality(self, weights: Mapping[str, float]) -> float:
        """Return the quality of weights: the sum of up to three measures, each at most 1."""
        gains: list[float] = []
        precisions: list[float] = []
        for part, (x_to_z, z_to_x) in zip(self._parts, self._directions, strict=True):
            total = part.total(weights)
            gains += [x_to_z.mean(total), z_to_x.mean(total.T)]
            precisions += _facet_precisions(total, part.shared)
            precisions += _facet_precisions(total.T, tuple(shared.T for shared in part.shared))
        agreement = self._agreement(weights)
        return float(np.mean(gains)) + (float(np.mean(precisions)) if precisions else 0.0) + agreement

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
        weights = dict.fromkeys(self._parts[0].terms, 1.0)
        best = self.quality(weights)
        for _ in range(_MOST_ROUNDS):
            before = best
            for name in list(weights):
                for factor in _FACTORS:
                    heartbeat()
                    trial = {**weights, name: factor * (weights[name] or _RETURN)}
                    if not any(trial.values()):
                        continue
                    quality = self.quality(trial)
                    if quality > best + _MIN_GAIN:
                        weights, best = trial, quality
            if best <= before:
                break
        largest = max(weights.values())
        return {name: weight / largest for name, weight in weights.items()}, best


class GradedGain:
    """Normalised discounted cumulative gain of the first ten results.

    The gain of a grade is ``2^grade - 1``, discounted by ``log2(rank + 1)`` [1]_; queries without a relevant
    sample are left out.

    Parameters
    ----------
    grades : ndarray of shape (n_queries, n_gallery)
        Relevance.

    References
    ----------
    .. [1] C. Burges et al., "Learning to Rank using Gradient Descent", ICML 2005.
    """

    def __init__(self, grades: npt.NDArray[np.int8]) -> None:
        self._gains = np.exp2(grades.astype(np.float32)) - np.float32(1.0)
        self._depth = min(_DEPTH, grades.shape[1])
        self._discounts = 1.0 / np.log2(np.arange(self._depth) + 2.0)
        largest = -np.partition(-self._gains, self._depth - 1, axis=1)[:, : self._depth]
        self._ideal = -np.sort(-largest, axis=1) @ self._discounts
        self._is_query = self._ideal > 0.0

    def mean(self, scores: FloatArray) -> float:
        """Return the mean over the queries of (n_queries, n_gallery) scores, 0 if there are no queries."""
        if not self._is_query.any():
            return 0.0
        first = np.argpartition(-scores, self._depth - 1, axis=1)[:, : self._depth]
        order = np.argsort(-np.take_along_axis(scores, first, axis=1), axis=1, kind="stable")
        gains = np.take_along_axis(self._gains, np.take_along_axis(first, order, axis=1), axis=1)
        return float(np.mean((gains @ self._discounts)[self._is_query] / self._ideal[self._is_query]))


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


def _facet_precisions(scores: FloatArray, shared: Sequence[BoolArray]) -> list[float]:
    """Return the mean average precision of each facet that any query shares with a sample."""
    if not shared:
        return []
    queries = np.unique(np.linspace(0, len(scores) - 1, min(len(scores), _MOST_QUERIES)).astype(np.intp))
    order = np.argsort(-scores[queries], axis=1)
    ranks = np.arange(1, scores.shape[1] + 1, dtype=np.float32)
    precisions: list[float] = []
    for is_shared in shared:
        relevant = np.take_along_axis(is_shared[queries], order, axis=1).astype(np.float32)
        n_relevant = relevant.sum(axis=1)
        sums = (np.cumsum(relevant, axis=1) / ranks * relevant).sum(axis=1)
        if n_relevant.any():
            precisions.append(float(np.mean(sums[n_relevant > 0] / n_relevant[n_relevant > 0])))
    return precisions
