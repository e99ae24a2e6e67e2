"""Features of the contents of one's own data; what an encoder learns, it learns from training rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from app.cli.compare.cache import FileCache
from app.domain.entities import Content, Item, Matrix
from app.domain.errors import InvalidFieldError
from app.encoders.registry import EncoderRegistry
from app.services.models.originals import fit_encoder, item_features
from solver import is_sparse

IsTrain = npt.NDArray[np.bool]


class SetEncoder:
    """Encodes pictures and texts; features that do not depend on the training rows are cached."""

    def __init__(self, encoders: EncoderRegistry, cache: FileCache) -> None:
        self._encoders, self._cache = encoders, cache

    def encode(
        self, contents: Sequence[Content], encoder: Mapping[str, Any], option: str, is_train: IsTrain
    ) -> Matrix:
        """Return features of contents, at least one. Raises InvalidFieldError, which names the option of the
        command line, if there is no such encoder, or it takes other contents."""
        options, made = make_encoder(self._encoders, encoder, option, contents[0])
        if made.is_fitted_with_model:
            made.fit(
                [content.text for content, is_fitted in zip(contents, is_train, strict=True) if is_fitted]
            )
            return _dense(made.encode(contents))
        digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
        for content in contents:
            raw = content.file if content.file is not None else (content.text or "").encode()
            digest.update(hashlib.sha256(raw).digest())
        stored = self._cache.get_or_compute(
            digest.hexdigest(), lambda: _dense(made.encode_to_store(contents))
        )
        if made.learns_from_stored:
            made.fit_to_stored(stored[is_train])
        return _dense(made.from_stored(stored))

    def encode_items(self, items: Sequence[Item], options: Mapping[str, Any], is_train: IsTrain) -> Matrix:
        """Return the stored features of items, or those of an encoder fitted to their training texts."""
        made: Any = self._encoders.make(options)
        fit_encoder(made, [item for item, is_fitted in zip(items, is_train, strict=True) if is_fitted])
        return _dense(item_features(items, made))


def make_encoder(
    encoders: EncoderRegistry, encoder: Mapping[str, Any], option: str, first: Content
) -> tuple[dict[str, Any], Any]:
    """Return the options of an encoder with those that its making settles, and the encoder, for the first of
    the contents. Raises as `SetEncoder.encode` does."""
    try:
        options = encoders.settle(encoder)
        made = encoders.make(options)
        made.check("content", first)
    except InvalidFieldError as error:
        raise InvalidFieldError(option, str(error)) from error
    return options, made


def encoder_words(options: Mapping[str, Any]) -> str:
    """Return the type of an encoder, or those of its parts: ``hog-color+onnx``."""
    return "+".join(str(part.get("type")) for part in options.get("parts", [options]))


def _dense(features: Any) -> Matrix:
    matrix: Matrix = features.toarray() if is_sparse(features) else features
    return matrix
