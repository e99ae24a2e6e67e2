"""What routes ask for: the services, and a key of the right scope that may see what the path names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from app.api.bodies import reads_body
from app.api.key_checks import KeyChecks
from app.api.middleware.admission import admit
from app.api.middleware.request_body_limits import body_of
from app.api.own_writes import OwnWrites
from app.domain.addresses import party_of
from app.domain.entities import ApiKey, Scope
from app.domain.errors import CollectionNotFoundError, JobNotFoundError, KeyIsBoundError
from app.services.access.service import AccessService
from app.services.catalogue.imports import ImportService
from app.services.catalogue.service import CatalogueService
from app.services.models.registry import ModelRegistry
from app.services.serving.search import SearchService
from app.services.training.requests import TrainingService

_bearer = HTTPBearer(auto_error=False, description="an API key: lrbs keys create --scope admin")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


# Coroutines, since FastAPI gives every plain function a thread.
async def _catalogue(request: Request) -> CatalogueService:
    service: CatalogueService = request.app.state.catalogue
    return service


async def _imports(request: Request) -> ImportService:
    service: ImportService = request.app.state.imports
    return service


async def _search(request: Request) -> SearchService:
    service: SearchService = request.app.state.search
    return service


async def _training(request: Request) -> TrainingService:
    service: TrainingService = request.app.state.training
    return service


async def _versions(request: Request) -> ModelRegistry:
    service: ModelRegistry = request.app.state.versions
    return service


async def _access(request: Request) -> AccessService:
    service: AccessService = request.app.state.access
    return service


async def _note_write(request: Request) -> Callable[[str, int], None]:
    own_writes: OwnWrites = request.app.state.own_writes
    return lambda collection, revision: own_writes.note(body_of(request).caller, collection, revision)


async def _own_revision(request: Request) -> Callable[[str], int | None]:
    if request.app.state.open_search:
        return lambda _: None  # who searches need not show the key it writes with
    own_writes: OwnWrites = request.app.state.own_writes
    return lambda collection: own_writes.revision(body_of(request).caller, collection)


Catalogue = Annotated[CatalogueService, Depends(_catalogue)]
Imports = Annotated[ImportService, Depends(_imports)]
Search = Annotated[SearchService, Depends(_search)]
Training = Annotated[TrainingService, Depends(_training)]
Versions = Annotated[ModelRegistry, Depends(_versions)]
Access = Annotated[AccessService, Depends(_access)]
NoteWrite = Annotated[Callable[[str, int], None], Depends(_note_write)]
"""Takes a collection's name and the revision that the caller's write made."""
OwnRevision = Annotated[Callable[[str], int | None], Depends(_own_revision)]
"""Returns the revision of the caller's last write to a collection; None where callers are not known."""


async def _key(request: Request, credentials: HTTPAuthorizationCredentials | None, scope: Scope) -> ApiKey:
    checks: KeyChecks = request.app.state.key_checks
    secret = None if credentials is None else credentials.credentials
    key = await checks.require(secret, scope, _address(request))
    request.state.key_id = key.id
    return key


async def _key_or_open(request: Request, credentials: HTTPAuthorizationCredentials | None) -> ApiKey | None:
    if not request.app.state.open_search:
        return await _key(request, credentials, Scope.SEARCH)
    access: AccessService = request.app.state.access
    access.count_without_key(_address(request))
    return None


def _address(request: Request) -> str:
    return "" if request.client is None else party_of(request.client.host)


async def _enter(request: Request, key: ApiKey | None) -> None:
    """Let a request whose key allows it into its lane; nothing of its body has been read."""
    caller = f"address {_address(request)}" if key is None else f"key {key.id}"
    body_of(request).caller = caller
    await admit(request.scope, caller, reads_body(request))


async def _check_bounds(request: Request, key: ApiKey | None) -> None:
    """Refuse a bound key whatever it is not bound to, in the words for what does not exist.

    A route whose path names neither a collection nor a job is about more than the key may see.
    """
    if key is None or key.bounds.collections is None:
        return
    path = request.path_params
    if "collection" in path:
        if not key.bounds.allow(path["collection"]):
            raise CollectionNotFoundError(path["collection"])
    elif "job_id" in path:
        training: TrainingService = request.app.state.training
        job = await run_in_threadpool(training.job, path["job_id"])
        if not key.bounds.allow(job.collection):
            raise JobNotFoundError(path["job_id"])
    else:
        raise KeyIsBoundError


async def may_search(request: Request, credentials: Credentials) -> None:
    """Let searches and reads pass: with a key, or with none where search is open."""
    key = await _key_or_open(request, credentials)
    await _check_bounds(request, key)
    await _enter(request, key)


async def may_list(request: Request, credentials: Credentials) -> ApiKey | None:
    """Let a list of collections pass; returns the key, by which the route leaves out what it cannot see."""
    key = await _key_or_open(request, credentials)
    await _enter(request, key)
    return key


async def may_write(request: Request, credentials: Credentials) -> None:
    """Let writes pass."""
    key = await _key(request, credentials, Scope.WRITE)
    await _check_bounds(request, key)
    await _enter(request, key)


async def may_administer(request: Request, credentials: Credentials) -> ApiKey:
    """Let administration pass; return the key it comes with."""
    key = await _key(request, credentials, Scope.ADMIN)
    await _check_bounds(request, key)
    await _enter(request, key)
    return key


Administrator = Annotated[ApiKey, Depends(may_administer)]
