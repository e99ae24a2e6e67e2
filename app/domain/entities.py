"""The values that travel between the layers; none of them changes after it was made."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Modality:
    """One side of a collection: its name and how raw items become features.

    Parameters
    ----------
    name : str
        Such as "image" or "text".
    encoder : mapping
        ``{"type": ..., ...}`` with the encoder's own options.
    """

    name: str
    encoder: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Content:
    """What an item or a query consists of: exactly one of the three.

    `picture_field` says where the picture came from.
    """

    text: str | None = None
    picture: bytes | None = None
    vector: Sequence[float] | None = None
    picture_field: str = "image_base64"

    @property
    def field(self) -> str:
        """What a client calls the one that is given; empty when there is none."""
        given = ((self.text, "text"), (self.picture, self.picture_field), (self.vector, "vector"))
        return next((name for value, name in given if value is not None), "")


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
    """

    id: int
    name: str
    modalities: tuple[Modality, Modality]
    revision: int
    active_version: int | None
    created_at: datetime

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
        SHA-256 of the stored picture.
    content_type : str or None
        Media type of the stored picture.
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


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One trained model, as the database knows it.

    Parameters
    ----------
    version : int
        Counted from 1 within the collection.
    bundle : str
        Folder name of the bundle.
    manifest_hash : str
        SHA-256 of the bundle's manifest.
    index_revision : int
        Collection revision whose items the bundle's indexes hold.
    facts : mapping
        Metrics, parameters, seed, convergence.
    created_at : datetime
        UTC.
    is_active : bool
        Whether it serves.
    """

    version: int
    bundle: str
    manifest_hash: str
    index_revision: int
    facts: Mapping[str, Any]
    created_at: datetime
    is_active: bool


@dataclass(frozen=True, slots=True)
class SavedGallery:
    """Where the galleries of a collection are saved, so that a start need not read all items.

    Parameters
    ----------
    model_bundle : str
        Folder name of the model they were projected by.
    revision : int
        Of the collection they hold.
    folder : str
        Their own.
    manifest_hash : str
        SHA-256 of its manifest.
    """

    model_bundle: str
    revision: int
    folder: str
    manifest_hash: str


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
class BuiltModel:
    """A trained model whose bundle is on disk; no row speaks of it yet.

    Parameters
    ----------
    version : int
        The number it was built under.
    bundle, manifest_hash : str
        Folder name and SHA-256 of the manifest.
    index_revision : int
        Collection revision whose items the bundle's indexes hold.
    facts : mapping
        As in the manifest.
    expected_active : int or None
        Version that was active when the training began, and that the new one was compared with.
    refused : str or None
        Why it should not serve.
    """

    version: int
    bundle: str
    manifest_hash: str
    index_revision: int
    facts: Mapping[str, Any]
    expected_active: int | None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Activation:
    """That a version began to serve.

    Parameters
    ----------
    version : int
        The one that serves since.
    previous : int or None
        The one that served before; None when none did.
    at : datetime
        UTC.
    by : str
        A job, a key or the command line.
    reason : str or None
        As given.
    """

    version: int
    previous: int | None
    at: datetime
    by: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One thing that happened to a job.

    Parameters
    ----------
    number : int
        Counted from 1 within the job, without gaps.
    kind : {"state", "progress"}
        What the data describe.
    data : mapping
        The new state and what goes with it, or a step of the training.
    """

    number: int
    kind: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """One retrain.

    Parameters
    ----------
    id : str
        Random.
    collection : str
        Name of the collection.
    state : JobState
        Where it stands.
    parameters : mapping
        As asked for.
    progress : mapping
        Phase, iteration, objective, gap, rank.
    error : str or None
        Why it failed.
    model_version : int or None
        What it published.
    fencing_token : int
        Grows with each claim; a worker with an older one can write nothing.
    attempts : int
        Claims that count: all but those that a stopping worker gave back.
    created_at, started_at, finished_at : datetime or None
        UTC.
    """

    id: str
    collection: str
    state: JobState
    parameters: Mapping[str, Any]
    progress: Mapping[str, Any]
    error: str | None
    model_version: int | None
    fencing_token: int
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Scope(enum.StrEnum):
    """What a key allows; `admin` includes the others, `write` includes `search`."""

    SEARCH = "search"
    WRITE = "write"
    ADMIN = "admin"

    def allows(self, wanted: Scope) -> bool:
        """Return whether this scope covers `wanted`."""
        ranks = list(Scope)
        return ranks.index(self) >= ranks.index(wanted)


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """What a key is bound to besides its scope.

    Parameters
    ----------
    collections : tuple of str or None
        The only collections it can see; all of them when None. A name, not a collection's identity:
        the key goes on working when the collection is made anew.
    expires_at : datetime or None
        When it stops working, UTC.
    requests_per_minute : int or None
        Its own rate limit; the service's when None.
    """

    collections: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    requests_per_minute: int | None = None

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
class ItemFilter:
    """Which items may be returned: any of the labels, and every metadata key with any of its values."""

    labels: tuple[str, ...] = ()
    metadata: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether it lets everything through."""
        return not self.labels and not self.metadata

    def accepts(self, labels: tuple[str, ...], metadata: Mapping[str, Any]) -> bool:
        """Return whether an item with these labels and metadata passes."""
        if self.labels and not set(self.labels) & set(labels):
            return False
        return all(
            any(_same(metadata.get(key), value) for value in values) for key, values in self.metadata.items()
        )


@dataclass(frozen=True, slots=True)
class Hit:
    """One search result."""

    id: str
    rank: int
    score: float
    probability: float
    item: Item


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Ranked results and the snapshot they come from."""

    model_version: int
    index_revision: int
    exact: bool
    took_ms: float
    hits: tuple[Hit, ...]


def _same(left: Any, right: Any) -> bool:
    # In Python True == 1, in JSON it is not.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
