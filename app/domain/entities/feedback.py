"""What users say about search results: that an item is relevant to a query, or that it is not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from app.domain.entities.collections import Item

_NOT_STORED = datetime.fromtimestamp(0, UTC)  # time of feedback before it is stored


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """One item's relevance to one query; the query is an item of the collection or content of its own."""

    source: str  # modality of the query
    target: str  # modality of the item; they may be the same
    item_id: str
    is_relevant: bool
    query_item_id: str | None = None
    # any other query, as an item of modality `source` without an id; features as of `Item`
    query: Item | None = None
    id: int = 0  # given when it is stored; grows with each feedback
    created_at: datetime = _NOT_STORED  # UTC, given when it is stored
