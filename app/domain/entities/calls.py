"""Calls of late."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallCount:
    """How often a caller called within the last minute, and how long ago the first of these calls was."""

    calls: int
    age_seconds: float
