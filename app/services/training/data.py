"""What a training learns from: features, labels, facets, pairs and feedback of items, and short queries."""
# Items' texts say more than people type, so weights that were chosen for these alone need not suit short
# queries: a retrain lets them count beside the items. They are made of combinations that its items carry,
# where an encoder takes text and knows all words.

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

from app.domain.entities import Collection, Content, Features, Item, Matrix
from app.domain.errors import ConflictError
from app.domain.reports import Column, LeftOut, Supervision, TrainingData
from app.domain.words import fold
from app.encoders.base import BaseEncoder
from app.services.models.originals import accepts, encode_names, item_features
from app.services.models.placement import (
    LABEL,
    MOST_NAMES,
    count_names,
    facet_name,
    facet_values,
    most_frequent_names,
    names_of,
    telling_names,
)
from app.services.training.facets import Judgements, columns_of
from app.services.training.items import LabelledItems, Names, Values, as_values, pairs_of
from app.services.training.requests import class_of
from solver import Annotations, Queries, is_sparse

_MOST_QUERIES = 500
"""The most frequent combinations: the search of the weights takes as long for them as for as many items."""
_FEW_COPIES, _MANY_COPIES = 3, 10
"""Of a name; of a facet of which the texts hold less than half of the names, few would be outweighed by texts
that say nothing of it."""
_MOST_SIMILAR = 50
_MOST_COUNTED = 5000
"""Items of each modality in which combinations are counted; frequent ones are among these."""

Named = tuple[tuple[str, str], ...]
"""Facets with the value that a query names of each."""


def short_queries(data: LabelledItems, annotations: Annotations) -> tuple[Queries | None, Queries | None]:
    """Return queries of each modality whose encoder takes text, made of nothing but what is learned from."""
    if data.encoders is None:
        return None, None
    named = frequent_combinations(data.facets)
    x, z = (_queries(encoder, named, annotations) for encoder in data.encoders)
    return x, z


def with_names(data: LabelledItems) -> LabelledItems:
    """Return items whose text is the name of a label or facet's value, and carry it alone; none held out."""
    # A name that the items' texts express already is left out: most of those most similar to it carry it. The
    # others come several times, so that a fit without one of them still learns the name.
    for side, encoder in enumerate(data.encoders or ()):
        if encoder.content_form == "text":
            named = _frequent_names(data, side)
            names = [name for name in named if _knows(encoder, Content(text=name))]
            features = encode_names(encoder, [Content(text=name) for name in names])
            if features is not None:
                rows = [
                    row
                    for row, name in enumerate(names)
                    if not _is_in_texts(features[[row]], data, side, named[name])
                ]
                n_names = Counter(facet for name in names for facet in named[name])
                n_missing = Counter(facet for row in rows for facet in named[names[row]])
                is_rare = [
                    any(2 * n_missing[facet] > n_names[facet] for facet in named[names[row]]) for row in rows
                ]
                copies = rows * _FEW_COPIES
                copies += [row for row, rare in zip(rows, is_rare, strict=True) if rare] * (
                    _MANY_COPIES - _FEW_COPIES
                )
                data = data.with_rows(side, features[copies], [named[names[row]] for row in copies])
    return data


def _frequent_names(data: LabelledItems, side: int) -> dict[str, dict[str, str]]:
    """Return the most frequent names on one side, each with the value that it stands for by facet."""
    counts: Counter[tuple[str, str]] = Counter()
    for facet, sides in data.named_values().items():
        others = {value for values in sides[1 - side] for value in values}
        counts.update(
            (value, facet) for values in sides[side] for value in telling_names(values) if value in others
        )
    named: dict[str, dict[str, str]] = {}
    for (name, facet), _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST_NAMES]:
        named.setdefault(name, {})[facet] = name
    return named


def _is_in_texts(features: Features, data: LabelledItems, side: int, meaning: Mapping[str, str]) -> bool:
    """Return whether most of the texts that are most similar to a name carry it."""
    texts = _evenly_spaced_rows(data.Z if side else data.X)
    carries = np.zeros(texts.shape[0], np.bool)
    for facet, value in meaning.items():
        values = _evenly_spaced_rows(data.named_values()[facet][side])
        carries |= np.fromiter((value in entry for entry in values), np.bool, len(values))
    similarities = texts @ features.T
    similarities = (similarities.toarray() if is_sparse(similarities) else similarities).ravel()
    nearest = np.argsort(-similarities, kind="stable")[: min(_MOST_SIMILAR, int(carries.sum()))]
    return bool(np.mean(carries[nearest] & (similarities[nearest] > 0.0)) >= 0.5)


def frequent_combinations(facets: Mapping[str, tuple[Values, Values]]) -> list[Named]:
    """Return the most frequent values, and pairs of values of different facets that stand on one item, of
    evenly spaced items. Values without a letter and truth values say nothing alone: they are left out."""
    counts: Counter[Named] = Counter()
    names = {
        facet: [telling_names(values) for side in sides for values in _evenly_spaced_rows(side)]
        for facet, sides in facets.items()
    }
    for facet, items in names.items():
        counts.update(((facet, value),) for values in items for value in values)
    for (first, items), (second, other_items) in itertools.combinations(names.items(), 2):
        for values, other_values in zip(items, other_items, strict=True):
            counts.update(
                ((first, value), (second, other))
                for value, other in itertools.product(values, other_values)
                if fold(value) != fold(other)
            )
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [named for named, _ in ranked[:_MOST_QUERIES]]


def _evenly_spaced_rows(values: Any) -> Any:
    return values[:: -(-values.shape[0] // _MOST_COUNTED) or 1]


def _queries(encoder: BaseEncoder, named: Sequence[Named], annotations: Annotations) -> Queries | None:
    contents = [Content(text=" ".join(value for _, value in query)) for query in named]
    rows = [number for number, content in enumerate(contents) if _knows(encoder, content)]
    features = encode_names(encoder, [contents[number] for number in rows])
    if features is None:
        return None
    values = {
        facet: [[value for name, value in named[number] if name == facet] for number in rows]
        for facet in annotations.facets
    }
    return Queries.of(features, values, annotations.facets)


def _knows(encoder: BaseEncoder, content: Content) -> bool:
    """Return whether an encoder takes a text, and knows all of its words if it knows words at all."""
    if not accepts(encoder, content):
        return False
    report = encoder.look_up_words(content)
    return report is None or (report.n_known > 0 and not report.unknown)


_USUAL_SHARE, _OUTLYING = 0.9, 1e4
"""Outliers are this many times larger than nine tenths of the vectors: no mix of units explains that."""


def training_data(
    collection: Collection,
    items: Sequence[Item],
    fit_encoders: Callable[[Sequence[str]], Mapping[str, Any]],
    supervision: Supervision,
    judgements: Judgements | None = None,
) -> tuple[LabelledItems, TrainingData]:
    """Return the training items, and what the report of the training says of them.
    Raises ConflictError if a modality has nothing to learn from, or an asked facet does not exist."""
    # An item takes part if it has a label, a value of a facet, a partner, or feedback. Of features that
    # clients bring, a few vectors beyond all proportion would decide the scale of all others: they are not
    # learned from. `fit_encoders` takes the names of labels and values.
    x_side, z_side = (
        sorted((item for item in items if item.modality == name and item.train), key=lambda item: item.id)
        for name in collection.modality_names
    )
    traits = _Traits((x_side, z_side), supervision, judgements or {})
    both = [*x_side, *z_side]
    encoders = fit_encoders(most_frequent_names(count_names(both, names_of(both))))
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
    x_classes, z_classes = (
        {label for label in labels.tolist() if label} for labels in (data.x_labels, data.z_labels)
    )
    return data, TrainingData(
        {x_name: len(data.x_ids), z_name: len(data.z_ids)},
        tuple(sorted(x_classes & z_classes)),
        {x_name: tuple(sorted(x_classes - z_classes)), z_name: tuple(sorted(z_classes - x_classes))},
        digest.hexdigest(),
        LeftOut.of_each(outliers),
        facets=data.n_values(),
        n_pairs=0 if data.groups is None else len(pairs_of(*data.groups)),
        n_signs=0 if data.signs is None else int(data.signs.nnz),
        columns=traits.columns,
    )


class _Traits:
    """What the training items carry, as far as it may be learned from."""

    def __init__(
        self, sides: tuple[Sequence[Item], Sequence[Item]], supervision: Supervision, judgements: Judgements
    ) -> None:
        self._with_labels = supervision.labels
        reasons = columns_of(sides, supervision)
        self.columns = tuple(Column(key, None, reason or "") for key, reason in reasons.items())
        self._keys = {facet_name(key): key for key, reason in reasons.items() if reason is None}
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
            of_x, of_z = (as_values([item.labels for item in side]) for side in chosen)
            facets = {LABEL: (of_x, of_z), **facets}
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
