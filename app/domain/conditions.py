"""Conditions on metadata in one line each, such as ``colour=red``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def values_by_key(conditions: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each key that conditions name.

    A value that is no JSON, or a list or an object, is text; values of one key are alternatives.
    """
    values: dict[str, tuple[Any, ...]] = {}
    for condition in conditions:
        key, _, text = condition.partition("=")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        scalar = text if isinstance(value, list | dict) else value
        values[key] = (*values.get(key, ()), scalar)
    return values
