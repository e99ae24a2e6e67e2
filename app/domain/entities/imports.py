"""Imports while they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class RunningImport:
    """An import that keeps writers out of its collection: it is being stored, or its leftovers are there.

    Parameters
    ----------
    id : str
        Its identity.
    collection_id : int
        Where its items go.
    revision : int
        Of the collection once it is published; readers do not see it before.
    size : int
        Items that came in.
    started_at : datetime
        When storing began.
    is_abandoned : bool
        Whether the process that stored it fell silent or gave it up.
    """

    id: str
    collection_id: int
    revision: int
    size: int
    started_at: datetime
    is_abandoned: bool
