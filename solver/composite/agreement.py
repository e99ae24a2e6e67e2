"""How much a similarity agrees with judged pairs, such as clicks, that it has not learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from solver.linalg.matrices import FloatArray
from solver.supervision.annotations import BoolArray
from solver.supervision.base import Indices

SIGNS = "signs"  # name of the term of judged pairs
Query = tuple[int, int]  # modality, 0 or 1, and row of the sample that results were judged for


@dataclass(frozen=True, slots=True, eq=False)
class JudgedScores:
    """Scores (n_judged,) of judged pairs by terms that learned from neither of both samples' judgements."""

    terms: Mapping[str, FloatArray]
    rows: Indices
    columns: Indices
    is_relevant: BoolArray

    def total(self, weights: Mapping[str, float]) -> FloatArray:
        total = np.zeros(len(self.rows))
        for name, weight in weights.items():
            total += weight * self.terms[name]
        return total


@dataclass(frozen=True, slots=True, eq=False)
class _JudgedList:
    """What was judged for one query, of one part: places of what is relevant, and of what is not."""

    query: Query
    relevant: Indices
    others: Indices

    @property
    def weight(self) -> float:
        """Number of judgements that its share of well ordered pairs is as sure as, but for a factor."""
        return len(self.relevant) * len(self.others) / (len(self.relevant) + len(self.others))

    def value(self, scores: FloatArray) -> float:
        """Return the share of pairs in which the relevant one scores higher; ties count half."""
        differences = scores[self.relevant][:, None] - scores[self.others]
        return float(np.mean((differences > 0.0) + 0.5 * (differences == 0.0)))


class Agreement:
    """How often a relevant pair scores higher than another one that was judged for the same query.
    Scores of different parts are not compared: each is scored by terms of its own."""

    # Every sample of which some judged partners are relevant and some are not is a query: which of both
    # samples people asked with is not known. Where there is none, as where each query got one click, a
    # relevant pair is compared with all others of its part.

    def __init__(self, parts: Sequence[JudgedScores]) -> None:
        self._parts = parts
        self._lists = [_lists(part) for part in parts]
        if not any(self._lists):
            self._lists = [_lists_of_one(part) for part in parts]
        queries = sorted({entry.query for lists in self._lists for entry in lists})
        self._place = {query: number for number, query in enumerate(queries)}
        self._weights = np.zeros(len(queries))
        for lists in self._lists:
            for entry in lists:
                self._weights[self._place[entry.query]] += entry.weight

    def of_queries(self, weights: Mapping[str, float]) -> FloatArray:
        """Return the share of well ordered pairs of each query, averaged over the parts that it is in."""
        sums = np.zeros(len(self._weights))
        for part, lists in zip(self._parts, self._lists, strict=True):
            scores = part.total(weights)
            for entry in lists:
                sums[self._place[entry.query]] += entry.weight * entry.value(scores)
        shares: FloatArray = sums / self._weights
        return shares

    def mean_and_error(self, values: FloatArray) -> tuple[float, float]:
        """Return the weighted mean of a value for each query, and its standard error; 0 without queries."""
        if not len(values):
            return 0.0, 0.0
        shares = self._weights / self._weights.sum()
        mean = float(shares @ values)
        return mean, float(np.linalg.norm(shares * (values - mean)))


def _lists(part: JudgedScores) -> list[_JudgedList]:
    lists = []
    for modality, samples in enumerate((part.rows, part.columns)):
        for sample in np.unique(samples).tolist():
            judged = np.flatnonzero(samples == sample)
            is_relevant = part.is_relevant[judged]
            if is_relevant.any() and not is_relevant.all():
                lists.append(_JudgedList((modality, sample), judged[is_relevant], judged[~is_relevant]))
    return lists


def _lists_of_one(part: JudgedScores) -> list[_JudgedList]:
    others = np.flatnonzero(~part.is_relevant)
    if not len(others):
        return []
    return [
        _JudgedList((0, int(part.rows[place])), np.array([place]), others)
        for place in np.flatnonzero(part.is_relevant).tolist()
    ]
