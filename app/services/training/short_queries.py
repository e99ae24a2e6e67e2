"""Short queries that people may type: two values of an item's facets, such as "red handbags"."""
# Items' texts say more than people type, so weights that were chosen for these alone need not suit short
# queries: a retrain lets them count beside the items. They are made of combinations that its items carry,
# where an encoder takes text and knows all words.

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from app.domain.entities import Content, Features
from app.domain.errors import ContentTooLargeError, EncoderUnavailableError, InvalidFieldError
from app.domain.words import fold
from app.encoders.base import BaseEncoder
from app.services.training.items import LabelledItems, Values
from solver import Annotations, Queries, is_finite, is_sparse

_MOST_QUERIES = 500
"""The most frequent combinations: the search of the weights takes as long for them as for as many items."""
MOST_NAMES = 1000
"""Names that are learned as words, and as texts of their own, the most frequent ones."""
_FEW_COPIES, _MANY_COPIES = 3, 10
"""Of a name; of a facet of which the texts hold less than half of the names, few would be outweighed by texts
that say nothing of it."""
_MOST_SIMILAR = 50
_MOST_COUNTED = 5000
"""Items of each modality in which combinations are counted; frequent ones are among these."""
_TRUTH_VALUES = frozenset({"true", "false"})  # values that name nothing without their facet, like numbers
_logger = logging.getLogger(__name__)

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
            features = _encode(encoder, [Content(text=name) for name in names])
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
    """Return the most frequent pairs of values of different facets that stand on one item; of many, evenly
    spaced ones count. Values without a letter and truth values are left out: alone they say nothing."""
    counts: Counter[Named] = Counter()
    names = {
        facet: [telling_names(values) for side in sides for values in _evenly_spaced_rows(side)]
        for facet, sides in facets.items()
    }
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


def telling_names(values: Iterable[str]) -> list[str]:
    """Return the values that say something alone: no numbers, and neither true nor false."""
    return [
        value for value in values if any(map(str.isalpha, value)) and value.casefold() not in _TRUTH_VALUES
    ]


def _queries(encoder: BaseEncoder, named: Sequence[Named], annotations: Annotations) -> Queries | None:
    contents = [Content(text=" ".join(value for _, value in query)) for query in named]
    rows = [number for number, content in enumerate(contents) if _knows(encoder, content)]
    features = _encode(encoder, [contents[number] for number in rows])
    if features is None:
        return None
    values = {
        facet: [[value for name, value in named[number] if name == facet] for number in rows]
        for facet in annotations.facets
    }
    return Queries.of(features, values, annotations.facets)


def _knows(encoder: BaseEncoder, content: Content) -> bool:
    """Return whether an encoder takes a text, and knows all of its words if it knows words at all."""
    try:
        encoder.check("text", content)
    except (InvalidFieldError, ContentTooLargeError):
        return False
    report = encoder.look_up_words(content)
    return report is None or (report.n_known > 0 and not report.unknown)


def _encode(encoder: BaseEncoder, contents: Sequence[Content]) -> Features | None:
    if not contents:
        return None
    try:
        features = encoder.encode(contents)
    except EncoderUnavailableError as error:
        # Items that were encoded before are trained on without their encoder, too.
        _logger.warning("short queries are left out of the training: %s", error)
        return None
    if not is_finite(features):
        _logger.warning("short queries are left out of the training: their features are not finite")
        return None
    return features
