"""Collections and their items: what clients write and read back."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.domain.entities import Collection, Content, Item, Modality, Vector
from app.domain.errors import (
    ContentMissingError,
    InvalidFieldError,
    ItemExistsError,
    ItemNotFoundError,
    UnknownModalityError,
)
from app.domain.names import (
    check_identifier,
    check_labels,
    check_modality_name,
    check_name,
    check_storable,
    joined,
)
from app.domain.ports import BlobStore, Database, EncoderSource, UnitOfWork
from app.services.housekeeping import Housekeeping


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item as a client sends it."""

    modality: str
    content: Content
    id: str | None = None
    labels: tuple[str, ...] = ()
    pair_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    train: bool = True
    place: str | None = None
    """Where it stands in what the client sent; ``items.<number>`` when None."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a write did."""

    ids: tuple[str, ...]
    revision: int


class CatalogueService:
    """Creates collections and writes items; each call is stored whole or not at all.

    Parameters
    ----------
    database : Database
        The truth.
    blobs : BlobStore
        Pictures.
    encoders : EncoderSource
        Check and encode what comes in.
    housekeeping : Housekeeping
        Removes the files of what is deleted.
    """

    def __init__(
        self, database: Database, blobs: BlobStore, encoders: EncoderSource, housekeeping: Housekeeping
    ) -> None:
        self._housekeeping = housekeeping
        self._database = database
        self._blobs = blobs
        self._encoders = encoders

    def create(self, name: str, modalities: Sequence[Modality]) -> Collection:
        """Create a collection of two modalities; raises CollectionExistsError, InvalidFieldError."""
        check_name("name", name)
        if len(modalities) != 2 or modalities[0].name == modalities[1].name:
            raise InvalidFieldError("modalities", f"expected two different names, got {len(modalities)}")
        for modality in modalities:
            check_modality_name("modalities", modality.name)
            self._encoders.make(modality.encoder)
        with self._database.write() as work:
            return work.collections.add(name, (modalities[0], modalities[1]))

    def collections(self) -> list[Collection]:
        """Return all collections."""
        with self._database.read() as work:
            return work.collections.list()

    def collection(self, name: str) -> tuple[Collection, dict[str, int]]:
        """Return a collection and how many items each modality has."""
        with self._database.read() as work:
            collection = work.collections.get(name)
            return collection, work.items.counts(collection)

    def delete_collection(self, name: str) -> None:
        """Delete a collection with everything in it."""
        with self._database.write() as work:
            collection = work.collections.get(name)
            content_hashes = work.items.content_of(collection)
            bundles = [model.bundle for model in work.models.list(collection)]
            work.collections.delete(name)
        self._housekeeping.sweep_after_delete(content_hashes, bundles)

    def add_items(self, name: str, new_items: Sequence[NewItem], replace: bool = False) -> Written:
        """Store items; raises ItemExistsError unless they may be replaced.

        Parameters
        ----------
        name : str
            Collection.
        new_items : sequence of NewItem
            All are checked and encoded before the first is stored.
        replace : bool
            Whether items of the same id are replaced.
        """
        with self._database.read() as work:
            collection = work.collections.get(name)
        places = [f"items.{n}" if new.place is None else new.place for n, new in enumerate(new_items)]
        items = self._encode(collection, places, new_items)
        _check_unique(places, items)
        if not replace:
            with self._database.read() as work:
                _check_free(work, collection, places, items)
        # Nothing is left to refuse but what another writer does right now: the files come last.
        items = [self._with_picture(item, new.content) for item, new in zip(items, new_items, strict=True)]
        with self._database.write() as work:
            revision = work.collections.next_revision(collection)
            if not replace:
                _check_free(work, collection, places, items)
            self._settle_dimensions(work, name, places, items)
            work.items.put(collection, items, revision)
        return Written(tuple(item.id for item in items), revision)

    def item(self, name: str, item_id: str) -> Item:
        """Return one item."""
        with self._database.read() as work:
            return work.items.get(work.collections.get(name), item_id)

    def content(self, name: str, item_id: str) -> tuple[bytes, str]:
        """Return the picture or text of an item and its media type."""
        item = self.item(name, item_id)
        if item.content_hash is not None:
            try:
                return self._blobs.get(item.content_hash), item.content_type or "application/octet-stream"
            except FileNotFoundError as error:
                raise ContentMissingError(name, item_id) from error
        if item.text is not None:
            return item.text.encode(), "text/plain; charset=utf-8"
        raise ItemNotFoundError(name, f"{item_id}/content")

    def delete_item(self, name: str, item_id: str) -> int:
        """Delete an item and return the revision from which on it is gone."""
        with self._database.write() as work:
            collection = work.collections.get(name)
            revision = work.collections.next_revision(collection)
            content_hash = work.items.get(collection, item_id).content_hash
            work.items.delete(collection, item_id, revision)
        if content_hash is not None:
            self._housekeeping.sweep_after_delete([content_hash])
        return revision

    def page(self, name: str, modality: str | None, after: int, limit: int) -> list[tuple[int, Item]]:
        """Return items with their positions, in order of creation."""
        with self._database.read() as work:
            collection = work.collections.get(name)
            if modality is not None and modality not in collection.modality_names:
                raise UnknownModalityError("modality", modality, collection.modality_names)
            return work.items.page(collection, modality, after, limit)

    def _encode(
        self, collection: Collection, places: Sequence[str], new_items: Sequence[NewItem]
    ) -> list[Item]:
        """Check every item, then encode what is of one modality together."""
        encoders = {
            modality.name: self._encoders.make(modality.encoder) for modality in collection.modalities
        }
        fields = [joined(place, new.content.field) for place, new in zip(places, new_items, strict=True)]
        for place, field_name, new in zip(places, fields, new_items, strict=True):
            if new.modality not in encoders:
                raise UnknownModalityError(joined(place, "modality"), new.modality, collection.modality_names)
            _check_facts(place, new)
            encoders[new.modality].check(field_name, new.content)
        features: dict[int, Vector] = {}
        for name, encoder in encoders.items():
            numbers = [number for number, new in enumerate(new_items) if new.modality == name]
            if numbers and not encoder.is_fitted_with_model:
                _check_lengths(fields, new_items, numbers)
                encoded = encoder.encode([new_items[number].content for number in numbers])
                features |= zip(numbers, encoded, strict=True)
        for number, row in sorted(features.items()):
            if not np.isfinite(row).all():
                raise InvalidFieldError(fields[number], "its features are not finite")
        return [self._item(new, features.get(number)) for number, new in enumerate(new_items)]

    def _item(self, new: NewItem, features: Vector | None) -> Item:
        picture = new.content.picture
        return Item(
            id=secrets.token_hex(8) if new.id is None else new.id,
            modality=new.modality,
            text=new.content.text,
            content_type=None if picture is None else self._encoders.picture_type(picture),
            features=features,
            labels=new.labels,
            pair_id=new.pair_id,
            metadata=new.metadata,
            train=new.train,
        )

    def _with_picture(self, item: Item, content: Content) -> Item:
        if content.picture is None:
            return item
        return dataclasses.replace(item, content_hash=self._blobs.put(content.picture))

    def _settle_dimensions(
        self, work: UnitOfWork, name: str, places: Sequence[str], items: Sequence[Item]
    ) -> None:
        """Fix the dimension of own features at the first item; refuse others under the same lock."""
        collection = work.collections.get(name)
        for modality in collection.modalities:
            if modality.encoder.get("type") != "vector":
                continue
            dim = modality.encoder.get("dim")
            for place, item in zip(places, items, strict=True):
                if item.modality != modality.name or item.features is None:
                    continue
                if dim is None:
                    dim = len(item.features)
                    work.collections.set_encoder_option(collection, modality.name, "dim", dim)
                if len(item.features) != dim:
                    raise InvalidFieldError(
                        joined(place, "vector"), f"has {len(item.features)} numbers, expected {dim}"
                    )


def _check_facts(place: str, new: NewItem) -> None:
    if new.id is not None:
        check_identifier(joined(place, "id"), new.id)
    if new.pair_id is not None:
        check_identifier(joined(place, "pair_id"), new.pair_id)
    check_labels(joined(place, "labels"), new.labels)
    check_storable(joined(place, "metadata"), dict(new.metadata))
    check_storable(joined(place, "text"), new.content.text)


def _check_free(
    work: UnitOfWork, collection: Collection, places: Sequence[str], items: Sequence[Item]
) -> None:
    taken = work.items.existing(collection, [item.id for item in items])
    for place, item in zip(places, items, strict=True):
        if item.id in taken:
            raise ItemExistsError(joined(place, "id"), item.id)


def _check_lengths(fields: Sequence[str], new_items: Sequence[NewItem], numbers: Sequence[int]) -> None:
    """Refuse own features of different lengths; which one is right may not be known yet."""
    vectors = {number: new_items[number].content.vector for number in numbers}
    lengths = {number: len(vector) for number, vector in vectors.items() if vector is not None}
    for number, length in lengths.items():
        if length != lengths[min(lengths)]:
            raise InvalidFieldError(fields[number], f"has {length} numbers, expected {lengths[min(lengths)]}")


def _check_unique(places: Sequence[str], items: Sequence[Item]) -> None:
    seen: set[str] = set()
    for place, item in zip(places, items, strict=True):
        if item.id in seen:
            raise ItemExistsError(joined(place, "id"), item.id)
        seen.add(item.id)
