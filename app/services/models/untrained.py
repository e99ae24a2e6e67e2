"""Version 0: what a collection is searched by before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np

from app.db.session import UnitOfWork
from app.domain.entities import Collection, Features, Item
from app.domain.errors import ConflictError
from app.encoders.base import BaseEncoder
from app.services.models.model_bundles import UNTRAINED, LoadedModel
from app.services.models.originals import Originals, item_features
from app.services.models.placement import fill_galleries, most_frequent_names, words_of
from app.services.storage.pacing import in_batches
from solver import CompositeProjector, untrained_projector

_MOST_ITEMS = 20_000
"""Of a modality: all of them are read and placed when the first search comes."""

_ITEMS_PER_BATCH = 250  # bounds how long a batch holds the interpreter, to some ten milliseconds


def check_size(counts: dict[str, int], collection: Collection) -> str | None:
    """Return why a collection with these numbers of items cannot be searched untrained; None if it may be."""
    if min(counts.get(name, 0) for name in collection.modality_names) == 0:
        return "without a training it takes items of both modalities to search"
    if max(counts.values()) > _MOST_ITEMS:
        return f"without a training, no more than {_MOST_ITEMS} items of a modality are searched"
    return None


def untrained_of(x: Features, z: Features, encoders: Iterable[BaseEncoder]) -> CompositeProjector:
    """Return what ranks items with these features before any training."""
    # Of one length by chance are those that are made of what a collection's items say.
    is_fitted = any(encoder.is_fitted_with_model for encoder in encoders)
    return untrained_projector(x, z, shares_space=x.shape[1] == z.shape[1] and not is_fitted)


def make_untrained(
    originals: Originals, work: UnitOfWork, collection: Collection, pause: Callable[[], None]
) -> LoadedModel:
    """Return a model of all items that learned nothing but words. Raises ConflictError where no query of one
    modality finds anything of the other."""
    items: list[Item] = []
    for batch in in_batches(work.items.changes_since(collection, 0), _ITEMS_PER_BATCH):
        items += [change.item for change in batch if change.item is not None]
        pause()
    items = originals.encodable(work, collection, items)
    names = most_frequent_names(Counter(word for item in items for word in words_of(item)))
    sides = [[item for item in items if item.modality == name] for name in collection.modality_names]
    if not all(sides):
        raise ConflictError("training-data", "its items have nothing that its encoders take")
    encoders = originals.fit_encoders(collection, items, names)
    pause()
    x, z = (item_features(side[:1], encoders[side[0].modality]) for side in sides)
    model = LoadedModel(
        UNTRAINED,
        collection.revision,
        untrained_of(x, z, encoders.values()),
        encoders,
        collection.modalities,
        {},
        originals=originals,
    )
    model, projected = fill_galleries(model, items, pause)
    largest = {name: np.abs(rows).max(axis=0, initial=0.0) for name, rows in projected.items()}
    placed = [np.abs(model.galleries[name][1]).max(axis=0, initial=0.0) for name in reversed(projected)]
    if not any((one * other).any() for one, other in zip(largest.values(), placed, strict=True)):
        first, second = collection.modality_names
        raise ConflictError(
            "training-data",
            f"without a training nothing connects {first!r} and {second!r}: that takes items with the "
            "same pair_id, a text encoder and labels or values to name, or vectors of the same space",
        )
    return model
