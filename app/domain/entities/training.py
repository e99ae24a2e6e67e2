"""What a training is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

import msgspec

from app.domain.entities.held_out_quality import Objective

ENCODERS = "encoders"
"""Parameter of a job beside those of the training: options of the encoders to change to, by modality."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """What of that which items carry a training may learn from.

    Parameters
    ----------
    labels : bool
        All labels of an item; the methods other than "composite" use the first.
    facets : tuple of str or "auto"
        Metadata keys whose values are learned like labels, or "auto" for all that look categorical
        (`app.services.training.facets`).
    pairs : bool
        Items with equal `pair_id` belong together.
    feedback : bool
        Stored feedback.
    """

    labels: bool = True
    facets: tuple[str, ...] | Literal["auto"] = "auto"
    pairs: bool = True
    feedback: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether nothing may be learned from."""
        return not (self.labels or self.facets or self.pairs or self.feedback)


@dataclass(frozen=True, slots=True)
class TrainingParameters:
    """What a training is asked for.

    Parameters
    ----------
    method : {"auto", "lrbs", "semantic", "squared", "composite"}
        "lrbs" is the paper's low-rank bilinear similarity of features, "semantic" the one of class
        posteriors (`SemanticBilinear`), "squared" the first with the squared loss, whose cost grows neither
        with pairs nor with classes. "composite" is a weighted sum of similarities that learns from all that
        items carry (`CompositeBilinear`). "auto" is the better of the first two on a held-out part of the
        items; where one of these would take too long or too much memory (`app.services.training.costs`),
        "squared" is tried in its place. Where items carry more than one label each, "auto" tries "composite"
        and "lrbs".
    alpha : float or None
        Penalty weight of "lrbs" or "squared"; chosen on the held-out part when None. Given with "auto" it
        means "lrbs".
    scaling : str or None
        Kind of feature scaling of "lrbs" or "squared". Given with "auto" it leaves the other methods out.
    tol : float
        Relative duality gap of the final fit.
    max_iter : int
        Iteration limit of the final fit; seldom met, since a fit takes some twenty.
    seed : int
        Of the held-out split.
    supervision : Supervision
        What to learn from.
    objective : {"ndcg", "map", "recall"}, mapping of str to float, or None
        What the method is chosen by, and a version compared with the active one: graded nDCG@10, mean average
        precision by label, the share of queries whose partner is among the first ten, or the mean of some of
        these with the given weights. None stands for "ndcg" where there is more than one facet or pairs, and
        "map" otherwise.
    """

    method: str = "auto"
    alpha: float | None = None
    scaling: str | None = None
    tol: float = 1e-3
    max_iter: int = 200
    seed: int = 0
    supervision: Supervision = field(default_factory=Supervision)
    objective: Objective | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the parameters of a stored job; those that it lacks have their defaults.

        Raises
        ------
        ValueError
            If it has parameters that this release does not know, or a value of another type.
        """
        for kind, part in ((cls, values), (Supervision, values.get("supervision", {}))):
            unknown = part.keys() - {entry.name for entry in fields(kind)}
            if unknown:
                raise ValueError(f"unknown training parameters: {sorted(unknown)}")
        return msgspec.convert(values, cls)


# msgspec describes a class when it first reads one. Do so now: a second thread that meets half of a
# description crashes the process.
msgspec.json.Decoder(TrainingParameters)
