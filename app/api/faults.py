"""What does not fit a model, in the words of the service: what commands and lines of imports need, too."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.domain.names import plain_message

LONGEST_NAME, MOST_DESCRIBED = 100, 20  # characters of an unknown name, and how many are described
_MAX_VALUES = 1_500_000
"""Of JSON that is parsed in one call: more than any vector has, and some 200 MB of memory."""
_COUNT_BYTES = 1 << 20  # keys are counted in slices of this size, between which other threads can run
_BRACKETS_PER_KEY = 16  # brackets allowed per allowed key: texts contain brackets, too
MIN_KEY_LIMIT = 16_000
"""A body or an import's line with no more JSON keys than this is always parsed."""
_WHITESPACE = b" \t\r\n"
_Model = TypeVar("_Model", bound=BaseModel)


def check_values(body: bytes | str, field: str) -> None:
    """Reject JSON of too many values before it is parsed; raises ContentTooLargeError.
    Values are counted by commas, including those in texts."""
    commas = body.count(b",") if isinstance(body, bytes) else body.count(",")
    if commas > _MAX_VALUES:
        raise ContentTooLargeError(field, f"more than {_MAX_VALUES} values")


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


def describe_unknown(what: str, name: str, names: Sequence[str] | None) -> str:
    """Return that a name is none of those there are (None: which is not known), with the nearest or all."""
    nearest = difflib.get_close_matches(name[:LONGEST_NAME].lower(), names or (), 1)
    if nearest:
        return f"is no {what}: do you mean {nearest[0]}?"
    others = "" if names is None else f", which has {', '.join(names) or 'none'}"
    return f"is no {what}{others}"


def field_path(loc: Sequence[str | int]) -> str:
    """Return pydantic's location as a path such as ``items.3.vector``; ``body`` for the whole."""
    return ".".join(map(str, loc)) or "body"


def faults_of(model: type[BaseModel], error: ValidationError) -> list[Mapping[str, Any]]:
    """Return what is wrong; of the first fields that are unknown, what they could be."""
    faults: list[Mapping[str, Any]] = [*error.errors(include_url=False, include_input=False)]
    unknown = (n for n, fault in enumerate(faults) if fault["type"] == "extra_forbidden")
    for n in itertools.islice(unknown, MOST_DESCRIBED):
        *place, name = faults[n]["loc"]
        hint = getattr(model, "HINTS", {}).get(name)
        message = hint or describe_unknown("field of this object", str(name), _fields_at(model, place))
        faults[n] = {**faults[n], "msg": message}
    return faults


def _fields_at(model: type[BaseModel] | None, place: Sequence[str | int]) -> list[str] | None:
    """Return the names of the fields at a place of a model; None where that is no model of its own."""
    is_key = False  # of a mapping, whose values are of one model
    for name in place:
        if isinstance(name, str) and not is_key:
            field = None if model is None else _named_fields(model).get(name)
            model = None if field is None else _model_in(field.annotation)
            is_key = field is not None and get_origin(field.annotation) is dict
        else:
            is_key = False
    return None if model is None else list(_named_fields(model))


def _named_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def parse_line(model: type[_Model], line: bytes) -> _Model:
    """Return the model on one line; raises InvalidFieldError with the path within the line, and
    ContentTooLargeError for too many keys or values."""
    check_values(limit_keys(line, MIN_KEY_LIMIT), "body")
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = faults_of(model, error)[0]
        raise InvalidFieldError(field_path(first["loc"]), plain_message(first["msg"])) from error
