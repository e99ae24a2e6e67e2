"""What a training learns from: items of both modalities with all they carry, and which are held out."""
# Items' texts say more than people type, so weights that were chosen for these alone need not suit short
# queries: a retrain lets them count beside the items. They are made of combinations that its items carry,
# where an encoder takes text and knows all words.

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse

from app.domain.entities import Collection, Content, Features, Item, Matrix
from app.domain.errors import not_trainable
from app.domain.reports import Column, LeftOut, Objective, Supervision, TrainingData
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
from app.services.training.requests import class_of
from solver import (
    MIN_CLASS_SIZE,
    USUAL_OBJECTIVE,
    Annotations,
    Facet,
    LabelledPair,
    Queries,
    SupervisionError,
    class_counts,
    hold_out_by_class,
    is_sparse,
    unpredicted_facets,
)

Rows = npt.NDArray[np.intp]
Names = npt.NDArray[np.str_]
Keys = npt.NDArray[np.uint64]
Parts = tuple[list[Rows], list[Rows]]
"""Rows of both modalities of a fitting and of a held-out part."""
_MOST_COMBINATIONS = 64
"""Pairs of one `pair_id`: a picture with its captions, or some views of a product with some texts."""


def pairs_of(x_groups: Names, z_groups: Names) -> Rows:
    """Return which rows have the same `pair_id`, (n_pairs, 2); a row without a `pair_id` has an empty one."""
    # More than 64 pairs of one are thinned to as many as its larger side, each item in some: pairs are
    # bounded by items.
    members = [_rows_by_group(groups) for groups in (x_groups, z_groups)]
    pairs = [np.empty((0, 2), np.intp)]
    for name in sorted(members[0].keys() & members[1].keys()):
        x, z = members[0][name], members[1][name]
        if len(x) * len(z) <= _MOST_COMBINATIONS:
            pairs.append(np.stack([np.repeat(x, len(z)), np.tile(z, len(x))], axis=1))
        else:
            turns = np.arange(max(len(x), len(z)))
            pairs.append(np.stack([x[turns % len(x)], z[turns % len(z)]], axis=1))
    return np.concatenate(pairs)


def _rows_by_group(groups: Names) -> dict[str, Rows]:
    order = np.argsort(groups, kind="stable")
    names, starts = np.unique(groups[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {name: rows for name, rows in zip(names.tolist(), parts, strict=True) if name}


def split_by_class(
    ids: tuple[Names, Names], labels: tuple[Names, Names], holdout: float, max_samples: int, seed: int
) -> Parts:
    """Return a fitting and a held-out part of both modalities, class by class; see `LabelledItems.split`.
    What is held out follows from ids, so that it stays so while a collection grows."""
    classes = _classes(*labels, max_samples, seed)
    x_split, z_split = (
        _split(side, keys_of(names, seed), classes, holdout, max_samples)
        for names, side in zip(ids, labels, strict=True)
    )
    return [x_split[0], z_split[0]], [x_split[1], z_split[1]]


def split_partners(
    names: tuple[Names, Names], labels: tuple[Names, Names], holdout: float, max_samples: int, seed: int
) -> Parts:
    """Return the rows of a fitting and of a held-out part, of both modalities; partners (of one name) are in
    the same one. An item without a label has an empty one."""
    # Groups of partners are ordered by a hash of name and seed within those of the same label and the same
    # modalities, and the first of them are held out. Where this holds nothing out, or leaves too few groups
    # to a label, labels do not count.
    groups, codes = np.unique(np.concatenate(names), return_inverse=True)
    keys = keys_of(groups, seed)
    sides = codes[: len(names[0])], codes[len(names[0]) :]
    modalities = np.zeros(len(keys), np.intp)
    group_labels = np.full(len(keys), "", dtype=np.result_type(*labels))
    for number, (rows, side) in reversed(list(enumerate(zip(sides, labels, strict=True)))):
        modalities[rows] |= 1 << number
        has_label = side != ""
        group_labels[rows[has_label][::-1]] = side[has_label][::-1]
    label_codes = np.unique(group_labels, return_inverse=True)[1]
    share = min(max_samples / max(len(side) for side in sides), 1.0)
    fine = label_codes * 4 + modalities
    choices = [modalities] if 2 * MIN_CLASS_SIZE * len(np.unique(fine)) > max_samples else [fine, modalities]
    for strata in choices:
        members = [
            rows[np.argsort(keys[rows], kind="stable")]
            for rows in (np.flatnonzero(strata == stratum) for stratum in np.unique(strata))
        ]
        n_drawn = [max(int(len(rows) * share), min(len(rows), MIN_CLASS_SIZE)) for rows in members]
        parts = [
            [np.flatnonzero(np.isin(side, drawn)) for side in sides]
            for drawn in hold_out_by_class(members, n_drawn, holdout)
        ]
        if all(len(rows) for part in parts for rows in part):
            break
    return parts[0], parts[1]


def keys_of(names: Names, seed: int) -> Keys:
    """Return a 64-bit hash of each name and the seed, as good as drawn at random."""
    digests = (hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names.tolist())
    return np.fromiter((int.from_bytes(digest[:8]) for digest in digests), np.uint64, len(names))


def _classes(x_labels: Names, z_labels: Names, max_samples: int, seed: int) -> Names:
    """Return the classes to use: all, or as many as can have two items each, shared ones first."""
    classes = np.union1d(x_labels, z_labels)
    if MIN_CLASS_SIZE * len(classes) <= max_samples:
        return classes
    counts = np.minimum(class_counts(x_labels, classes), class_counts(z_labels, classes))
    order = np.lexsort((keys_of(classes, seed), -np.minimum(counts, MIN_CLASS_SIZE)))
    return classes[order[: max_samples // MIN_CLASS_SIZE]]


def _split(labels: Names, keys: Keys, classes: Names, holdout: float, max_samples: int) -> tuple[Rows, Rows]:
    order = np.argsort(keys, kind="stable")
    ordered = labels[order]
    n_all = int(np.isin(labels, classes).sum())
    share = min(max_samples / max(n_all, 1), 1.0)
    by_class = np.argsort(ordered, kind="stable")
    ordered, order = ordered[by_class], order[by_class]
    starts, stops = (np.searchsorted(ordered, classes, side) for side in ("left", "right"))
    members = [order[start:stop] for start, stop in zip(starts, stops, strict=True)]
    n_drawn = [max(int(len(rows) * share), min(len(rows), MIN_CLASS_SIZE)) for rows in members]
    fitting, held_out = hold_out_by_class(members, n_drawn, holdout)
    return fitting, held_out


Values = npt.NDArray[np.object_]
"""A tuple of values for each item."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelledItems(LabelledPair):
    """Training items of both modalities, and what they carry; texts are empty where an item has none."""

    # An item that was held out of the training of one version is held out of the next one's, too, as long as
    # both use the same seed. So two versions can be compared on items that neither was trained on.

    x_ids: Names
    z_ids: Names
    # values of both modalities, "label" among them; empty where items carry nothing but one label each
    facets: Mapping[str, tuple[Values, Values]] = field(default_factory=dict)
    groups: tuple[Names, Names] | None = None  # `pair_id` of the items
    signs: scipy.sparse.csr_array | None = None  # as of `Annotations`
    encoders: tuple[BaseEncoder, BaseEncoder] | None = None  # for queries that are made of the items' facets

    @property
    def has_more_than_labels(self) -> bool:
        """Whether the items carry more than one label each."""
        return bool(self.facets) or self.groups is not None or self.signs is not None

    @property
    def has_texts(self) -> bool:
        """Whether a modality is of texts."""
        return any(encoder.content_form == "text" for encoder in self.encoders or ())

    @property
    def n_further(self) -> tuple[int, int]:
        """How many of the last features of both modalities no encoder has learned."""
        x, z = (encoder.n_further for encoder in self.encoders) if self.encoders else (0, 0)
        return x, z

    @property
    def has_labels(self) -> bool:
        """Whether items of both modalities have a label."""
        return bool((self.x_labels != "").any() and (self.z_labels != "").any())

    @property
    def has_names_of_facets(self) -> bool:
        """Whether some rows are names of values, as of `with_rows`, of other facets than the label."""
        sides = (self.x_ids, self.x_labels), (self.z_ids, self.z_labels)
        return any(bool(((ids == "") & (labels == "")).any()) for ids, labels in sides)

    @property
    def main_label(self) -> str | None:
        """Name of the facet of the labels, if there is one."""
        return LABEL if self.has_labels or LABEL in self.facets else None

    @property
    def default_objective(self) -> Objective:
        """MAP for one facet alone, graded nDCG for pairs alone, and `USUAL_OBJECTIVE` otherwise."""
        if len(self.facets) <= 1 and self.groups is None:
            return "map"
        return dict(USUAL_OBJECTIVE) if self.named_values() else "ndcg"

    def annotations(self) -> Annotations:
        """Return all that the items carry; raises SupervisionError if that is nothing."""
        facets = {name: Facet.of(x.tolist(), z.tolist()) for name, (x, z) in self.named_values().items()}
        none = np.empty((0, 2), np.intp)
        pairs = none if self.groups is None else pairs_of(*self.groups)
        return Annotations((len(self.x_ids), len(self.z_ids)), facets, pairs, self.signs)

    def named_values(self) -> Mapping[str, tuple[Values, Values]]:
        """Return the values of both modalities by facet; of the labels if they are all there is."""
        if self.facets or not self.has_labels:
            return self.facets
        return {LABEL: (_as_values(self.x_labels), _as_values(self.z_labels))}

    def n_values(self) -> dict[str, int]:
        """Return the number of values of each facet."""
        return {
            name: len({value for side in sides for entry in side for value in entry})
            for name, sides in self.named_values().items()
        }

    def with_rows(
        self, side: int, features: Features, meanings: Sequence[Mapping[str, str]]
    ) -> LabelledItems:
        """Return the items with further rows of one modality, each with a value of some facets."""

        def extend(both: tuple[Any, Any], further: Any) -> tuple[Any, Any]:
            stack: Any = scipy.sparse.vstack if is_sparse(further) else np.concatenate
            joined = stack([both[side], further])
            joined = scipy.sparse.csr_array(joined) if is_sparse(joined) else joined
            return (joined, both[1]) if side == 0 else (both[0], joined)

        none = np.full(len(meanings), "", np.str_)
        x, z = extend((self.X, self.Z), features)
        main = np.asarray([meaning.get(LABEL, "") for meaning in meanings], np.str_)
        facets = {
            name: extend(both, as_values([(entry[name],) if name in entry else () for entry in meanings]))
            for name, both in self.facets.items()
        }
        x_ids, z_ids = extend((self.x_ids, self.z_ids), none)
        signs = None
        if self.signs is not None:
            table = scipy.sparse.coo_array(self.signs)
            signs = scipy.sparse.csr_array((table.data, table.coords), shape=(len(x_ids), len(z_ids)))
        return LabelledItems(
            x,
            z,
            *extend((self.x_labels, self.z_labels), main),
            x_ids,
            z_ids,
            facets,
            None if self.groups is None else extend(self.groups, none),
            signs,
            self.encoders,
        )

    def split(
        self, holdout: float, max_samples: int, seed: int, fit_all_others: bool = False
    ) -> tuple[LabelledItems, LabelledItems]:
        """Return a fitting and a held-out part: of each class the share `holdout`, at least one of two items
        or more. Raises SupervisionError if no class of a modality has two items."""
        # The items of each class are ordered by a hash of id and seed, and the first of them are held out. Of
        # more than about `max_samples` items of a modality the same share of each class is used, at least two
        # of each; where that is impossible, whole classes are left out, the same in both modalities. With
        # `fit_all_others` the same items are held out and all others fitted. Partners are in the same part
        # (`split_partners`). Items known by feedback alone are always fitted.
        fitting, held_out = self._parts(holdout, max_samples, seed)
        if min(map(len, held_out)) == 0:
            raise SupervisionError("too few samples of each class to hold a part out for choosing alpha")
        keys = [keys_of(ids, seed) for ids in (self.x_ids, self.z_ids)]
        if fit_all_others:
            fitting = [
                np.setdiff1d(np.arange(len(key)), rows) for key, rows in zip(keys, held_out, strict=True)
            ]
        # The order of the keys says nothing of the class: equal scores are ranked in the order of rows.
        first, second = (
            self.take(
                *(rows[np.argsort(key[rows], kind="stable")] for key, rows in zip(keys, part, strict=True))
            )
            for part in (fitting, held_out)
        )
        return first, second

    def _parts(self, holdout: float, max_samples: int, seed: int) -> Parts:
        """Return the rows of both parts; what no ranking can be judged by is in the first."""
        rows = [np.flatnonzero(side) for side in self._can_be_relevant()]
        labels = self.x_labels[rows[0]], self.z_labels[rows[1]]
        ids = self.x_ids[rows[0]], self.z_ids[rows[1]]
        if self.groups is None:
            parts = split_by_class(ids, labels, holdout, max_samples, seed)
        else:
            x_names, z_names = (
                np.where(groups[side] != "", np.char.add("pair ", groups[side]), np.char.add("item ", names))
                for groups, side, names in zip(self.groups, rows, ids, strict=True)
            )
            parts = split_partners((x_names, z_names), labels, holdout, max_samples, seed)
        fitting, held_out = ([side[part] for side, part in zip(rows, both, strict=True)] for both in parts)
        others = [
            np.setdiff1d(np.arange(n), side)
            for n, side in zip((len(self.x_ids), len(self.z_ids)), rows, strict=True)
        ]
        return [np.concatenate(sides) for sides in zip(fitting, others, strict=True)], held_out

    def without(self, item_ids: Container[str]) -> LabelledItems | None:
        """Return the other items; None when a modality has none."""
        x_rows, z_rows = (
            np.flatnonzero([name not in item_ids for name in ids.tolist()])
            for ids in (self.x_ids, self.z_ids)
        )
        return self.take(x_rows, z_rows) if min(len(x_rows), len(z_rows)) else None

    def take(self, x_rows: Rows, z_rows: Rows) -> LabelledItems:
        """Return some of the items."""
        return LabelledItems(
            self.X[x_rows],
            self.Z[z_rows],
            self.x_labels[x_rows],
            self.z_labels[z_rows],
            self.x_ids[x_rows],
            self.z_ids[z_rows],
            {name: (x[x_rows], z[z_rows]) for name, (x, z) in self.facets.items()},
            None if self.groups is None else (self.groups[0][x_rows], self.groups[1][z_rows]),
            None if self.signs is None else scipy.sparse.csr_array(self.signs[x_rows][:, z_rows]),
            self.encoders,
        )

    def _can_be_relevant(self) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which items have a label, a value of a facet or a partner."""
        sides = []
        for number, labels in enumerate((self.x_labels, self.z_labels)):
            is_known = labels != ""
            for values in self.facets.values():
                is_known = is_known | np.fromiter(map(bool, values[number]), np.bool_, len(labels))
            if self.groups is not None:
                is_known = is_known | (self.groups[number] != "")
            sides.append(is_known)
        return sides[0], sides[1]


def as_values(entries: Sequence[tuple[str, ...]]) -> Values:
    """Return tuples as an array, of which rows can be taken."""
    return np.fromiter(entries, np.object_, len(entries))


def with_labels(pair: LabelledPair) -> LabelledPair:
    """Return the samples that have a label, which methods of one label each learn from, with the features
    that their encoders have learned; raises SupervisionError if a modality has none."""
    if isinstance(pair, LabelledItems) and pair.encoders is not None:
        x, z = (
            encoder.without_further(features)
            for encoder, features in zip(pair.encoders, (pair.X, pair.Z), strict=True)
        )
        pair = LabelledPair(x, z, pair.x_labels, pair.z_labels)
    x_rows, z_rows = (np.flatnonzero(labels != "") for labels in (pair.x_labels, pair.z_labels))
    if (len(x_rows), len(z_rows)) == (len(pair.x_labels), len(pair.z_labels)):
        return pair
    return LabelledPair(pair.X[x_rows], pair.Z[z_rows], pair.x_labels[x_rows], pair.z_labels[z_rows])


def _as_values(labels: Names) -> Values:
    return as_values([(label,) if label else () for label in labels.tolist()])


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
    """Return queries of each modality whose encoder takes text, made of values of the annotations' facets."""
    if data.encoders is None:
        return None, None
    facets = {name: sides for name, sides in data.facets.items() if name in annotations.facets}
    named = frequent_combinations(facets)
    x, z = (_queries(encoder, named, annotations) for encoder in data.encoders)
    return x, z


def with_names(data: LabelledItems) -> LabelledItems:
    """Return items whose text is the name of a label or facet's value, and carry it alone; none held out."""
    # A name that the items' texts express already is left out: most of those most similar to it carry it. The
    # others come several times, so that a fit without one of them still learns the name. Names of a column of
    # chance would only be taken for texts: with 581 random values texts of others were ranked worse.
    facets = data.named_values()
    if data.has_texts and len(facets) > 1:
        unpredicted = _columns_of_chance(data)
        facets = {name: sides for name, sides in facets.items() if name not in unpredicted}
    for side, encoder in enumerate(data.encoders or ()):
        if encoder.content_form == "text":
            named = _frequent_names(facets, side)
            names = [name for name in named if _knows(encoder, Content(text=name))]
            features = encode_names(encoder, [Content(text=name) for name in names])
            if features is not None:
                meanings = [named[name] for name in names]
                rows = [
                    row
                    for row, meaning in enumerate(meanings)
                    if not _is_in_texts(features[[row]], data, side, meaning)
                ]
                n_names = Counter(facet for meaning in meanings for facet in meaning)
                n_missing = Counter(facet for row in rows for facet in meanings[row])
                rare = {facet for facet, count in n_names.items() if 2 * n_missing[facet] > count}
                copies = rows * _FEW_COPIES
                copies += [row for row in rows if rare & meanings[row].keys()] * (_MANY_COPIES - _FEW_COPIES)
                data = data.with_rows(side, features[copies], [meanings[row] for row in copies])
    return data


def _columns_of_chance(data: LabelledItems) -> frozenset[str]:
    drawn = data.take(*(_evenly_spaced_rows(np.arange(len(ids))) for ids in (data.x_ids, data.z_ids)))
    x, z = (
        features[:, : features.shape[1] - n]
        for features, n in zip((drawn.X, drawn.Z), drawn.n_further, strict=True)
    )
    return unpredicted_facets(x, z, drawn.annotations())


def _frequent_names(facets: Mapping[str, tuple[Values, Values]], side: int) -> dict[str, dict[str, str]]:
    """Return the most frequent names on one side, each with the value that it stands for by facet."""
    counts: Counter[tuple[str, str]] = Counter()
    for facet, sides in facets.items():
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
            raise not_trainable(f"no item of modality {name!r} has {traits.names} and may be trained on")
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
        groups = (self._groups(x), self._groups(z)) if self._shared else None
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
        rows, columns = np.asarray(list(sign_of), np.intp).T
        signs: Any = np.asarray(list(sign_of.values()), np.int8), (rows, columns)
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
