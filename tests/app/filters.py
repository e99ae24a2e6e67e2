"""What a filter accepts, item by item: the plain rule that the masks of a gallery are compared with."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.entities import ItemFilter


def accepts(item_filter: ItemFilter, labels: Sequence[str], metadata: Mapping[str, Any]) -> bool:
    """Return whether an item with these labels and metadata passes; an absent key counts as null."""
    if item_filter.labels is not None and not set(item_filter.labels) & set(labels):
        return False
    return all(
        any(is_same_in_json(metadata.get(key), value) for value in values)
        for key, values in item_filter.metadata.items()
    )


def is_same_in_json(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal: true is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
