"""Short queries that people may type: two values of an item's facets, such as "red handbags".

Items' texts say more than people type, so weights that were chosen for these alone need not suit short
queries: a retrain lets them count beside the items. They are made of combinations that its items carry, where
an encoder takes text and knows all words.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from app.domain.entities import Content, Features
from app.domain.errors import (
    ContentTooLargeError,
    EncoderUnavailableError,
    InvalidFieldError,
    WrongContentError,
)
from app.domain.ports import Encoder
from app.services.training.items import LabelledItems, Values
from solver import Annotations, Queries, is_finite

_MOST_QUERIES = 500
"""The most frequent combinations: the search of the weights takes as long for them as for as many items."""
_MOST_COUNTED = 5000
"""Items of each modality in which combinations are counted; frequent ones are among these."""
_TRUTH_VALUES = frozenset({"true", "false"})
"""Values that name nothing without their facet, like numbers."""
_logger = logging.getLogger(__name__)

Named = tuple[tuple[str, str], ...]
"""Facets with the value that a query names of each."""


def short_queries(data: LabelledItems, annotations: Annotations) -> tuple[Queries | None, Queries | None]:
    """Return queries of each modality whose encoder takes text.

    Parameters
    ----------
    data : LabelledItems
        Items that are learned from; nothing of others is used.
    annotations : Annotations
        What these carry.
    """
    if data.encoders is None:
        return None, None
    named = frequent_combinations(data.facets)
    x, z = (_queries(encoder, named, annotations) for encoder in data.encoders)
    return x, z


def frequent_combinations(facets: Mapping[str, tuple[Values, Values]]) -> list[Named]:
    """Return the most frequent pairs of values of different facets that stand on one item.

    Values without a letter and truth values are left out: alone they say nothing.

    Parameters
    ----------
    facets : mapping of str to tuple of ndarray
        Values of the items of both modalities by facet. Of many items, evenly spaced ones are counted.
    """
    counts: Counter[Named] = Counter()
    names = {
        facet: [_names(values) for side in sides for values in _evenly_spaced_rows(side)]
        for facet, sides in facets.items()
    }
    for (first, items), (second, other_items) in itertools.combinations(names.items(), 2):
        for values, other_values in zip(items, other_items, strict=True):
            counts.update(
                ((first, value), (second, other))
                for value, other in itertools.product(values, other_values)
                if value.casefold() != other.casefold()
            )
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [named for named, _ in ranked[:_MOST_QUERIES]]


def _evenly_spaced_rows(values: Values) -> Values:
    chosen: Values = values[:: -(-len(values) // _MOST_COUNTED) or 1]
    return chosen


def _names(values: Iterable[str]) -> list[str]:
    return [
        value for value in values if any(map(str.isalpha, value)) and value.casefold() not in _TRUTH_VALUES
    ]


def _queries(encoder: Encoder, named: Sequence[Named], annotations: Annotations) -> Queries | None:
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


def _knows(encoder: Encoder, content: Content) -> bool:
    """Return whether an encoder takes a text, and knows all of its words if it knows words at all."""
    try:
        encoder.check("text", content)
    except (WrongContentError, InvalidFieldError, ContentTooLargeError):
        return False
    report = encoder.look_up_words(content)
    return report is None or (report.n_known > 0 and not report.unknown)


def _encode(encoder: Encoder, contents: Sequence[Content]) -> Features | None:
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
