"""What a training learns from: features, labels, facets, pairs and feedback of the items of a collection."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from app.domain.entities import Collection, Item, Matrix
from app.domain.errors import ConflictError
from app.domain.reports import Supervision
from app.services.models.originals import item_features
from app.services.training.eligibility import class_of
from app.services.training.facets import LABEL, facet_keys, facet_values
from app.services.training.holdout import Names
from app.services.training.items import LabelledItems, Values, as_values
from app.services.training.judgements import Judgements
from app.services.training.short_queries import MOST_NAMES, telling_names
from solver import is_sparse

_USUAL_SHARE, _OUTLYING = 0.9, 1e4
"""Outliers are this many times larger than nine tenths of the vectors: no mix of units explains that."""


def training_data(
    collection: Collection,
    items: Sequence[Item],
    fit_encoders: Callable[[Sequence[str]], Mapping[str, Any]],
    supervision: Supervision,
    judgements: Judgements | None = None,
) -> tuple[LabelledItems, str, dict[str, list[str]]]:
    """Return the training items, a hash of all that was learned from, and the ids of outliers by modality.
    Raises ConflictError if a modality has nothing to learn from, or an asked facet does not exist."""
    # An item takes part if it has a label, a value of a facet, a partner, or feedback. Of features that
    # clients bring, a few vectors beyond all proportion would decide the scale of all others: they are not
    # learned from. `fit_encoders` takes the names of labels and values of facets.
    x_side, z_side = (
        sorted((item for item in items if item.modality == name and item.train), key=lambda item: item.id)
        for name in collection.modality_names
    )
    traits = _Traits((x_side, z_side), supervision, judgements or {})
    encoders = fit_encoders(traits.list_names((x_side, z_side)))
    features, chosen = [], []
    digest = hashlib.sha256()
    outliers: dict[str, list[str]] = {}
    for name, side in zip(collection.modality_names, (x_side, z_side), strict=True):
        learned = [item for item in side if traits.teaches(item)]
        if not learned:
            raise ConflictError(
                "training-data", f"no item of modality {name!r} has {traits.names} and may be trained on"
            )
        rows = item_features(learned, encoders[name])
        # Rows that an encoder made are of one scale.
        is_outlier = np.zeros(len(learned), np.bool) if is_sparse(rows) else _are_outliers(rows)
        if is_outlier.any():
            outliers[name] = [item.id for item, far in zip(learned, is_outlier, strict=True) if far]
            learned = [item for item, far in zip(learned, is_outlier, strict=True) if not far]
            rows = rows[~is_outlier]
        features.append(rows)
        chosen.append(learned)
        for part in (rows.indptr, rows.indices, rows.data) if is_sparse(rows) else (rows,):
            digest.update(part.tobytes())
        digest.update("\x00".join(traits.label(item) for item in learned).encode())
    x_name, z_name = collection.modality_names
    data = replace(
        traits.attach((features[0], features[1]), (chosen[0], chosen[1])),
        encoders=(encoders[x_name], encoders[z_name]),
    )
    if data.has_more_than_labels:
        digest.update(_text_of(data).encode())
    return data, digest.hexdigest(), outliers


class _Traits:
    """What the training items carry, as far as it may be learned from."""

    def __init__(
        self, sides: tuple[Sequence[Item], Sequence[Item]], supervision: Supervision, judgements: Judgements
    ) -> None:
        self._with_labels = supervision.labels
        self._keys = facet_keys(sides, supervision)
        pair_ids = [{item.pair_id for item in side} - {None} for side in sides]
        self._shared = pair_ids[0] & pair_ids[1] if supervision.pairs else set()
        ids = [{item.id for item in side} for side in sides]
        self._judgements = {
            pair: sign for pair, sign in judgements.items() if pair[0] in ids[0] and pair[1] in ids[1]
        }
        self._judged = {item_id for pair in self._judgements for item_id in pair}
        self._has_sets = self._with_labels and any(len(item.labels) > 1 for side in sides for item in side)

    @property
    def names(self) -> str:
        """What an item needs one of, in words."""
        names = {
            "a label": self._with_labels,
            "a facet": self._keys,
            "a partner": self._shared,
            "feedback": self._judgements,
        }
        return " or ".join(name for name, exists in names.items() if exists) or "anything to learn from"

    def teaches(self, item: Item) -> bool:
        """Return whether an item carries anything."""
        return bool(
            (self._with_labels and item.labels)
            or item.pair_id in self._shared
            or item.id in self._judged
            or any(facet_values(item.metadata, key) for key in self._keys.values())
        )

    def list_names(self, sides: tuple[Sequence[Item], Sequence[Item]]) -> list[str]:
        """Return the names of labels and values of facets, the most frequent first."""
        counts: Counter[str] = Counter()
        for item in itertools.chain(*sides):
            if self._with_labels:
                counts.update(item.labels)
            for key in self._keys.values():
                counts.update(facet_values(item.metadata, key))
        ranked = sorted(telling_names(counts), key=lambda name: (-counts[name], name))
        return ranked[:MOST_NAMES]

    def label(self, item: Item) -> str:
        """Return the class of an item; empty if it has none."""
        return class_of(item.labels) if self._with_labels and item.labels else ""

    def attach(
        self, features: tuple[Any, Any], chosen: tuple[Sequence[Item], Sequence[Item]]
    ) -> LabelledItems:
        """Return the items with their features and all that they carry."""
        x, z = chosen
        labels = [np.asarray([self.label(item) for item in side], dtype=np.str_) for side in chosen]
        ids = [np.asarray([item.id for item in side], dtype=np.str_) for side in chosen]
        facets = {name: (_values(x, key), _values(z, key)) for name, key in self._keys.items()}
        if any((side != "").any() for side in labels) and (
            facets or self._has_sets or self._shared or self._judgements
        ):
            facets = {LABEL: (_labels(x), _labels(z)), **facets}
        groups = None
        if self._shared:
            groups = self._groups(x), self._groups(z)
        return LabelledItems(
            *features, labels[0], labels[1], ids[0], ids[1], facets, groups, self._signs(ids[0], ids[1])
        )

    def _groups(self, items: Sequence[Item]) -> Names:
        return np.asarray(
            [item.pair_id if item.pair_id in self._shared else "" for item in items], dtype=np.str_
        )

    def _signs(self, x_ids: Names, z_ids: Names) -> scipy.sparse.csr_array | None:
        places = [{name: row for row, name in enumerate(ids.tolist())} for ids in (x_ids, z_ids)]
        sign_of = {
            (places[0][x], places[1][z]): sign
            for (x, z), sign in self._judgements.items()
            if x in places[0] and z in places[1]
        }
        if not sign_of:
            return None
        places_of_pairs = np.asarray(list(sign_of), np.intp)
        signs: Any = (
            np.asarray(list(sign_of.values()), np.int8),
            (places_of_pairs[:, 0], places_of_pairs[:, 1]),
        )
        return scipy.sparse.csr_array(signs, shape=(len(x_ids), len(z_ids)))


def _labels(items: Sequence[Item]) -> Values:
    return as_values([item.labels for item in items])


def _values(items: Sequence[Item], key: str) -> Values:
    return as_values([facet_values(item.metadata, key) for item in items])


def _text_of(data: LabelledItems) -> str:
    """Return everything but features and first labels as text."""
    facets = {name: [side.tolist() for side in sides] for name, sides in sorted(data.facets.items())}
    groups = None if data.groups is None else [side.tolist() for side in data.groups]
    signs = (
        None if data.signs is None else [part.tolist() for part in (*data.signs.nonzero(), data.signs.data)]
    )
    return repr((facets, groups, signs))


def _are_outliers(features: Matrix) -> npt.NDArray[np.bool]:
    """Return which rows are larger than nine tenths of the others by more than any unit would explain."""
    sizes = np.abs(features).max(axis=1).astype(np.float64)
    usual = float(np.quantile(sizes, _USUAL_SHARE, method="lower"))
    return sizes > _OUTLYING * usual if usual > 0.0 else np.zeros(len(sizes), np.bool)
