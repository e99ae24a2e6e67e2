"""The workload of a request (read, write, import or events), known before routing."""
# It follows from the method, except for the routes marked with `works_as`. Paths contain ids and names that
# clients choose, so each is matched as a whole, against the pattern of the marked route.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set
from enum import Enum
from typing import Any, TypeVar

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette._utils import get_route_path
from starlette.routing import compile_path
from starlette.types import Scope

_WORK = "/v1/"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_COLLECTION = re.compile("/v1/(?:admin/)?collections/([^/]+)")
_MARK = "workload"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


class Workload(Enum):
    """A kind of work with limits of its own."""

    READ = "read"
    """Includes searches."""
    WRITE = "write"
    IMPORT = "import"
    """Holds no more than a piece of its body in memory, and limits the body itself."""
    EVENTS = "events"
    """Lasts as long as the job."""


def works_as(workload: Workload) -> Callable[[_Endpoint], _Endpoint]:
    """Mark the endpoint of a route whose workload does not follow from its method."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, _MARK, workload)
        return endpoint

    return mark


class Workloads:
    """Classifies requests by the marks of the routes of an application."""

    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._marked: list[tuple[Set[str], re.Pattern[str], Workload]] = [
            (route.methods or frozenset(), compile_path(route.path)[0], getattr(route.endpoint, _MARK))
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and hasattr(route.endpoint, _MARK)
        ]

    def of(self, scope: Scope) -> Workload | None:
        """Return the workload of a request; None for what is not limited, such as probes and pages."""
        path = get_route_path(scope)
        if not path.startswith(_WORK):
            return None
        for methods, pattern, workload in self._marked:
            if scope["method"] in methods and pattern.match(path):
                return workload
        return Workload.READ if scope["method"] in _READING else Workload.WRITE


def collection_of(scope: Scope) -> str:
    """Return the name of the collection in a request's path; empty when it names none."""
    match = _COLLECTION.match(get_route_path(scope))
    return "" if match is None else match[1]
