"""The report of a training: the request, the data, the fit, its quality, and whether it may serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import msgspec

from app.answers import Says
from app.domain.entities.held_out_quality import Gate, HeldOutQuality, Objective, measure_of
from app.domain.entities.index_choice import EXACT, IndexChoice
from app.domain.entities.report_upgrade import (
    upgraded_report,
    upgraded_to_format_3,
    upgraded_to_format_4,
)
from app.domain.entities.training import TrainingParameters
from app.domain.errors import UnavailableError

_UPGRADES = {3: upgraded_to_format_3, 4: upgraded_to_format_4}  # upgrades to each format from the one before
_FORMATS = (2, *_UPGRADES)
"""Numbers stored with a report; reports of the first format, a flat object, carry none."""
_FORMAT = _FORMATS[-1]
_LONG = {
    *("classes", "unmatched_labels", "singular_values", "history", "reliability"),
    *("curve", "rivals", "worst", "best"),
}
"""Fields that lists of versions leave out: null there."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Items of one modality that were left out."""

    count: int
    first: Annotated[tuple[str, ...], Says("ids of the first few")]


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

    @property
    def refusal(self) -> str | None:
        """Why the new version should not serve; None if it may."""
        for name, recall in self.recall_at_10.items():
            if recall < self.needed:
                return f"the index of {name!r} has a recall@10 of {recall:.4f}, {self.needed:g} is needed"
        return None


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

    @property
    def refusal(self) -> str | None:
        """Why the version should not serve; None if it may."""
        return self.index.refusal or self.gate.refusal

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
        for number, upgrade in _UPGRADES.items():
            if (stored or _FORMATS[0]) < number:
                values = upgrade(values)
        return msgspec.convert(values, cls)


# msgspec describes a class when it first reads one. Do so now: a second thread that meets half of a
# description crashes the process.
msgspec.json.Decoder(TrainingReport)
