"""Conditions of rows in SQL: those of a revision, and those that match a filter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from app.domain.searches import ItemFilter
from app.engines.postgresql.server import LIST

FOREVER = 2**63 - 1
"""The end of a row that is alive."""


def condition_at(table: str) -> str:
    """Return the condition of the rows of a revision; of what is purged, the earliest that is there."""
    earliest = f"(SELECT earliest FROM {LIST} WHERE table_name = '{table}')"
    return f"since <= GREATEST(:revision, {earliest}) AND until > GREATEST(:revision, {earliest})"


@dataclass(frozen=True, slots=True)
class Conditions:
    """A condition in SQL with its parameters."""

    sql: str
    parameters: dict[str, Any]

    @classmethod
    def of(cls, condition: str, revision: int, item_filter: ItemFilter) -> Conditions:
        """Return the condition of the rows of a revision (`condition_at`) that match a filter."""
        parts, parameters = [condition], dict[str, Any](revision=revision)
        if item_filter.labels is not None:
            parts.append("labels && CAST(:labels AS text[])")
            parameters["labels"] = list(item_filter.equal_labels)
        for number, (name, values) in enumerate(item_filter.equal_metadata.items()):
            parts.append(
                f"COALESCE(metadata -> :key_{number}, 'null'::jsonb) "
                f"= ANY (CAST(:values_{number} AS jsonb[]))"
            )
            parameters[f"key_{number}"] = name
            parameters[f"values_{number}"] = [json.dumps(value) for value in values]
            if values and None not in values:  # which an item without the key matches, too
                # Said once more, as the index understands it.
                names = [f"object_{number}_{position}" for position in range(len(values))]
                parts.append(
                    "(" + " OR ".join(f"metadata @> CAST(:{parameter} AS jsonb)" for parameter in names) + ")"
                )
                parameters |= {
                    parameter: json.dumps({name: value})
                    for parameter, value in zip(names, values, strict=True)
                }
        return cls(" AND ".join(parts), parameters)
