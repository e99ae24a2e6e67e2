"""The report of a training: the request, the data, the fit, its quality, and whether it may serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from app.domain.entities.held_out_quality import Gate, HeldOutQuality, Objective, measure_of
from app.domain.entities.index_choice import EXACT, IndexChoice
from app.domain.entities.report_upgrade import (
    upgraded_report,
    upgraded_to_format_3,
    upgraded_to_format_4,
)
from app.domain.entities.training import TrainingParameters
from app.domain.errors import UnknownReportFormatError

_UPGRADES = {3: upgraded_to_format_3, 4: upgraded_to_format_4}
"""Upgrades to each format from the one before."""
_FORMATS = (2, *_UPGRADES)
"""Numbers stored with a report; reports of the first format, a flat object, carry none."""
_FORMAT = _FORMATS[-1]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Items of one modality that were left out.

    Parameters
    ----------
    count : int
        Number of items.
    first : tuple of str
        Ids of the first few.
    """

    count: int
    first: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The training data; mappings are keyed by modality.

    Parameters
    ----------
    items : mapping of str to int
        Training items.
    classes : tuple of str
        Classes with items of both modalities.
    unmatched_labels : mapping of str to tuple of str
        Classes with items of this modality only.
    sha256 : str
        Hash of features and labels, and of facets, pairs and feedback where there are any.
    not_learned_from : mapping of str to LeftOut
        Outliers: items whose vectors are larger than the others by orders of magnitude.
    not_ranked : mapping of str to LeftOut
        Items whose projections are not finite, so that they have no place in a ranking.
    facets : mapping of str to int
        Number of values of each facet, "label" among them.
    n_pairs : int
        Pairs of items that belong together.
    n_signs : int
        Pairs of items whose relevance to each other was judged by feedback.
    """

    items: Mapping[str, int]
    classes: tuple[str, ...]
    unmatched_labels: Mapping[str, tuple[str, ...]]
    sha256: str
    not_learned_from: Mapping[str, LeftOut] = field(default_factory=dict)
    not_ranked: Mapping[str, LeftOut] = field(default_factory=dict)
    facets: Mapping[str, int] = field(default_factory=dict)
    n_pairs: int = 0
    n_signs: int = 0


@dataclass(frozen=True, slots=True)
class CandidateQuality:
    """Held-out quality of one combination of scaling and penalty weight.

    Parameters
    ----------
    scaling : str
        Kind of feature scaling.
    alpha_fraction : float
        Penalty weight as a share of the smallest one that makes the solution zero.
    map_x_to_z, map_z_to_x : float
        Mean average precision (MAP) of queries of the first modality, and of the second.
    rank : int
        Rank of the solution.
    """

    scaling: str
    alpha_fraction: float
    map_x_to_z: float
    map_z_to_x: float
    rank: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of the method and its parameters.

    Parameters
    ----------
    held_out_map : mapping of str to float
        Held-out MAP of each evaluated method, averaged over both directions; without those that have none
        because no item has a label.
    refused : mapping of str to str
        Methods that were not evaluated, each with the reason.
    candidates : tuple of CandidateQuality
        Combinations that the selected method was evaluated with, the best first.
    objective : {"ndcg", "map", "recall"} or mapping of str to float
        What the method was selected by.
    values : mapping of str to float
        Held-out value of the objective of each evaluated method.
    """

    held_out_map: Mapping[str, float]
    refused: Mapping[str, str]
    candidates: tuple[CandidateQuality, ...]
    objective: Objective = "map"
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def measure(self) -> str:
        """What people call the objective."""
        return measure_of(self.objective)


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration of the fit.

    Parameters
    ----------
    iteration : int
        Its number, from 1.
    objective : float
        Objective after the iteration.
    gap : float or None
        Relative duality gap; None where it was not computed.
    rank : int
        Rank of M.
    seconds : float
        Time since the fit began.
    """

    iteration: int
    objective: float
    gap: float | None
    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Convergence:
    """State in which the fit ended.

    Parameters
    ----------
    iteration, objective, gap, rank, seconds
        As in `Iteration`, for the last one; the gap is that of the rounded factors, computed in float64.
    converged : bool
        Whether the gap met `tol`.
    tol : float or None
        Requested relative duality gap; None in reports of early releases.
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
    """One classifier of an ensemble.

    Parameters
    ----------
    scaling, kernel : str
        Scaling and kernel of its feature map.
    weight : float
        Weight of its posteriors in the average.
    kind : {"linear", "neighbours"}
        A linear classifier, or a vote by similarity to labelled items.
    """

    scaling: str
    kernel: str
    weight: float
    kind: str


@dataclass(frozen=True, slots=True)
class PosteriorsSummary:
    """The ensemble that computes the class posteriors of one modality.

    Parameters
    ----------
    log_loss : float
        Cross-validated mean negative log-likelihood, in nats per item.
    classifiers : tuple of ClassifierSummary
        Members of the ensemble; the posterior is their weighted average.
    """

    log_loss: float
    classifiers: tuple[ClassifierSummary, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """The fit on all training items.

    Parameters
    ----------
    alpha : float or None
        Penalty weight of M; None where there is none.
    scaling : str or None
        Kind of feature scaling; None where it is part of each classifier.
    rank : int
        Rank of M, or dimension of the common space of a method that has several.
    singular_values : tuple of float
        Singular values of M, in descending order.
    convergence : Convergence or None
        State in which the fit of M ended; None where there was none.
    history : tuple of Iteration
        At most 1000 iterations, evenly spaced.
    posteriors : tuple of PosteriorsSummary
        Ensembles of both modalities; empty for methods without class posteriors.
    weights : mapping of str to float
        Weight of each term of a composite similarity; empty for other methods.
    """

    alpha: float | None
    scaling: str | None
    rank: int
    singular_values: tuple[float, ...]
    convergence: Convergence | None
    history: tuple[Iteration, ...]
    posteriors: tuple[PosteriorsSummary, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexRecall:
    """Recall of the indexes, compared with the exact ranking.

    Parameters
    ----------
    recall_at_10 : mapping of str to float
        As measured, by modality of the gallery; empty where the indexes are exact.
    needed : float
        Smallest recall with which a version may serve.
    is_exact : bool
        Whether the indexes compare a query with every row, so that there is nothing to measure.
    choices : mapping of str to IndexChoice
        How the index was chosen, by modality of the gallery; galleries of a usual size are not in it: they
        are searched exactly.
    """

    recall_at_10: Mapping[str, float]
    needed: float
    is_exact: bool = False
    choices: Mapping[str, IndexChoice] = field(default_factory=dict)

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
    """What a training learned, how good its model is, and whether it may serve.

    Parameters
    ----------
    method : str
        Selected method.
    parameters : TrainingParameters
        Requested parameters.
    code_version : str
        Version of this package.
    data : TrainingData
        Training data.
    selection : Selection
        Selection of the method and its parameters.
    fit : Fit
        Fit on all training items.
    held_out : HeldOutQuality
        Quality of the same method fitted without the held-out items, on these.
    gate : Gate
        Comparison with the active version.
    index : IndexRecall
        Recall of the indexes.
    not_activated : str or None
        Why the version was not activated; None if it was.
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
        """Why the version should not serve; None if it may."""
        return self.index.refusal or self.gate.refusal

    def to_json(self) -> dict[str, Any]:
        """Return JSON values that `from_json` reads."""
        return {"format": _FORMAT, **msgspec.to_builtins(self)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the report that `to_json`, of this release or an earlier one, stored as these values.

        Raises
        ------
        UnknownReportFormatError
            If a newer release stored them.
        """
        stored = values.get("format")
        if stored is not None and (type(stored) is not int or stored not in _FORMATS):
            raise UnknownReportFormatError(stored, _FORMAT)
        if stored is None:
            values = upgraded_report(values)
        for number, upgrade in _UPGRADES.items():
            if (stored or _FORMATS[0]) < number:
                values = upgrade(values)
        return msgspec.convert(values, cls)


# msgspec describes a class when it first reads one. Do so now: a second thread that meets half of a
# description crashes the process.
msgspec.json.Decoder(TrainingReport)
