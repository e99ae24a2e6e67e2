"""Routes of searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from app import answers
from app.api import bodies
from app.api.admission import place_of, works_as
from app.api.deps import bearer, may_search, readers_of
from app.api.gate import body_of
from app.api.openapi import json_body, reads, schema_of, two_forms
from app.api.problems import responses
from app.api.schemas.searches import (
    BatchSearchIn,
    ComposedSearchIn,
    QueryIn,
    SearchIn,
    SearchOptions,
    encode_result,
)
from app.api.search_batches import Direction
from app.api.state import ApiLimits, state_of
from app.domain.searches import SearchResult
from app.services.serving.search import Query


class SearchRoute(APIRoute):
    """Calls its endpoint with the request, and leaves out what takes FastAPI longer than a search."""

    @override
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in (self.methods or ()):
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive)
        if 0 < body_of(request).announced <= bodies.INLINE_BYTES:
            place_of(scope).is_deferred = True
        await may_search(request, await bearer(request))
        response: Response = await self.endpoint(request, **request.path_params)
        await response(scope, receive, send)


router = APIRouter(
    prefix="/v1/collections/{collection}/search",
    tags=["search"],
    dependencies=[Depends(may_search)],
    route_class=SearchRoute,
)
_REFUSALS = responses(409)
_LISTS = ("include",)
_VALUES = tuple(name for name in SearchOptions.model_fields if name not in _LISTS)
_OPTIONS = schema_of(SearchOptions)["properties"]
_BODY = two_forms(
    SearchIn,
    SearchOptions,
    parts={**{name: _OPTIONS[name] for name in _VALUES}, "include": _OPTIONS["include"]["anyOf"][0]},
    example={"k": 10, "filter": {"labels": ["shoes"]}},
    encoding={name: {"contentType": "application/json"} for name in ("filter", "emphasis")},
)


def _parse_search(_: ApiLimits, body: bytes) -> tuple[Query, SearchOptions]:
    """Return query and options of a search in JSON."""
    search = bodies.parse_json(SearchIn, body)
    return search.to_query(), search


def _parse_batch(limits: ApiLimits, body: bytes) -> tuple[list[Query], SearchOptions]:
    options, queries = bodies.parse_entries(BatchSearchIn, QueryIn, "queries", body, limits.max_batch)
    return [query.to_query(f"queries.{number}") for number, query in enumerate(queries)], options


def _parse_composed(_: ApiLimits, body: bytes) -> tuple[Query, SearchOptions]:
    search = bodies.parse_json(ComposedSearchIn, body)
    return search.to_query(), search


def _parse_form(form: bodies.FormFields) -> tuple[Query, SearchOptions]:
    options = {
        name: text if name == "group_by" else bodies.parse_json_part(name, text)
        for name, text in form.texts.items()
    }
    include = form.lists.get("include")
    if include is not None:
        # Either a part for each name, or all of them as one JSON array.
        is_array = len(include) == 1 and not include[0].isidentifier()
        options["include"] = bodies.parse_json_part("include", include[0]) if is_array else include
    return Query(form.content), bodies.validate(SearchOptions, options)


READ_SEARCH = bodies.read_json_or_form(
    _parse_search, _parse_form, _BODY, _VALUES, bodies.search_body_bytes, _LISTS
)
"""The dependency that reads query and options of one search."""
_BATCH_BODY = json_body(BatchSearchIn)
_COMPOSED_BODY = json_body(ComposedSearchIn)
_READ_COMPOSED = bodies.read_json_with(_parse_composed, _COMPOSED_BODY, bodies.search_body_bytes)
_READ_BATCH = bodies.read_json_with(_parse_batch, _BATCH_BODY, bodies.search_body_bytes)


@router.post("/{source}-to-{target}", responses=_REFUSALS, response_model=answers.SearchResult)
@works_as("read")
@reads(_BODY)
async def search(request: Request, collection: str, source: str, target: str) -> Response:
    """Rank the target modality for one query of the source modality.

    The two may be the same: `image-to-image` finds pictures that are similar in what the model has learned to
    compare. Scores are cosines of projections then, no item is its own result, and there is no probability.
    Nor is there for "handbag not red", which is composed, and for words that came after the training.
    """
    query, options = await READ_SEARCH.dependency(request)
    return await _answer(request, (collection, source, target), [query], options, b"".join)


@router.post("/{source}-to-{target}/batch", responses=_REFUSALS, response_model=answers.SearchResults)
@works_as("read")
@reads(_BATCH_BODY)
async def search_batch(request: Request, collection: str, source: str, target: str) -> Response:
    """Answer many queries, all from one snapshot."""
    queries, options = await _READ_BATCH.dependency(request)
    return await _answer(request, (collection, source, target), queries, options, _join)


@router.post("/{target}", responses=_REFUSALS, response_model=answers.SearchResult)
@works_as("read")
@reads(_COMPOSED_BODY)
async def search_composed(request: Request, collection: str, target: str) -> Response:
    """Rank the target modality for up to 16 contents and items of either modality at once.

    "Like this picture, but blue" is a picture and a text. Weight 1 means the same for both: of each facet,
    such as colour, the part decides that is most certain of it, and of little else. An item is taken for what
    it carries, and content that is sent for what it shows. Of a short text beside other parts, "not",
    "without", "instead of" and a leading "no" turn results away from what follows, up to a comma, the end of
    a sentence or line, or "but", and a minus sign from its word. Items of the query are left out unless
    `include_given`; there is no probability.
    """
    query, options = await _READ_COMPOSED.dependency(request)
    return await _answer(request, (collection, "", target), [query], options, b"".join)


async def _answer(
    request: Request,
    direction: Direction,
    queries: Sequence[Query],
    options: SearchOptions,
    join: Callable[[Iterable[bytes]], bytes],
) -> Response:
    task = options.to_search(queries, await readers_of(request))
    root_path: str = request.scope.get("root_path", "")

    def encode(results: Sequence[SearchResult]) -> bytes:
        return join([encode_result(direction[0], result, task.fields, root_path) for result in results])

    body = await state_of(request).batches.answer(request, direction, task, encode)
    return Response(body, media_type="application/json")


def _join(results: Iterable[bytes]) -> bytes:
    return b'{"results":[' + b",".join(results) + b"]}"
