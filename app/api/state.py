"""The typed state of an application: its services, its limits, and what its requests share."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from app.api.key_checks import KeyChecks
from app.api.own_writes import OwnWrites
from app.api.probes import CachedProbe
from app.api.search_batches import SearchBatches
from app.services.access.service import AccessService
from app.services.catalogue.feedback import FeedbackService
from app.services.catalogue.imports import ImportService
from app.services.catalogue.service import CatalogueService
from app.services.health.readiness import Readiness
from app.services.models.registry import ModelRegistry
from app.services.serving.maps import GalleryMaps
from app.services.serving.search import SearchService
from app.services.serving.values import GalleryValues
from app.services.training.requests import TrainingService


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Limits on what one request may contain.

    Parameters
    ----------
    body_bytes : int
        Largest body of a request that carries items.
    search_body_bytes : int
        Largest body of a search.
    import_bytes, import_line_bytes : int
        Largest body of an import, and its longest line.
    picture_bytes : int
        Largest picture file.
    entries : int
        Most items or queries in one body.
    """

    body_bytes: int
    search_body_bytes: int
    import_bytes: int
    import_line_bytes: int
    picture_bytes: int
    entries: int


@dataclass(frozen=True, slots=True)
class ApiState:
    """Everything the routes of one application use.

    Parameters
    ----------
    catalogue, imports, feedback, search, values, maps, training, versions, access
        The use cases.
    key_checks : KeyChecks
        Looks up API keys in threads of its own.
    own_writes : OwnWrites
        Revisions written by each caller.
    batches : SearchBatches
        Answers searches together.
    readiness, metrics : CachedProbe
        Answers of `/readyz` and `/metrics`.
    limits : ApiLimits
        Limits on requests.
    open_search, open_metrics : bool
        Whether searches and reads, and `/metrics`, need no key.
    stopping : Event
        Set when the server begins to stop, so that event streams end by themselves.
    """

    catalogue: CatalogueService
    imports: ImportService
    feedback: FeedbackService
    search: SearchService
    values: GalleryValues
    maps: GalleryMaps
    training: TrainingService
    versions: ModelRegistry
    access: AccessService
    key_checks: KeyChecks
    own_writes: OwnWrites
    batches: SearchBatches
    readiness: CachedProbe[Readiness]
    metrics: CachedProbe[bytes]
    limits: ApiLimits
    open_search: bool
    open_metrics: bool
    stopping: threading.Event


# A coroutine, since FastAPI runs every plain function in a thread.
async def _state(request: Request) -> ApiState:
    return state_of(request)


def state_of(request: Request) -> ApiState:
    """Return the state of the application that a request came to."""
    state: ApiState = request.app.state.api
    return state


State = Annotated[ApiState, Depends(_state)]
