"""Routes of searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, get_args

from fastapi import APIRouter, Depends, Response

from app.api.bodies import (
    FormFields,
    parse_json,
    parse_json_part,
    read_json_or_form,
    read_json_with,
    search_body_bytes,
    validate,
)
from app.api.deps import OwnRevision, Search, may_search
from app.api.entries import parse_entries
from app.api.middleware.admission import aside
from app.api.middleware.workload import Workload, works_as
from app.api.openapi import json_body, schema_of, two_forms
from app.api.problems import OF_BODIES, responses
from app.api.schemas.searches import (
    BatchSearchIn,
    BatchSearchOut,
    OptionalField,
    QueryIn,
    SearchIn,
    SearchOptions,
    SearchOut,
    encode_result,
)
from app.api.search_batches import Answer
from app.api.state import ApiLimits
from app.domain.entities import SearchResult
from app.services.serving.search import Query, SearchService, SharedSearch, SingleSearch

router = APIRouter(
    prefix="/v1/collections/{collection}/search", tags=["search"], dependencies=[Depends(may_search)]
)
_OPTIONAL = get_args(OptionalField)
_QUICK_HITS = 100
"""Results of a quick search: showing them takes no longer than most scans."""
_REFUSALS = responses(401, 403, 404, 409, *OF_BODIES)
_VALUES, _LISTS = ("k", "offset", "filter"), ("include",)
_OPTIONS = schema_of(SearchOptions)["properties"]
_BODY = two_forms(
    SearchIn,
    SearchOptions,
    parts={**{name: _OPTIONS[name] for name in _VALUES}, "include": _OPTIONS["include"]["anyOf"][0]},
    example={"k": 10, "filter": {"labels": ["shoes"]}},
    encoding={"filter": {"contentType": "application/json"}},
)


def parse_search(_: ApiLimits, body: bytes) -> tuple[Query, SearchOptions]:
    """Return query and options of a search in JSON."""
    search = parse_json(SearchIn, body)
    return search.to_query(), search


def _parse_batch(limits: ApiLimits, body: bytes) -> tuple[list[Query], SearchOptions]:
    options, queries = parse_entries(BatchSearchIn, QueryIn, "queries", body, limits.entries)
    return [query.to_query(f"queries.{number}") for number, query in enumerate(queries)], options


def _parse_form(form: FormFields) -> tuple[Query, SearchOptions]:
    options = {name: parse_json_part(name, text) for name, text in form.texts.items()}
    include = form.lists.get("include")
    if include is not None:
        # Either a part for each name, or all of them as one JSON array.
        is_array = len(include) == 1 and not include[0].isidentifier()
        options["include"] = parse_json_part("include", include[0]) if is_array else include
    return Query(form.content), validate(SearchOptions, options)


READ_SEARCH = read_json_or_form(parse_search, _parse_form, _BODY, _VALUES, search_body_bytes, _LISTS)
"""The dependency that reads query and options of one search."""


@router.post("/{source}-to-{target}", responses=_REFUSALS, response_model=SearchOut)
@works_as(Workload.READ)
def search(
    collection: str,
    source: str,
    target: str,
    search: Search,
    own_revision: OwnRevision,
    request: Annotated[tuple[Query, SearchOptions], READ_SEARCH],
) -> Response:
    """Rank the target modality for one query of the source modality.

    The two may be the same: `image-to-image` finds pictures that are similar in what the model has learned to
    compare. Scores are cosines of projections then, no item is its own result, and there is no probability.
    """
    query, options = request
    (answer,) = run(search, collection, (source, target), [query], options, own_revision(collection))
    return Response(answer, media_type="application/json")


@router.post("/{source}-to-{target}/batch", responses=_REFUSALS, response_model=BatchSearchOut)
@works_as(Workload.READ)
def search_batch(
    collection: str,
    source: str,
    target: str,
    request: Annotated[
        tuple[list[Query], SearchOptions],
        read_json_with(_parse_batch, json_body(BatchSearchIn), search_body_bytes),
    ],
    search: Search,
    own_revision: OwnRevision,
) -> Response:
    """Answer many queries, all from one snapshot."""
    queries, options = request
    answers = run(search, collection, (source, target), queries, options, own_revision(collection))
    return Response(b'{"results":[' + b",".join(answers) + b"]}", media_type="application/json")


def run_together(
    service: SearchService, collection: str, direction: tuple[str, str], searches: Sequence[SingleSearch]
) -> list[Answer]:
    """Return the answers to searches of several callers, as of `SearchService.search_together`, as JSON."""
    return _encode_each(collection, searches, service.search_together(collection, *direction, searches))


class LightRanking:
    """Light searches of several callers, and their answers as JSON.

    Parameters
    ----------
    collection : str
        Name.
    searches : sequence of SingleSearch
        What is asked for.
    shared : SharedSearch
        The same, begun.
    """

    def __init__(self, collection: str, searches: Sequence[SingleSearch], shared: SharedSearch) -> None:
        self._collection = collection
        self._searches = searches
        self._shared = shared

    def rank(self) -> None:
        """Rank the gallery."""
        self._shared.rank()

    def answers(self) -> list[Answer]:
        """Return the answers, after `rank`."""
        return _encode_each(self._collection, self._searches, self._shared.results())


def begin_light(
    service: SearchService, collection: str, direction: tuple[str, str], searches: Sequence[SingleSearch]
) -> LightRanking | None:
    """Begin light searches; None where they would have to wait, as of `SearchService.begin_now`."""
    shared = service.begin_now(collection, *direction, searches)
    return None if shared is None else LightRanking(collection, searches, shared)


def _encode_each(
    collection: str,
    searches: Sequence[SingleSearch],
    results: Sequence[SearchResult | Exception | None],
) -> list[Answer]:
    return [
        encode_result(collection, result, search.fields) if isinstance(result, SearchResult) else result
        for search, result in zip(searches, results, strict=True)
    ]


def single_search(query: Query, options: SearchOptions, least_revision: int | None) -> SingleSearch:
    """Return a search that is quick enough to be answered together with others; see `is_quick`."""
    item_filter = options.filter.to_filter()
    return SingleSearch(query, options.k, options.offset, _fields_of(options), least_revision, item_filter)


def is_quick(query: Query, options: SearchOptions) -> bool:
    """Return whether a search takes so short that others can wait for it."""
    return is_short(query, options) and options.filter.to_filter().is_empty


def is_short(query: Query, options: SearchOptions) -> bool:
    """Return whether query and answer of a search are small."""
    has_file = query.content is not None and query.content.file is not None
    return not has_file and options.offset + options.k <= _QUICK_HITS


def run(
    service: SearchService,
    collection: str,
    direction: tuple[str, str],
    queries: list[Query],
    options: SearchOptions,
    least_revision: int | None,
) -> list[bytes]:
    """Return each query's answer as JSON, encoded here in a thread rather than in the event loop."""
    include = _fields_of(options)
    results = service.search(
        collection,
        *direction,
        queries,
        options.k,
        options.offset,
        options.filter.to_filter(),
        include,
        aside,
        least_revision,
    )
    return [encode_result(collection, result, include) for result in results]


def _fields_of(options: SearchOptions) -> set[str]:
    return set(_OPTIONAL if options.include is None else options.include)
