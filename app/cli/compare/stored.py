"""A set of one's own from the items of a stored collection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.bootstrap import Services
from app.cli.compare.encoding import SetEncoder, encoder_words
from app.cli.compare.learned import CarriedRows, learned_rows
from app.cli.compare.sets import ComparedSet, relevance_of
from app.domain.entities import Collection, Item, Matrix
from app.domain.errors import InvalidFieldError
from app.domain.reports import Supervision
from solver.datasets import PairedFeatures


def load_collection(
    services: Services, name: str, supervision: Supervision, encoder: SetEncoder, seed: int
) -> ComparedSet:
    """Return the pairs of a collection: items of both modalities with the same `pair_id`."""
    # Raises CollectionNotFoundError, and InvalidFieldError (names the option) for no pair, nothing to learn
    # from, or an unknown facet. An item that may not be trained on is for the test, and so is its partner;
    # without any, a fifth of each class is (by the seed). Pairs without a class to learn from are left out.
    # The schema must be current.
    with services.database.read() as work:
        collection = work.collections.get(name)
        items = [change.item for change in work.items.changes_since(collection, 0) if change.item]
        items = services.originals.encodable(work, collection, items)
    pairs = _partners(collection, items)
    if not pairs:
        raise InvalidFieldError(
            "--collection", f"no two items of {name!r} have the same pair_id: nothing to compare"
        )
    learned = learned_rows(_rows_of(pairs), supervision, "--collection", seed)
    pairs = [pairs[row] for row in learned.rows.tolist()]
    sides = [x for x, _ in pairs], [z for _, z in pairs]
    first, second = (
        encoder.encode_items(side, modality.encoder, learned.is_train)
        for side, modality in zip(sides, collection.modalities, strict=True)
    )
    x_ids, z_ids = (tuple(item.id for item in side) for side in sides)
    classes = learned.classes
    return ComparedSet(
        name=name,
        data=PairedFeatures(first, second, classes.names, learned.is_train, x_ids, z_ids),
        features=_description(collection, (first, second), len(items) - 2 * len(pairs)),
        relevance=relevance_of(classes.kind),
        modalities=collection.modality_names,
        annotations=learned.annotations,
        class_name=classes.kind,
    )


def _rows_of(pairs: Sequence[tuple[Item, Item]]) -> CarriedRows:
    is_train = np.asarray([x.train and z.train for x, z in pairs])
    return CarriedRows(
        ([x.labels for x, _ in pairs], [z.labels for _, z in pairs]),
        [x.pair_id or "" for x, _ in pairs],
        ([x.metadata for x, _ in pairs], [z.metadata for _, z in pairs]),
        None if is_train.all() else is_train,
    )


def _partners(collection: Collection, items: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Return items with the same `pair_id`, each item in one pair at most, in the order of their ids."""
    sides: list[dict[str, list[Item]]] = []
    for name in collection.modality_names:
        by_pair: dict[str, list[Item]] = {}
        for item in sorted((item for item in items if item.modality == name), key=lambda item: item.id):
            if item.pair_id is not None:
                by_pair.setdefault(item.pair_id, []).append(item)
        sides.append(by_pair)
    first, second = sides
    return [pair for name in first if name in second for pair in zip(first[name], second[name], strict=False)]


def _description(collection: Collection, features: Sequence[Matrix], n_left_out: int) -> str:
    words = "; ".join(
        f"{modality.name}: {rows.shape[1]}-d {encoder_words(modality.encoder)}"
        for modality, rows in zip(collection.modalities, features, strict=True)
    )
    return f"{words}; {n_left_out} items are in no pair that is used" if n_left_out else words
