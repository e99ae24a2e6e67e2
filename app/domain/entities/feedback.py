"""What users say about search results: that an item is relevant to a query, or that it is not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from app.domain.entities.collections import Item

_NOT_STORED = datetime.fromtimestamp(0, UTC)
"""Time of feedback before it is stored."""


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """One item's relevance to one query; the query is an item of the collection or content of its own.

    Parameters
    ----------
    source, target : str
        Modalities of the query and of the item; they may be the same.
    item_id : str
        Item that the feedback is about.
    is_relevant : bool
        Whether it answers the query.
    query_item_id : str or None
        Item that is the query.
    query : Item or None
        Content of any other query, as an item of modality `source` without an id: like those of an item, its
        features are None where the encoder is fitted with the model.
    id : int
        Given when it is stored; grows with each feedback.
    created_at : datetime
        UTC, given when it is stored.
    """

    source: str
    target: str
    item_id: str
    is_relevant: bool
    query_item_id: str | None = None
    query: Item | None = None
    id: int = 0
    created_at: datetime = _NOT_STORED
