"""What the services need from the outside world, as Protocols."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from app.domain.entities import (
    Activation,
    ApiKey,
    Change,
    Collection,
    Content,
    Counts,
    Item,
    Job,
    JobEvent,
    JobState,
    KeyBounds,
    Matrix,
    Modality,
    ModelVersion,
    SavedGallery,
    Scope,
    Vector,
)


class CollectionRepository(Protocol):
    """Collections by name."""

    def add(self, name: str, modalities: tuple[Modality, Modality]) -> Collection:
        """Create one; raises CollectionExistsError."""
        ...

    def get(self, name: str) -> Collection:
        """Return one; raises CollectionNotFoundError."""
        ...

    def lock(self, name: str) -> Collection:
        """Return one and keep others from changing its row until the transaction ends."""
        ...

    def list(self) -> list[Collection]:
        """Return all, by name."""
        ...

    def delete(self, name: str) -> None:
        """Delete one with everything in it; raises CollectionNotFoundError."""
        ...

    def next_revision(self, collection: Collection) -> int:
        """Count one write and lock the collection until the transaction ends."""
        ...

    def set_encoder_option(self, collection: Collection, modality: str, option: str, value: Any) -> None:
        """Record an option that became known later, such as the dimension of the first vector."""
        ...

    def saved_gallery(self, collection: Collection) -> SavedGallery | None:
        """Return where its galleries are saved."""
        ...

    def save_gallery(self, collection: Collection, saved: SavedGallery) -> None:
        """Record where its galleries are saved, in place of what was recorded before."""
        ...

    def used_galleries(self, folders: Sequence[str]) -> set[str]:
        """Return which of the folders any collection's galleries are saved in."""
        ...


class ItemRepository(Protocol):
    """Items of a collection."""

    def existing(self, collection: Collection, item_ids: Sequence[str]) -> set[str]:
        """Return which of the ids are taken."""
        ...

    def put(self, collection: Collection, items: Sequence[Item], revision: int) -> Counts:
        """Insert items that are not there and replace those that differ; others keep their revision."""
        ...

    def get(self, collection: Collection, item_id: str) -> Item:
        """Return one; raises ItemNotFoundError."""
        ...

    def get_many(self, collection: Collection, item_ids: Sequence[str]) -> dict[str, Item]:
        """Return those that exist, by id, without features."""
        ...

    def delete(self, collection: Collection, item_id: str, revision: int) -> None:
        """Leave a tombstone; raises ItemNotFoundError."""
        ...

    def page(
        self,
        collection: Collection,
        modality: str | None,
        after: int,
        limit: int,
        pair_id: str | None = None,
    ) -> list[tuple[int, Item]]:
        """Return items with their stable position, in order of creation; of one pair when it is given."""
        ...

    def changes_since(self, collection: Collection, revision: int) -> Iterator[Change]:
        """Yield what changed after `revision`, in order of revision."""
        ...

    def unchanged_since(self, collection: Collection, revision: int) -> Iterator[Item]:
        """Yield what was last written at `revision` or before and is still there, without features."""
        ...

    def counts(self, collection: Collection) -> dict[str, int]:
        """Return the number of items of each modality."""
        ...

    def training_labels(
        self, collection: Collection, modality: str
    ) -> Generator[tuple[str, ...], None, None]:
        """Yield the labels of each item of a modality that may be trained on and has any.

        Who stops before the end closes the generator.
        """
        ...

    def content_of(self, collection: Collection) -> list[str]:
        """Return the hashes of a collection's pictures, each once."""
        ...

    def used_content(self, content_hashes: Sequence[str]) -> set[str]:
        """Return which of the hashes any item of any collection has."""
        ...


class ModelRepository(Protocol):
    """Model versions of a collection."""

    def add(self, collection: Collection, model: ModelVersion) -> None:
        """Record a version, inactive."""
        ...

    def next_version(self, collection: Collection) -> int:
        """Return the number a new version gets."""
        ...

    def get(self, collection: Collection, version: int) -> ModelVersion:
        """Return one; raises ModelNotFoundError."""
        ...

    def list(self, collection: Collection) -> list[ModelVersion]:
        """Return all, newest first."""
        ...

    def used_bundles(self, bundles: Sequence[str]) -> set[str]:
        """Return which of the bundles any version of any collection has."""
        ...

    def replace_active(self, collection: Collection, version: int, expected: int | None) -> bool:
        """Make a version the one that serves if `expected` is (None: none is); return whether it was."""
        ...

    def delete(self, collection: Collection, versions: Sequence[int]) -> None:
        """Forget versions; their bundles stay on disk until they are swept."""
        ...

    def record_activation(self, collection: Collection, activation: Activation) -> None:
        """Add to the history of what was active when."""
        ...

    def activations(self, collection: Collection, limit: int) -> Sequence[Activation]:
        """Return that history, newest first."""
        ...


class JobQueue(Protocol):
    """Retrain jobs; the table is the queue."""

    def enqueue(self, collection: Collection, parameters: Mapping[str, Any]) -> Job:
        """Add a job; raises TrainingAlreadyRunningError while one is queued or running."""
        ...

    def get(self, job_id: str) -> Job:
        """Return one; raises JobNotFoundError."""
        ...

    def last(self, collection: Collection) -> Job | None:
        """Return the newest job of a collection."""
        ...

    def claim(
        self, worker: str, lease_seconds: float, max_attempts: int, job_id: str | None = None
    ) -> Job | None:
        """Take the oldest job that is due or whose lease ran out, or only the one of that id."""
        ...

    def heartbeat(
        self,
        job: Job,
        lease_seconds: float,
        progress: Mapping[str, Any],
        before: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Extend the lease and record progress, and what came before it since the last heartbeat.

        Raises JobCancelledError when the job is no longer this claim's.
        """
        ...

    def check(self, job: Job) -> None:
        """Raise JobCancelledError when the job is no longer this claim's; writes nothing."""
        ...

    def give_back(self, job: Job, reason: str, delay_seconds: float, counts: bool) -> None:
        """Queue the job again; it waits for a while, and the attempt may count.

        Raises JobCancelledError when the job is no longer this claim's.
        """
        ...

    def events(self, job_id: str, after: int, limit: int) -> list[JobEvent]:
        """Return what happened after the event of that number, oldest first."""
        ...

    def finish(self, job: Job, state: JobState, error: str | None, model_version: int | None) -> None:
        """Close the job; raises JobCancelledError when the job is no longer this claim's."""
        ...

    def counts(self) -> dict[JobState, int]:
        """Return how many jobs are in each state."""
        ...

    def request_cancel(self, job_id: str) -> Job:
        """Ask the job to stop; one that nobody works on is cancelled at once."""
        ...


class KeyRepository(Protocol):
    """API keys by the hash of their secret."""

    def add(self, secret_hash: str, scope: Scope, name: str | None = None, bounds: KeyBounds = ...) -> ApiKey:
        """Store a key."""
        ...

    def note_use(self, used_at: Mapping[str, datetime]) -> None:
        """Record when keys were last used, by id; a later time on record stays, unknown ids are ignored."""
        ...

    def find(self, secret_hash: str) -> ApiKey | None:
        """Return the key with that hash."""
        ...

    def list(self) -> list[ApiKey]:
        """Return all, oldest first."""
        ...

    def delete(self, key_id: str) -> None:
        """Revoke a key; raises KeyNotFoundError."""
        ...


class UnitOfWork(Protocol):
    """One transaction and the repositories that work in it."""

    @property
    def collections(self) -> CollectionRepository:
        """Collections."""
        ...

    @property
    def items(self) -> ItemRepository:
        """Items."""
        ...

    @property
    def models(self) -> ModelRepository:
        """Model versions."""
        ...

    @property
    def jobs(self) -> JobQueue:
        """Jobs."""
        ...

    @property
    def keys(self) -> KeyRepository:
        """Keys."""
        ...


class Database(Protocol):
    """Opens transactions."""

    def write(self) -> AbstractContextManager[UnitOfWork]:
        """Open a transaction that commits at the end of the block and rolls back on an exception."""
        ...

    def read(self) -> AbstractContextManager[UnitOfWork]:
        """Open a transaction that only reads, from one consistent state."""
        ...


class BlobStore(Protocol):
    """Content-addressed files."""

    def put(self, content: bytes) -> str:
        """Store content durably and return its SHA-256."""
        ...

    def get(self, content_hash: str) -> bytes:
        """Return content; raises FileNotFoundError."""
        ...

    def touch(self, content_hash: str) -> None:
        """Make content as young as if it were put now; raises FileNotFoundError."""
        ...

    def sweep(
        self, before: float, used: Callable[[Sequence[str]], set[str]], only: Sequence[str] | None
    ) -> int:
        """Remove content last put before a time that is not `used`; return how much.

        Of all content, and of what interrupted writes left, when `only` is None.
        """
        ...


class Spool(Protocol):
    """Checked items of an import on their way to the database: kept on disk, gone when closed."""

    @property
    def size(self) -> int:
        """Number of items."""
        ...

    def add(self, entries: Sequence[tuple[int, Item]]) -> tuple[int, int] | None:
        """Append items, each with its line.

        Returns the place among `entries` of the first whose id was there before, and the line it stands
        on; None when each is new.
        """
        ...

    def batches(self, size: int) -> Iterator[list[tuple[int, Item]]]:
        """Yield everything added, in order, at most `size` at a time."""
        ...

    def ids(self) -> Iterator[str]:
        """Yield the id of everything added, in order."""
        ...

    def close(self) -> None:
        """Remove everything."""
        ...


class BundleFiles(Protocol):
    """Folders that are published whole and checked when they are opened."""

    def write(self, name: str, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> tuple[str, str]:
        """Write a bundle; returns its folder name and the hash of its manifest."""
        ...

    def open(self, folder: str, manifest_hash: str) -> Path:
        """Return the checked folder; raises DamagedBundleError."""
        ...

    def sweep(
        self, before: float, used: Callable[[Sequence[str]], set[str]], only: Sequence[str] | None
    ) -> int:
        """Remove bundles written before a time that are not `used`; return how many.

        Of all bundles, and of what interrupted writes left, when `only` is None.
        """
        ...


class GalleryIndex(Protocol):
    """Maximum-inner-product search over the rows of a matrix; never changed after it was built."""

    @property
    def size(self) -> int:
        """Number of rows."""
        ...

    @property
    def vectors(self) -> Matrix:
        """The (size, rank) rows themselves."""
        ...

    def search(self, queries: Matrix, k: int, allowed: Any | None) -> list[tuple[Any, Vector]]:
        """Return for each query row numbers and scores of the k best among `allowed` (a bool per row)."""
        ...


class IndexFiles(Protocol):
    """Reads and writes index files."""

    def save(self, vectors: Matrix, path: Path) -> None:
        """Write an index over the rows."""
        ...

    def load(self, path: Path, rank: int) -> GalleryIndex:
        """Read an index; raises DamagedBundleError."""
        ...


class Encoder(Protocol):
    """Turns a raw item into features.

    A fitted encoder learns from the training items and travels with the model; the others are
    known when the collection is made, and their features are stored with the item.
    """

    @property
    def is_fitted_with_model(self) -> bool:
        """Whether features depend on what a retrain learned."""
        ...

    def check(self, field: str, raw: Content) -> None:
        """Refuse content this encoder cannot take, naming the field."""
        ...

    def encode(self, raw: Sequence[Content]) -> Matrix:
        """Return the (n, dim) float32 features."""
        ...


class StatefulEncoder(Encoder, Protocol):
    """An encoder that is fitted with the model."""

    def fit(self, texts: list[str]) -> Any:
        """Learn from the training texts."""
        ...

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs."""
        ...

    def restore(self, state: Mapping[str, Any]) -> Any:
        """Become the encoder of that state."""
        ...


class EncoderSource(Protocol):
    """Makes encoders, and tells the media type of a picture."""

    def make(self, options: Mapping[str, Any]) -> Any:
        """Return an Encoder; a StatefulEncoder where it `is_fitted_with_model`."""
        ...

    def picture_type(self, content: bytes) -> str:
        """Return the media type of a picture that an encoder accepted."""
        ...
