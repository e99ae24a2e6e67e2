"""The path of a field in the JSON that a client sent."""

from __future__ import annotations

from collections.abc import Sequence


def field_path(loc: Sequence[str | int]) -> str:
    """Return pydantic's location as a path such as ``items.3.vector``; ``body`` for the whole."""
    return ".".join(map(str, loc)) or "body"
