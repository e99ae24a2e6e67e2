"""Calls of late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallCount:
    """How often a caller called within the last minute.

    Parameters
    ----------
    calls : int
        Number of calls.
    age_seconds : float
        How long ago the first of them was.
    """

    calls: int
    age_seconds: float
