"""The typed state of an application: its services, its limits, and what its requests share."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from app.api.admission import KeyChecks
from app.api.probes import CachedProbe
from app.api.search_batches import SearchBatches
from app.services.access import AccessService
from app.services.catalogue.imports import ImportService
from app.services.catalogue.service import CatalogueService, FeedbackService
from app.services.health import Readiness
from app.services.models.registry import ModelRegistry
from app.services.serving.overviews import GalleryOverviews
from app.services.serving.search import SearchService
from app.services.training.requests import TrainingService


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Limits on what one request may contain, by the names of the settings."""

    max_body_bytes: int  # of a request that carries items
    max_search_body_bytes: int
    max_import_bytes: int  # of a whole import
    max_import_line_bytes: int
    max_picture_bytes: int
    max_batch: int  # items or queries in one body


@dataclass(frozen=True, slots=True)
class ApiState:
    """Everything the routes of one application use: the use cases first."""

    catalogue: CatalogueService
    imports: ImportService
    feedback: FeedbackService
    search: SearchService
    overviews: GalleryOverviews
    training: TrainingService
    versions: ModelRegistry
    access: AccessService
    key_checks: KeyChecks  # in threads of its own
    batches: SearchBatches  # answers searches together
    readiness: CachedProbe[Readiness]
    metrics: CachedProbe[bytes]
    limits: ApiLimits
    open_search: bool  # searches and reads need no key
    open_metrics: bool  # `/metrics` needs no key
    stopping: threading.Event  # set when the server begins to stop, so that event streams end by themselves


# A coroutine, since FastAPI runs every plain function in a thread.
async def _state(request: Request) -> ApiState:
    return state_of(request)


def state_of(request: Request) -> ApiState:
    """Return the state of the application that a request came to."""
    state: ApiState = request.app.state.api
    return state


State = Annotated[ApiState, Depends(_state)]
