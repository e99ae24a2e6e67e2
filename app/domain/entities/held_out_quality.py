"""Held-out quality of a model, and its comparison with the active version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from app.domain.names import join_words

Objective = str | Mapping[str, float]
"""One of "ndcg", "map" and "recall", or a weight for each of some of them: their weighted mean."""
_ENOUGH = 30
"""Queries: with a usual standard deviation of .3 a mean of them is known to 11 points either way (95 %)."""
_MEASURES = {"map": "MAP", "ndcg": "nDCG@10", "recall": "recall@10"}


def measure_of(objective: Objective) -> str:
    """Return what people call an objective."""
    if isinstance(objective, str):
        return _MEASURES.get(objective, objective)
    weights = {_MEASURES.get(name, name): weight for name, weight in objective.items() if weight > 0.0}
    if len(weights) == 1:
        return next(iter(weights))
    return f"mean of {join_words((f'{weight:g} x {name}' for name, weight in weights.items()), 'and')}"


@dataclass(frozen=True, slots=True)
class Curve:
    """Precision-recall and precision-scope curves.

    Parameters
    ----------
    recall, precision : tuple of float
        Interpolated precision at fixed levels of recall.
    scopes : tuple of int
        Numbers of results looked at; empty in reports up to format 3.
    precision_at_scope : tuple of float
        Precision of that many first results.
    """

    recall: tuple[float, ...]
    precision: tuple[float, ...]
    scopes: tuple[int, ...] = ()
    precision_at_scope: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ExampleHit:
    """One of the first results of a query.

    Parameters
    ----------
    id : str
        The item.
    relevant : bool
        Whether it shares the query's first label; where there are no labels, whether it is its partner.
    """

    id: str
    relevant: bool


@dataclass(frozen=True, slots=True)
class QueryExample:
    """A query with its first results.

    Parameters
    ----------
    id : str
        The item that is the query.
    average_precision : float
        Of its whole ranking.
    n_relevant : int
        Number of items that are relevant to it.
    hits : tuple of ExampleHit
        The first results.
    """

    id: str
    average_precision: float
    n_relevant: int
    hits: tuple[ExampleHit, ...]


@dataclass(frozen=True, slots=True)
class ReliabilityBins:
    """How often held-out pairs match, by the probability that they were given.

    Parameters
    ----------
    probabilities : tuple of float
        Mean probability of the pairs of each bin.
    shares : tuple of float
        Share of them with equal first labels.
    counts : tuple of int
        Number of them.
    balanced : bool
        Whether pairs are weighted so that matches are half of all, as the probabilities take for granted.
    """

    probabilities: tuple[float, ...]
    shares: tuple[float, ...]
    counts: tuple[int, ...]
    balanced: bool


@dataclass(frozen=True, slots=True)
class DirectionQuality:
    """Quality of the rankings of one direction.

    What there is nothing to measure with is None, and so is what earlier releases did not record.

    Parameters
    ----------
    map : float or None
        Mean average precision by label.
    chance : float or None
        Mean average precision of a random ranking; None in reports of early releases.
    curve : Curve or None
        Precision-recall curve; None in reports of early releases.
    ndcg_at_10 : float or None
        Graded nDCG@10: the relevance of an item grows with the facets that it shares with the query.
    recall_at_1, recall_at_10 : float or None
        Share of the queries with a partner whose partner comes first, or among the first ten.
    median_rank : float or None
        Median rank of the partner, from 1.
    precision_at_10 : mapping of str to float
        Share of the first ten items that share a value with the query, by facet.
    distinct_lists : int or None
        Number of different first pages of ten.
    n_queries : int or None
        Number of queries.
    rivals : mapping of str to Curve
        Curves of the other methods that were evaluated; empty in reports up to format 3, as are the next.
    worst, best : tuple of QueryExample
        Queries with the lowest and highest average precision, the extreme one first.
    """

    map: float | None
    chance: float | None = None
    curve: Curve | None = None
    ndcg_at_10: float | None = None
    recall_at_1: float | None = None
    recall_at_10: float | None = None
    median_rank: float | None = None
    precision_at_10: Mapping[str, float] = field(default_factory=dict)
    distinct_lists: int | None = None
    n_queries: int | None = None
    rivals: Mapping[str, Curve] = field(default_factory=dict)
    worst: tuple[QueryExample, ...] = ()
    best: tuple[QueryExample, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldOutQuality:
    """Quality on items that were held out of the training; empty if none could be held out.

    Parameters
    ----------
    items : mapping of str to int
        Number of ranked items, by modality.
    directions : mapping of str to DirectionQuality
        Quality by direction, such as ``"image-to-text"``.
    reliability : ReliabilityBins or None
        Reliability of the probabilities; None without labels, and in reports up to format 3.
    """

    items: Mapping[str, int] = field(default_factory=dict)
    directions: Mapping[str, DirectionQuality] = field(default_factory=dict)
    reliability: ReliabilityBins | None = None

    @property
    def caution(self) -> str | None:
        """Why the figures should be read with care; None where they rest on enough items."""
        if not self.directions or min(self.items.values(), default=_ENOUGH) >= _ENOUGH:
            return None
        counts = join_words((f"{count} of {name}" for name, count in self.items.items()), "and")
        return f"the figures rest on few held-out items, {counts}: chance moves them by ten points and more"


@dataclass(frozen=True, slots=True)
class Gate:
    """Comparison with the active version on items that neither version learned from.

    Parameters
    ----------
    compared_with : int or None
        The active version; None if none was active.
    skipped : str or None
        Why there was no comparison; None if there was one.
    items : mapping of str to int
        Number of items that both versions ranked, by modality.
    new_map, active_map : float or None
        MAP of each version, averaged over both directions.
    tolerance : float
        Accepted loss of the objective.
    objective : {"ndcg", "map", "recall"} or mapping of str to float
        What decides.
    new_value, active_value : float or None
        Value of the objective of each version.
    """

    compared_with: int | None
    skipped: str | None = None
    items: Mapping[str, int] = field(default_factory=dict)
    new_map: float | None = None
    active_map: float | None = None
    tolerance: float = 0.0
    objective: Objective = "map"
    new_value: float | None = None
    active_value: float | None = None

    @property
    def refusal(self) -> str | None:
        """Why the new version should not serve; None if it may."""
        if (
            self.new_value is None
            or self.active_value is None
            or self.new_value >= self.active_value - self.tolerance
        ):
            return None
        measure = measure_of(self.objective)
        return (
            f"its held-out {measure} of {self.new_value:.4f} is more than {self.tolerance:g} below the "
            f"{self.active_value:.4f} of version {self.compared_with} on the same items"
        )
