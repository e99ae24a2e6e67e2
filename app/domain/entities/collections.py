"""Collections, their items, and what changes in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.domain.entities.arrays import Vector


@dataclass(frozen=True, slots=True)
class Modality:
    """One side of a collection: its name and how raw items become features.

    Parameters
    ----------
    name : str
        Such as "image" or "text".
    encoder : mapping
        ``{"type": ..., ...}`` with the encoder's own options.
    encoding : str
        Identifies features of this encoder among those of others that the collection has or had; empty for
        the one it was made with.
    """

    name: str
    encoder: Mapping[str, Any]
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Content:
    """Content of an item or a query: exactly one of text, picture, sound and vector.

    Parameters
    ----------
    text : str or None
        A text.
    picture : bytes or None
        A picture file.
    vector : sequence of float or None
        Features of the client's own.
    picture_field : str
        What the caller calls the picture, for messages about it.
    sound : bytes or None
        A sound file.
    sound_field : str
        What the caller calls the sound.
    """

    text: str | None = None
    picture: bytes | None = None
    vector: Sequence[float] | None = None
    picture_field: str = "picture"
    sound: bytes | None = None
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
    """A pair of galleries and their current model.

    Parameters
    ----------
    id : int
        Database key.
    name : str
        Unique.
    modalities : tuple of Modality
        Two; the first is X.
    revision : int
        Grows by one with each write.
    active_version : int or None
        Version number of the model that serves.
    created_at : datetime
        UTC.
    purged_through : int
        Of items deleted at this revision or before, there may be no trace.
    """

    id: int
    name: str
    modalities: tuple[Modality, Modality]
    revision: int
    active_version: int | None
    created_at: datetime
    purged_through: int = 0

    @property
    def modality_names(self) -> tuple[str, str]:
        """Names of both modalities, X first."""
        return self.modalities[0].name, self.modalities[1].name


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One gallery item.

    Parameters
    ----------
    id : str
        Unique within the collection.
    modality : str
        Which gallery it stands in.
    text : str or None
        Raw text, for text encoders.
    content_hash : str or None
        SHA-256 of the stored picture or sound.
    content_type : str or None
        Media type of the stored picture or sound.
    features : ndarray of shape (dim,) or None
        Float32; None where the encoder is fitted with the model and features are derived.
    labels : tuple of str
        Classes.
    pair_id : str or None
        Links two items that belong together.
    metadata : mapping
        Client's own facts.
    train : bool
        Whether a retrain may learn from it.
    revision : int
        Of the write that last changed it.
    encoding : str
        Of the encoder that made the features, as of `Modality`.
    """

    id: str
    modality: str
    text: str | None = None
    content_hash: str | None = None
    content_type: str | None = None
    features: Vector | None = None
    labels: tuple[str, ...] = ()
    pair_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    train: bool = True
    revision: int = 0
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Carried:
    """What an item carries beside its content.

    Parameters
    ----------
    labels, pair_id, metadata
        As of `Item`.
    """

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
