"""What a training is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, Self

import msgspec

from app.answers import Says
from app.domain.entities.held_out_quality import Objective

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
    # items; where one of these would take too long or too much memory (`app.services.training.costs`),
    # "squared" is tried in its place. Where items carry more than one label each, "auto" tries "composite"
    # and "lrbs".
    #
    # The objective is what the method is chosen by, and a version compared with the active one: graded
    # nDCG@10, mean average precision by label, the share of queries whose partner is among the first ten, or
    # the mean of some of these with the given weights. None stands for "ndcg" where there is more than one
    # facet or pairs, and "map" otherwise.

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
        Objective | None,
        Says("ndcg, map or recall, or weights of these; null where it was left open"),
    ] = None

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
