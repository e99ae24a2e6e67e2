"""What kind of work a request asks for, told by its route before any route is asked.

Paths hold ids and names that clients choose, so each is matched as a whole, by the pattern of its route.
"""

from __future__ import annotations

import re
from enum import Enum

from starlette.routing import compile_path
from starlette.types import Scope

_WORK = "/v1/"
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_COLLECTION = "/v1/collections/{collection}"
_NAMED = re.compile("/v1/(?:admin/)?collections/([^/]+)")


class Workload(Enum):
    """What is limited in a way of its own."""

    READ = "read"
    """Also a search."""
    WRITE = "write"
    IMPORT = "import"
    """Keeps no more than a piece of its body, and limits it itself."""
    EVENTS = "events"
    """Goes on for as long as the job."""


SPECIAL = (
    ("POST", f"{_COLLECTION}/items:import", Workload.IMPORT),
    ("POST", f"{_COLLECTION}/search/{{source}}-to-{{target}}", Workload.READ),
    ("POST", f"{_COLLECTION}/search/{{source}}-to-{{target}}/batch", Workload.READ),
    ("GET", "/v1/admin/jobs/{job_id}/events", Workload.EVENTS),
)
"""Method and path of the routes whose workload does not follow from the method."""
_SPECIAL = tuple((method, compile_path(path)[0], workload) for method, path, workload in SPECIAL)


def workload_of(scope: Scope) -> Workload | None:
    """Return the workload of a request; None for what is no work, such as health and pages."""
    path: str = scope["path"]
    if not path.startswith(_WORK):
        return None
    for method, pattern, workload in _SPECIAL:
        if scope["method"] == method and pattern.match(path):
            return workload
    return Workload.READ if scope["method"] in _READING else Workload.WRITE


def collection_of(scope: Scope) -> str:
    """Return the name of the collection in a request's path; empty when it names none."""
    found = _NAMED.match(scope["path"])
    return "" if found is None else found[1]
