"""Features of items: stored, or computed by the model's own encoder where it is fitted with the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.domain.entities import Content, Features, Item, Matrix
from app.encoders.base import BaseEncoder


def item_features(items: Sequence[Item], encoder: BaseEncoder) -> Features:
    """Return the (n, dim) features of items of one modality, at least one."""
    if encoder.is_fitted_with_model:
        return encoder.encode([Content(text=item.text) for item in items])
    return encoder.from_stored(_stored_features(items))


def fit_encoder(encoder: BaseEncoder, items: Sequence[Item], names: Sequence[str] = ()) -> None:
    """Have an encoder learn from training items, at least one, and from the words of `names`: labels and
    values of facets."""
    if encoder.is_fitted_with_model:
        encoder.learn_names(names)
        encoder.fit([item.text or "" for item in items])
    elif encoder.learns_from_stored:
        encoder.fit_to_stored(_stored_features(items))


def _stored_features(items: Sequence[Item]) -> Matrix:
    return np.stack([item.features for item in items if item.features is not None])
