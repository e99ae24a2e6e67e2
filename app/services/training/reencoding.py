"""Encoding the originals of a collection by the encoders that a training is to use."""
# Features go beside those that serve, by the hash of the content: an attempt that dies leaves what it encoded
# to the next one, and a stale one writes nothing that could be wrong.

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, Content, Features, Item, Modality
from app.domain.errors import not_trainable
from app.domain.names import some_of
from app.domain.ports import EncodeBatches
from app.encoders.base import BaseEncoder
from app.encoders.registry import EncoderRegistry
from app.services.models.originals import Originals, original_hash
from app.services.training.progress import Report

Encoders = Mapping[str, Mapping[str, Any]]
"""Options of the encoders that replace those of a collection, by modality."""
_LEAST_ELSEWHERE = 500
"""Of fewer originals, as in passes after the first one, none is sent away: they take seconds here."""
_MOST_PASSES = 5
"""Over what was written meanwhile: each is far shorter than the one before, unless writes never end."""


def encoding_of(options: Mapping[str, Any]) -> str:
    """Return an identifier of features by an encoder with these settled options."""
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:32]


def modalities_with(collection: Collection, encoders: Encoders) -> tuple[Modality, Modality]:
    """Return the modalities of a collection with other encoders (settled options) for some of them."""
    first, second = (
        Modality(modality.name, encoders[modality.name], encoding_of(encoders[modality.name]))
        if modality.name in encoders and encoders[modality.name] != modality.encoder
        else modality
        for modality in collection.modalities
    )
    return first, second


@dataclass(eq=False)
class Reencoder:
    """Encodes what was stored with other encoders; `encode` does it elsewhere."""

    _database: Database
    _originals: Originals
    _encoders: EncoderRegistry
    _encode_batches: EncodeBatches | None = None

    def encode_all(self, name: str, encoders: Encoders, report: Report) -> None:
        """Store the features of all items that were not stored with these encoders, in passes until none was
        written meanwhile."""
        # Raises ConflictError, which names items without an original, or with one that an encoder
        # refuses.
        for _ in range(_MOST_PASSES):
            if not self._encode_missing(name, encoders, report):
                return

    def _encode_missing(self, name: str, encoders: Encoders, report: Report) -> bool:
        """Encode what has no features now; return whether there was anything."""
        with self._database.read_of(name) as (work, collection):
            modalities = modalities_with(collection, encoders)
            made = {modality.name: self._encoders.make(modality.encoder) for modality in modalities}
            sources = {
                modality.name: _find_sources(work, collection, modality, made[modality.name])
                for modality in modalities
            }
            stored = {modality.name: work.encoded.hashes(collection, modality) for modality in modalities}
        for modality in modalities:
            missing = sources[modality.name]
            if gone := sorted(stored[modality.name].difference(missing)):  # what no item has any more
                with self._database.write() as work:
                    work.encoded.forget(collection, modality, gone)
            for digest in stored[modality.name]:
                missing.pop(digest, None)
            self._encode(collection, modality, made[modality.name], missing, report)
        return any(sources.values())

    def _encode(
        self,
        collection: Collection,
        modality: Modality,
        encoder: BaseEncoder,
        missing: Mapping[str, Item],
        report: Report,
    ) -> None:
        if not missing:
            return
        n_encoded = 0
        encode: Callable[[Iterable[Sequence[Content]]], Iterator[Features]]
        if self._encode_batches is None or len(missing) < _LEAST_ELSEWHERE:
            encode = partial(map, encoder.encode_to_store)
        else:
            encode = partial(self._encode_batches, modality.encoder)

        def report_progress() -> None:
            progress = {"phase": "re-encoding", "modality": modality.name}
            share = n_encoded / len(missing)
            report({**progress, "items": n_encoded, "of": len(missing), "share": share})

        report_progress()
        for features, without in self._originals.iter_encoded(encoder, missing, encode):
            if without:
                lost = some_of([missing[digest].id for digest in without])
                raise not_trainable(
                    f"items of modality {modality.name!r} whose stored {encoder.content_form} is missing or "
                    f"refused by the encoder: {lost}"
                )
            with self._database.write() as work:
                work.encoded.put(work.collections.get(collection.name), modality, features)
            n_encoded += len(features)
            report_progress()


def _find_sources(
    work: UnitOfWork, collection: Collection, modality: Modality, encoder: BaseEncoder
) -> dict[str, Item]:
    """Return an item of each original to encode, by its hash; raises ConflictError if items have none."""
    sources: dict[str, Item] = {}
    without: list[str] = []
    if encoder.is_fitted_with_model:
        return sources
    for item in work.items.of_other_encodings(collection, modality):
        digest = original_hash(item, encoder.content_form)
        if digest is None:
            without.append(item.id)
        else:
            sources[digest] = item
    if without:
        raise not_trainable(lacking_message(modality.name, len(without), encoder, without[0]))
    return sources


def lacking_message(modality: str, count: int, encoder: BaseEncoder, first: str | None) -> str:
    """Return what to say of items that cannot be encoded again by a new encoder; `first` is the id of one."""
    return (
        f"items of modality {modality!r} without a stored {encoder.content_form}, which the new encoder "
        f"would encode: {count}, the first is {first!r}; add them again with their originals, or delete them"
    )
