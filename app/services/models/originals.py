"""Originals of items and their features: encoded again with other encoders, fitted with a model."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse
from typing_extensions import override

from app.db.session import UnitOfWork
from app.domain.entities import Collection, Content, Features, Item, Matrix, Modality, Vector
from app.domain.errors import EncoderUnavailableError, ServiceError
from app.domain.names import some_of
from app.encoders.base import BaseEncoder
from app.encoders.registry import EncoderRegistry
from app.services.storage.pacing import Pause, in_batches, no_pause
from app.storage.pictures_and_bundles import Blobs
from solver import is_finite, is_sparse


def item_features(items: Sequence[Item], encoder: BaseEncoder) -> Features:
    """Return the (n, dim) features of items of one modality, at least one."""
    if encoder.is_fitted_with_model:
        return encoder.encode([Content(text=item.text) for item in items])
    return encoder.from_stored(_stored_features(items))


def features_for(features: Features, encoder: BaseEncoder, n_features: int) -> Features:
    """Return features without those that a projector does not take of what the encoder has not learned."""
    surplus = features.shape[1] - n_features
    return features[:, :n_features] if 0 < surplus == encoder.n_further else features


class _PacedTexts(list[str]):
    """Texts, among which each reading of all of them pauses."""

    pause: Pause

    @override
    def __iter__(self) -> Iterator[str]:
        for batch in in_batches(super().__iter__(), _ITEMS_PER_PAUSE, len, _CHARACTERS_PER_PAUSE):
            yield from batch
            self.pause()


def fit_encoder(
    encoder: BaseEncoder, items: Sequence[Item], names: Sequence[str] = (), pause: Pause = no_pause
) -> None:
    """Have an encoder learn from training items, at least one, and from the words of `names`: labels and
    values of facets."""
    texts = _PacedTexts(item.text or "" for item in items)
    texts.pause = pause
    encoder.learn_names(names, texts)
    if encoder.is_fitted_with_model:
        encoder.fit(texts)
    elif encoder.learns_from_stored:
        encoder.fit_to_stored(_stored_features(items))


def accepts(encoder: BaseEncoder, content: Content) -> bool:
    """Return whether an encoder takes content that was made of names, as far as it can say now."""
    try:
        encoder.check(content.field, content)
    except EncoderUnavailableError:
        return True
    except ServiceError:
        return False
    return True


def encode_names(
    encoder: BaseEncoder, contents: Sequence[Content], pause: Pause = no_pause
) -> Features | None:
    """Return the features of texts made of names; None where that is not possible, which the log says."""
    if not contents:
        return None
    parts = []
    try:
        for batch in in_batches(contents, _CONTENTS_PER_BATCH):
            parts.append(encoder.encode(batch))
            pause()
    except EncoderUnavailableError as error:
        # Items that were encoded before can be learned from and searched without their encoder, too.
        _logger.warning("texts made of labels and values are left out: %s", error)
        return None
    features = scipy.sparse.vstack(parts, format="csr") if is_sparse(parts[0]) else np.concatenate(parts)
    if not is_finite(features):
        _logger.warning("texts made of labels and values are left out: their features are not finite")
        return None
    return features


def _stored_features(items: Sequence[Item]) -> Matrix:
    return np.stack([item.features for item in items if item.features is not None])


_CONTENTS_PER_BATCH, _BYTES_PER_BATCH = 32, 16 << 20
"""Encoded together: enough for all cores, and few enough to hold their files in memory."""
_ITEMS_PER_PAUSE, _CHARACTERS_PER_PAUSE = 250, 200_000  # learned from in some ten milliseconds
_logger = logging.getLogger(__name__)


def needs_features(item: Item, modality: Modality, encoder: BaseEncoder) -> bool:
    """Return whether the features that an item was stored with are of another encoder than it is to have."""
    return not encoder.is_fitted_with_model and item.encoding != modality.encoding


def original_hash(item: Item, form: str) -> str | None:
    """Return the SHA-256 of an item's text or file; None where it has none that an encoder of `form` takes:
    "text", "picture", "sound" or "vector", of which no item has an original."""
    if form == "text":
        return None if item.text is None else hashlib.sha256(item.text.encode()).hexdigest()
    kind = {"picture": "image/", "sound": "audio/"}.get(form)
    return item.content_hash if kind is not None and (item.content_type or "").startswith(kind) else None


@dataclass(eq=False)
class Originals:
    """Encodes the stored texts and files of items."""

    _blobs: Blobs
    _encoders: EncoderRegistry

    def learns_quickly(self, collection: Collection) -> bool:
        """Return whether all encoders of a collection learn from some hundred items in a moment."""
        return all(self._encoders.make(modality.encoder).learns_quickly for modality in collection.modalities)

    def fit_encoders(
        self, collection: Collection, items: Sequence[Item], names: Sequence[str], pause: Pause = no_pause
    ) -> dict[str, BaseEncoder]:
        """Return the encoders of a collection by modality, fitted to its items where it has some, and to the
        words of names."""
        encoders = {}
        for modality in collection.modalities:
            encoder = self._encoders.make(modality.encoder)
            if learned := [item for item in items if item.modality == modality.name]:
                fit_encoder(encoder, learned, names, pause)
            encoders[modality.name] = encoder
        return encoders

    def encodable(self, work: UnitOfWork, collection: Collection, items: Sequence[Item]) -> list[Item]:
        """Return the items of both modalities that a collection's encoders can encode, with their features,
        in their order."""
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
        encoder: BaseEncoder,
        items: Sequence[Item],
    ) -> list[Item]:
        """Return items of one modality with the features that its encoder stores: as encoded before, or now,
        unstored. An item whose original is missing, or refused by the encoder, gets no features."""
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

    def encode(self, encoder: BaseEncoder, sources: Mapping[str, Item]) -> dict[str, Vector]:
        """Return the features of originals by their hashes, without those that cannot be encoded; `sources`
        has an item of each."""
        features: dict[str, Vector] = {}
        for rows, _ in self.iter_encoded(encoder, sources, partial(map, encoder.encode_to_store)):
            features |= rows
        if lost := sorted(item.id for digest, item in sources.items() if digest not in features):
            _logger.warning("items that the encoder cannot encode from what is stored: %s", some_of(lost))
        return features

    def iter_encoded(
        self,
        encoder: BaseEncoder,
        sources: Mapping[str, Item],
        encode: Callable[[Iterable[Sequence[Content]]], Iterator[Features]],
    ) -> Iterator[tuple[dict[str, Vector], list[str]]]:
        """Yield the features of some originals at a time, by their hashes, and the hashes of those without.
        `encode` yields the features of each batch; it may take batches before their turn."""
        taken: deque[list[str]] = deque()
        refused: list[str] = []

        def read_contents() -> Iterator[tuple[str, Content]]:
            for digest, item in sources.items():
                content = self._read(encoder, item)
                if content is None:
                    refused.append(digest)
                else:
                    yield digest, content

        def read_batches() -> Iterator[list[Content]]:
            bounds = _CONTENTS_PER_BATCH, lambda pair: len(pair[1].file or b""), _BYTES_PER_BATCH
            for batch in in_batches(read_contents(), *bounds):
                taken.append([digest for digest, _ in batch])
                yield [content for _, content in batch]

        for rows in encode(read_batches()):
            features: dict[str, Vector] = {}
            for digest, row in zip(taken.popleft(), rows, strict=True):
                if np.isfinite(row).all():
                    features[digest] = row
                else:
                    refused.append(digest)
            without = refused.copy()
            refused.clear()
            yield features, without
        if refused:
            yield {}, refused

    def _read(self, encoder: BaseEncoder, item: Item) -> Content | None:
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
