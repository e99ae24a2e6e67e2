"""Searches and judgements of `local_backend`: with the galleries, which its other calls do without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from app.answers import SearchResult
from app.api.schemas.filters import read_filter
from app.api.schemas.searches import EXPLANATION, SHOWN_FIELDS, encode_result
from app.bootstrap import Services
from app.domain.entities import Content
from app.services.catalogue.service import NewFeedback
from app.services.serving.refinement import Refinement
from app.services.serving.search import Query, QueryPart, Search, results_of


def search(
    services: Services,
    collection: str,
    direction: tuple[str, str],
    query: Query,
    *,
    k: int,
    filter: Mapping[str, Any],
    include: Sequence[str] | None = None,
    **refinement: Any,
) -> SearchResult:
    """Return the result of a search as the client does."""
    values = {name: value for name, value in refinement.items() if value is not None}
    refined = Refinement(EXPLANATION in (include or ()), **values)
    one = Search([query], k, 0, read_filter(filter, "filter"), SHOWN_FIELDS, refinement=refined)
    (outcome,) = services.search.search(collection, *direction, [one])
    (result,) = results_of(outcome)
    return msgspec.json.decode(encode_result(collection, result, SHOWN_FIELDS, ""), type=SearchResult)


def composed_of(queries: Sequence[Mapping[str, Any]], include_given: bool) -> Query:
    """Return the query of several parts; hits that are parts are left out, unless `include_given`."""
    parts = [_part(**query) for query in queries]
    ids = () if include_given else (part.query.item_id for part in parts)
    return Query(parts=parts, left_out=frozenset(name for name in ids if name is not None))


def query_of(
    text: str | None = None,
    picture: Path | None = None,
    sound: Path | None = None,
    item_id: str | None = None,
) -> Query:
    """Return a query; errors of its content name the option of the command."""
    if item_id is not None:
        return Query(item_id=item_id)
    if picture is not None:
        return Query(Content(picture=picture.read_bytes(), picture_field="--picture"))
    if sound is not None:
        return Query(Content(sound=sound.read_bytes(), sound_field="--sound"))
    return Query(Content(text=text))


def _part(*, modality: str, weight: float, **query: Any) -> QueryPart:
    return QueryPart(query_of(**query), weight, modality)


def judgement_of(
    query: Mapping[str, Any], source: str, target: str, item_id: str, relevant: bool
) -> NewFeedback:
    """Return a judgement."""
    judged = query_of(**query)
    return NewFeedback(source, target, item_id, relevant, judged.content, judged.item_id)
