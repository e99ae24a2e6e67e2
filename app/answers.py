"""What the service answers, defined once: routes return it, OpenAPI describes it, clients decode it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime
from typing import Annotated, Any


class Says:
    """What OpenAPI says of a field beside its type."""

    def __init__(self, description: str, is_listed: bool = True, **keywords: Any) -> None:
        self.description = description
        self.is_listed = is_listed
        """Whether lists of things have it, too; it is null there otherwise."""
        self.keywords = keywords

    def __get_pydantic_json_schema__(
        self, core_schema: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the field's schema with these keywords."""
        schema = {**handler(core_schema), **self.keywords, "description": self.description}
        if self.is_listed:
            return schema
        description = f"{schema.pop('description')}; not in lists"
        options = schema.get("anyOf", [schema, {"type": "null"}])
        return {"anyOf": options, "description": description}


@dataclass(slots=True)
class Modality:
    """One of the two kinds of data of a collection."""

    encoder: Annotated[dict[str, Any], Says("its type and options, without the paths of files")]
    content: Annotated[
        str | None, Says('what it takes: "picture", "text", "sound" or "vector"; null of an unknown encoder')
    ]


@dataclass(frozen=True, slots=True)
class RetrainingPolicy:
    """When a collection is trained by itself: as soon as one of the limits is reached; never without any."""

    changed_items: Annotated[
        int | None, Says("items written or deleted since the newest version, or since the beginning")
    ] = None
    judgements: Annotated[int | None, Says("feedback stored since then")] = None
    hours: Annotated[float | None, Says("since then, if anything has changed")] = None
    quiet_hours: Annotated[
        tuple[int, int] | None,
        Says("hours of the day, UTC, from and to which trainings may begin; at any time where it is null"),
    ] = None


@dataclass(slots=True)
class Collection:
    """Two modalities, their items and models; `items` counts them where one collection is asked for."""

    name: str
    modalities: dict[str, Modality]
    revision: int
    active_version: int | None
    created_at: datetime
    retraining: RetrainingPolicy
    items: dict[str, int] | None = None


@dataclass(slots=True)
class Collections:
    """All collections."""

    collections: list[Collection]


@dataclass(slots=True)
class Encoder:
    """A type of encoder."""

    type: str
    content: Annotated[
        str | None,
        Says(
            "what it takes; null where its parts decide",
            anyOf=[{"enum": ["picture", "text", "sound", "vector"], "type": "string"}, {"type": "null"}],
        ),
    ]
    description: str
    options: Annotated[dict[str, Any], Says("JSON schema of each option, by name")]
    required: Annotated[list[str], Says("options without a default")]


@dataclass(slots=True)
class Encoders:
    """All types of encoders, by name."""

    encoders: list[Encoder]


@dataclass(slots=True)
class Item:
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


@dataclass(slots=True)
class Notice:
    """What is to be known of an answer."""

    code: Annotated[
        str,
        Says(
            enum=[
                "unknown-words",
                "no-words",
                "named-items",
                "weak-match",
                "not-ranked",
                "filter-matches-nothing",
                "filter-excludes-nothing",
                "not-grouped",
            ],
            description="`unknown-words`: words of the query that the model does not know, or only by "
            "others that are spelled alike; `no-words`: none of the query says anything; `named-items`: it "
            "is an id of items, or of their pairs; `weak-match`: even the first hit hardly matches the "
            "text; `not-ranked`: items that the model cannot place; `filter-matches-nothing`: why no item "
            "passes the filter; `filter-excludes-nothing`: what it leaves out that no item has; "
            "`not-grouped`: why results are not, or too few",
        ),
    ]
    message: str
    words: Annotated[Sequence[str], Says("the first 20 words that it is about")]
    did_you_mean: Annotated[
        Sequence[str],
        Says(
            "queries to offer: this one with known words in place of unknown ones that are spelled like "
            "them, the nearest first"
        ),
    ] = ()


@dataclass(slots=True)
class ItemPage:
    """Some items in order of creation; there are more while `next_cursor` is set."""

    items: list[Item]
    next_cursor: str | None
    notices: Annotated[
        list[Notice], Says("on the first page: why no item passes the filter, or is left out")
    ] = field(default_factory=list)


@dataclass(slots=True)
class Written:
    """Ids of what was written, and the revision of the collection since."""

    ids: list[str]
    revision: int


@dataclass(slots=True)
class Affected:
    """What was done to the items that a filter is about; of a dry run, what would be done."""

    matched: Annotated[int, Says("items that passed")]
    changed: Annotated[int, Says("of these: deleted, or no longer as they were")]
    ids: Annotated[list[str], Says("the first ten that passed")]
    revision: Annotated[int, Says("of the collection since; as it was when nothing changed")]


@dataclass(slots=True)
class Imported:
    """What an import did."""

    revision: Annotated[int, Says("of the collection; as it was when nothing changed")]
    created: int
    updated: int
    unchanged: Annotated[int, Says("were there already, the same; they keep their revision")]
    copies: Annotated[int, Says("new items with the picture or sound that an item of another id had already")]
    ids: Annotated[list[str], Says("in the order of the lines")]


@dataclass(slots=True)
class Partners:
    """Items that share the pair of others, by the ids of these."""

    partners: dict[str, Item]


@dataclass(slots=True)
class LabelCount:
    """A label, and how many items have it."""

    value: str
    count: int


@dataclass(slots=True)
class ValueCount:
    """A metadata value, and how many items have it."""

    value: str | int | float | bool
    count: int


@dataclass(slots=True)
class Values:
    """The most frequent labels and metadata values of a gallery."""

    items: int
    labels: list[LabelCount]
    metadata: dict[str, list[ValueCount]]
    ranges: dict[str, tuple[float, float]]
    """Least and most value of keys that are numbers, among the first items."""


@dataclass(slots=True)
class Point:
    """An item of a map."""

    id: str
    x: float
    y: float
    labels: list[str]


@dataclass(slots=True)
class Map:
    """Items of both galleries in two dimensions of the common space."""

    model_version: int
    index_revision: int
    shares: Annotated[list[float], Says("share of the variance along x and along y")]
    points: Annotated[dict[str, list[Point]], Says("by modality")]


@dataclass(slots=True)
class Reason:
    """What a part of the common space gave of a score."""

    name: Annotated[
        str,
        Says(
            "a facet (`label`, or a metadata key), `pairs`, `distinctness`, `feedback`, `prior` (a space of "
            "both), `words` or `likeness` (of one modality alone); `similarity` is all of a score"
        ),
    ]
    score: Annotated[float, Says("its share of the score; all of them sum to it")]
    agrees: Annotated[
        list[str], Says("values of the facet that query and hit both have, more likely than not")
    ]


@dataclass(slots=True)
class Hit:
    """A result; what was not asked for is null, as is a probability that is not known."""

    id: str
    rank: int
    score: Annotated[
        float, Says("inner product of the projections of query and item; their cosine within one modality")
    ]
    probability: Annotated[
        float | None,
        Says(
            "estimated probability of a match; under `lrbs`, if matches were half of all pairs; null within "
            "one modality, before the first training, and where hardly anything but partners matches"
        ),
    ]
    labels: list[str] | None = None
    metadata: dict[str, Any] | None = None
    text: str | None = None
    content_url: str | None = None
    explanation: Annotated[
        list[Reason] | None, Says("why it has its score, the largest part first; if `include` names it")
    ] = None


@dataclass(slots=True)
class SearchResult:
    """Ranked results and the snapshot they come from."""

    model_version: int
    index_revision: int
    exact: Annotated[
        bool,
        Says(
            "whether no better item can have been missed: all that the filter passes was compared, as it "
            "always is without an approximate index"
        ),
    ]
    took_ms: float
    notices: Annotated[
        list[Notice],
        Says("why there are no hits where no word of a query is known, and what else is to be known"),
    ]
    hits: list[Hit]
    known_words: Annotated[
        list[str] | None, Says("of the query's texts, to the model; if `include` names `explanation`")
    ] = None
    measures: Annotated[list[str] | None, Says("that `emphasis` takes of this model, in that case")] = None


@dataclass(slots=True)
class SearchResults:
    """Results in the order of the queries, all from one snapshot."""

    results: list[SearchResult]


@dataclass(slots=True)
class FeedbackIds:
    """Ids of stored feedback, in the order of the request."""

    ids: list[int]


@dataclass(slots=True)
class FeedbackQuery:
    """The query that an item was judged for; vectors and pictures themselves are left out."""

    form: Annotated[
        str,
        Says("how the query was sent", enum=["item_id", "text", "vector", "image_base64", "sound_base64"]),
    ]
    item_id: str | None
    text: str | None
    picture_sha256: Annotated[str | None, Says("SHA-256 of the picture or sound file")]


@dataclass(slots=True)
class Feedback:
    """A judgement: an item is relevant to a query or not."""

    id: int
    query: FeedbackQuery
    source: str
    target: str
    item_id: str
    relevant: bool
    created_at: datetime


@dataclass(slots=True)
class FeedbackPage:
    """Some feedback; there is more while `next_cursor` is set."""

    feedback: list[Feedback]
    next_cursor: str | None


@dataclass(slots=True)
class Job:
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


@dataclass(slots=True)
class Jobs:
    """Trainings of a collection, newest first."""

    jobs: list[Job]


@dataclass(slots=True)
class Model:
    """A model version with its training report."""

    version: int
    is_active: bool
    created_at: datetime
    index_revision: int
    manifest_hash: Annotated[str, Says("SHA-256 of the bundle's manifest, which holds all its sums")]
    report: dict[str, Any]


@dataclass(slots=True)
class Models:
    """Model versions of a collection, newest first, without the long lists of their reports."""

    models: list[Model]


@dataclass(slots=True)
class Activation:
    """When a version began to serve, by whom and why."""

    version: int
    previous: int | None
    at: datetime
    by: str
    reason: str | None


@dataclass(slots=True)
class Activations:
    """History of what served, newest first."""

    activations: list[Activation]


@dataclass(slots=True)
class Key:
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


@dataclass(slots=True)
class Keys:
    """All keys, without secrets."""

    keys: list[Key]


@dataclass(slots=True)
class Status:
    """State of the service."""

    status: str
    reason: Annotated[str | None, Says("what is missing, or damaged")] = None


__all__ = sorted(name for name, kind in list(globals().items()) if is_dataclass(kind))
