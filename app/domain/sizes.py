"""Sizes on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from app.domain.entities import Item

_ENCODER = msgspec.json.Encoder()


def json_bytes(item: Item) -> int:
    """Return how many bytes the item's labels, metadata and text take as JSON."""
    parts: tuple[str | tuple[str, ...] | Mapping[str, Any] | None, ...]
    parts = (item.labels, item.metadata, item.text)
    return sum(len(_ENCODER.encode(part)) for part in parts if part)
