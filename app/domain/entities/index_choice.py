"""Which index a gallery is searched with, and the measurements that it was chosen by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from app.answers import Says

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
