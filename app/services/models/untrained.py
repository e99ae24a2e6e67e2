"""Version 0: what a collection is searched by before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from app.db.session import UnitOfWork
from app.domain.entities import Collection, Features, Item, Matrix
from app.domain.errors import ConflictError
from app.encoders.base import BaseEncoder
from app.services.models.model_bundles import UNTRAINED, LoadedModel
from app.services.models.originals import Originals, item_features
from app.services.models.placement import (
    count_names,
    fill_galleries,
    find_pairs,
    most_frequent_names,
    names_of,
)
from app.services.storage.pacing import in_batches
from solver import CompositeProjector, Projector, is_sparse, untrained_projector

_MOST_ITEMS = 20_000
"""Of a modality: all of them are read and placed when the first search comes."""

_ITEMS_PER_BATCH = 250  # bounds how long a batch holds the interpreter, to some ten milliseconds
_CHARACTERS_AT_ONCE = 200_000  # of texts that are learned from in a fifth of a second
_FEWEST_TESTED, _MOST_TESTED = 20, 500  # pairs by which vectors of one length are seen to be of one space
_LEAST_FARTHER = 0.75  # mean share of the other pairs' vectors that are farther away than a partner then
NO_ITEMS = "without a training it takes items of both modalities to find one by the other"
NOT_CONNECTED = (
    "without a training nothing connects {!r} and {!r}: that takes items with the same pair_id, a text "
    "encoder and labels or values to name, or vectors of the same space"
)


def check_size(counts: dict[str, int], collection: Collection) -> str | None:
    """Return why a collection with these numbers of items cannot be searched untrained; None if it may be."""
    if not any(counts.values()):
        return NO_ITEMS
    if max(counts.values()) > _MOST_ITEMS:
        return f"without a training, no more than {_MOST_ITEMS} items of a modality are searched"
    return None


def share_space(x: Features, z: Features, encoders: Iterable[BaseEncoder]) -> bool | None:
    """Return whether features of both modalities are of one space, from those of partners, row by row; None
    where nothing but their length says so: there are too few pairs."""
    # Of one length by chance are those that are made of what a collection's items say, as sparse ones are.
    is_made = is_sparse(x) or is_sparse(z) or any(encoder.is_fitted_with_model for encoder in encoders)
    if x.shape[1] != z.shape[1] or is_made:
        return False
    first, second = (np.asarray(rows[:: len(rows) // _MOST_TESTED + 1], np.float64) for rows in (x, z))
    is_same = (first == second).all(axis=1)
    if len(first) < _FEWEST_TESTED:
        return True if len(first) and is_same.all() else None
    cosines = (first @ second.T) / np.maximum(np.linalg.norm(second, axis=1), np.finfo(np.float64).tiny)
    own = np.diagonal(cosines)[:, None]
    # Without a common space about half are farther away than the partner: .54 of Wikipedia's articles, whose
    # texts and pictures are of the same classes; with one, but three times as much noise, .98.
    farther = ((cosines < own).sum(axis=1) + ((cosines == own).sum(axis=1) - 1) / 2) / (len(own) - 1)
    return bool(np.where(is_same, 1.0, farther).mean() > _LEAST_FARTHER)


def make_untrained(
    originals: Originals, work: UnitOfWork, collection: Collection, pause: Callable[[], None]
) -> LoadedModel:
    """Return a model of all items that learned nothing but words; raises ConflictError if they have none."""
    items: list[Item] = []
    for batch in in_batches(work.items.changes_since(collection, 0), _ITEMS_PER_BATCH):
        items += [change.item for change in batch if change.item is not None]
        pause()
    items = originals.encodable(work, collection, items)
    names = names_of(items)
    words = count_names(items, names)
    sides = [[item for item in items if item.modality == name] for name in collection.modality_names]
    if not any(sides):
        raise ConflictError("training-data", "its items have nothing that its encoders take")
    empty = next((name for name, side in zip(collection.modality_names, sides, strict=True) if not side), "")
    encoders = originals.fit_encoders(collection, items, most_frequent_names(words), pause)
    pause()
    by_pair = [{item.pair_id: item for item in side} for side in sides]
    pair_ids = sorted(find_pairs(collection.modality_names, items))
    pair_ids = pair_ids[:: len(pair_ids) // _MOST_TESTED + 1]
    x, z = (
        item_features([of[pair_id] for pair_id in pair_ids] or side[:1], encoders[side[0].modality])
        if side
        else np.zeros((0, 1), np.float32)
        for of, side in zip(by_pair, sides, strict=True)
    )
    shares = not empty and share_space(x, z, encoders.values())
    n_characters = sum(len(item.text or "") for item in items)
    n_characters += sum(len(word) * count for word, count in words.items())
    model = LoadedModel(
        UNTRAINED,
        collection.revision,
        untrained_projector(x, z, shares_space=shares is not False),
        encoders,
        collection.modalities,
        {},
        originals=originals,
        names=names,
        is_slow=n_characters > _CHARACTERS_AT_ONCE or not originals.learns_quickly(collection),
        assumes_space=shares is None,
        empty=empty,
    )
    return fill_galleries(model, items, pause)[0]


def connects(projector: Projector, placed: Iterable[Matrix]) -> bool:
    """Return whether content of one modality can find items of the other untrained, where these stand: the
    first modality's, and the second's."""
    assert isinstance(projector, CompositeProjector)
    for side, rows in zip((projector.z, projector.x), placed, strict=True):
        finds = [head.is_own or head.kind == "cosine" for head in side.heads]
        if rows[:, np.repeat(finds, side.widths)].any():
            return True
    return False
