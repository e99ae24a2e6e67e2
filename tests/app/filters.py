"""What a filter accepts, item by item: the plain rule that the masks of a gallery are compared with."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.domain.searches import ItemFilter


def accepts(item_filter: ItemFilter, labels: Sequence[str], metadata: Mapping[str, Any]) -> bool:
    """Return whether an item with these labels and metadata passes; an absent key counts as null."""
    if item_filter.labels is not None and not set(item_filter.labels) & set(labels):
        return False
    return all(
        any(is_same_in_json(metadata.get(key), value) for value in values)
        for key, values in item_filter.metadata.items()
    )


def is_same_in_json(left: Any, right: Any) -> bool:
    """Return whether two JSON values count as the same: true is not 1, but "1" is, and "true" is true."""
    if isinstance(left, str) != isinstance(right, str):
        text, other = (left, right) if isinstance(left, str) else (right, left)
        if isinstance(other, bool):
            return text in (str(other), str(other).lower(), str(other).upper())
        is_decimal = re.fullmatch(r"(0|-?[1-9]\d*)(\.\d\d?)?", text) is not None
        return is_decimal and isinstance(other, int | float) and float(text) == other
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
