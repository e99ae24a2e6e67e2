"""Held-out quality of a model, and its comparison with the active version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from app.answers import Says
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
    """Precision-recall and precision-scope curves; precision is interpolated at fixed levels of recall."""

    recall: tuple[float, ...]
    precision: tuple[float, ...]
    scopes: Annotated[tuple[int, ...], Says("numbers of results looked at")] = ()
    precision_at_scope: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ExampleHit:
    """One of the first results of a query."""

    id: str
    relevant: Annotated[bool, Says("whether it shares the query's first label, or else is its partner")]


@dataclass(frozen=True, slots=True)
class QueryExample:
    """A query with its first results."""

    id: str
    average_precision: float
    n_relevant: int
    hits: tuple[ExampleHit, ...]


@dataclass(frozen=True, slots=True)
class ReliabilityBins:
    """How often held-out pairs match, by the probability that they were given."""

    probabilities: Annotated[tuple[float, ...], Says("mean of each bin")]
    shares: Annotated[tuple[float, ...], Says("share of its pairs with equal first labels")]
    counts: Annotated[tuple[int, ...], Says("number of its pairs")]
    balanced: Annotated[
        bool, Says("whether pairs are weighted so that matches are half of all, as the probabilities assume")
    ]


@dataclass(frozen=True, slots=True)
class DirectionQuality:
    """Quality of the rankings of one direction.

    What there is nothing to measure with is None, and so is what earlier releases did not record.
    """

    map: Annotated[float | None, Says("mean average precision by label")]
    chance: Annotated[float | None, Says("that of a random ranking")] = None
    curve: Annotated[Curve | None, Says("precision-recall curve", is_listed=False)] = None
    ndcg_at_10: Annotated[
        float | None, Says("graded by the number of facets that query and item share, and one for partners")
    ] = None
    recall_at_1: Annotated[float | None, Says("share of the queries whose partner comes first")] = None
    recall_at_10: Annotated[
        float | None, Says("share of the queries whose partner is among the first ten")
    ] = None
    median_rank: Annotated[float | None, Says("of the partner, from 1")] = None
    precision_at_10: Annotated[
        Mapping[str, float], Says("share of the first ten with the query's value, by facet")
    ] = field(default_factory=dict)
    distinct_lists: Annotated[int | None, Says("number of different first pages of ten")] = None
    n_queries: int | None = None
    rivals: Annotated[
        Mapping[str, Curve], Says("curves of the other methods that were tried", is_listed=False)
    ] = field(default_factory=dict)
    worst: Annotated[
        tuple[QueryExample, ...], Says("queries with the lowest average precision", is_listed=False)
    ] = ()
    best: Annotated[tuple[QueryExample, ...], Says("likewise, the highest", is_listed=False)] = ()


@dataclass(frozen=True, slots=True)
class HeldOutQuality:
    """Quality on items that were held out of the training; empty if none could be held out."""

    items: Mapping[str, int] = field(default_factory=dict)
    directions: Annotated[Mapping[str, DirectionQuality], Says('by name, such as "image-to-text"')] = field(
        default_factory=dict
    )
    reliability: Annotated[
        ReliabilityBins | None, Says("of the probabilities of a match", is_listed=False)
    ] = None

    caution: Annotated[str | None, Says("why the figures should be read with care")] = None

    def __post_init__(self) -> None:
        if self.directions and min(self.items.values(), default=_ENOUGH) < _ENOUGH:
            counts = join_words((f"{count} of {name}" for name, count in self.items.items()), "and")
            chance = "chance moves them by ten points and more"
            object.__setattr__(self, "caution", f"the figures rest on few held-out items, {counts}: {chance}")


@dataclass(frozen=True, slots=True)
class Gate:
    """Comparison with the active version on items that neither version learned from."""

    compared_with: int | None
    skipped: Annotated[str | None, Says("why they were not compared")] = None
    items: Mapping[str, int] = field(default_factory=dict)
    new_map: float | None = None
    active_map: float | None = None
    tolerance: Annotated[float, Says("how much lower the new value may be")] = 0.0
    objective: Annotated[Objective, Says("what decides: ndcg, map or recall, or weights of these")] = "map"
    new_value: Annotated[float | None, Says("of the objective")] = None
    active_value: float | None = None
    interval: Annotated[
        tuple[float, float] | None,
        Says("how much higher the new value is, at 95 % confidence; null in earlier reports"),
    ] = None

    @property
    def refusal(self) -> str | None:
        """Why the new version should not serve; None if it may: only what is worse beyond chance does not."""
        if (
            self.new_value is None
            or self.active_value is None
            or self.new_value >= self.active_value - self.tolerance
            or (self.interval is not None and self.interval[1] >= 0.0)
        ):
            return None
        measure = measure_of(self.objective)
        certainty = "" if self.interval is None else f", and it is lower beyond chance: {self.certainty}"
        return (
            f"its held-out {measure} of {self.new_value:.4f} is more than {self.tolerance:g} below the "
            f"{self.active_value:.4f} of version {self.compared_with} on the same items{certainty}"
        )

    @property
    def certainty(self) -> str | None:
        """How sure the difference is; None where this was not measured."""
        if self.interval is None:
            return None
        low, high = self.interval
        return f"by {low:+.4f} to {high:+.4f} with 95 % confidence"
