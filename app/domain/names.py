"""Names, limits and scopes: rules for what clients send, through which every way in goes."""

from __future__ import annotations

import enum
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from app.domain.errors import InvalidFieldError

MAX_NAME = 64
"""Characters of a collection's, a modality's or a key's name: short enough to be shown in one line."""
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
"""A name stands in paths as it is."""
MAX_IDENTIFIER = 128
"""Characters of an item or pair id: two SHA-256 digests in hexadecimal digits."""
IDENTIFIER_PATTERN = r"[A-Za-z0-9_.:@+\-]+"
"""An id stands in paths as it is. The hyphen is escaped for readers of the document in JavaScript."""
MAX_LABEL = 200
"""Characters of a label: a label is a class name, not a text."""
MAX_LABELS = 100
"""Labels of an item: each row carries all of them."""
MAX_METADATA = 20_000
"""Characters of an item's metadata as JSON: every hit of a search carries them."""
MAX_KEY_COLLECTIONS = 100
"""Collections that a key can be restricted to: they are compared at each request."""
MAX_MAGNITUDE = 1e12
"""Largest number of a vector: squares, summed over any gallery, stay far inside single precision."""
MAX_K = 10_000
"""Results of a search: what people and programs read at once."""
MAX_PARTS = 16
"""Contents and items of a composed query."""
MAX_EMPHASIS = 100.0
"""Weight of a part of the score: more leaves nothing of the others."""
LARGEST_VERSION = 2**31 - 1
"""Largest version number that the database column holds."""
LARGEST_FEEDBACK_ID = 2**53 - 1
"""Largest integer that every reader of JSON keeps exactly."""
STORABLE_PATTERN = r"^[^\u0000]*$"
"""Text without NUL, which PostgreSQL cannot store."""


class Scope(enum.StrEnum):
    """What a key allows; `admin` includes the others, `write` includes `search`, `metrics` only itself."""

    SEARCH = "search"
    WRITE = "write"
    ADMIN = "admin"
    METRICS = "metrics"

    def allows(self, required: Scope) -> bool:
        """Return whether this scope covers `required`."""
        return required in _COVERED[self]


_COVERED = {
    Scope.SEARCH: {Scope.SEARCH},
    Scope.WRITE: {Scope.SEARCH, Scope.WRITE},
    Scope.ADMIN: set(Scope),
    Scope.METRICS: {Scope.METRICS},
}


_NAME = re.compile(NAME_PATTERN)
_IDENTIFIER = re.compile(IDENTIFIER_PATTERN)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LABELS_SHOWN = 5  # labels named in a message, which has to stay readable


def check_name(field: str, name: str) -> None:
    """Refuse a collection or modality name that cannot stand in a path; raises InvalidFieldError."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidFieldError(
            field, f"expected 1 to {MAX_NAME} letters, digits, '.', '_' or '-', got {name[:MAX_NAME]!r}"
        )


def check_modality_name(field: str, name: str) -> None:
    """Refuse a modality name that makes ``<source>-to-<target>`` ambiguous; raises InvalidFieldError."""
    check_name(field, name)
    if "-to-" in name or name.startswith("to-") or name.endswith("-to"):
        raise InvalidFieldError(
            field, f"a name may not begin with 'to-', end in '-to' or contain '-to-', got {name!r}"
        )


def check_identifier(field: str, identifier: str) -> None:
    """Refuse an item or pair id that cannot stand in a path; raises InvalidFieldError."""
    if len(identifier) > MAX_IDENTIFIER or not _IDENTIFIER.fullmatch(identifier):
        raise InvalidFieldError(
            field,
            f"expected 1 to {MAX_IDENTIFIER} of letters, digits and '_.:@+-', "
            f"got {identifier[:MAX_IDENTIFIER]!r}",
        )
    if identifier in (".", ".."):
        raise InvalidFieldError(field, f"{identifier!r} is a step in a path and cannot name an item")


def check_labels(field: str, labels: Sequence[str]) -> None:
    """Refuse too many, too long or unstorable labels; raises InvalidFieldError."""
    if len(labels) > MAX_LABELS:
        raise InvalidFieldError(field, f"expected at most {MAX_LABELS} labels, got {len(labels)}")
    for number, label in enumerate(labels):
        if not 1 <= len(label) <= MAX_LABEL:
            raise InvalidFieldError(
                f"{field}.{number}", f"expected 1 to {MAX_LABEL} characters, got {len(label)}"
            )
        check_storable(f"{field}.{number}", label)


def check_metadata(field: str, metadata: dict[str, Any]) -> None:
    """Refuse too much or unstorable metadata; raises InvalidFieldError."""
    if not metadata:
        return
    check_storable(field, metadata)
    size = len(json.dumps(metadata, ensure_ascii=False))
    if size > MAX_METADATA:
        raise InvalidFieldError(field, f"expected at most {MAX_METADATA} characters of JSON, got {size}")


def join_words(words: Iterable[object], last: str = "or") -> str:
    """Return words as prose: ``a, b or c``."""
    *first, final = [str(word) for word in words] or [""]
    return f"{', '.join(first)} {last} {final}" if first else final


def some_of(labels: Sequence[str]) -> str:
    """Return the first few labels as prose, and how many more there are: ``'a', 'b' and 3 more``."""
    n_more = len(labels) - _LABELS_SHOWN
    more = [f"{n_more} more"] if n_more > 0 else []
    return join_words([*map(repr, labels[:_LABELS_SHOWN]), *more], "and")


def join_path(place: str, name: str) -> str:
    """Return the path of a field in the JSON that a client sent, such as ``items.3.vector``."""
    return f"{place}.{name}" if place and name else place or name


def check_storable(field: str, value: Any) -> None:
    """Refuse what no database or JSON text can hold; raises InvalidFieldError."""
    if not is_storable(value):
        raise InvalidFieldError(field, "contains NUL, a lone surrogate, NaN or infinity")


def is_storable(value: Any) -> bool:
    """Return whether a JSON value can be stored by any database."""
    if isinstance(value, str):
        return "\x00" not in value and (value.isascii() or _LONE_SURROGATE.search(value) is None)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(is_storable(entry) for entry in value)
    if isinstance(value, dict):
        return all(is_storable(key) and is_storable(entry) for key, entry in value.items())
    return True


def plain_message(message: str) -> str:
    """Return what a check of ours says; pydantic puts the kind of Python's error before it."""
    return message.removeprefix("Value error, ")
