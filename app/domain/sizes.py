"""Sizes on the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.domain.entities import Item


def json_bytes(item: Item) -> int:
    """Return how many bytes the item's labels, metadata and text take as JSON."""
    parts: tuple[str | tuple[str, ...] | Mapping[str, Any] | None, ...]
    parts = (item.labels, item.metadata, item.text)
    return sum(len(json.dumps(part, ensure_ascii=False).encode()) for part in parts if part)
