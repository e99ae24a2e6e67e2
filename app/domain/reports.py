"""The request for a training, and its report: the data, the fit, its quality, and whether it may serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, Self

import msgspec

from app.answers import Says
from app.domain.errors import UnavailableError
from app.domain.names import join_words

EXACT = "exact"
"""Kind of an index that compares a query with every row."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A kind of index and its parameters."""

    kind: Annotated[str, Says("`exact`, `ivf-flat` or `ivf-sq8`")] = EXACT
    lists: int = 0
    probes: Annotated[int, Says("lists that the search of a first page without a filter visits")] = 0


@dataclass(frozen=True, slots=True)
class IndexTrial:
    """One candidate with the fewest probes that reached the recall, or the most that were tried."""

    spec: IndexSpec
    recall_at_10: float
    milliseconds: Annotated[float, Says("median of one search for ten items")]
    build_seconds: float
    bytes_per_item: float
    rejected: Annotated[str | None, Says("why it may not serve")] = None


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The index chosen for the gallery of one modality."""

    spec: IndexSpec
    reason: str
    exact_milliseconds: Annotated[float | None, Says("of an exact search, in the same run")] = None
    trials: tuple[IndexTrial, ...] = ()


Objective = str | Mapping[str, float | Mapping[str, float]]
"""One of "ndcg", "map" and "recall", or a weight for each of some of them: their weighted mean. Floors are
under "at_least": shares of measures that a training has to keep (`CompositeBilinear`)."""
FEWEST_HELD_OUT = 8
"""Items of each modality without which nothing is measured, nor compared."""
_ENOUGH = 30
"""Queries: with a usual standard deviation of .3 a mean of them is known to 11 points either way (95 %)."""
_MEASURES = {"map": "MAP", "ndcg": "nDCG@10", "recall": "recall@10"}


def measure_of(objective: Objective) -> str:
    """Return what people call an objective."""
    if isinstance(objective, str):
        return _MEASURES.get(objective, objective)
    weights = {
        _MEASURES.get(name, name): weight
        for name, weight in objective.items()
        if not isinstance(weight, Mapping) and weight > 0.0
    }
    if len(weights) == 1:
        return next(iter(weights))
    is_even = len(set(weights.values())) == 1
    words = [name if is_even else f"{weight:g} x {name}" for name, weight in weights.items()]
    return f"mean of {join_words(words, 'and')}"


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
    shares: Annotated[
        tuple[float, ...],
        Says(
            "share of its pairs that match: with equal first labels, or, of `composite`, that have all that "
            "a short text names, or agree in all facets known of both where there are no such texts"
        ),
    ]
    counts: Annotated[tuple[int, ...], Says("number of its pairs")]
    balanced: Annotated[
        bool, Says("whether pairs are weighted so that matches are half of all, as the probabilities assume")
    ]


@dataclass(frozen=True, slots=True)
class PlacedQuality:
    """Graded nDCG@10 of the same queries, by what the vectors of the gallery are made of. A query's own
    partner is left out; a text that names values of facets has none."""

    content: Annotated[float, Says("of items' content alone")]
    partners: Annotated[float, Says("and of their partners'")]
    complete: Annotated[float, Says("and of their labels and values: as people find them")]
    untrained: Annotated[
        float | None, Says("before any training, as people find them; null where they have no partners")
    ] = None


@dataclass(frozen=True, slots=True)
class ServedQuality:
    """Quality of the same queries among all items, those learned from, too: as many as are searched.
    Other figures are of the held-out items alone, and the fewer these are, the higher."""

    n_gallery: Annotated[int, Says("items that each query is ranked among")]
    ndcg_at_10: float | None
    recall_at_10: float | None


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
    served: Annotated[
        ServedQuality | None, Says("of composite, among all items; by content, as the figures above")
    ] = None
    placed: Annotated[PlacedQuality | None, Says("of held-out items as queries")] = None
    placed_for_texts: Annotated[
        PlacedQuality | None, Says("of texts that name two values, such as red and handbag")
    ] = None
    rivals: Annotated[
        Mapping[str, Curve], Says("curves of the other methods that were tried", is_listed=False)
    ] = field(default_factory=dict)
    worst: Annotated[
        tuple[QueryExample, ...], Says("queries with the lowest average precision", is_listed=False)
    ] = ()
    best: Annotated[tuple[QueryExample, ...], Says("likewise, the highest", is_listed=False)] = ()


@dataclass(frozen=True, slots=True)
class HeldOutQuality:
    """Quality on items that were held out of the training; empty if too few were."""

    items: Mapping[str, int] = field(default_factory=dict)
    directions: Annotated[Mapping[str, DirectionQuality], Says('by name, such as "image-to-text"')] = field(
        default_factory=dict
    )
    reliability: Annotated[
        ReliabilityBins | None,
        Says("of the probabilities of a match; null where there are none", is_listed=False),
    ] = None
    progress: Annotated[
        str | None, Says("what training has brought so far, and about how much more items would bring")
    ] = None
    caution: Annotated[str | None, Says("why the figures should be read with care, or there are none")] = None

    def __post_init__(self) -> None:
        if not self.items or min(self.items.values()) >= _ENOUGH:
            return
        counts = join_words((f"{count} of {name}" for name, count in self.items.items()), "and")
        caution = f"too few items are held out for figures, {counts}"
        if self.directions:
            chance = "chance moves them by ten points and more"
            caution = f"the figures rest on few held-out items, {counts}: {chance}"
        object.__setattr__(self, "caution", caution)


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
    fallen: Annotated[
        Mapping[str, tuple[float, float]],
        Says("measures below the objective's floors, by more than the tolerance: the new value, the floor"),
    ] = field(default_factory=dict)

    @property
    def certainty(self) -> str | None:
        """How sure the difference is; None where this was not measured."""
        if self.interval is None:
            return None
        low, high = self.interval
        return f"by {low:+.4f} to {high:+.4f} with 95 % confidence"


ENCODERS = "encoders"
"""Parameter of a job beside those of the training: options of the encoders to change to, by modality."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """What of that which items carry a training may learn from."""

    labels: bool = True  # all of an item; the methods other than "composite" use the first
    # metadata keys whose values are learned like labels, or "auto" for all that look categorical
    # (`app.services.training.facets`)
    facets: Annotated[tuple[str, ...] | Literal["auto"], Says("metadata keys, or auto")] = "auto"
    pairs: bool = True  # items with equal `pair_id` belong together
    feedback: bool = True  # that is stored

    @property
    def is_empty(self) -> bool:
        """Whether nothing may be learned from."""
        return not (self.labels or self.facets or self.pairs or self.feedback)


@dataclass(frozen=True, slots=True)
class TrainingParameters:
    """What a training is asked for."""

    # Methods: "lrbs" is the paper's low-rank bilinear similarity of features, "semantic" the one of class
    # posteriors (`SemanticBilinear`), "squared" the first with the squared loss, whose cost grows neither
    # with pairs nor with classes. "composite" is a weighted sum of similarities that learns from all that
    # items carry (`CompositeBilinear`). "auto" is the better of the first two on a held-out part of the
    # items; where one of these would take too long or too much memory (`app.services.training.requests`),
    # "squared" is tried in its place. Where items carry more than one label each, "auto" tries "composite"
    # and "lrbs".
    #
    # The objective is what the method is chosen by, and a version compared with the active one: graded
    # nDCG@10, mean average precision by label, the share of queries whose partner is among the first ten, or
    # the mean of some of these with the given weights. None stands for two parts of
    # nDCG and one of MAP, or what of both can be measured. "composite" chooses its weights by it.

    method: str = "auto"
    # penalty weight of "lrbs" or "squared"; chosen on the held-out part when None; with "auto" it means
    # "lrbs"
    alpha: float | None = None
    # of features of "lrbs" or "squared"; with "auto" it leaves the other methods out
    scaling: str | None = None
    tol: float = 1e-3  # relative duality gap of the final fit
    max_iter: int = 200  # of the final fit; seldom met, since a fit takes some twenty
    seed: Annotated[int, Says("of the held-out split")] = 0
    supervision: Supervision = field(default_factory=Supervision)
    objective: Annotated[
        Objective | None, Says("ndcg, map or recall, or weights of these; null where it was left open")
    ] = None
    reason: Annotated[str | None, Says("why it was asked for, in words")] = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the parameters of a stored job; those that it lacks have their defaults.
        Raises ValueError for parameters that this release does not know, or a value of another type."""
        for kind, part in ((cls, values), (Supervision, values.get("supervision", {}))):
            unknown = part.keys() - {entry.name for entry in fields(kind)}
            if unknown:
                raise ValueError(f"unknown training parameters: {sorted(unknown)}")
        return msgspec.convert(values, cls)


# msgspec describes a class when it first reads one. Do so now: a second thread that meets half of a
# description crashes the process.
msgspec.json.Decoder(TrainingParameters)


_FIRST_LABELS_ONLY = {"labels": True, "facets": [], "pairs": False, "feedback": False}
"""What trainings learned from before reports of format 3."""


def upgraded_to_format_3(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a report of format 2 in format 3, which names the objective."""
    selection, gate = values["selection"], values["gate"]
    return {
        **values,
        "format": 3,
        "parameters": {"supervision": _FIRST_LABELS_ONLY, **values["parameters"]},
        "selection": {**selection, "objective": "map", "values": selection["held_out_map"]},
        "gate": {
            **gate,
            "objective": "map",
            "new_value": gate["new_map"],
            "active_value": gate["active_map"],
        },
    }


def upgraded_report(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a report in format 2, from one flat object as releases up to format 1 stored it.
    Early releases wrote fewer fields; what they did not record becomes None, zero or empty."""
    return {
        "method": facts.get("method", "lrbs"),
        "parameters": {"seed": facts.get("seed", 0), **facts.get("parameters", {})},
        "code_version": facts.get("code_version", ""),
        "data": {
            "items": facts.get("train_items", {}),
            "classes": facts.get("classes", []),
            "unmatched_labels": facts.get("unmatched_labels", {}),
            "sha256": facts.get("data_hash", ""),
            "not_learned_from": facts.get("not_learned_from", {}),
            "not_ranked": facts.get("not_ranked", {}),
        },
        "selection": {
            "held_out_map": facts.get("methods", {}),
            "refused": facts.get("refused", {}),
            "candidates": facts.get("candidates", []),
        },
        "fit": _fit(facts),
        "held_out": _held_out(facts),
        "gate": _gate(facts.get("gate", {})),
        "index": {"recall_at_10": {}, "needed": 0.0, **facts.get("index", {})},
        "not_activated": facts.get("not_activated"),
    }


def _fit(facts: Mapping[str, Any]) -> dict[str, Any]:
    unknown = {"iteration": 0, "objective": 0.0, "gap": 0.0, "rank": 0, "converged": True, "seconds": 0.0}
    return {
        "alpha": facts.get("alpha", 0.0),
        "scaling": facts.get("scaling"),
        "rank": facts.get("rank", 0),
        "singular_values": facts.get("singular_values", []),
        "convergence": {"tol": None, **facts.get("convergence", unknown)},
        "history": facts.get("history", []),
        "posteriors": [
            {
                **side,
                "classifiers": [
                    # Neighbour classifiers were called read-outs.
                    {**one, "kind": "neighbours" if one.get("is_read_out") else "linear"}
                    for one in side["classifiers"]
                ],
            }
            for side in facts.get("posteriors", [])
        ],
    }


def _held_out(facts: Mapping[str, Any]) -> dict[str, Any]:
    chance, curves = facts.get("chance") or {}, facts.get("curves") or {}
    return {
        "items": facts.get("held_out_items") or {},
        "directions": {
            direction: {"map": value, "chance": chance.get(direction), "curve": curves.get(direction)}
            for direction, value in facts.get("held_out", {}).items()
        },
    }


def _gate(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the gate; whether it was passed is not stored, since the figures say so."""
    return {
        "compared_with": facts.get("compared_with"),
        "skipped": facts.get("skipped"),
        "items": facts.get("items", {}),
        "new_map": facts.get("map", {}).get("new"),
        "active_map": facts.get("map", {}).get("active"),
        "tolerance": facts.get("tolerance", 0.0),
    }


_FORMATS = (2, 3, 4)
"""Numbers stored with a report; reports of the first format, a flat object, carry none. The last one added
curves, examples and reliability."""
_FORMAT = _FORMATS[-1]
_ITEMS_SHOWN = 20  # ids of items left out: enough to look into a problem, and few enough to read
_LONG = {
    *("classes", "unmatched_labels", "columns", "doubtful", "singular_values", "history", "reliability"),
    *("curve", "rivals", "worst", "best"),
}
"""Fields that lists of versions leave out: null there."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Items of one modality that were left out."""

    count: int
    first: Annotated[tuple[str, ...], Says("ids of the first few")]

    @classmethod
    def of_each(cls, item_ids: Mapping[str, Sequence[str]]) -> dict[str, Self]:
        """Return how many items there are of each modality that has any, and the first of them."""
        return {name: cls(len(ids), tuple(ids[:_ITEMS_SHOWN])) for name, ids in item_ids.items() if ids}


_LONGEST_TEXT = 100  # of keys and values in a report: keys may be as long as all metadata


def cut(text: str) -> str:
    """Return a key or a value as reports have it: its first hundred characters."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


@dataclass(frozen=True, slots=True)
class Column:
    """A metadata column, and why it is learned from or not."""

    name: Annotated[str, Says("metadata key, or the beginning of a long one")]
    weight: Annotated[float | None, Says("of its term; null where it is not learned from")]
    reason: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """A label, or value of a facet, that is contradicted by the content of the item that carries it."""

    id: str
    modality: str
    facet: str
    carried: str
    likely: Annotated[str, Says("value that the content speaks for")]
    probability: Annotated[float, Says("of that value, by a model of all other items")]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The training data; mappings are keyed by modality."""

    items: Annotated[Mapping[str, int], Says("training items")]
    classes: Annotated[tuple[str, ...], Says("classes on items of both modalities", is_listed=False)]
    unmatched_labels: Annotated[
        Mapping[str, tuple[str, ...]], Says("classes on items of this modality alone", is_listed=False)
    ]
    sha256: Annotated[str, Says("of features, labels, facets, pairs and feedback")]
    not_learned_from: Annotated[Mapping[str, LeftOut], Says("items too large beside all others")] = field(
        default_factory=dict
    )
    not_ranked: Annotated[
        Mapping[str, LeftOut], Says("items that the model cannot place, whose projections are not finite")
    ] = field(default_factory=dict)
    facets: Annotated[Mapping[str, int], Says("number of values by facet; label is that of the labels")] = (
        field(default_factory=dict)
    )
    n_pairs: Annotated[int, Says("pairs of items with equal pair_id")] = 0
    n_signs: Annotated[int, Says("pairs of items judged by feedback")] = 0
    columns: Annotated[
        tuple[Column, ...], Says("metadata columns, those learned from first", is_listed=False)
    ] = ()
    doubtful: Annotated[
        tuple[Doubt, ...], Says("labels worth a look, the surest first, fifty at most", is_listed=False)
    ] = ()


@dataclass(frozen=True, slots=True)
class CandidateQuality:
    """Held-out quality of one combination of scaling and penalty weight."""

    scaling: str
    alpha_fraction: Annotated[float, Says("penalty weight as a share of the one that makes M zero")]
    map_x_to_z: Annotated[float, Says("held-out MAP from the first modality to the second")]
    map_z_to_x: float
    rank: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of the method and its parameters."""

    held_out_map: Annotated[
        Mapping[str, float],
        Says("MAP by label of each method tried, averaged over both directions; empty without labels"),
    ]
    refused: Annotated[Mapping[str, str], Says("why other methods were not tried")]
    candidates: Annotated[tuple[CandidateQuality, ...], Says("what the method chose from, the best first")]
    objective: Annotated[
        Objective, Says("what the method was chosen by: ndcg, map or recall, or weights of these")
    ] = "map"
    values: Annotated[Mapping[str, float], Says("held-out value of the objective of each method tried")] = (
        field(default_factory=dict)
    )

    @property
    def measure(self) -> str:
        """What people call the objective."""
        return measure_of(self.objective)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of the fit."""

    iteration: int
    objective: float
    gap: Annotated[float | None, Says("relative duality gap, where it was computed")]
    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Convergence:
    """State in which the fit ended; the gap is that of the rounded factors, computed in float64."""

    iteration: int
    objective: float
    gap: Annotated[float, Says("relative duality gap, where it was computed")]
    rank: int
    converged: Annotated[bool, Says("whether the gap met tol")]
    tol: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ClassifierSummary:
    """One classifier of an ensemble."""

    scaling: str
    kernel: str
    weight: float
    kind: Annotated[
        str, Says("linear: a linear classifier of mapped features; neighbours: a vote of similar items")
    ]


@dataclass(frozen=True, slots=True)
class PosteriorsSummary:
    """The ensemble that computes the class posteriors of one modality."""

    log_loss: Annotated[float, Says("cross-validated, in nats per item")]
    classifiers: tuple[ClassifierSummary, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """The fit on all training items."""

    alpha: Annotated[float | None, Says("penalty weight of M; null where there is none")]
    scaling: Annotated[str | None, Says("of the features; null where it is part of each classifier")]
    rank: Annotated[int, Says("of M, or dimension of the common space of a method that has several")]
    singular_values: Annotated[tuple[float, ...], Says("of M, in descending order", is_listed=False)]
    convergence: Annotated[Convergence | None, Says("of the fit of M; null where there was none")]
    history: Annotated[tuple[Iteration, ...], Says("evenly spaced, a thousand at most", is_listed=False)]
    posteriors: tuple[PosteriorsSummary, ...] = ()
    weights: Annotated[
        Mapping[str, float],
        Says("terms of composite: facet:<name>, pairs, distinctness, cosine, signs; empty for others"),
    ] = field(default_factory=dict)
    dimensions: Annotated[Mapping[str, int], Says("what each of these terms adds to the rank")] = field(
        default_factory=dict
    )
    emphases: Annotated[
        Mapping[str, Mapping[str, float]],
        Says("weights of these terms that do best by ndcg, map and recall, of all that were tried"),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexRecall:
    """Recall of the indexes, compared with the exact ranking."""

    recall_at_10: Annotated[Mapping[str, float], Says("as measured; empty where the indexes are exact")]
    needed: float
    is_exact: Annotated[bool, Says("whether the indexes are exact, so that none had to be measured")] = False
    choices: Annotated[
        Mapping[str, IndexChoice],
        Says("by modality, of galleries that are large enough for approximate indexes"),
    ] = field(default_factory=dict)

    @property
    def published(self) -> dict[str, float]:
        """Recall of the approximate indexes that were published, by modality."""
        return {
            name: self.recall_at_10[name]
            for name, choice in self.choices.items()
            if choice.spec.kind != EXACT and name in self.recall_at_10
        }


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What a training learned, how good its model is, and whether it may serve."""

    method: str
    parameters: TrainingParameters
    code_version: str
    data: TrainingData
    selection: Selection
    fit: Fit
    held_out: HeldOutQuality
    gate: Gate
    index: IndexRecall
    not_activated: Annotated[str | None, Says("why the version does not serve")] = None

    def to_answer(self, is_whole: bool) -> dict[str, Any]:
        """Return JSON values, with or without the long lists."""
        answer: dict[str, Any] = msgspec.to_builtins(self)
        if not is_whole:
            held_out = answer["held_out"]
            for part in (answer["data"], answer["fit"], held_out, *held_out["directions"].values()):
                part.update(dict.fromkeys(_LONG & part.keys()))
        return answer

    def to_json(self) -> dict[str, Any]:
        """Return JSON values that `from_json` reads."""
        return {"format": _FORMAT, **msgspec.to_builtins(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the report that `to_json`, of this release or an earlier one, stored as these values.
        Raises UnavailableError for those of a newer release."""
        stored = values.get("format")
        if stored is not None and (type(stored) is not int or stored not in _FORMATS):
            raise UnavailableError(
                "newer-report",
                f"the training report of a model version has format {stored!r}, and this release reads "
                f"formats up to {_FORMAT}: run the release that wrote it, or a newer one",
            )
        if stored is None:
            values = upgraded_report(values)
        if stored in (None, _FORMATS[0]):
            values = upgraded_to_format_3(values)
        return msgspec.convert({**values, "format": _FORMAT}, cls)


# msgspec describes a class when it first reads one. Do so now: a second thread that meets half of a
# description crashes the process.
msgspec.json.Decoder(TrainingReport)
