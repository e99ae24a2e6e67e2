"""Options of commands that name which items are meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from app.domain.searches import values_by_key

LabelFilter = Annotated[list[str] | None, typer.Option("--label", help="only items with any of these labels")]
WhereFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUE",
        help="only items with this value under a metadata key; of one key any of the values",
    ),
]


def read_conditions(conditions: Sequence[str] | None) -> Sequence[str]:
    """Return the conditions of --where; raises BadParameter for one without a key."""
    for condition in conditions or ():
        if condition.find("=") < 1:
            raise typer.BadParameter(f"expected KEY=VALUE, got {condition!r}", param_hint="--where")
    return conditions or ()


def read_filter(labels: Sequence[str] | None, conditions: Sequence[str] | None) -> dict[str, Any]:
    """Return the filter of --label and --where, as REST has it; errors as of `read_conditions`."""
    values = values_by_key(read_conditions(conditions))
    metadata = {key: list(alternatives) for key, alternatives in values.items()}
    return {"labels": list(labels), "metadata": metadata} if labels else {"metadata": metadata}
