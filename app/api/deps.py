"""Dependencies of the routes: services, and an API key with the required scope and access to the path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Annotated, get_origin

from fastapi import Depends, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import Field, StringConstraints
from starlette.concurrency import run_in_threadpool

from app.api.admission import PLACE, Place
from app.api.bodies import parse_json, reads_body
from app.api.faults import LONGEST_NAME, MOST_DESCRIBED, describe_unknown
from app.api.gate import body_of
from app.api.request_scope import CURRENT_KEY_ID
from app.api.schemas.base import Label
from app.api.schemas.filters import FilterIn, read_filter
from app.api.state import state_of
from app.domain.entities import ApiKey
from app.domain.errors import CollectionNotFoundError, ServiceError, job_not_found
from app.domain.filters import ItemFilter, filter_of
from app.domain.hosts import party_of
from app.domain.names import Scope


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


async def _filter_parameter(
    filter: Annotated[
        str | None,
        Query(max_length=16_000, description="only items that pass such a filter as of searches, in JSON"),
    ] = None,
) -> ItemFilter:
    return ItemFilter() if filter is None else parse_json(FilterIn, filter.encode(), ("filter",)).to_filter()


FilterParameter = Annotated[ItemFilter, Depends(_filter_parameter)]
"""The filter in the address of a request."""
_MAX_CONDITIONS = 20
"""Of each kind; an address of more than 64 KiB is refused (431)."""
_Labels = Annotated[Sequence[Label], Field(max_length=_MAX_CONDITIONS)]
_Conditions = Annotated[
    Sequence[Annotated[str, StringConstraints(max_length=1000)]], Field(max_length=_MAX_CONDITIONS)
]
_CONDITION = (
    "only items whose metadata meet this: KEY=VALUE, in JSON or as text (of one key any of the values), "
    "KEY!=VALUE, KEY<VALUE, <=, >, >=, KEY in A,B, KEY not in A,B, KEY contains VALUE, KEY text WORDS"
)


async def _listed_filter(
    item_filter: FilterParameter,
    label: Annotated[_Labels, Query(description="only items with any of these labels")] = (),
    where: Annotated[_Conditions, Query(description=_CONDITION, examples=[["colour=red"]])] = (),
) -> ItemFilter:
    by_condition = read_filter(filter_of(label, where), "where")
    return ItemFilter((*by_condition.parts, *item_filter.parts))


ListedFilter = Annotated[ItemFilter, Depends(_listed_filter)]
"""What `label`, `where` and `filter` in the address of a request ask for together."""
bearer = HTTPBearer(auto_error=False, description="an API key: lrbs keys create --scope admin")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


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


async def _check_bounds(request: Request, key: ApiKey) -> None:
    """Hide what lies outside the key's collections: raise the same 404 as for what does not exist.
    A route whose path names neither a collection nor a job concerns more than a bound key may see."""
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


def _admits(scope: Scope, is_bound: bool = True) -> Callable[..., Awaitable[ApiKey | None]]:
    """Return the dependency that queues a request whose key is accepted, of which no body was read yet."""

    async def admit(request: Request, credentials: Credentials) -> ApiKey | None:
        state, client, key = state_of(request), request.scope.get("client"), None
        address = "" if client is None else party_of(client[0])
        if scope is Scope.SEARCH and state.open_search:
            state.access.count_without_key(address)
        else:
            secret = None if credentials is None else credentials.credentials
            key = state.access.recall(secret, scope)
            if key is None:
                key = await state.key_checks.require(secret, scope, address)
            request.scope["state"]["key_id"] = key.id
            CURRENT_KEY_ID.set(key.id)
        await check_query(request)
        if is_bound and key is not None and key.bounds.collections is not None:
            await _check_bounds(request, key)
        caller = f"address {address}" if key is None else f"key {key.id}"
        body_of(request).caller = caller
        place: Place | None = request.scope["state"].get(PLACE)
        if place is not None:
            await place.admit(caller, place.is_deferred or reads_body(request))
        return key

    return admit


may_search = _admits(Scope.SEARCH)
"""Admits searches and reads: with a key, or without one where search is open."""
may_list = _admits(Scope.SEARCH, is_bound=False)
"""Admits a list of collections; its key says what the route leaves out, as it cannot see that."""
may_write = _admits(Scope.WRITE)
may_administer = _admits(Scope.ADMIN)
may_watch = _admits(Scope.METRICS)
