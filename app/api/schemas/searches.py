"""Wire models of searches."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, ClassVar, Literal, get_args

import msgspec
from pydantic import Field, TypeAdapter, WithJsonSchema

from app.api.schemas.base import Identifier, Integer, RawIn, Strict, content_url
from app.api.schemas.filters import FilterIn
from app.domain.errors import InvalidFieldError
from app.domain.names import MAX_EMPHASIS, MAX_K, MAX_PARTS
from app.domain.searches import Hit, SearchResult
from app.services.serving.refinement import Refinement
from app.services.serving.search import Query, QueryPart, Search

_NO_FILTER = FilterIn()
OptionalField = Literal["labels", "metadata", "text", "content_url", "explanation"]
EXPLANATION = "explanation"
SHOWN_FIELDS = frozenset(get_args(OptionalField)) - {EXPLANATION}
"""What an answer shows of an item where nothing is named."""
_ItemId = Annotated[str, WithJsonSchema(TypeAdapter(Identifier).json_schema())]
_ENCODER = msgspec.json.Encoder()
_REFINING = frozenset({"min_probability", "group_by", "diversity", "emphasis"})


class QueryIn(RawIn):
    """A query: raw content or a stored item."""

    FORMS: ClassVar[tuple[str, ...]] = ("item_id", *RawIn.FORMS)

    item_id: _ItemId | None = Field(None, description="an item of the source modality")

    def to_query(self, place: str = "") -> Query:
        """Return the service's form; raises InvalidFieldError unless exactly one form is given."""
        if self.item_id is None:
            return Query(content=self.to_content(place), path=place)
        self.check_one_of(place)
        return Query(item_id=self.item_id, path=place)


class SearchOptions(Strict):
    """How many results, from where, and which."""

    k: Integer = Field(10, ge=1, le=MAX_K)
    offset: Integer = Field(0, ge=0, le=1_000_000)
    filter: FilterIn = Field(default_factory=lambda: _NO_FILTER)  # making one takes long
    include: list[OptionalField] | None = Field(
        None,
        max_length=5,
        fail_fast=True,
        description="fields of a hit to return beside its id, rank and score; default: all but `explanation`",
    )
    min_probability: float | None = Field(
        None, ge=0.0, le=1.0, allow_inf_nan=False, description="leaves out hits that match less probably"
    )
    group_by: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="`label`, `pair_id` or a metadata key, each of whose values has `group_size` hits at "
        "most; items without one are not limited",
    )
    group_size: Integer = Field(1, ge=1, le=MAX_K, description="most hits of one group")
    diversity: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="by how much hits are to differ (maximal marginal relevance), among the first 500",
    )
    emphasis: dict[str, Annotated[float, Field(ge=0.0, le=MAX_EMPHASIS, allow_inf_nan=False)]] | None = Field(
        None,
        max_length=100,
        description="weights of parts of the score, by their names in an explanation, 1 by default; and how "
        "far to go (0 to 1) to the weights that a training found best for `ndcg`, `map` or `recall`",
    )

    def to_search(self, queries: Sequence[Query], readers: AbstractSet[str] | None) -> Search:
        """Return what a request asks for; raises InvalidFieldError for a filter of too many conditions."""
        fields = SHOWN_FIELDS if self.include is None else frozenset(self.include) - {EXPLANATION}
        explains = self.include is not None and EXPLANATION in self.include
        refinement = None
        if explains or not _REFINING.isdisjoint(self.model_fields_set):
            facts = self.min_probability, self.group_by, self.group_size, self.diversity, self.emphasis or {}
            refinement = Refinement(explains, *facts)
        return Search(queries, self.k, self.offset, self.filter.to_filter(), fields, readers, refinement)


class SearchIn(QueryIn, SearchOptions):
    """One search."""


class BatchSearchIn(SearchOptions):
    """Many searches that share their options."""

    queries: list[QueryIn] = Field(min_length=1, fail_fast=True)
    offset: Integer = Field(0, ge=0, le=10_000)


class QueryPartIn(QueryIn):
    """A part of a composed query: raw content or a stored item of either modality."""

    weight: float = Field(
        1.0, ge=-100.0, le=100.0, allow_inf_nan=False, description="below 0: results are to be unlike it"
    )
    modality: Identifier | None = Field(
        None, description="of the content; needed where both modalities take it, as with two of vectors"
    )


class ComposedSearchIn(SearchOptions):
    """One search by several contents and items at once."""

    queries: list[QueryPartIn] = Field(min_length=1, max_length=MAX_PARTS, fail_fast=True)
    offset: Integer = Field(0, ge=0, le=10_000)
    include_given: bool = Field(False, description="whether items of the query may be results, too")

    def to_query(self) -> Query:
        """Return the service's form; raises InvalidFieldError unless each part has exactly one form, and some
        count."""
        if not any(part.weight for part in self.queries):
            raise InvalidFieldError("queries", "a weight has to differ from 0")
        parts = [
            QueryPart(part.to_query(f"queries.{number}"), part.weight, part.modality)
            for number, part in enumerate(self.queries)
        ]
        ids = {part.item_id for part in self.queries if part.item_id is not None}
        return Query(parts=parts, left_out=frozenset() if self.include_given else frozenset(ids))


def encode_result(collection: str, result: SearchResult, include: AbstractSet[str], root_path: str) -> bytes:
    """Return the JSON of an `answers.SearchResult` with the optional fields that were asked for.
    Without a model: making one for each hit takes longer than the ranking of a small gallery."""
    fields = {
        "model_version": result.model_version,
        "index_revision": result.index_revision,
        "exact": result.exact,
        "took_ms": round(result.took_ms, 3),
        "notices": result.notices,
        "hits": [hit_fields(collection, hit, include, root_path) for hit in result.hits],
    }
    fields |= {name: fact for name, fact in result.facts.items() if fact is not None}
    return _ENCODER.encode(fields)


def hit_fields(collection: str, hit: Hit, include: AbstractSet[str], root_path: str) -> dict[str, Any]:
    """Return the fields of an `answers.Hit`; what `include` does not name is null."""
    item = hit.item
    fields = {
        "id": hit.id,
        "rank": hit.rank,
        "score": hit.score,
        "probability": hit.probability,
        "labels": item.labels if "labels" in include else None,
        "metadata": item.metadata if "metadata" in include else None,
        "text": item.text if "text" in include else None,
        "content_url": content_url(collection, item, root_path) if "content_url" in include else None,
    }
    if hit.explanation is not None:
        fields["explanation"] = hit.explanation
    return fields
