"""A set of one's own from the items of a stored collection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.bootstrap import Services
from app.cli.compare.encoding import SetEncoder
from app.cli.compare.facets import facets_of
from app.cli.compare.sets import ComparedSet
from app.domain.entities import Collection, Item, Matrix
from app.domain.errors import InvalidFieldError
from app.services.training.eligibility import class_of
from solver.datasets import LABEL, PairedFeatures, annotate_rows, draw_split


def load_collection(
    services: Services, name: str, facets: Sequence[str] | None, encoder: SetEncoder, seed: int
) -> ComparedSet:
    """Return the pairs of a collection: items of both modalities with the same `pair_id`.

    An item that may not be trained on is for the test, and so is its partner; without any, a fifth of each
    class is.

    Parameters
    ----------
    services : Services
        Built by `app.bootstrap.build`; the schema must be current.
    name : str
        Collection.
    facets : sequence of str, optional
        Metadata keys that are facets; those that put items together when left out.
    encoder : SetEncoder
        Encodes what is encoded with the model.
    seed : int
        Of the split, where the items have none.

    Raises
    ------
    CollectionNotFoundError
        If there is no such collection.
    InvalidFieldError
        If no pair has a label, or a facet does not exist; names the option.
    """
    with services.database.read() as work:
        collection = work.collections.get(name)
        items = [change.item for change in work.items.changes_since(collection, 0) if change.item]
    pairs = [(x, z) for x, z in _partners(collection, items) if x.labels or z.labels]
    if not pairs:
        raise InvalidFieldError(
            "--collection", f"no two items of {name!r} have the same pair_id and a label: nothing to compare"
        )
    labels = np.asarray([class_of(x.labels or z.labels) for x, z in pairs], np.str_)
    partners = [x.pair_id or "" for x, _ in pairs]
    is_train = np.asarray([x.train and z.train for x, z in pairs])
    if is_train.all():
        is_train = draw_split(labels, partners, seed)
    sides = [x for x, _ in pairs], [z for _, z in pairs]
    metadata = [item.metadata for item in sides[0]], [item.metadata for item in sides[1]]
    values = [item.labels for item in sides[0]], [item.labels for item in sides[1]]
    first, second = (
        encoder.encode_items(side, modality.encoder, is_train)
        for side, modality in zip(sides, collection.modalities, strict=True)
    )
    x_ids, z_ids = (tuple(item.id for item in side) for side in sides)
    return ComparedSet(
        name=name,
        data=PairedFeatures(first, second, labels, is_train, x_ids, z_ids),
        features=_description(collection, (first, second), len(items) - 2 * len(pairs)),
        relevance="same label",
        modalities=collection.modality_names,
        annotations=annotate_rows(
            {LABEL: values, **facets_of(metadata, is_train.tolist(), facets)}, partners
        ),
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
        f"{modality.name}: {rows.shape[1]}-d {modality.encoder['type']}"
        for modality, rows in zip(collection.modalities, features, strict=True)
    )
    return f"{words}; {n_left_out} items are in no pair with a label" if n_left_out else words
