"""Dependencies of the routes: services, and an API key with the required scope and access to the path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any, TypeVar, get_origin

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

from app.api.admission import admit
from app.api.bodies import reads_body
from app.api.gate import body_of
from app.api.problems import LONGEST_NAME, MOST_DESCRIBED, describe_unknown
from app.api.request_scope import CURRENT_KEY_ID
from app.api.state import ApiState, state_of
from app.domain.entities import ApiKey
from app.domain.errors import CollectionNotFoundError, ServiceError, job_not_found
from app.domain.hosts import party_of
from app.domain.names import Scope
from app.services.access.service import AccessService
from app.services.catalogue.feedback import FeedbackService
from app.services.catalogue.imports import ImportService
from app.services.catalogue.service import CatalogueService
from app.services.models.registry import ModelRegistry
from app.services.serving.overviews import GalleryOverviews
from app.services.serving.search import SearchService
from app.services.training.requests import TrainingService


async def check_query(request: Request) -> None:
    """Refuse parameters that a route does not have, or has once; raises RequestValidationError."""
    if not request.scope["query_string"]:
        return
    parameters = dict(_parameters(request.scope["route"].dependant))
    counts = Counter(name for name, _ in request.query_params.multi_items())
    faults = (
        {"loc": ("query", name[:LONGEST_NAME] or "query"), "msg": fault, "type": "query"}
        for name, count in counts.items()
        if (fault := _fault_of(name, count, parameters))
    )
    if first := list(islice(faults, MOST_DESCRIBED)):
        raise RequestValidationError(first)


def _fault_of(name: str, count: int, parameters: dict[str, bool]) -> str:
    if name in parameters:
        return "" if count == 1 or parameters[name] else f"stands {count} times in the address, expected once"
    return describe_unknown("parameter of this address", name, sorted(parameters))


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Yield the names of a route's parameters, and whether each may stand in a query several times."""
    for field in dependant.query_params:
        yield field.alias, get_origin(field.field_info.annotation) is Sequence
    for other in dependant.dependencies:
        yield from _parameters(other)


_Part = TypeVar("_Part")
bearer = HTTPBearer(auto_error=False, description="an API key: lrbs keys create --scope admin")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def _part(choose: Callable[[ApiState], _Part]) -> Any:
    """Return the dependency on one part of the state."""

    # A coroutine, since FastAPI runs every plain function in a thread.
    async def chosen(request: Request) -> _Part:
        return choose(state_of(request))

    return Depends(chosen)


Catalogue = Annotated[CatalogueService, _part(lambda state: state.catalogue)]
Feedback = Annotated[FeedbackService, _part(lambda state: state.feedback)]
Imports = Annotated[ImportService, _part(lambda state: state.imports)]
Search = Annotated[SearchService, _part(lambda state: state.search)]
Overviews = Annotated[GalleryOverviews, _part(lambda state: state.overviews)]
Training = Annotated[TrainingService, _part(lambda state: state.training)]
Versions = Annotated[ModelRegistry, _part(lambda state: state.versions)]
Access = Annotated[AccessService, _part(lambda state: state.access)]


async def _key_id(request: Request) -> str:
    key_id: str = request.state.key_id
    return key_id


async def readers_of(request: Request) -> frozenset[str]:
    """Return the keys whose writes the answer to a request has to hold, as of `Snapshots.open`."""
    key_id: str | None = request.scope["state"].get("key_id")
    # A search without a key cannot be matched with the key of a write.
    return frozenset() if key_id is None else frozenset((key_id,))


async def _root_path(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


RootPath = Annotated[str, Depends(_root_path)]
"""The path under which a proxy has put the service; addresses in answers begin with it."""
KeyId = Annotated[str, Depends(_key_id)]
"""Id of the key of a write."""
Readers = Annotated[frozenset[str], Depends(readers_of)]
"""Keys whose writes the answer has to hold."""


async def _require_key(
    request: Request, credentials: HTTPAuthorizationCredentials | None, scope: Scope
) -> ApiKey:
    secret = None if credentials is None else credentials.credentials
    key = await state_of(request).key_checks.require(secret, scope, address_of(request.client))
    request.state.key_id = key.id
    CURRENT_KEY_ID.set(key.id)
    await check_query(request)
    return key


async def _require_key_unless_open(
    request: Request, credentials: HTTPAuthorizationCredentials | None
) -> ApiKey | None:
    state = state_of(request)
    if not state.open_search:
        return await _require_key(request, credentials, Scope.SEARCH)
    state.access.count_without_key(address_of(request.client))
    await check_query(request)
    return None


def address_of(client: Sequence[Any] | None) -> str:
    """Return the address that stands for a client, given by host and port."""
    return "" if client is None else party_of(client[0])


def caller_of(key: ApiKey | None, address: str) -> str:
    """Return what identifies a caller: the id of its key, or its address where none is needed."""
    return f"address {address}" if key is None else f"key {key.id}"


async def _admit(request: Request, key: ApiKey | None) -> None:
    """Queue a request whose key was accepted; none of its body has been read yet."""
    caller = caller_of(key, address_of(request.client))
    body_of(request).caller = caller
    await admit(request.scope, caller, reads_body(request))


async def _check_bounds(request: Request, key: ApiKey | None) -> None:
    """Hide what lies outside the key's collections: raise the same 404 as for what does not exist.
    A route whose path names neither a collection nor a job concerns more than a bound key may see."""
    if key is None or key.bounds.collections is None:
        return
    path = request.path_params
    if "collection" in path:
        if not key.bounds.allow(path["collection"]):
            raise CollectionNotFoundError(path["collection"])
    elif "job_id" in path:
        job = await run_in_threadpool(state_of(request).training.job, path["job_id"])
        if not key.bounds.allow(job.collection):
            raise job_not_found(path["job_id"])
    else:
        raise ServiceError("key-bound")


async def may_search(request: Request, credentials: Credentials) -> None:
    """Admit searches and reads: with a key, or without one where search is open."""
    key = await _require_key_unless_open(request, credentials)
    await _check_bounds(request, key)
    await _admit(request, key)


async def may_list(request: Request, credentials: Credentials) -> ApiKey | None:
    """Admit a list of collections; return the key, by which the route leaves out what it cannot see."""
    key = await _require_key_unless_open(request, credentials)
    await _admit(request, key)
    return key


async def may_write(request: Request, credentials: Credentials) -> None:
    """Admit writes."""
    key = await _require_key(request, credentials, Scope.WRITE)
    await _check_bounds(request, key)
    await _admit(request, key)


async def may_administer(request: Request, credentials: Credentials) -> ApiKey:
    """Admit administration; return the caller's key."""
    key = await _require_key(request, credentials, Scope.ADMIN)
    await _check_bounds(request, key)
    await _admit(request, key)
    return key


async def may_watch(request: Request, credentials: Credentials) -> None:
    """Admit a look at the metrics of everything."""
    key = await _require_key(request, credentials, Scope.METRICS)
    await _check_bounds(request, key)
    await _admit(request, key)


Administrator = Annotated[ApiKey, Depends(may_administer)]
