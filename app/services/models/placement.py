"""Where items stand in galleries: by their content, the labels and values they carry, and their partners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import numpy as np

from app.db.session import UnitOfWork
from app.domain.entities import MOST_PARTNERS, Collection, Item, Matrix, Vector
from app.services.models.model_bundles import LoadedModel
from app.services.models.originals import item_features
from solver import can_be_ranked

LABEL = "label"
"""Name of the facet of the items' labels."""
_LONGEST_VALUE = 100  # longer texts are descriptions
_ITEMS_AT_ONCE = 2000  # their features have to fit into memory beside the model
_Values = Mapping[str, tuple[str, ...]]
"""What items carry, by facet."""


def facet_values(metadata: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return an item's values of a facet; none where they are unknown or not categorical."""
    values = [categorical(value) for value in entries_of(metadata.get(key))]
    return tuple(dict.fromkeys(value for value in values if value is not None))


def facet_name(key: str) -> str:
    """Return the name of the facet of a metadata key."""
    return f"metadata.{key}" if key == LABEL else key


def entries_of(value: Any) -> list[Any]:
    """Return a metadata value as a list; none where it is null or empty."""
    values = value if isinstance(value, list) else [value]
    return [entry for entry in values if entry is not None and entry != ""]


def categorical(value: Any) -> str | None:
    """Return a metadata value as the name of one; None where it is not categorical."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return normalize("NFC", value) if len(value) <= _LONGEST_VALUE else None
    if isinstance(value, float):
        return str(int(value) if value.is_integer() else value)
    return str(value) if isinstance(value, int) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """Items of one modality with the projections of their content."""

    items: Sequence[Item]
    projected: Matrix  # (n_items, rank), finite

    def by_pair(self) -> dict[str, list[int]]:
        """Return the rows of each pair."""
        rows: dict[str, list[int]] = {}
        for row, item in enumerate(self.items):
            if item.pair_id is not None:
                rows.setdefault(item.pair_id, []).append(row)
        return rows


def project_items(
    model: LoadedModel, modality: str, items: Sequence[Item]
) -> tuple[list[Item], Matrix, list[Item]]:
    """Return the items that can be ranked, the (n, rank) projections of their content, and the others."""
    ranked: list[Item] = []
    others: list[Item] = []
    parts = [np.zeros((0, model.projector.rank), np.float32)]
    encoder = model.encoders[modality]
    if not encoder.is_fitted_with_model and encoder.content_form != "vector":  # which has no other original
        others += [item for item in items if item.features is None]
        items = [item for item in items if item.features is not None]
    for start in range(0, len(items), _ITEMS_AT_ONCE):
        batch = items[start : start + _ITEMS_AT_ONCE]
        projected = model.project(modality, item_features(batch, encoder))
        accepted = can_be_ranked(projected)
        parts.append(projected[accepted])
        for item, can_be in zip(batch, accepted.tolist(), strict=True):
            (ranked if can_be else others).append(item)
    return ranked, np.concatenate(parts), others


def place_items(model: LoadedModel, sides: Mapping[str, tuple[Sequence[Item], Matrix]]) -> dict[str, Matrix]:
    """Return the vectors in both galleries of items with the projections of their content; partners are
    among them."""
    both = [_Side(*sides[name]) for name in model.modality_names]
    pairs = [side.by_pair() for side in both]
    shared = [
        pair_id
        for pair_id in pairs[0].keys() & pairs[1].keys()
        if max(len(rows[pair_id]) for rows in pairs) <= MOST_PARTNERS
    ]
    placed = {}
    for number, name in enumerate(model.modality_names):
        own, other = both[number], both[1 - number]
        partners: dict[str, tuple[Vector, _Values]] = {}
        if model.projector.uses_partners:
            for pair_id in shared:
                rows = pairs[1 - number][pair_id]
                values = _values_of_all(model, [other.items[row] for row in rows])
                partners[pair_id] = other.projected[rows].mean(axis=0, dtype=np.float64), values
        placed[name] = _place_side(model, number, own, partners)
    return placed


def place_changed(
    model: LoadedModel, work: UnitOfWork, collection: Collection, items: Sequence[Item]
) -> dict[str, tuple[list[Item], Matrix, list[Item]]]:
    """Return by modality those of some items that can be ranked, their vectors in galleries, and the others;
    their partners are read."""
    pair_ids = {item.pair_id for item in items if item.pair_id is not None}
    members = work.items.of_pairs(collection, pair_ids) if pair_ids and model.projector.uses_partners else []
    changed_ids = {item.id for item in items}
    everything = [*items, *(item for item in members if item.id not in changed_ids)]
    sides: dict[str, tuple[list[Item], Matrix, list[Item]]] = {}
    for name in model.modality_names:
        side = [item for item in everything if item.modality == name]
        sides[name] = project_items(model, name, model.with_features(work, collection, name, side))
    placed = place_items(model, {name: side[:2] for name, side in sides.items()})
    chosen = {}
    for name, (ranked, _, others) in sides.items():
        rows = [row for row, item in enumerate(ranked) if item.id in changed_ids]
        chosen[name] = (
            [ranked[row] for row in rows],
            placed[name][rows],
            [item for item in others if item.id in changed_ids],
        )
    return chosen


def _place_side(
    model: LoadedModel, number: int, side: _Side, partners: Mapping[str, tuple[Vector, _Values]]
) -> Matrix:
    """Return the vectors of the first modality (0) or the second; what an item does not carry itself its
    partners may, by pair."""
    place = (model.projector.place_x, model.projector.place_z)[number]
    parts = [side.projected[:0]]
    for start in range(0, len(side.items), _ITEMS_AT_ONCE):
        items = side.items[start : start + _ITEMS_AT_ONCE]
        projected = side.projected[start : start + _ITEMS_AT_ONCE]
        means = np.full_like(projected, np.nan)
        values: dict[str, list[tuple[str, ...]]] = {facet: [] for facet in model.projector.facets}
        for row, item in enumerate(items):
            mean, of_partners = partners.get(item.pair_id or "", (None, {}))
            if mean is not None:
                means[row] = mean
            for facet, entries in values.items():
                entries.append(_values(item, facet) or of_partners.get(facet, ()))
        parts.append(place(projected, means, values))
    return np.concatenate(parts)


def _values_of_all(model: LoadedModel, items: Iterable[Item]) -> _Values:
    items = list(items)
    return {
        facet: tuple(dict.fromkeys(value for item in items for value in _values(item, facet)))
        for facet in model.projector.facets
    }


def _values(item: Item, facet: str) -> tuple[str, ...]:
    """Return what an item carries of a facet of `facet_name`."""
    if facet == LABEL:
        return item.labels
    return facet_values(item.metadata, LABEL if facet == facet_name(LABEL) else facet)
