"""Features of items: stored, or computed by the model's own encoder where it is fitted with the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.domain.entities import Content, Features, Item, Matrix
from app.domain.ports import Encoder, StatefulEncoder


def item_features(items: Sequence[Item], encoder: Encoder) -> Features:
    """Return the (n, dim) features of items of one modality.

    Parameters
    ----------
    items : sequence of Item
        At least one.
    encoder : Encoder
        Of their modality, as a model has it.
    """
    if encoder.is_fitted_with_model:
        return encoder.encode([Content(text=item.text) for item in items])
    return encoder.from_stored(_stored_features(items))


def fit_encoder(encoder: StatefulEncoder, items: Sequence[Item]) -> None:
    """Have an encoder learn from training items, at least one, what it learns.

    Parameters
    ----------
    encoder : StatefulEncoder
        Of their modality.
    items : sequence of Item
        What may be learned from.
    """
    if encoder.is_fitted_with_model:
        encoder.fit([item.text or "" for item in items])
    elif encoder.learns_from_stored:
        encoder.fit_to_stored(_stored_features(items))


def _stored_features(items: Sequence[Item]) -> Matrix:
    return np.stack([item.features for item in items if item.features is not None])
