"""Which index a gallery is searched with, and the measurements that it was chosen by."""

from __future__ import annotations

from dataclasses import dataclass

EXACT = "exact"
"""Kind of an index that compares a query with every row."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """A kind of index and its parameters.

    Parameters
    ----------
    kind : str
        ``exact``, ``ivf-flat``, or ``ivf-sq8``: inverted lists of whole factors, or of factors in 8 bits.
    lists : int
        Inverted lists, 0 for an exact index.
    probes : int
        Lists that a search of a first page without a filter visits, 0 for an exact index.
    """

    kind: str = EXACT
    lists: int = 0
    probes: int = 0


@dataclass(frozen=True, slots=True)
class IndexTrial:
    """One candidate with the fewest probes that reached the recall, or the most that were tried.

    Parameters
    ----------
    spec : IndexSpec
        What was measured.
    recall_at_10 : float
        Against the exact ranking.
    milliseconds : float
        Median of one search for ten rows.
    build_seconds : float
        Time to build it.
    bytes_per_item : float
        Memory of the index with the factors.
    rejected : str or None
        Why it may not serve; None if it may, and in reports of earlier releases.
    """

    spec: IndexSpec
    recall_at_10: float
    milliseconds: float
    build_seconds: float
    bytes_per_item: float
    rejected: str | None = None


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """The index chosen for the gallery of one modality.

    Parameters
    ----------
    spec : IndexSpec
        What is published.
    reason : str
        Why this one.
    exact_milliseconds : float or None
        Median of one exact search for ten rows, in the same run; None where nothing was measured.
    trials : tuple of IndexTrial
        The candidates, in the order of their measurement.
    """

    spec: IndexSpec
    reason: str
    exact_milliseconds: float | None = None
    trials: tuple[IndexTrial, ...] = ()
