"""Options of commands that name which items are meant."""

from __future__ import annotations

from typing import Annotated

import typer

from app.domain.entities import ItemFilter

LabelFilter = Annotated[list[str] | None, typer.Option("--label", help="only items with any of these labels")]
WhereFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUE",
        help="only items with this value under a metadata key; of one key any of the values",
    ),
]


def read_filter(labels: list[str] | None, conditions: list[str] | None) -> ItemFilter:
    """Return the filter of --label and --where; raises BadParameter for a condition without a key."""
    for condition in conditions or ():
        if condition.find("=") < 1:
            raise typer.BadParameter(f"expected KEY=VALUE, got {condition!r}", param_hint="--where")
    return ItemFilter.of_conditions(labels or (), conditions or ())
