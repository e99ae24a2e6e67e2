"""Request bodies: read after the key was checked, parsed outside the event loop, described by hand.

FastAPI reads and parses a body before it asks any dependency, so a route that declares one does that work
for callers without a key. Here a body is itself a dependency, which follows those of its route.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.domain.names import listed

SMALL = 1 << 20
"""Limit for bodies that carry no items and no queries."""
_LARGE = 1 << 16
_Model = TypeVar("_Model", bound=BaseModel)
_Result = TypeVar("_Result")
DESCRIBED: set[type[BaseModel]] = set()
"""Models that `json_body` describes; the OpenAPI document holds their schemas."""


@dataclass(frozen=True, slots=True)
class FormFields:
    """A multipart form with one picture.

    Parameters
    ----------
    picture : bytes
        The file's content.
    texts : mapping of str to str
        The other fields.
    """

    picture: bytes
    texts: Mapping[str, str]


def any_body(request: Request) -> int:
    """Return the limit for bodies that carry items."""
    limit: int = request.app.state.settings.max_body_bytes
    return limit


def search_body(request: Request) -> int:
    """Return the limit for bodies that carry queries."""
    limit: int = request.app.state.settings.max_search_body_bytes
    return limit


def small_body(request: Request) -> int:
    """Return the limit for bodies that carry neither."""
    return SMALL


def parsed(
    model: type[_Model], limit: Callable[[Request], int] = small_body, default: _Model | None = None
) -> Any:
    """Return the dependency that gives a JSON body as a model.

    Parameters
    ----------
    model : type of BaseModel
        What the body holds.
    limit : callable
        Says how many bytes are allowed.
    default : BaseModel, optional
        What an empty body stands for; refused when None.
    """

    async def parse(request: Request) -> _Model:
        body = await read_body(request, limit(request))
        if default is not None and not body.strip():
            return default
        return await off_loop_when_large(len(body), lambda: parse_json(model, body))

    return Depends(parse)


async def off_loop_when_large(size: int, work: Callable[[], _Result]) -> _Result:
    """Return what `work` returns; in a thread where its input is large, so that other requests go on."""
    return work() if size <= _LARGE else await run_in_threadpool(work)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the raw body; raises ContentTooLargeError before anything of a larger one is read."""
    length = int(request.headers.get("content-length", "0"))
    if length > limit:
        raise ContentTooLargeError("body", f"{length} bytes, at most {limit} allowed here")
    return await request.body()


def parse_json(model: type[_Model], body: bytes | str, place: str = "") -> _Model:
    """Return a model from JSON; raises RequestValidationError with paths below `place`."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        prefix = (place,) if place else ()
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError(
            [{**entry, "loc": (*prefix, *entry["loc"])} for entry in found]
        ) from error


def picture_form(known: Sequence[str], limit: Callable[[Request], int]) -> Any:
    """Return the dependency that gives a multipart form with a picture.

    Parameters
    ----------
    known : sequence of str
        Names of the other fields that may be given, each once.
    limit : callable
        Says how many bytes are allowed.
    """

    async def read(request: Request) -> FormFields:
        return await read_form(request, known, limit(request))

    return Depends(read)


async def read_form(request: Request, known: Sequence[str], limit: int) -> FormFields:
    """Return a multipart form; raises InvalidFieldError, ContentTooLargeError."""
    length = int(request.headers.get("content-length", "0"))
    if length > limit:
        raise ContentTooLargeError("body", f"{length} bytes, at most {limit} allowed here")
    max_bytes = request.app.state.settings.max_picture_bytes
    async with request.form(max_files=1, max_fields=len(known) + 10) as form:
        texts: dict[str, str] = {}
        for name, value in form.multi_items():
            if name == "picture":
                continue
            if name not in known:
                raise InvalidFieldError(name, f"unknown field, expected {listed(('picture', *known), 'and')}")
            if name in texts or not isinstance(value, str):
                raise InvalidFieldError(name, "expected once, and as text")
            texts[name] = value
        picture = form.get("picture")
        if not isinstance(picture, UploadFile):
            raise InvalidFieldError("picture", "expected a multipart picture file")
        content = await picture.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ContentTooLargeError("picture", f"more than {max_bytes} bytes")
    return FormFields(content, texts)


def json_field(name: str, text: str) -> Any:
    """Return the JSON value of a form field; raises InvalidFieldError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFieldError(name, f"is not valid JSON: {error}") from error


def json_body(model: type[BaseModel], required: bool = True) -> dict[str, Any]:
    """Return a route's OpenAPI entry of a JSON body."""
    return {"requestBody": {"required": required, "content": json_content(model)}}


def json_content(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI content of a JSON body."""
    DESCRIBED.add(model)
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def form_content(fields: Mapping[str, Any], example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI content of a multipart form with a picture and other fields."""
    picture = {"type": "string", "format": "binary", "description": "a picture file"}
    schema = {
        "type": "object",
        "required": ["picture"],
        "properties": {"picture": picture, **fields},
        "additionalProperties": False,
        "examples": [example],
    }
    return {"multipart/form-data": {"schema": schema}}
