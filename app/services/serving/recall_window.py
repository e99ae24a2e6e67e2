"""What the last live queries say of a gallery's recall, and with which confidence."""
# A sampled query counts as one trial, not as ten: the neighbours of a query are missed together. The bounds
# are those of Clopper and Pearson (Biometrika 26, 1934), with the sum of the recalls as the number of
# successes; shares between 0 and 1 vary no more than successes and failures of the same mean do.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import betaincinv

from app.domain.entities import Matrix

_QUERIES = 4000  # size of the window: a recall of 0.98 is distinguished from 0.99 after some 2500 queries
_MIN_QUERIES = 50  # fewer say nothing: a page that asks for the same few things decides about no index
_ERROR = 1e-6
"""Probability that a bound is wrong. Bounds are compared with the gate after every sample, for years."""


@dataclass(frozen=True, slots=True)
class RecallEstimate:
    """Recall@10 of an index, the mean over live queries; each bound is wrong with a probability of 1e-6."""

    recall: float
    lower: float
    upper: float
    n_queries: int  # different ones


class RecallWindow:
    """Recalls of the last sampled queries; one that comes again counts once."""

    def __init__(self) -> None:
        self._recalls: dict[int, float] = {}  # by hash of the query, the last ones last

    def add(self, queries: Matrix, recalls: Sequence[float]) -> None:
        """Add queries with their recalls; those before `_QUERIES` are forgotten."""
        for query, recall in zip(queries, recalls, strict=True):
            key = hash(query.tobytes())
            self._recalls.pop(key, None)
            self._recalls[key] = recall
        while len(self._recalls) > _QUERIES:
            del self._recalls[next(iter(self._recalls))]

    def estimate(self) -> RecallEstimate | None:
        """Return the estimate; None while there are too few queries."""
        count = len(self._recalls)
        if count < _MIN_QUERIES:
            return None
        n_found = float(sum(self._recalls.values()))
        n_missed = count - n_found
        lower = float(betaincinv(n_found, n_missed + 1.0, _ERROR)) if n_found else 0.0
        upper = float(betaincinv(n_found + 1.0, n_missed, 1.0 - _ERROR)) if n_missed else 1.0
        return RecallEstimate(n_found / count, lower, upper, count)
