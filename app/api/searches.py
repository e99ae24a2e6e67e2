"""Routes of searches."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool

from app.api.bodies import check_parts, is_multipart, json_part, picture_part, schema_of, two_forms, validated
from app.api.deps import Search, may_search
from app.api.problems import responses
from app.api.schemas.searches import BatchSearchIn, BatchSearchOut, SearchIn, SearchOptions, SearchOut
from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.services.search import Query, SearchService

router = APIRouter(
    prefix="/v1/collections/{collection}/search", tags=["search"], dependencies=[Depends(may_search)]
)
_OPTIONAL = ("labels", "metadata", "text", "content_url")
_REFUSALS = responses(401, 403, 404, 409, 413, 422, 503)
_NUMBERS, _VALUES = ("k", "offset"), ("filter", "include")
_OPTIONS = schema_of(SearchOptions)["properties"]
_BODY = two_forms(
    SearchIn,
    parts={name: _OPTIONS[name] for name in (*_NUMBERS, *_VALUES)},
    example={"k": 10, "filter": {"labels": ["shoes"]}},
    encoding={name: {"contentType": "application/json"} for name in _VALUES},
)


async def _parse(request: Request) -> tuple[Query, SearchOptions]:
    """Read a query from JSON or from a multipart picture."""
    if is_multipart(request):
        return await _parse_form(request)
    try:
        body = SearchIn.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_context=False)) from error
    return body.to_query("query"), body


async def _parse_form(request: Request) -> tuple[Query, SearchOptions]:
    async with request.form(max_files=3, max_fields=10) as form:
        check_parts(form, "picture", *_NUMBERS, *_VALUES)
        content = picture_part(form, request.app.state.settings.max_picture_bytes)
        given = {name: form[name] for name in _NUMBERS if name in form}
        given |= {name: json_part(form, name) for name in _VALUES if name in form}
    return Query(content=Content(picture=content)), validated(SearchOptions, given)


@router.post("/{source}-to-{target}", openapi_extra=_BODY, responses=_REFUSALS)
async def search(
    collection: str,
    source: str,
    target: str,
    search: Search,
    parsed: Annotated[tuple[Query, SearchOptions], Depends(_parse)],
) -> SearchOut:
    """Rank the target modality for one query of the source modality."""
    query, options = parsed
    results = await run_in_threadpool(_run, search, collection, (source, target), [query], options)
    return results[0]


@router.post("/{source}-to-{target}/batch", responses=_REFUSALS)
def search_batch(
    collection: str, source: str, target: str, body: BatchSearchIn, request: Request, search: Search
) -> BatchSearchOut:
    """Answer many queries, all from one snapshot."""
    limit = request.app.state.settings.max_batch
    if len(body.queries) > limit:
        raise ContentTooLargeError(
            "queries", f"{len(body.queries)} queries in one call, at most {limit} allowed"
        )
    queries = [query.to_query(f"queries.{number}") for number, query in enumerate(body.queries)]
    return BatchSearchOut(results=_run(search, collection, (source, target), queries, body))


def _run(
    service: SearchService,
    collection: str,
    direction: tuple[str, str],
    queries: list[Query],
    options: SearchOptions,
) -> list[SearchOut]:
    include = set(_OPTIONAL if options.include is None else options.include)
    unknown = include - set(_OPTIONAL)
    if unknown:
        raise InvalidFieldError(
            "include", f"unknown field {min(unknown)!r}, expected some of {list(_OPTIONAL)}"
        )
    results = service.search(
        collection, *direction, queries, options.k, options.offset, options.filter.to_filter()
    )
    return [SearchOut.of(collection, result, include) for result in results]
