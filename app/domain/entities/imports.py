"""Imports while they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RunningImport:
    """An import that keeps writers out of its collection: it is being stored, or its leftovers are there."""

    id: str
    collection_id: int
    revision: int  # of the collection once it is published; readers do not see it before
    size: int  # items that came in
    started_at: datetime  # when storing began
    is_abandoned: bool  # the process that stored it fell silent or gave it up
