"""Collections, items, model versions and keys in the database."""

from __future__ import annotations

from collections.abc import Collection as AbstractCollection
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from app.domain.entities import (
    HIT_FIELDS,
    Activation,
    ApiKey,
    CallCount,
    Carried,
    Change,
    Collection,
    Counts,
    Feedback,
    Installation,
    Item,
    KeyBounds,
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

    def delete(self, name: str) -> tuple[Collection, Sequence[str]]:
        """Delete one for everybody and free its name; its rows stay for `remove_some`.

        Returns it and the bundles of its models; raises CollectionNotFoundError.
        """
        ...

    def deleted_ids(self) -> Sequence[int]:
        """Return the ids of deleted collections that rows are left of."""
        ...

    def remove_some(self, collection_id: int, max_rows: int, max_bytes: int) -> set[str] | None:
        """Remove some rows of a deleted collection; return the hashes of their pictures, None at the end.

        About as many bytes of texts and features as `max_bytes` go at once; one row in any case.
        """
        ...

    def next_revision(self, collection: Collection) -> int:
        """Count one write and lock the collection until the transaction ends."""
        ...

    def set_encoder_option(self, collection: Collection, modality: str, option: str, value: Any) -> None:
        """Record an option that became known later, such as the dimension of the first vector."""
        ...

    def set_modalities(self, collection: Collection, modalities: tuple[Modality, Modality]) -> None:
        """Give a locked collection the encoders of a model version."""
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

    def get_many(
        self, collection: Collection, item_ids: Sequence[str], fields: AbstractCollection[str] = HIT_FIELDS
    ) -> dict[str, Item]:
        """Return those that exist, by id, without features and without the `HIT_FIELDS` not named."""
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

    def count_changes(self, collection: Collection, revision: int, most: int) -> int:
        """Return how many items changed after `revision`, deleted ones counted too; counts up to `most`.

        It is also `most` where the number is unknown because tombstones after `revision` were purged.
        """
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

    def training_traits(self, collection: Collection, modality: str) -> Generator[Carried, None, None]:
        """Yield what each item of a modality that may be trained on carries.

        Who stops before the end closes the generator.
        """
        ...

    def of_other_encodings(self, collection: Collection, modality: Modality) -> Iterator[Item]:
        """Yield the items of a modality that were stored with another encoder, without features."""
        ...

    def lacking_original(self, collection: Collection, modality: str, form: str) -> tuple[int, str | None]:
        """Return how many items of a modality have no stored "text", "picture" or "sound", and the first."""
        ...

    def newest_tombstone(self, collection: Collection) -> int | None:
        """Return the position of the last deleted item that left a tombstone."""
        ...

    def purge_tombstones(self, collection: Collection, before: int, grace_seconds: float, limit: int) -> bool:
        """Purge some old tombstones of a locked collection; return whether there may be more to purge.

        Only those of positions before `before`, and made longer ago than the grace period.
        """
        ...

    def used_content(self, content_hashes: Sequence[str]) -> set[str]:
        """Return which of the hashes any item, or query of any feedback, of any collection has."""
        ...


class EncodedContentRepository(Protocol):
    """Features of texts, pictures and sounds by modality, its encoding, and SHA-256 of the content."""

    def hashes(self, collection: Collection, modality: Modality) -> set[str]:
        """Return the hashes of all contents that there are features of."""
        ...

    def find(self, collection: Collection, modality: Modality, hashes: Sequence[str]) -> dict[str, Vector]:
        """Return the features that there are, by hash."""
        ...

    def put(self, collection: Collection, modality: Modality, features: Mapping[str, Vector]) -> None:
        """Store features by hash; those that are there stay."""
        ...

    def forget(self, collection: Collection, modality: Modality, hashes: Sequence[str]) -> None:
        """Remove the features of contents that no item has any more."""
        ...

    def keep_only(self, collection: Collection, encodings: AbstractCollection[str]) -> None:
        """Remove the features of all other encodings."""
        ...


class FeedbackRepository(Protocol):
    """Feedback on the items of a collection, by its id.

    It changes neither items nor the collection's revision. Methods that delete return the hashes of the
    pictures that the deleted feedback had as queries.
    """

    def add(self, collection: Collection, feedback: Sequence[Feedback]) -> Sequence[int]:
        """Store feedback and return its ids, which grow in its order."""
        ...

    def page(self, collection: Collection, after: int, limit: int) -> Sequence[Feedback]:
        """Return feedback with an id above `after`, in order of ids, without features."""
        ...

    def all(self, collection: Collection) -> Iterator[Feedback]:
        """Yield all feedback in order of ids, the latest last.

        The items that it names exist, since feedback goes with a deleted item; one that was replaced may be
        of the other modality by now.
        """
        ...

    def delete(self, collection: Collection, feedback_id: int) -> set[str]:
        """Delete one; raises FeedbackNotFoundError."""
        ...

    def delete_of_item(self, collection: Collection, item_id: str) -> set[str]:
        """Delete all that is about an item, or has it as the query."""
        ...

    def keep_newest(self, collection: Collection, most: int) -> set[str]:
        """Delete all but the newest `most`."""
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


class CallRepository(Protocol):
    """What the processes of all hosts counted of late."""

    def exchange(
        self, process: str, counts: Mapping[str, CallCount], seconds: float
    ) -> list[Mapping[str, CallCount]]:
        """Store what a process counted within the last seconds, by caller; return the same of all others."""
        ...


class InstallationRepository(Protocol):
    """What the database says of itself."""

    def get(self) -> Installation:
        """Return it."""
        ...

    def begin(self, point: str) -> bool:
        """Make a point the first of the database's history; return whether it is part of it now.

        Of several processes that do so at the same time one succeeds, and those with the same point.
        """
        ...

    def add_point(self, point: str) -> None:
        """Append a point to the database's history, unless it is there."""
        ...

    def progress(self) -> tuple[int, ...]:
        """Return numbers that change with items and when a model version or feedback is recorded."""
        ...
