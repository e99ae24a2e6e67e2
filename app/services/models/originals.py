"""Features of items by another encoder than the one they were stored with: kept apart, or made again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from app.domain.entities import Collection, Content, Item, Modality, Vector
from app.domain.errors import ServiceError
from app.domain.names import some_of
from app.domain.ports import BlobStore, Encoder, EncoderSource, UnitOfWork

_CONTENTS_PER_BATCH = 32
"""Encoded together: enough for all cores, and few enough to hold their files in memory."""
_logger = logging.getLogger(__name__)


def needs_features(item: Item, modality: Modality, encoder: Encoder) -> bool:
    """Return whether the features that an item was stored with are of another encoder than it is to have."""
    return not encoder.is_fitted_with_model and item.encoding != modality.encoding


def original_hash(item: Item, form: str) -> str | None:
    """Return the SHA-256 of an item's text or file; None where it has none that an encoder of `form` takes.

    Parameters
    ----------
    item : Item
        Stored.
    form : str
        "text", "picture", "sound" or "vector", of which no item has an original.
    """
    if form == "text":
        return None if item.text is None else hashlib.sha256(item.text.encode()).hexdigest()
    kind = {"picture": "image/", "sound": "audio/"}.get(form)
    return item.content_hash if kind is not None and (item.content_type or "").startswith(kind) else None


class Originals:
    """Encodes the stored texts and files of items.

    Parameters
    ----------
    blobs : BlobStore
        Pictures and sounds.
    encoders : EncoderSource
        Makes encoders.
    """

    def __init__(self, blobs: BlobStore, encoders: EncoderSource) -> None:
        self._blobs = blobs
        self._encoders = encoders

    def encodable(self, work: UnitOfWork, collection: Collection, items: Sequence[Item]) -> list[Item]:
        """Return the items that a collection's encoders can encode, with their features, in their order.

        Parameters as of `with_features`, but for items of both modalities.
        """
        encodable: dict[int, Item] = {}
        for modality in collection.modalities:
            encoder = self._encoders.make(modality.encoder)
            numbers = [number for number, item in enumerate(items) if item.modality == modality.name]
            side = self.with_features(work, collection, modality, encoder, [items[n] for n in numbers])
            encodable |= {
                number: item
                for number, item in zip(numbers, side, strict=True)
                if item.features is not None or encoder.is_fitted_with_model
            }
        return [encodable[number] for number in sorted(encodable)]

    def with_features(
        self,
        work: UnitOfWork,
        collection: Collection,
        modality: Modality,
        encoder: Encoder,
        items: Sequence[Item],
    ) -> list[Item]:
        """Return items with the features that an encoder stores.

        Those that were stored with others get what was encoded before, or are encoded now; nothing is stored.
        An item whose original is missing, or refused by the encoder, gets no features.

        Parameters
        ----------
        work : UnitOfWork
            Reads.
        collection : Collection
            Of the items.
        modality : Modality
            Of the items, with the encoding that their features are to have.
        encoder : Encoder
            Of that encoding.
        items : sequence of Item
            Of one modality.
        """
        digests = {
            number: original_hash(item, encoder.content_form)
            for number, item in enumerate(items)
            if needs_features(item, modality, encoder)
        }
        if not digests:
            return list(items)
        hashes = sorted({digest for digest in digests.values() if digest is not None})
        features = work.encoded.find(collection, modality, hashes)
        sources = {
            digest: items[number]
            for number, digest in digests.items()
            if digest is not None and digest not in features
        }
        features |= self.encode(encoder, sources)
        return [
            replace(item, features=features.get(digests[number] or ""), encoding=modality.encoding)
            if number in digests
            else item
            for number, item in enumerate(items)
        ]

    def encode(self, encoder: Encoder, sources: Mapping[str, Item]) -> dict[str, Vector]:
        """Return the features of originals by their hashes, without those that cannot be encoded.

        Parameters
        ----------
        encoder : Encoder
            Encodes.
        sources : mapping of str to Item
            An item of each original.
        """
        features: dict[str, Vector] = {}
        hashes = list(sources)
        for start in range(0, len(hashes), _CONTENTS_PER_BATCH):
            contents = {}
            for digest in hashes[start : start + _CONTENTS_PER_BATCH]:
                content = self._read(encoder, sources[digest])
                if content is not None:
                    contents[digest] = content
            features |= _encode(encoder, contents)
        if lost := sorted(sources[digest].id for digest in hashes if digest not in features):
            _logger.warning("items that the encoder cannot encode from what is stored: %s", some_of(lost))
        return features

    def _read(self, encoder: Encoder, item: Item) -> Content | None:
        form = encoder.content_form
        if form == "text":
            content = Content(text=item.text)
        else:
            try:
                file = self._blobs.get(item.content_hash or "")
            except FileNotFoundError:
                return None
            content = Content(picture=file) if form == "picture" else Content(sound=file)
        try:
            encoder.check(content.field, content)
        except ServiceError:
            return None
        return content


def _encode(encoder: Encoder, contents: Mapping[str, Content]) -> dict[str, Vector]:
    if not contents:
        return {}
    rows = encoder.encode_to_store(list(contents.values()))
    return {digest: row for digest, row in zip(contents, rows, strict=True) if bool(np.isfinite(row).all())}
