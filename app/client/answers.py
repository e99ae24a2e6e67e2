"""What the service answers, with the names of its OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

__all__ = [
    "Activation",
    "Activations",
    "Answer",
    "Collection",
    "Collections",
    "Encoder",
    "Encoders",
    "Feedback",
    "FeedbackIds",
    "FeedbackPage",
    "FeedbackQuery",
    "Hit",
    "Imported",
    "Item",
    "ItemPage",
    "Job",
    "Jobs",
    "Key",
    "Keys",
    "LabelCount",
    "Map",
    "Modality",
    "Model",
    "Models",
    "Notice",
    "Partners",
    "Point",
    "SearchResult",
    "SearchResults",
    "Status",
    "ValueCount",
    "Values",
    "Written",
]


class Answer(msgspec.Struct):
    """Base of all answers; fields that a newer service adds are passed over."""


class Modality(Answer):
    """One of the two kinds of data of a collection."""

    encoder: dict[str, Any]
    content: str


class Collection(Answer):
    """Two modalities, their items and models; `items` counts them where one collection is asked for."""

    name: str
    modalities: dict[str, Modality]
    revision: int
    active_version: int | None
    created_at: datetime
    items: dict[str, int] | None = None


class Collections(Answer):
    """All collections."""

    collections: list[Collection]


class Encoder(Answer):
    """A type of encoder with the JSON schemas of its options."""

    type: str
    content: str | None
    description: str
    options: dict[str, Any]
    required: list[str]


class Encoders(Answer):
    """All types of encoders."""

    encoders: list[Encoder]


class Item(Answer):
    """A stored item."""

    id: str
    modality: str
    text: str | None
    content_url: str | None
    labels: list[str]
    pair_id: str | None
    metadata: dict[str, Any]
    train: bool
    revision: int


class ItemPage(Answer):
    """Some items in order of creation; there are more while `next_cursor` is set."""

    items: list[Item]
    next_cursor: str | None


class Written(Answer):
    """Ids of what was written, and the revision of the collection since."""

    ids: list[str]
    revision: int


class Imported(Answer):
    """What an import did."""

    revision: int
    created: int
    updated: int
    unchanged: int
    ids: list[str]


class Partners(Answer):
    """Items that share the pair of others, by the ids of these."""

    partners: dict[str, Item]


class LabelCount(Answer):
    """A label, and how many items have it."""

    value: str
    count: int


class ValueCount(Answer):
    """A metadata value, and how many items have it."""

    value: str | int | float | bool
    count: int


class Values(Answer):
    """What a gallery can be filtered by."""

    items: int
    labels: list[LabelCount]
    metadata: dict[str, list[ValueCount]]


class Point(Answer):
    """An item in two dimensions of the common space."""

    id: str
    x: float
    y: float
    labels: list[str]


class Map(Answer):
    """Both galleries in two dimensions, and the shares of the variance that these hold."""

    model_version: int
    index_revision: int
    shares: list[float]
    points: dict[str, list[Point]]


class Notice(Answer):
    """What is to be known of an answer."""

    code: str
    message: str
    words: list[str]


class Hit(Answer):
    """A result; there is no probability within one modality, and no field that was not asked for."""

    id: str
    rank: int
    score: float
    probability: float | None
    labels: list[str] | None = None
    metadata: dict[str, Any] | None = None
    text: str | None = None
    content_url: str | None = None


class SearchResult(Answer):
    """Ranked results of one query."""

    model_version: int
    index_revision: int
    exact: bool
    took_ms: float
    notices: list[Notice]
    hits: list[Hit]


class SearchResults(Answer):
    """Ranked results of each query of a batch."""

    results: list[SearchResult]


class FeedbackIds(Answer):
    """Ids of stored feedback."""

    ids: list[int]


class FeedbackQuery(Answer):
    """The query that an item was judged for."""

    form: str
    item_id: str | None
    text: str | None
    picture_sha256: str | None


class Feedback(Answer):
    """A judgement: an item is relevant to a query or not."""

    id: int
    query: FeedbackQuery
    source: str
    target: str
    item_id: str
    relevant: bool
    created_at: datetime


class FeedbackPage(Answer):
    """Some feedback; there is more while `next_cursor` is set."""

    feedback: list[Feedback]
    next_cursor: str | None


class Job(Answer):
    """A training."""

    id: str
    collection: str
    state: str
    parameters: dict[str, Any]
    progress: dict[str, Any]
    error: str | None
    model_version: int | None
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self.finished_at is not None


class Jobs(Answer):
    """Trainings of a collection, newest first."""

    jobs: list[Job]


class Model(Answer):
    """A model version with its training report."""

    version: int
    is_active: bool
    created_at: datetime
    index_revision: int
    manifest_hash: str
    report: dict[str, Any]


class Models(Answer):
    """Model versions of a collection, newest first, with the reports in short."""

    models: list[Model]


class Activation(Answer):
    """When a version began to serve, by whom and why."""

    version: int
    previous: int | None
    at: datetime
    by: str
    reason: str | None


class Activations(Answer):
    """History of what served, newest first."""

    activations: list[Activation]


class Key(Answer):
    """An API key; its secret is in the answer to its creation only."""

    id: str
    name: str | None
    scope: str
    collections: list[str] | None
    requests_per_minute: int | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    secret: str | None = None


class Keys(Answer):
    """All keys."""

    keys: list[Key]


class Status(Answer):
    """Whether the service is alive or ready, and what it has to say of that."""

    status: str
    reason: str | None = None
