"""Limits on JSON that are checked before it is parsed: how many keys, brackets and values it has."""

from __future__ import annotations

from app.domain.errors import ContentTooLargeError

_COUNT_BYTES = 1 << 20  # keys are counted in slices of this size, between which other threads can run
_BRACKETS_PER_KEY = 16  # brackets allowed per allowed key: texts contain brackets, too
MIN_KEY_LIMIT = 16_000
"""A body or an import's line with no more JSON keys than this is always parsed."""
_WHITESPACE = b" \t\r\n"
_MAX_VALUES = 1_500_000
"""Of JSON that is parsed in one call: more than any vector has, and some 200 MB of memory."""


def limit_keys(body: bytes, max_keys: int) -> bytes:
    """Return JSON of at most `max_keys` keys, and 16 times as many brackets; raises ContentTooLargeError."""
    # The parser blocks all other threads and reports every unknown key: for millions of them, a minute long.
    # Keys are counted in slices, between which other threads run, and only up to the limit. Texts contain
    # brackets, too.
    n_keys = 0
    for start in range(0, len(body), _COUNT_BYTES):
        n_keys += _count_keys(body[start : start + _COUNT_BYTES])
        if n_keys > max_keys:
            raise ContentTooLargeError("body", f"more than {max_keys} keys of JSON objects")
    max_brackets = max_keys * _BRACKETS_PER_KEY
    if body.count(b"[") + body.count(b"{") > max_brackets:
        raise ContentTooLargeError("body", f"more than {max_brackets} JSON lists and objects")
    return body


def _count_keys(piece: bytes) -> int:
    """Return how many quotes in a piece of JSON end a key: those before a colon that are not escaped."""
    unescaped = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    return unescaped.translate(None, _WHITESPACE).count(b'":')


def check_values(body: bytes | str, field: str) -> None:
    """Reject JSON of too many values before it is parsed; raises ContentTooLargeError.
    Values are counted by commas, including those in texts."""
    commas = body.count(b",") if isinstance(body, bytes) else body.count(",")
    if commas > _MAX_VALUES:
        raise ContentTooLargeError(field, f"more than {_MAX_VALUES} values")
