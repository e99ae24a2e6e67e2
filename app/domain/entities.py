"""The values that travel between the layers; none of them changes after it was made."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from app.answers import RetrainingPolicy
from app.domain.names import Scope
from app.domain.reports import TrainingReport


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Restrictions of a key other than its scope."""

    # the only ones it can see; None: all. A name, not an identity: the key keeps working when the collection
    # is deleted and created again
    collections: tuple[str, ...] | None = None
    expires_at: datetime | None = None  # UTC
    requests_per_minute: int | None = None  # its own rate limit; the service's when None

    def allow(self, collection: str) -> bool:
        """Return whether a key of these bounds can see a collection."""
        return self.collections is None or collection in self.collections


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is stored: never the secret itself."""

    id: str
    scope: Scope
    created_at: datetime
    name: str | None = None
    bounds: KeyBounds = KeyBounds()
    last_used_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CallCount:
    """How often a caller called within the last minute, and how long ago the first of these calls was."""

    calls: int
    age_seconds: float


_Value = TypeVar("_Value")


def value_of(kind: type[_Value], source: object, **others: Any) -> _Value:
    """Return a value with what a source has under the names of its fields, but for `others`."""
    own: Any = kind
    names = {field.name for field in fields(own)} - others.keys()
    return kind(**{name: getattr(source, name) for name in names}, **others)


Vector = npt.NDArray[np.float32]

Matrix = npt.NDArray[np.float32]

Features = Any
"""An (n, dim) float32 array, dense or sparse by rows (`scipy.sparse.csr_array`)."""

_NOT_STORED = datetime.fromtimestamp(0, UTC)  # time of feedback before it is stored
_ENCODER = msgspec.json.Encoder()


def vector_bytes(vector: Vector) -> bytes:
    """Return a vector as it is stored: little-endian float32, on every machine."""
    return vector.astype("<f4", copy=False).tobytes()


def vector_of(stored: bytes) -> Vector:
    """Return the vector that `vector_bytes` made bytes of."""
    return np.frombuffer(stored, dtype="<f4").astype(np.float32, copy=False)


@dataclass(frozen=True, slots=True)
class Modality:
    """One side of a collection: its name (such as "image") and how raw items become features."""

    name: str
    encoder: Mapping[str, Any]  # ``{"type": ..., ...}`` with the encoder's own options
    # identifies its features among those of other encoders that the collection has or had; empty for the one
    # it was made with
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """Content of an item or a query: exactly one of text, picture, sound and vector."""

    text: str | None = None
    picture: bytes | None = None  # a file
    vector: Sequence[float] | None = None  # features of the client's own
    picture_field: str = "picture"  # what the caller calls the picture, for messages
    sound: bytes | None = None  # a file
    sound_field: str = "sound"

    @property
    def file(self) -> bytes | None:
        """The picture or sound; None if it is neither."""
        return self.sound if self.picture is None else self.picture

    @property
    def field(self) -> str:
        """What the caller calls the given one; empty if there is none."""
        if self.text is not None:
            return "text"
        forms = ((self.picture, self.picture_field), (self.sound, self.sound_field), (self.vector, "vector"))
        return next((name for value, name in forms if value is not None), "")


@dataclass(frozen=True, slots=True)
class Collection:
    """A pair of galleries and their current model."""

    id: int  # database key
    name: str  # unique
    modalities: tuple[Modality, Modality]  # the first is X
    revision: int  # grows by one with each write
    active_version: int | None  # of the model that serves
    created_at: datetime  # UTC
    purged_through: int = 0  # of items deleted at this revision or before, there may be no trace
    retraining: RetrainingPolicy = field(default_factory=RetrainingPolicy)

    @property
    def modality_names(self) -> tuple[str, str]:
        """Names of both modalities, X first."""
        return self.modalities[0].name, self.modalities[1].name


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One gallery item."""

    id: str  # unique within the collection
    modality: str
    text: str | None = None  # raw, for text encoders
    content_hash: str | None = None  # SHA-256 of the stored picture or sound
    content_type: str | None = None  # media type of that
    # float32 of shape (dim,); None where the encoder is fitted with the model and features are derived
    features: Vector | None = None
    labels: tuple[str, ...] = ()  # classes
    pair_id: str | None = None  # links two items that belong together
    metadata: Mapping[str, Any] = field(default_factory=dict)  # the client's own facts
    train: bool = True  # whether a retrain may learn from it
    revision: int = 0  # of the write that last changed it, or took a partner from it
    encoding: str = ""  # of the encoder that made the features, as of `Modality`


class IndexedItem(NamedTuple):
    """What a gallery knows of an item apart from its projection; a tuple, since many are made."""

    id: str
    labels: tuple[str, ...]
    metadata: Mapping[str, Any]

    @property
    def text(self) -> None:
        """Not known."""

    @property
    def content_hash(self) -> None:
        """Not known."""


ShownItem = Item | IndexedItem
"""What a search result shows: an item as it is stored, or as its gallery knows it."""
MOST_PARTNERS = 16
"""Items of each modality with one `pair_id` that are partners; where one has more they are a group, and none
is."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a write did to the items it was given."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0

    @property
    def changed(self) -> int:
        """Items that were written; one that is the same already is left alone."""
        return self.created + self.updated

    def __add__(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts(
            self.created + other.created, self.updated + other.updated, self.unchanged + other.unchanged
        )


@dataclass(frozen=True, slots=True)
class Change:
    """What a write did to one item: its new state, or None when it was deleted."""

    item_id: str
    modality: str
    item: Item | None
    revision: int


def json_bytes(item: Item) -> int:
    """Return how many bytes the item's labels, metadata and text take as JSON."""
    parts: tuple[str | tuple[str, ...] | Mapping[str, Any] | None, ...]
    parts = (item.labels, item.metadata, item.text)
    return sum(len(_ENCODER.encode(part)) for part in parts if part)


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """One item's relevance to one query; the query is an item of the collection or content of its own."""

    source: str  # modality of the query
    target: str  # modality of the item; they may be the same
    item_id: str
    is_relevant: bool
    query_item_id: str | None = None
    # any other query, as an item of modality `source` without an id; features as of `Item`
    query: Item | None = None
    id: int = 0  # given when it is stored; grows with each feedback
    created_at: datetime = _NOT_STORED  # UTC, given when it is stored


@dataclass(frozen=True, slots=True)
class RunningImport:
    """An import that keeps writers out of its collection: it is being stored, or its leftovers are there."""

    id: str
    collection_id: int
    revision: int  # of the collection once it is published; readers do not see it before
    size: int  # items that came in
    started_at: datetime  # when storing began
    is_abandoned: bool  # the process that stored it fell silent or gave it up


@dataclass(frozen=True, slots=True)
class Installation:
    """What a database says of itself."""

    identity: str  # given when its schema was made, kept by every copy
    # the last of its history, each a random word, newest last; none before it had a data folder
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """What a data folder remembers of its database."""

    identity: str  # empty where the mark names another database in an older form
    point: str  # the newest of the database's history that the folder saw


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """What became of the files that were to be copied."""

    count: int  # copied; those that were there are not counted
    damaged: tuple[str, ...] = ()  # left out, because they are missing or not what their sums say


class JobState(enum.StrEnum):
    """Life of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        """Whether work remains."""
        return self in (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One thing that happened to a job."""

    number: int  # counted from 1 within the job, without gaps
    kind: str  # "state" or "progress"
    data: Mapping[str, Any]  # the new state and what goes with it, or a step of the training


@dataclass(frozen=True, slots=True)
class Job:
    """One retrain; times are UTC."""

    id: str  # random
    collection: str
    state: JobState
    parameters: Mapping[str, Any]  # as requested
    # phase, percent, an estimate of the seconds left; of iterations also objective, gap and rank
    progress: Mapping[str, Any]
    error: str | None  # why it failed
    model_version: int | None  # what it published
    fencing_token: int  # grows with each claim; a worker with an older one can write nothing
    attempts: int  # claims that count: all but those that a stopping worker gave back
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One trained model, as the database knows it."""

    version: int  # counted from 1 within the collection
    bundle: str  # folder name
    manifest_hash: str  # SHA-256
    index_revision: int  # of the collection, whose items the bundle's indexes hold
    report: TrainingReport
    created_at: datetime  # UTC
    is_active: bool  # serves
    # with the encoders it was trained with; those of the collection when None
    modalities: tuple[Modality, Modality] | None = None


@dataclass(frozen=True, slots=True)
class SavedGallery:
    """Where the galleries of a collection are saved, so that a start need not read all items."""

    model_bundle: str  # folder of the model they were projected by
    revision: int  # of the collection they hold
    folder: str
    manifest_hash: str  # SHA-256


@dataclass(frozen=True, slots=True)
class BuiltModel(ModelVersion):
    """A trained model whose bundle is on disk, with its report; no row refers to it; `created_at` is open."""

    expected_active: int | None = None  # when the training began; the new one was compared with it
