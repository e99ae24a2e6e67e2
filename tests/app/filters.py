"""Which items a filter lets pass: the plain rules that columns, databases and engines are compared with, on
random filters."""

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import normalize

from hypothesis import strategies as st

from app.domain.entities import Item
from app.domain.filters import ItemFilter
from app.domain.words import split_words


def accepts(item_filter: ItemFilter, labels: Sequence[str], metadata: Mapping[str, Any]) -> bool:
    """Return whether an item with these labels and metadata passes; an absent key counts as null."""
    for condition in item_filter.conditions:
        values = condition.values
        if condition.subject == "labels" and not set(values) & set(labels):
            return False
        if condition.subject == "metadata":
            assert condition.operator == "in"
            if not any(is_same_in_json(metadata.get(condition.key), value) for value in values):
                return False
    return True


def is_same_in_json(left: Any, right: Any) -> bool:
    """Return whether two JSON values count as the same: true is not 1, but "1" is, and "true" is true."""
    if isinstance(left, str) and isinstance(right, str):
        return normalize("NFC", left) == normalize("NFC", right)
    if isinstance(left, str) != isinstance(right, str):
        text, other = (left, right) if isinstance(left, str) else (right, left)
        if isinstance(other, bool):
            return text in (str(other), str(other).lower(), str(other).upper())
        is_decimal = re.fullmatch(r"(0|-?[1-9]\d*)(\.\d\d?)?", text) is not None
        return is_decimal and isinstance(other, int | float) and float(text) == other
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def passes(asked: Mapping[str, Any], item: Item) -> bool:
    """Return whether an item passes a filter as REST has it."""
    labels = asked.get("labels", {})
    if isinstance(labels, list):
        labels = {"any": labels}
    of_item = set(item.labels)
    return all(
        (
            "any" not in labels or bool(of_item & set(labels["any"])),
            of_item >= set(labels.get("all", ())),
            not of_item & set(labels.get("none", ())),
            all(holds(item.metadata.get(key), one) for key, one in asked.get("metadata", {}).items()),
            "ids" not in asked or item.id in asked["ids"],
            asked.get("modality") in (None, item.modality),
            asked.get("pair_id") in (None, item.pair_id),
            all(passes(one, item) for one in asked.get("all", ())),
            "any" not in asked or any(passes(one, item) for one in asked["any"]),
            "not" not in asked or not passes(asked["not"], item),
        )
    )


def holds(value: Any, asked: Any) -> bool:
    """Return whether a value, None where there is none, meets what a filter has under its key."""
    if not isinstance(asked, dict):
        asked = {"in": asked if isinstance(asked, list) else [asked]}
    meanings: dict[str, Any] = {
        "eq": lambda bound: is_same_in_json(value, bound),
        "ne": lambda bound: not is_same_in_json(value, bound),
        "in": lambda bounds: any(is_same_in_json(value, bound) for bound in bounds),
        "not_in": lambda bounds: not any(is_same_in_json(value, bound) for bound in bounds),
        "lt": lambda bound: are_ordered(value, bound) and value < bound,
        "lte": lambda bound: are_ordered(value, bound) and value <= bound,
        "gt": lambda bound: are_ordered(value, bound) and value > bound,
        "gte": lambda bound: are_ordered(value, bound) and value >= bound,
        "exists": lambda is_there: (value is not None) == is_there,
        "contains": lambda one: isinstance(value, list) and any(is_same_in_json(x, one) for x in value),
        "text": lambda text: isinstance(value, str) and set(split_words(text)) <= set(split_words(value)),
    }
    return all(meanings[name](bound) for name, bound in asked.items())


def are_ordered(value: Any, bound: Any) -> bool:
    """Return whether both are numbers, or texts."""
    if isinstance(value, str) or isinstance(bound, str):
        return isinstance(value, str) and isinstance(bound, str)
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in (value, bound))


NUMBERS = [0, 1, -1, 42, 19.9, 2.5, -0.0, 0.1 + 0.2, 0.3, 2**53, 2**53 + 1, 10**30, 1e300, -(10**30)]
TEXTS = [
    *("", "0", "42", "42.0", "042", "19.90", "true", "a", "A", "red", "Red shoes", "RED-shoes! for her"),
    *("été", "e\u0301te\u0301", "2024-05-01", "2024-05-01T10:00", "2023-12-31", "日本語", "😀", 'q"\\ \n'),
]
SCALARS: list[Any] = [True, False, *NUMBERS, *TEXTS]
VALUES = [None, *SCALARS, [1, "a"], ["red", True], ["42", None], [[1]], [], {"a": 1}, "z" * 500, "red " * 200]
KEYS = ["price", "n", 'clé "x"']
_RANDOM = random.Random(0)
ITEMS = [
    Item(
        f"i{number:02d}",
        "x",
        labels=tuple(_RANDOM.sample("abc", _RANDOM.randrange(3))),
        pair_id=_RANDOM.choice([None, "p1", "p2"]),
        metadata={key: _RANDOM.choice(VALUES) for key in KEYS if _RANDOM.random() < 0.8},
    )
    for number in range(90)
]
_LABELS = st.lists(st.sampled_from("abc"), max_size=2)
_SCALAR = st.sampled_from(SCALARS)
_BOUND = st.sampled_from([*NUMBERS, *TEXTS, "z" * 100])
_CONDITIONS = st.one_of(
    st.sampled_from([None, *SCALARS]),
    st.lists(st.sampled_from([None, *SCALARS]), max_size=3),
    *(st.fixed_dictionaries({name: _BOUND}) for name in ("lt", "lte", "gt", "gte")),
    st.dictionaries(st.sampled_from(["lt", "lte", "gt", "gte", "ne", "eq"]), _BOUND, max_size=2),
    st.fixed_dictionaries({"not_in": st.lists(_SCALAR, max_size=3)}),
    st.fixed_dictionaries({"exists": st.booleans()}),
    st.fixed_dictionaries({"contains": _SCALAR}),
    st.fixed_dictionaries({"text": st.sampled_from(["red", "shoes RED", "été", "日本", "2024 05", "😀"])}),
)
_METADATA = st.fixed_dictionaries(
    {"metadata": st.dictionaries(st.sampled_from(KEYS), _CONDITIONS, max_size=2)}
)
_PLAIN = st.one_of(
    st.fixed_dictionaries({"labels": _LABELS}),
    st.fixed_dictionaries({"labels": st.dictionaries(st.sampled_from(["any", "all", "none"]), _LABELS)}),
    st.fixed_dictionaries({"ids": st.lists(st.sampled_from([item.id for item in ITEMS]), max_size=3)}),
    *[st.fixed_dictionaries({"metadata": st.dictionaries(st.sampled_from(KEYS), _CONDITIONS, max_size=2)})]
    * 5,
)
ASKED = st.recursive(
    _PLAIN,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"all": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"any": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"not": inner}),
        st.builds(lambda one, other: {**one, **other}, inner, inner),
    ),
    max_leaves=5,
)
"""Filters of searches as REST has them."""
