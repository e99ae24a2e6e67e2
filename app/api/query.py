"""The query of a request: what its route does not know is refused, as unknown fields of a body are."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError

_LONGEST_NAME = 100  # of a parameter in an answer, which repeats it
_MOST_FAULTS = 20  # that are looked for: an address has room for thousands


async def check_query(request: Request) -> None:
    """Refuse parameters that a route does not have, or has once; raises RequestValidationError."""
    if not request.scope["query_string"]:
        return
    parameters = dict(_parameters(request.scope["route"].dependant))
    counts = Counter(name for name, _ in request.query_params.multi_items())
    faults = (
        {"loc": ("query", name[:_LONGEST_NAME] or "query"), "msg": fault, "type": "query"}
        for name, count in counts.items()
        if (fault := _fault_of(name, count, parameters))
    )
    if first := list(islice(faults, _MOST_FAULTS)):
        raise RequestValidationError(first)


def _fault_of(name: str, count: int, parameters: dict[str, bool]) -> str:
    if name in parameters:
        return "" if count == 1 or parameters[name] else f"stands {count} times in the address, expected once"
    nearest = difflib.get_close_matches(name[:_LONGEST_NAME], parameters, 1)
    if nearest:
        return f"is no parameter of this address: do you mean {nearest[0]}?"
    others = f"which has {', '.join(sorted(parameters))}" if parameters else "which has none"
    return f"is no parameter of this address, {others}"


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Yield the names of a route's parameters, and whether each may stand in a query several times."""
    for field in dependant.query_params:
        yield field.alias, get_origin(field.field_info.annotation) is Sequence
    for other in dependant.dependencies:
        yield from _parameters(other)
