"""Routes of searches."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.api.bodies import (
    FormFields,
    form_content,
    json_body,
    json_content,
    json_field,
    off_loop_when_large,
    parse_json,
    parsed,
    read_body,
    read_form,
    search_body,
)
from app.api.deps import Search, may_search
from app.api.problems import OF_BODIES, responses
from app.api.schemas import BatchSearchIn, BatchSearchOut, SearchIn, SearchOptions, SearchOut
from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.domain.names import listed
from app.services.search import Query, SearchService

router = APIRouter(
    prefix="/v1/collections/{collection}/search", tags=["search"], dependencies=[Depends(may_search)]
)
_OPTIONAL = ("labels", "metadata", "text", "content_url")
_REFUSALS = responses(401, 403, 404, 409, *OF_BODIES)
_FORM = {
    "k": {"type": "integer", "default": 10},
    "offset": {"type": "integer", "default": 0},
    "filter": {"type": "string", "description": "as in JSON searches, written as JSON"},
    "include": {"type": "string", "description": "as in JSON searches, written as JSON"},
}
_EXAMPLE = {"picture": "shoe.jpg", "k": 5, "filter": '{"labels": ["shoes"]}', "include": '["text"]'}
_BODY = {
    "requestBody": {
        "required": True,
        "content": {**json_content(SearchIn), **form_content(_FORM, _EXAMPLE)},
    }
}


async def _parse(request: Request) -> tuple[Query, SearchOptions]:
    """Read a query from JSON or from a multipart picture."""
    limit = search_body(request)
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return _of_form(await read_form(request, tuple(_FORM), limit))
    body = await read_body(request, limit)
    return await off_loop_when_large(len(body), lambda: _of_json(body))


def _of_json(body: bytes) -> tuple[Query, SearchOptions]:
    search = parse_json(SearchIn, body)
    return search.to_query(), search


def _of_form(form: FormFields) -> tuple[Query, SearchOptions]:
    given = {
        name: json_field(name, text) if name in ("filter", "include") else text
        for name, text in form.texts.items()
    }
    try:
        options = SearchOptions.model_validate(given)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False, include_input=False)) from error
    return Query(Content(picture=form.picture, picture_field="picture")), options


@router.post("/{source}-to-{target}", openapi_extra=_BODY, responses=_REFUSALS)
def search(
    collection: str,
    source: str,
    target: str,
    search: Search,
    parsed: Annotated[tuple[Query, SearchOptions], Depends(_parse)],
) -> SearchOut:
    """Rank the target modality for one query of the source modality."""
    query, options = parsed
    return _run(search, collection, (source, target), [query], options)[0]


@router.post("/{source}-to-{target}/batch", openapi_extra=json_body(BatchSearchIn), responses=_REFUSALS)
def search_batch(
    collection: str,
    source: str,
    target: str,
    body: Annotated[BatchSearchIn, parsed(BatchSearchIn, search_body)],
    request: Request,
    search: Search,
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
    for number, name in enumerate(options.include or ()):
        if name not in _OPTIONAL:
            raise InvalidFieldError(
                f"include.{number}", f"unknown field {name!r}, expected {listed(_OPTIONAL, 'and')} or fewer"
            )
    results = service.search(
        collection, *direction, queries, options.k, options.offset, options.filter.to_filter()
    )
    return [SearchOut.of(collection, result, include) for result in results]
