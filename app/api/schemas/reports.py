"""The wire model of a training report."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from app.domain.entities import TrainingReport


class _Read(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class LeftOutOut(_Read):
    """Items of one modality that were left out."""

    count: int
    first: list[str] = Field(description="ids of the first few")


class SupervisionOut(_Read):
    """What of that which items carry could be learned from."""

    labels: bool
    facets: list[str] | str = Field(description="metadata keys, or auto")
    pairs: bool
    feedback: bool


class ParametersOut(_Read):
    """What was asked for."""

    method: str
    alpha: float | None
    scaling: str | None
    tol: float
    max_iter: int
    seed: int = Field(description="of the held-out split")
    supervision: SupervisionOut
    objective: str | dict[str, float] | None = Field(
        description="ndcg, map or recall, or weights of these; null where it was left open"
    )


class DataOut(_Read):
    """What was learned from; objects are by modality."""

    items: dict[str, int] = Field(description="training items")
    classes: list[str] | None = Field(None, description="classes on items of both modalities; not in lists")
    unmatched_labels: dict[str, list[str]] | None = Field(
        None, description="classes on items of this modality alone; not in lists"
    )
    sha256: str = Field(description="of features, labels, facets, pairs and feedback")
    not_learned_from: dict[str, LeftOutOut] = Field(description="items too large beside all others")
    not_ranked: dict[str, LeftOutOut] = Field(description="items that the model cannot place")
    facets: dict[str, int] = Field(description="number of values by facet; label is that of the labels")
    n_pairs: int = Field(description="pairs of items with equal pair_id")
    n_signs: int = Field(description="pairs of items judged by feedback")


class CandidateOut(_Read):
    """A scaling and penalty weight that were tried."""

    scaling: str
    alpha_fraction: float = Field(description="penalty weight as a share of the one that makes M zero")
    map_x_to_z: float = Field(description="held-out MAP from the first modality to the second")
    map_z_to_x: float
    rank: int


class SelectionOut(_Read):
    """Why this method."""

    held_out_map: dict[str, float] = Field(
        description="MAP by label of each method tried, averaged over both directions; empty without labels"
    )
    objective: str | dict[str, float] = Field(
        description="what the method was chosen by: ndcg, map or recall, or weights of these"
    )
    values: dict[str, float] = Field(description="held-out value of the objective of each method tried")
    refused: dict[str, str] = Field(description="why other methods were not tried")
    candidates: list[CandidateOut] = Field(description="what the method chose from, the best first")


class IterationOut(_Read):
    """One step of the fit."""

    iteration: int
    objective: float
    gap: float | None = Field(description="relative duality gap, where it was computed")
    rank: int
    seconds: float


class ConvergenceOut(IterationOut):
    """How the fit ended."""

    converged: bool = Field(description="whether the gap met tol")
    tol: float | None


class ClassifierOut(_Read):
    """One classifier of an ensemble."""

    scaling: str
    kernel: str
    weight: float
    kind: str = Field(
        description="linear: a linear classifier of mapped features; neighbours: a vote of similar items"
    )


class PosteriorsOut(_Read):
    """The class posteriors of one modality."""

    log_loss: float = Field(description="cross-validated, in nats per item")
    classifiers: list[ClassifierOut]


class FitOut(_Read):
    """The fit on all training items."""

    alpha: float | None = Field(description="penalty weight of M; null where there is none")
    scaling: str | None
    rank: int
    singular_values: list[float] | None = Field(None, description="of M; not in lists")
    convergence: ConvergenceOut | None = Field(description="of the fit of M; null where there was none")
    history: list[IterationOut] | None = Field(None, description="a thousand steps at most; not in lists")
    posteriors: list[PosteriorsOut]
    weights: dict[str, float] = Field(
        description="terms of composite: facet:<name>, pairs, distinctness, cosine, signs; empty for others"
    )


class CurveOut(_Read):
    """Precision-recall and precision-scope curves."""

    recall: list[float]
    precision: list[float]
    scopes: list[int] = Field([], description="numbers of results looked at")
    precision_at_scope: list[float] = []


class ExampleHitOut(_Read):
    """One of the first results of a query."""

    id: str
    relevant: bool = Field(description="whether it shares the query's first label, or else is its partner")


class QueryExampleOut(_Read):
    """A held-out item as a query, with its first results among the held-out items."""

    id: str
    average_precision: float
    n_relevant: int
    hits: list[ExampleHitOut]


class ReliabilityOut(_Read):
    """How often held-out pairs match, in bins of the probability that they were given."""

    probabilities: list[float] = Field(description="mean of each bin")
    shares: list[float] = Field(description="share of its pairs with equal first labels")
    counts: list[int] = Field(description="number of its pairs")
    balanced: bool = Field(
        description="whether pairs are weighted so that matches are half of all, as the probabilities assume"
    )


class DirectionQualityOut(_Read):
    """How well the queries of one direction were answered."""

    map: float | None = Field(description="mean average precision by label")
    chance: float | None = Field(description="that of a random ranking")
    curve: CurveOut | None = Field(None, description="not in lists")
    ndcg_at_10: float | None = Field(
        description="graded by the number of facets that query and item share, and one for partners"
    )
    recall_at_1: float | None = Field(description="share of the queries whose partner comes first")
    recall_at_10: float | None = Field(
        description="share of the queries whose partner is among the first ten"
    )
    median_rank: float | None = Field(description="of the partner, from 1")
    precision_at_10: dict[str, float] = Field(
        description="share of the first ten with the query's value, by facet"
    )
    distinct_lists: int | None = Field(description="number of different first pages of ten")
    n_queries: int | None
    rivals: dict[str, CurveOut] | None = Field(
        None, description="curves of the other methods that were tried; not in lists"
    )
    worst: list[QueryExampleOut] | None = Field(
        None, description="queries with the lowest average precision; not in lists"
    )
    best: list[QueryExampleOut] | None = Field(None, description="likewise, the highest; not in lists")


class HeldOutOut(_Read):
    """Quality on items held out of the training; empty where none could be held out."""

    items: dict[str, int]
    directions: dict[str, DirectionQualityOut] = Field(description='by name, such as "image-to-text"')
    reliability: ReliabilityOut | None = Field(
        None, description="of the probabilities of a match; not in lists"
    )
    caution: str | None = Field(None, description="why the figures should be read with care")


class GateOut(_Read):
    """The comparison with the active version, on items that neither learned from."""

    compared_with: int | None
    skipped: str | None = Field(description="why they were not compared")
    items: dict[str, int]
    new_map: float | None
    active_map: float | None
    tolerance: float = Field(description="how much lower the new value may be")
    objective: str | dict[str, float] = Field(
        description="what decides: ndcg, map or recall, or weights of these"
    )
    new_value: float | None = Field(description="of the objective")
    active_value: float | None


class IndexSpecOut(_Read):
    """A kind of index and its parameters."""

    kind: str = Field(description="`exact`, `ivf-flat` or `ivf-sq8`")
    lists: int
    probes: int = Field(description="lists that the search of a first page without a filter visits")


class IndexTrialOut(_Read):
    """A candidate as it was measured."""

    spec: IndexSpecOut
    recall_at_10: float
    milliseconds: float = Field(description="median of one search for ten items")
    build_seconds: float
    bytes_per_item: float
    rejected: str | None = Field(None, description="why it may not serve")


class IndexChoiceOut(_Read):
    """How the index of one modality's gallery was chosen."""

    spec: IndexSpecOut
    reason: str
    exact_milliseconds: float | None = Field(description="of an exact search, in the same run")
    trials: list[IndexTrialOut]


class IndexOut(_Read):
    """How much of the exact ranking the indexes find."""

    recall_at_10: dict[str, float] = Field(description="as measured; empty where the indexes are exact")
    needed: float
    is_exact: bool = Field(description="whether the indexes are exact, so that none had to be measured")
    choices: dict[str, IndexChoiceOut] = Field(
        description="by modality, of galleries that are large enough for approximate indexes"
    )


_INDEX_CHOICE: JsonDict = {
    "spec": {"kind": "ivf-sq8", "lists": 4096, "probes": 42},
    "reason": "the fastest with a recall@10 of 0.99: 85.0 times the exact search",
    "exact_milliseconds": 22.1,
    "trials": [
        {
            "spec": {"kind": "ivf-flat", "lists": 4096, "probes": 28},
            "recall_at_10": 0.987,
            "milliseconds": 17.5,
            "build_seconds": 11.1,
            "bytes_per_item": 264.0,
            "rejected": (
                "recall@10 is 0.9870 at 1.3 times the speed of the exact search; 0.99 on both halves of the "
                "queries, at 1.5 times, is needed"
            ),
        },
        {
            "spec": {"kind": "ivf-sq8", "lists": 4096, "probes": 42},
            "recall_at_10": 0.994,
            "milliseconds": 0.26,
            "build_seconds": 5.2,
            "bytes_per_item": 168.0,
            "rejected": None,
        },
    ],
}
REPORT_EXAMPLE: JsonDict = {
    "method": "lrbs",
    "parameters": {
        "method": "auto",
        "alpha": None,
        "scaling": None,
        "tol": 0.001,
        "max_iter": 200,
        "seed": 0,
        "supervision": {"labels": True, "facets": "auto", "pairs": True, "feedback": True},
        "objective": None,
    },
    "code_version": "0.1.0",
    "data": {
        "items": {"image": 400, "text": 500},
        "classes": ["bag", "shoe"],
        "unmatched_labels": {"image": [], "text": ["hat"]},
        "sha256": "0" * 64,
        "not_learned_from": {},
        "not_ranked": {},
        "facets": {"label": 3},
        "n_pairs": 0,
        "n_signs": 0,
    },
    "selection": {
        "held_out_map": {"lrbs": 0.9, "semantic": 0.88},
        "objective": "map",
        "values": {"lrbs": 0.9, "semantic": 0.88},
        "refused": {},
        "candidates": [
            {"scaling": "l2", "alpha_fraction": 0.01, "map_x_to_z": 0.91, "map_z_to_x": 0.89, "rank": 9}
        ],
    },
    "fit": {
        "alpha": 0.001,
        "scaling": "l2",
        "rank": 1,
        "singular_values": [2.5],
        "convergence": {
            "iteration": 1,
            "objective": 0.83,
            "gap": 0.0007,
            "rank": 1,
            "seconds": 0.2,
            "converged": True,
            "tol": 0.001,
        },
        "history": [{"iteration": 1, "objective": 0.83, "gap": 0.0007, "rank": 1, "seconds": 0.2}],
        "posteriors": [],
        "weights": {},
    },
    "held_out": {
        "items": {"image": 80, "text": 100},
        "directions": {
            "image-to-text": {
                "map": 0.91,
                "chance": 0.5,
                "curve": {"recall": [0.0, 1.0], "precision": [0.95, 0.8]},
                "ndcg_at_10": 0.93,
                "recall_at_1": None,
                "recall_at_10": None,
                "median_rank": None,
                "precision_at_10": {"label": 0.93},
                "distinct_lists": 78,
                "n_queries": 80,
            },
            "text-to-image": {
                "map": 0.89,
                "chance": 0.5,
                "curve": {"recall": [0.0, 1.0], "precision": [0.94, 0.77]},
                "ndcg_at_10": 0.91,
                "recall_at_1": None,
                "recall_at_10": None,
                "median_rank": None,
                "precision_at_10": {"label": 0.91},
                "distinct_lists": 97,
                "n_queries": 100,
            },
        },
    },
    "gate": {
        "compared_with": None,
        "skipped": "no version is active",
        "items": {},
        "new_map": None,
        "active_map": None,
        "tolerance": 0.0,
        "objective": "map",
        "new_value": None,
        "active_value": None,
    },
    "index": {
        "recall_at_10": {"image": 0.994},
        "needed": 0.99,
        "is_exact": False,
        "choices": {"image": _INDEX_CHOICE},
    },
    "not_activated": None,
}


class TrainingReportOut(_Read):
    """What a training learned, how good it is, and whether its model may serve."""

    method: str
    parameters: ParametersOut
    code_version: str
    data: DataOut
    selection: SelectionOut
    fit: FitOut
    held_out: HeldOutOut
    gate: GateOut
    index: IndexOut
    not_activated: str | None = Field(description="why the version does not serve")

    @classmethod
    def of(cls, report: TrainingReport) -> Self:
        """Return the wire form."""
        return cls.model_validate(report)

    @classmethod
    def summary_of(cls, report: TrainingReport) -> Self:
        """Return the wire form without long lists."""
        summary = cls.of(report)
        summary.data.classes = summary.data.unmatched_labels = None
        summary.fit.singular_values = summary.fit.history = summary.held_out.reliability = None
        for quality in summary.held_out.directions.values():
            quality.curve = quality.rivals = quality.worst = quality.best = None
        return summary
