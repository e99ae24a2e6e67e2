"""What a list of versions shows of a training report: the part of its JSON, with the names of its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from app.answers import Model


class ShortSpec(msgspec.Struct):
    """A kind of index and its parameters."""

    kind: str
    lists: int
    probes: int


class ShortTrial(msgspec.Struct):
    """An index that was measured."""

    spec: ShortSpec
    rejected: str | None = None


class ShortChoice(msgspec.Struct):
    """How the index of a gallery was chosen."""

    spec: ShortSpec
    reason: str
    trials: list[ShortTrial]


class ShortIndex(msgspec.Struct):
    """The indexes by modality."""

    recall_at_10: dict[str, float]
    choices: dict[str, ShortChoice]


class ShortQuality(msgspec.Struct):
    """How well the queries of one direction were answered."""

    map: float | None
    ndcg_at_10: float | None
    recall_at_10: float | None


class ShortHeldOut(msgspec.Struct):
    """Quality on held-out items."""

    items: dict[str, int]
    directions: dict[str, ShortQuality]


class ShortConvergence(msgspec.Struct):
    """How a fit ended."""

    iteration: int
    gap: float
    converged: bool
    tol: float | None


class ShortFit(msgspec.Struct):
    """A fit."""

    convergence: ShortConvergence | None


class ShortData(msgspec.Struct):
    """What was learned from."""

    facets: dict[str, int]
    n_pairs: int


class ShortReport(msgspec.Struct):
    """A training report."""

    method: str
    data: ShortData
    fit: ShortFit
    held_out: ShortHeldOut
    index: ShortIndex
    not_activated: str | None


def read_report(model: Model) -> ShortReport:
    """Return what is shown of the report of a version."""
    return msgspec.convert(model.report, ShortReport)
