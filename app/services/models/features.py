"""Features of items: stored, or computed by the model's own encoder where it is fitted with the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.domain.entities import Content, Features, Item
from app.domain.ports import Encoder


def item_features(items: Sequence[Item], encoder: Encoder) -> Features:
    """Return the (n, dim) features of items of one modality.

    Parameters
    ----------
    items : sequence of Item
        At least one.
    encoder : Encoder
        Of their modality; used only if it is fitted with the model.
    """
    if encoder.is_fitted_with_model:
        return encoder.encode([Content(text=item.text) for item in items])
    return np.stack([item.features for item in items if item.features is not None])
