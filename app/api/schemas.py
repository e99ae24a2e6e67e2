"""Wire models."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Self
from urllib.parse import quote

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    StringConstraints,
    model_validator,
)

from app.domain.entities import (
    ApiKey,
    Collection,
    Content,
    Hit,
    Item,
    ItemFilter,
    Job,
    Modality,
    ModelVersion,
    SearchResult,
)
from app.domain.errors import InvalidFieldError
from app.domain.names import is_storable, joined, listed
from app.services.catalogue import NewItem
from app.services.search import Query

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:@+\-]+$")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Scalar = str | int | float | bool
MAX_K = 10_000


class Strict(BaseModel):
    """Unknown fields are refused, so that a misspelt one is noticed; so is text no database can hold."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="after")
    def _check_characters(self) -> Self:
        for name, value in self:
            if name == "vector":
                continue  # its numbers are finite already, and may be millions
            if isinstance(value, str | list | dict) and not is_storable(value):
                raise ValueError(f"{name} contains NUL, a lone surrogate, NaN or infinity")
        return self


class EncoderIn(BaseModel):
    """An encoder: its type and its own options."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["hog-color"])


class ModalityIn(Strict):
    """One side of a collection."""

    encoder: EncoderIn


class CollectionIn(Strict):
    """A new collection: two modalities, the first is X."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "products",
                    "modalities": {
                        "image": {"encoder": {"type": "hog-color"}},
                        "text": {"encoder": {"type": "tfidf"}},
                    },
                }
            ]
        },
    )

    name: str
    modalities: dict[str, ModalityIn]

    def to_modalities(self) -> list[Modality]:
        """Return the domain's modalities, in the order given."""
        entries = self.modalities.items()
        return [Modality(name, entry.encoder.model_dump()) for name, entry in entries]


class CollectionOut(BaseModel):
    """A collection."""

    name: str
    modalities: dict[str, Any]
    revision: int
    active_version: int | None
    created_at: datetime
    items: dict[str, int] | None = None

    @classmethod
    def of(cls, collection: Collection, counts: dict[str, int] | None = None) -> CollectionOut:
        """Return the wire form."""
        modalities = {
            m.name: {"encoder": {k: v for k, v in m.encoder.items() if k != "path"}}
            for m in collection.modalities
        }
        return cls(
            name=collection.name,
            modalities=modalities,
            revision=collection.revision,
            active_version=collection.active_version,
            created_at=collection.created_at,
            items=None
            if counts is None
            else {name: counts.get(name, 0) for name in collection.modality_names},
        )


class CollectionList(BaseModel):
    """All collections."""

    collections: list[CollectionOut]


class RawIn(Strict):
    """Content in one of its forms."""

    text: str | None = None
    image_base64: str | None = Field(None, description="a picture file, base64")
    # Of a long list only the first mistake is told: all of them take far more memory than the request.
    vector: list[FiniteFloat] | None = Field(None, fail_fast=True, description="own features")

    def to_content(self, place: str) -> Content:
        """Return the content; raises InvalidFieldError unless exactly one form is given."""
        self.check_one_of(place, ("text", "image_base64", "vector"))
        field = joined(place, "image_base64")
        picture = None if self.image_base64 is None else decode_picture(field, self.image_base64)
        return Content(self.text, picture, self.vector)

    def check_one_of(self, place: str, forms: tuple[str, ...]) -> None:
        """Refuse none and several of the fields; names the second of several."""
        given = [name for name in forms if getattr(self, name) is not None]
        if len(given) != 1:
            field = joined(place, given[1]) if given else place or "body"
            got = listed(given, "and") if given else "none"
            raise InvalidFieldError(field, f"expected exactly one of {listed(forms)}, got {got}")


class ItemIn(RawIn):
    """A new item."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"modality": "text", "text": "a red shoe", "labels": ["shoes"]}]},
    )

    id: Identifier | None = None
    modality: str
    labels: list[Label] = Field(default_factory=list, max_length=100)
    pair_id: Identifier | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    train: bool = True

    def to_item(self, place: str, item_id: str | None = None) -> NewItem:
        """Return the service's form of what stands at `place` of the request."""
        return NewItem(
            modality=self.modality,
            content=self.to_content(place),
            place=place,
            id=item_id or self.id,
            labels=tuple(self.labels),
            pair_id=self.pair_id,
            metadata=self.metadata,
            train=self.train,
        )


class ItemsIn(Strict):
    """Items to store, all or none."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "items": [
                        {"id": "t1", "modality": "text", "text": "a red running shoe", "labels": ["shoes"]},
                        {"id": "t2", "modality": "text", "text": "a leather wallet", "labels": ["wallets"]},
                    ]
                }
            ]
        },
    )

    items: list[ItemIn] = Field(min_length=1, fail_fast=True)


class WrittenOut(BaseModel):
    """What a write did."""

    ids: list[str]
    revision: int


class ItemOut(BaseModel):
    """An item."""

    id: str
    modality: str
    text: str | None
    content_url: str | None
    labels: list[str]
    pair_id: str | None
    metadata: dict[str, Any]
    train: bool
    revision: int

    @classmethod
    def of(cls, collection: str, item: Item) -> ItemOut:
        """Return the wire form."""
        return cls(
            id=item.id,
            modality=item.modality,
            text=item.text,
            content_url=content_url(collection, item),
            labels=list(item.labels),
            pair_id=item.pair_id,
            metadata=dict(item.metadata),
            train=item.train,
            revision=item.revision,
        )


class ItemPage(BaseModel):
    """One page of items; `next_cursor` is null on the last."""

    items: list[ItemOut]
    next_cursor: str | None


class FilterIn(Strict):
    """Which items may be returned: any of the labels, and each metadata key with any of its values."""

    labels: list[Label] = Field(default_factory=list, max_length=1000, fail_fast=True)
    metadata: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)

    def to_filter(self) -> ItemFilter:
        """Return the domain's filter."""
        values = {key: tuple(v) if isinstance(v, list) else (v,) for key, v in self.metadata.items()}
        return ItemFilter(tuple(self.labels), values)


class QueryIn(RawIn):
    """A query: raw content or a stored item."""

    item_id: str | None = Field(None, description="an item of the source modality")

    def to_query(self, place: str = "") -> Query:
        """Return the service's form; raises InvalidFieldError unless exactly one form is given."""
        self.check_one_of(place, ("item_id", "text", "image_base64", "vector"))
        if self.item_id is None:
            return Query(content=self.to_content(place), place=place)
        return Query(item_id=self.item_id, place=place)


class SearchOptions(Strict):
    """How many results, from where, and which."""

    k: int = Field(10, ge=1, le=MAX_K)
    offset: int = Field(0, ge=0, le=1_000_000)
    filter: FilterIn = Field(default_factory=FilterIn)
    include: list[str] | None = Field(
        None, description="fields of a hit to return, of labels, metadata, text, content_url; all when absent"
    )


class SearchIn(QueryIn, SearchOptions):
    """One search."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"text": "red shoes for running", "k": 10}]}
    )


class BatchSearchIn(SearchOptions):
    """Many searches that share their options."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"queries": [{"text": "red shoes"}, {"text": "a leather bag"}], "k": 5}]
        },
    )

    queries: list[QueryIn] = Field(min_length=1, fail_fast=True)


class HitOut(BaseModel):
    """One result."""

    id: str
    rank: int
    score: float
    probability: float = Field(description="estimated probability of a match under balanced classes")
    labels: list[str] | None = None
    metadata: dict[str, Any] | None = None
    text: str | None = None
    content_url: str | None = None

    @classmethod
    def of(cls, collection: str, hit: Hit, include: set[str]) -> HitOut:
        """Return the wire form with the optional fields that were asked for."""
        optional: dict[str, Any] = {
            "labels": list(hit.item.labels),
            "metadata": dict(hit.item.metadata),
            "text": hit.item.text,
            "content_url": content_url(collection, hit.item),
        }
        shown = {name: value for name, value in optional.items() if name in include}
        return cls(id=hit.id, rank=hit.rank, score=hit.score, probability=hit.probability, **shown)


class SearchOut(BaseModel):
    """Ranked results and the snapshot they come from."""

    model_version: int
    index_revision: int
    exact: bool
    took_ms: float
    hits: list[HitOut]

    @classmethod
    def of(cls, collection: str, result: SearchResult, include: set[str]) -> SearchOut:
        """Return the wire form."""
        return cls(
            model_version=result.model_version,
            index_revision=result.index_revision,
            exact=result.exact,
            took_ms=round(result.took_ms, 3),
            hits=[HitOut.of(collection, hit, include) for hit in result.hits],
        )


class BatchSearchOut(BaseModel):
    """Results in the order of the queries, all from one snapshot."""

    results: list[SearchOut]


class RetrainIn(Strict):
    """What a retrain can be told; everything has a default."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{}, {"alpha": 0.001, "scaling": "l2"}]}
    )

    method: str = Field("lrbs", pattern="^lrbs$")
    alpha: float | None = Field(
        None, gt=0, le=1e6, description="penalty weight; chosen on held-out items when absent"
    )
    scaling: str | None = Field(None, pattern="^(none|center|standard|l2|sqrt)$")
    tol: float = Field(1e-3, gt=0, lt=1)
    max_iter: int = Field(200, ge=1, le=100_000)
    seed: int = Field(0, ge=0, lt=2**32)


class JobOut(BaseModel):
    """A job."""

    id: str
    collection: str
    state: str
    parameters: dict[str, Any]
    progress: dict[str, Any]
    error: str | None
    model_version: int | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, job: Job) -> JobOut:
        """Return the wire form."""
        return cls(
            id=job.id,
            collection=job.collection,
            state=job.state.value,
            parameters=dict(job.parameters),
            progress=dict(job.progress),
            error=job.error,
            model_version=job.model_version,
            created_at=job.created_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
        )


class ModelOut(BaseModel):
    """A model version."""

    version: int
    is_active: bool
    created_at: datetime
    index_revision: int
    facts: dict[str, Any]

    @classmethod
    def of(cls, model: ModelVersion) -> ModelOut:
        """Return the wire form."""
        return cls(
            version=model.version,
            is_active=model.is_active,
            created_at=model.created_at,
            index_revision=model.index_revision,
            facts=dict(model.facts),
        )


class ModelList(BaseModel):
    """Versions, newest first."""

    models: list[ModelOut]


class KeyIn(Strict):
    """A new key."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"scope": "search", "name": "shop window"}]}
    )

    scope: str = Field(pattern="^(search|write|admin)$")
    name: str | None = Field(None, min_length=1, max_length=64, description="what people call it")


class KeyOut(BaseModel):
    """A key; the secret is shown once, when it is made."""

    id: str
    name: str | None
    scope: str
    created_at: datetime
    secret: str | None = None

    @classmethod
    def of(cls, key: ApiKey, secret: str | None = None) -> KeyOut:
        """Return the wire form."""
        return cls(id=key.id, name=key.name, scope=key.scope.value, created_at=key.created_at, secret=secret)


class KeyList(BaseModel):
    """All keys, without secrets."""

    keys: list[KeyOut]


class FieldError(BaseModel):
    """What is wrong with one field."""

    field: str
    message: str


class Problem(BaseModel):
    """An error as RFC 9457 describes it."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    field: str | None = Field(None, description="path of the culprit in what was sent: items.3.vector")
    errors: list[FieldError] | None = Field(None, description="of an invalid request, each with its field")
    correlation_id: str | None = Field(None, description="of an unexpected error, to find it in the log")


def decode_picture(field: str, encoded: str) -> bytes:
    """Return the bytes of a base64 picture; raises InvalidFieldError."""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidFieldError(field, f"is not base64: {error}") from error


def content_url(collection: str, item: Item) -> str | None:
    """Return where a picture can be fetched."""
    if item.content_hash is None:
        return None
    return f"/v1/collections/{collection}/items/{quote(item.id, safe='')}/content"
