"""Conditions on metadata: in one line each, such as ``colour=red``, and which values count as the same."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from unicodedata import normalize

_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,17})?", re.ASCII)
_MOST_DIGITS = 40
_BOOLEANS = {True: ("true", "True", "TRUE"), False: ("false", "False", "FALSE")}


def compose(labels: Sequence[str]) -> tuple[str, ...]:
    """Return labels in the one form in which they are stored, however their accents were composed."""
    return tuple(normalize("NFC", label) for label in labels)


def equal_texts(text: str) -> tuple[str, ...]:
    """Return a text as it is, and with its accents composed and decomposed."""
    return tuple(dict.fromkeys((text, normalize("NFC", text), normalize("NFD", text))))


def equal_values(value: Any) -> tuple[Any, ...]:
    """Return a JSON value that a filter names with those that count as the same."""
    # A number is the same as a text that spells it, as tables without types of columns leave it: 42 as "42",
    # "42.0" and "42.00", 19.9 as "19.9" and "19.90". So are true and "true", "True" or "TRUE". Texts are the
    # same as no texts but those that differ in how accents are composed, and numbers as no other numbers.
    if isinstance(value, bool):
        return (value, *_BOOLEANS[value])
    if isinstance(value, int | float):
        return (value, *_spellings(value))
    if not isinstance(value, str):
        return (value,)
    if _DECIMAL.fullmatch(value):
        number = float(value) if "." in value else int(value)
        return (value, number) if value in _spellings(number) else (value,)
    return (*equal_texts(value), *(answer for answer, spellings in _BOOLEANS.items() if value in spellings))


def _spellings(number: float) -> tuple[str, ...]:
    """Return the texts that spell a number: as short as can be, or with one or two decimals."""
    if isinstance(number, int) or number.is_integer():
        if abs(number) >= 10**_MOST_DIGITS:
            return ()
        whole = str(int(number))
        return whole, f"{whole}.0", f"{whole}.00"
    shortest = repr(number)
    rounded = f"{number:.2f}"
    return (shortest, rounded) if rounded != shortest and float(rounded) == number else (shortest,)


def values_by_key(conditions: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Return the values of each key that conditions name; those of one key are alternatives."""
    # A value that is no JSON, or a list or an object, is text. A number stands for the text as it was written
    # as well: a code such as 1E5 is found.
    values: dict[str, tuple[Any, ...]] = {}
    for condition in conditions:
        key, _, text = condition.partition("=")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        scalar = text if isinstance(value, list | dict) else value
        is_other_text = not isinstance(scalar, str) and isinstance(scalar, int | float)
        written = (text,) if is_other_text and text not in equal_values(scalar) else ()
        values[key] = (*values.get(key, ()), scalar, *written)
    return values
