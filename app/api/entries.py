"""JSON bodies that hold a list of entries, such as items or queries, read one entry at a time."""
# Parsed as a whole, a body of 60 MiB may become gigabytes of small values before its first mistake is found.
# Hence a parser in C cuts the list into entries without decoding them, and each is validated by itself.

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TypeVar

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from app.api.bodies import SMALL_BODY_BYTES, parse_json
from app.api.json_limits import check_values
from app.domain.errors import ContentTooLargeError

_Model = TypeVar("_Model", bound=BaseModel)
_Entry = TypeVar("_Entry", bound=BaseModel)


def parse_entries(
    model: type[_Model], entry_model: type[_Entry], field: str, body: bytes, limit: int
) -> tuple[_Model, Iterator[_Entry]]:
    """Return a body as a model with its first entry only, and all entries of the list `field` one by one."""
    # Raises RequestValidationError (of an entry: as it comes), and ContentTooLargeError for too many entries
    # or values.
    try:
        parts = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        entries = _entries(parts.get(field))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        if len(body) > SMALL_BODY_BYTES:
            fault = {"type": "json_invalid", "loc": (), "msg": f"Invalid JSON: {error}"}
            raise RequestValidationError([fault]) from error
        whole = parse_json(model, body)  # raises with the usual messages
        return whole, iter(getattr(whole, field))
    if len(entries) > limit:
        raise ContentTooLargeError(field, f"{len(entries)} {field} in one call, at most {limit} allowed")
    for number, entry in enumerate(entries):
        check_values(entry, f"{field}.{number}")
    if entries:
        parts[field] = msgspec.Raw(b"[" + entries[0] + b"]")
    whole = parse_json(model, msgspec.json.encode(parts))
    first: list[_Entry] = getattr(whole, field)
    rest = (parse_json(entry_model, entry, (field, number)) for number, entry in enumerate(entries[1:], 1))
    return whole, itertools.chain(first, rest)


def _entries(value: msgspec.Raw | None) -> list[bytes]:
    """Return the entries of a list; none of another value, which the model rejects."""
    if value is None or bytes(value).lstrip()[:1] != b"[":
        return []
    return [bytes(entry) for entry in msgspec.json.decode(value, type=list[msgspec.Raw])]
