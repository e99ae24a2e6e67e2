"""Wire models of the values that filters can choose from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from app.services.serving.values import ValueCounts


class LabelCountOut(BaseModel):
    """How many items carry a label."""

    value: str
    count: int


class ValueCountOut(BaseModel):
    """How many items have a value under a metadata key."""

    value: str | int | float | bool
    count: int


class ValuesOut(BaseModel):
    """The most frequent labels and metadata values of a gallery."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": 5,
                    "labels": [{"value": "shoes", "count": 3}, {"value": "wallets", "count": 2}],
                    "metadata": {"colour": [{"value": "red", "count": 4}, {"value": "blue", "count": 1}]},
                }
            ]
        }
    )

    items: int
    labels: list[LabelCountOut]
    metadata: dict[str, list[ValueCountOut]]

    @classmethod
    def of(cls, counts: ValueCounts) -> Self:
        """Return the wire form."""
        return cls(
            items=counts.n_items,
            labels=[LabelCountOut(value=value, count=count) for value, count in counts.labels],
            metadata={key: _values(entries) for key, entries in counts.metadata.items()},
        )


def _values(entries: Iterable[tuple[Any, int]]) -> list[ValueCountOut]:
    return [ValueCountOut(value=value, count=count) for value, count in entries]
