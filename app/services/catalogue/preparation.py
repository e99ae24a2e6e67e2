"""Items and queries on their way in: checked, encoded, their pictures stored before a row refers to them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.db.session import UnitOfWork
from app.domain.entities import Collection, Content, Item, Vector, vector_bytes
from app.domain.errors import InvalidFieldError, unknown_modality
from app.domain.filters import compose
from app.domain.names import (
    check_identifier,
    check_labels,
    check_metadata,
    check_storable,
    join_path,
    join_words,
    some_of,
)
from app.encoders.registry import EncoderRegistry
from app.storage.pictures_and_bundles import Blobs

FEWEST_PAIRS = 4
"""Two to learn from and two to hold out; as few items of each modality suffice."""
_MOST_SEEN = 1000
"""Items of a modality that are looked at: an answer to a search must not read a whole collection."""
_NEEDED = (
    "a training needs one of these on items of both modalities: two labels in common; a metadata key with "
    f"two values in common; or {FEWEST_PAIRS} pairs (the same pair_id on two items) that do not all have one "
    f"label; and of each modality {FEWEST_PAIRS} items"
)


def describe_material(work: UnitOfWork, collection: Collection) -> str:
    """Return what of labels, facets, pairs and words there is, and what is missing for a training."""
    names = collection.modality_names
    with contextlib.ExitStack() as reading:
        cursors = (
            reading.enter_context(contextlib.closing(work.items.training_traits(collection, name)))
            for name in names
        )
        x, z = (list(itertools.islice(cursor, _MOST_SEEN)) for cursor in cursors)
    with_texts = [
        name for name in names if any(item.text for _, item in work.items.page(collection, name, 0, 1))
    ]
    words = (
        f"typed queries are compared with the words of {join_words(map(repr, with_texts), 'and')}"
        if with_texts
        else "no item has a text, so there are no words to search by"
    )
    if not x or not z:
        empty = [name for name, items in zip(names, (x, z), strict=True) if not items]
        return f"it has no item of {join_words(map(repr, empty), 'or')} to train on; {_NEEDED}"
    labels = {label for item in x for label in item.labels} & {label for item in z for label in item.labels}
    pairs = {item.pair_id for item in x if item.pair_id} & {item.pair_id for item in z}
    keys = [key for key, values in _facets(x).items() if len(values & _facets(z).get(key, set())) > 1]
    seen = [
        f"{len(items)}{' or more' if len(items) == _MOST_SEEN else ''} items of {name!r}, "
        f"{sum(bool(item.labels) for item in items)} labelled"
        for name, items in zip(names, (x, z), strict=True)
    ]
    common = [
        f"{some_of(sorted(labels))} as {'label' if len(labels) == 1 else 'labels'}" if labels else "no label",
        f"{len(pairs)} pair{'' if len(pairs) == 1 else 's'}" if pairs else "no pair_id",
        f"values of the metadata {some_of(sorted(keys))}" if keys else "no metadata that could be a facet",
    ]
    has_classes = len({item.labels[:1] for item in (*x, *z)}) > 1 or not x[0].labels
    suffices = len(labels) > 1 or (len(pairs) >= FEWEST_PAIRS and has_classes) or bool(keys)
    suffices = suffices and min(len(x), len(z)) >= FEWEST_PAIRS
    verdict = "that suffices for a training" if suffices else _NEEDED
    return (
        f"there are {join_words(seen, 'and')}; {words}; "
        f"in common they have {join_words(common, 'and')}; {verdict}"
    )


def _facets(items: list[Item]) -> dict[str, set[str]]:
    """Return the values of each metadata key by which items are put together, as a facet's are."""
    counts: dict[str, Counter[str]] = {}
    for item in items:
        for key, value in item.metadata.items():
            if isinstance(value, str | int):
                counts.setdefault(key, Counter())[str(value)] += 1
    return {key: set(values) for key, values in counts.items() if 2 * len(values) <= values.total()}


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
class ItemChange:
    """Other labels and metadata for those of some items that exist; everything else of them stays."""

    ids: tuple[str, ...] = ()
    labels: tuple[str, ...] | None = None  # in place of all that they have; None: they stay
    # values of some keys, added or replaced, or removed where they are null
    metadata: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""  # where it stands in what the client sent
    added: tuple[str, ...] = ()  # labels that come after the others
    removed: tuple[str, ...] = ()

    def apply(self, item: Item) -> Item:
        """Return the item with its changes; raises InvalidFieldError where they cannot be stored."""
        metadata = {
            key: value
            for key, value in {**item.metadata, **self.metadata}.items()
            if value is not None or key not in self.metadata
        }
        labels = item.labels if self.labels is None else compose(self.labels)
        if self.added or self.removed:
            removed = compose(self.removed)
            together = dict.fromkeys((*labels, *compose(self.added)))
            labels = tuple(label for label in together if label not in removed)
        check_labels(join_path(self.place, "labels"), labels)
        check_metadata(join_path(self.place, "metadata"), metadata)
        return dataclasses.replace(item, labels=labels, metadata=metadata)


def random_id(_: NewItem) -> str:
    """Return an id that no other item has."""
    return secrets.token_hex(8)


def content_id(new: NewItem) -> str:
    """Return an id derived from everything the item holds: the same item always gets the same id."""
    content = new.content
    digest = hashlib.sha256()
    if content.file is not None:
        digest.update(content.file)
    if content.vector is not None:
        digest.update(vector_bytes(np.asarray(content.vector, np.float32)))
    facts = [new.modality, content.text, new.labels, new.pair_id, new.metadata, new.train]
    digest.update(json.dumps(facts, sort_keys=True).encode())
    return digest.hexdigest()[:32]


@dataclass(eq=False)
class Preparation:
    """Checks and encodes new items."""

    blobs: Blobs
    encoders: EncoderRegistry

    def settle(
        self,
        work: UnitOfWork | None,
        current: Collection,
        expected: Collection,
        first_places: Mapping[str, str],
    ) -> None:
        """Store the options that items were encoded with and that are not stored yet, under the lock; without
        a transaction, see whether they fit."""
        # Raises InvalidFieldError at a modality's first place if another writer stored another value
        # meanwhile, or an encoder that takes something else.
        for now, then in zip(current.modalities, expected.modalities, strict=True):
            if now.name not in first_places:
                continue
            place = first_places[now.name]
            if now.encoding != then.encoding:
                forms = [self.encoders.make(modality.encoder).content_form for modality in (now, then)]
                if forms[0] != forms[1]:
                    reason = f"the encoder of {now.name!r} was changed meanwhile: expected a {forms[0]}"
                    raise InvalidFieldError(place, reason)
                continue
            try:
                pending = self.encoders.pending_options(now.encoder, then.encoder)
            except InvalidFieldError as error:
                raise InvalidFieldError(join_path(place, error.field), error.message) from error
            if work is not None:
                for option, value in pending.items():
                    work.collections.set_encoder_option(current, now.name, option, value)

    def items(
        self,
        collection: Collection,
        places: Sequence[str],
        new_items: Sequence[NewItem],
        make_id: Callable[[NewItem], str] = random_id,
    ) -> tuple[Collection, list[Item]]:
        """Check every item, then encode what is of one modality together; nothing is stored yet.
        Return the collection as it is with them, since the first ones may decide options, and the items."""
        # `places` are the items' paths in what the client sent.
        firsts = {new.modality: new.content for new in reversed(new_items)}
        x, z = (
            dataclasses.replace(side, encoder=self.encoders.with_first_item(side.encoder, firsts[side.name]))
            if side.name in firsts
            else side
            for side in collection.modalities
        )
        collection = dataclasses.replace(collection, modalities=(x, z))
        encoders = {modality.name: self.encoders.make(modality.encoder) for modality in collection.modalities}
        fields = [join_path(place, new.content.field) for place, new in zip(places, new_items, strict=True)]
        for place, field_name, new in zip(places, fields, new_items, strict=True):
            if new.modality not in encoders:
                raise unknown_modality(join_path(place, "modality"), new.modality, collection.modality_names)
            if new.id is not None:
                check_identifier(join_path(place, "id"), new.id)
            if new.pair_id is not None:
                check_identifier(join_path(place, "pair_id"), new.pair_id)
            check_labels(join_path(place, "labels"), new.labels)
            check_metadata(join_path(place, "metadata"), dict(new.metadata))
            check_storable(join_path(place, "text"), new.content.text)
            encoders[new.modality].check(field_name, new.content)
        features: dict[int, Vector] = {}
        for name, encoder in encoders.items():
            numbers = [number for number, new in enumerate(new_items) if new.modality == name]
            if numbers and not encoder.is_fitted_with_model:
                encoded = encoder.encode_to_store([new_items[number].content for number in numbers])
                finite = np.isfinite(encoded).all(axis=1)
                if not finite.all():
                    first = numbers[int(np.argmin(finite))]
                    raise InvalidFieldError(fields[first], "its features are not finite")
                features |= zip(numbers, encoded, strict=True)
        encodings = {modality.name: modality.encoding for modality in collection.modalities}
        return collection, [
            Item(
                id=make_id(new) if new.id is None else new.id,
                modality=new.modality,
                text=new.content.text,
                content_type=self.encoders.media_type(new.content),
                features=features.get(number),
                labels=compose(new.labels),
                pair_id=new.pair_id,
                metadata=new.metadata,
                train=new.train,
                encoding=encodings[new.modality],
            )
            for number, new in enumerate(new_items)
        ]

    def with_pictures(
        self, items: Sequence[Item], new_items: Sequence[NewItem], stored: list[str]
    ) -> list[Item]:
        """Store the pictures of items and return these with their hashes. `stored` gets each hash as soon as
        its picture is stored: when a later one fails, these are to be taken away."""
        complete: list[Item] = []
        for item, new in zip(items, new_items, strict=True):
            if new.content.file is not None:
                stored.append(self.blobs.put(new.content.file))
                item = dataclasses.replace(item, content_hash=stored[-1])
            complete.append(item)
        return complete
