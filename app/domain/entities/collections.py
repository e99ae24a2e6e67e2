"""Collections, their items and feedback, and what changes in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

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
        forms = (
            (self.text, "text"),
            (self.picture, self.picture_field),
            (self.sound, self.sound_field),
            (self.vector, "vector"),
        )
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
    revision: int = 0  # of the write that last changed it
    encoding: str = ""  # of the encoder that made the features, as of `Modality`


@dataclass(frozen=True, slots=True)
class Carried:
    """What an item carries beside its content, as of `Item`."""

    labels: tuple[str, ...]
    pair_id: str | None
    metadata: Mapping[str, Any]


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
