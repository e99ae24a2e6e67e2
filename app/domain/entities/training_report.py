"""The report of a training: what was asked for, what came of it, how good it is, and whether it may serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from app.domain.entities.training import TrainingParameters

_FORMAT = 2


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Items of one modality that were left out.

    Parameters
    ----------
    count : int
        How many.
    first : tuple of str
        The ids of the first few.
    """

    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What was learned from; mappings are by modality.

    Parameters
    ----------
    items : mapping of str to int
        Training items with a label.
    classes : tuple of str
        Classes on items of both modalities.
    unmatched_labels : mapping of str to tuple of str
        Classes on items of this modality alone.
    sha256 : str
        Hash of features and labels.
    not_learned_from : mapping of str to LeftOut
        Items whose vectors are larger than all others out of proportion.
    not_ranked : mapping of str to LeftOut
        Items that the model cannot place in a ranking.
    """

    items: Mapping[str, int]
    classes: tuple[str, ...]
    unmatched_labels: Mapping[str, tuple[str, ...]]
    sha256: str
    not_learned_from: Mapping[str, LeftOut] = field(default_factory=dict)
    not_ranked: Mapping[str, LeftOut] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CandidateQuality:
    """A scaling and penalty weight that were tried on the held-out items.

    Parameters
    ----------
    scaling : str
        Kind of feature scaling.
    alpha_fraction : float
        Penalty weight as a share of the smallest one that makes the solution zero.
    map_x_to_z, map_z_to_x : float
        Mean average precision (MAP) from the first modality to the second, and back.
    rank : int
        Of the solution.
    """

    scaling: str
    alpha_fraction: float
    map_x_to_z: float
    map_z_to_x: float
    rank: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Why this method.

    Parameters
    ----------
    held_out_map : mapping of str to float
        Held-out MAP of each method that was tried, averaged over both directions.
    refused : mapping of str to str
        Why the others were not tried.
    candidates : tuple of CandidateQuality
        What the chosen method chose from, the best first.
    """

    held_out_map: Mapping[str, float]
    refused: Mapping[str, str]
    candidates: tuple[CandidateQuality, ...]


@dataclass(frozen=True, slots=True)
class Iteration:
    """One step of the fit.

    Parameters
    ----------
    iteration : int
        Counted from 1.
    objective : float
        After it.
    gap : float or None
        Relative duality gap, where it was computed.
    rank : int
        Of M.
    seconds : float
        Since the fit began.
    """

    iteration: int
    objective: float
    gap: float | None
    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Convergence:
    """How the fit ended.

    Parameters
    ----------
    iteration, objective, gap, rank, seconds
        Of the last iteration; the gap of the rounded factors, in float64.
    converged : bool
        Whether the gap met `tol`.
    tol : float or None
        Relative duality gap that was asked for; None in reports of early versions.
    """

    iteration: int
    objective: float
    gap: float
    rank: int
    converged: bool
    tol: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class ClassifierSummary:
    """One classifier of an ensemble of class posteriors.

    Parameters
    ----------
    scaling, kernel : str
        Of its feature map.
    weight : float
        Its share of the average.
    is_read_out : bool
        Whether it is read out of a similarity rather than a logistic regression.
    """

    scaling: str
    kernel: str
    weight: float
    is_read_out: bool


@dataclass(frozen=True, slots=True)
class PosteriorsSummary:
    """The class posteriors of one modality.

    Parameters
    ----------
    log_loss : float
        Cross-validated mean negative log-likelihood, in nats per item.
    classifiers : tuple of ClassifierSummary
        Their average is the posterior.
    """

    log_loss: float
    classifiers: tuple[ClassifierSummary, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """The fit on all training items.

    Parameters
    ----------
    alpha : float
        Penalty weight.
    scaling : str or None
        Kind of feature scaling; None where the method has none of its own.
    rank : int
        Of M.
    singular_values : tuple of float
        Of M, in descending order.
    convergence : Convergence
        How it ended.
    history : tuple of Iteration
        A thousand steps at most, evenly spread.
    posteriors : tuple of PosteriorsSummary
        Of both modalities, where the method has any.
    """

    alpha: float
    scaling: str | None
    rank: int
    singular_values: tuple[float, ...]
    convergence: Convergence
    history: tuple[Iteration, ...]
    posteriors: tuple[PosteriorsSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class Curve:
    """A precision-recall curve.

    Parameters
    ----------
    recall, precision : tuple of float
        Interpolated precision at fixed levels of recall.
    """

    recall: tuple[float, ...]
    precision: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DirectionQuality:
    """How well the queries of one direction were answered.

    Parameters
    ----------
    map : float
        Mean average precision.
    chance : float or None
        That of a random ranking; None in reports of early versions.
    curve : Curve or None
        Precision over recall; None in reports of early versions.
    """

    map: float
    chance: float | None = None
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class HeldOutQuality:
    """Quality on items that were held out of the training; empty where none could be held out.

    Parameters
    ----------
    items : mapping of str to int
        How many were ranked, by modality.
    directions : mapping of str to DirectionQuality
        By name, such as ``"image-to-text"``.
    """

    items: Mapping[str, int] = field(default_factory=dict)
    directions: Mapping[str, DirectionQuality] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gate:
    """The comparison with the active version, on items that neither learned from.

    Parameters
    ----------
    compared_with : int or None
        The active version; None when none was active.
    skipped : str or None
        Why they were not compared; None when they were.
    items : mapping of str to int
        How many were ranked by both, by modality.
    new_map, active_map : float or None
        MAP of both, averaged over both directions.
    tolerance : float
        How much lower the new one's may be.
    """

    compared_with: int | None
    skipped: str | None = None
    items: Mapping[str, int] = field(default_factory=dict)
    new_map: float | None = None
    active_map: float | None = None
    tolerance: float = 0.0

    @property
    def refusal(self) -> str | None:
        """Why the new version should not serve; None when it may."""
        if (
            self.new_map is None
            or self.active_map is None
            or self.new_map >= self.active_map - self.tolerance
        ):
            return None
        return (
            f"its held-out MAP of {self.new_map:.4f} is more than {self.tolerance:g} below the "
            f"{self.active_map:.4f} of version {self.compared_with} on the same items"
        )


@dataclass(frozen=True, slots=True)
class IndexRecall:
    """How much of the exact ranking the indexes find.

    Parameters
    ----------
    recall_at_10 : mapping of str to float
        By modality of the gallery.
    needed : float
        Below this a version does not serve.
    """

    recall_at_10: Mapping[str, float]
    needed: float

    @property
    def refusal(self) -> str | None:
        """Why the new version should not serve; None when it may."""
        for name, recall in self.recall_at_10.items():
            if recall < self.needed:
                return f"the index of {name!r} has a recall@10 of {recall:.4f}, {self.needed:g} is needed"
        return None


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What a training learned, how good it is, and whether its model may serve.

    Parameters
    ----------
    method : str
        The one that was chosen.
    parameters : TrainingParameters
        What was asked for.
    code_version : str
        Of this package.
    data : TrainingData
        What was learned from.
    selection : Selection
        Why this method.
    fit : Fit
        How it was fitted on all training items.
    held_out : HeldOutQuality
        How good it is, judged by the same method fitted without the held-out items.
    gate : Gate
        How it compares with the active version.
    index : IndexRecall
        How exact its indexes are.
    not_activated : str or None
        Why the version does not serve; None when it was activated.
    """

    method: str
    parameters: TrainingParameters
    code_version: str
    data: TrainingData
    selection: Selection
    fit: Fit
    held_out: HeldOutQuality
    gate: Gate
    index: IndexRecall
    not_activated: str | None = None

    @property
    def refusal(self) -> str | None:
        """Why the version should not serve; None when it may."""
        return self.index.refusal or self.gate.refusal

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, which `from_json` reads."""
        return {"format": _FORMAT, **msgspec.to_builtins(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the report of which these are the values, as `to_json` or an earlier version wrote them."""
        return msgspec.convert(values if "format" in values else _upgraded(values), cls)


def _upgraded(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a report that a version before formats wrote: one flat object."""
    gate, index = facts.get("gate", {}), facts.get("index", {})
    chance, curves = facts.get("chance") or {}, facts.get("curves") or {}
    return {
        "method": facts.get("method", "lrbs"),
        "parameters": facts.get("parameters", {}),
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
        "fit": {
            "alpha": facts.get("alpha", 0.0),
            "scaling": facts.get("scaling"),
            "rank": facts.get("rank", 0),
            "singular_values": facts.get("singular_values", []),
            "convergence": {"tol": None, **facts.get("convergence", _UNKNOWN_CONVERGENCE)},
            "history": facts.get("history", []),
            "posteriors": facts.get("posteriors", []),
        },
        "held_out": {
            "items": facts.get("held_out_items") or {},
            "directions": {
                name: {"map": value, "chance": chance.get(name), "curve": curves.get(name)}
                for name, value in facts.get("held_out", {}).items()
            },
        },
        "gate": {
            "compared_with": gate.get("compared_with"),
            "skipped": gate.get("skipped"),
            "items": gate.get("items", {}),
            "new_map": gate.get("map", {}).get("new"),
            "active_map": gate.get("map", {}).get("active"),
            "tolerance": gate.get("tolerance", 0.0),
        },
        "index": {"recall_at_10": index.get("recall_at_10", {}), "needed": index.get("needed", 0.0)},
        "not_activated": facts.get("not_activated"),
    }


_UNKNOWN_CONVERGENCE = {
    "iteration": 0, "objective": 0.0, "gap": 0.0, "rank": 0, "converged": True, "seconds": 0.0
}  # fmt: skip
