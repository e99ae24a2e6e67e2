"""Request bodies: JSON, or a multipart form with a file, read after the key was checked."""
# FastAPI reads and parses a declared body before it resolves any dependency, and so works for callers without
# a key. Here the body is itself a dependency, resolved after those of its route. Large bodies are parsed
# outside the event loop.

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from fastapi import Depends, HTTPException, Request, status
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect

from app.api.faults import MIN_KEY_LIMIT, check_values, faults_of, field_path, limit_keys
from app.api.gate import body_of
from app.api.openapi import FILE_PARTS, FilePart, RequestBody, json_body, reads, request_body_of
from app.api.state import ApiLimits, state_of
from app.domain.entities import Content
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.domain.names import join_words

SMALL_BODY_BYTES = 1 << 20
"""Limit for bodies that carry neither items nor queries."""
INLINE_BYTES = 1 << 14
"""Larger bodies are parsed in a thread, so that other requests go on."""
_KEYS_PER_ENTRY = 64  # JSON keys allowed per item or query; a full item with ample metadata has fewer
_CHARSETS = ("utf-8", "ascii")
_FILE_HEADS = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM", b"fLaC", b"II*\0", b"MM\0*", b"8BPS")
_FILE_BOXES = (b"ftyp", b"jP  ")
"""How files of the formats that are read begin, or go on after a length, which no JSON text does."""
_Model = TypeVar("_Model", bound=BaseModel)
_Result = TypeVar("_Result")
Limit = Callable[[ApiLimits], int]
"""Chooses the largest size of a route's body, in bytes."""
item_body_bytes: Limit = attrgetter("max_body_bytes")
search_body_bytes: Limit = attrgetter("max_search_body_bytes")


def small_body_bytes(_: ApiLimits) -> int:
    """Return the limit for bodies that carry neither items nor queries."""
    return SMALL_BODY_BYTES


@dataclass(frozen=True, slots=True)
class FormFields:
    """A multipart form with one file, "picture" or "sound"."""

    part: FilePart
    file: bytes
    texts: Mapping[str, str]  # the other parts that occur once
    lists: Mapping[str, Sequence[str]]  # parts that may occur several times

    @property
    def content(self) -> Content:
        """The file as content of an item or a query."""
        if self.part == "sound":
            return Content(sound=self.file, sound_field=self.part)
        return Content(picture=self.file, picture_field=self.part)


def read_json(model: type[_Model], limit: Limit = small_body_bytes, default: _Model | None = None) -> Any:
    """Return the dependency that reads a JSON body as a model; an empty body is the default, or rejected when
    that is None."""

    def parse(_: ApiLimits, body: bytes) -> _Model:
        return parse_json(model, body) if default is None or body.strip() else default

    return read_json_with(parse, json_body(model, required=default is None), limit)


def reads_body(request: Request) -> bool:
    """Return whether the route of a request reads its body by one of these dependencies."""
    return request_body_of(request.scope["route"]) is not None


def read_json_with(
    parse: Callable[[ApiLimits, bytes], _Result], body: RequestBody, limit: Limit = small_body_bytes
) -> Any:
    """Return the dependency that reads a JSON body, described as `body`, of at most `limit` bytes with
    `parse`."""

    @reads(body)
    async def read(request: Request) -> _Result:
        return await _read_whole(request, parse, limit)

    return Depends(read)


def read_json_or_form(
    parse_body: Callable[[ApiLimits, bytes], _Result],
    parse_form: Callable[[FormFields], _Result],
    body: RequestBody,
    fields: Sequence[str],
    limit: Limit,
    repeated: Sequence[str] = (),
) -> Any:
    """Return the dependency that reads a body which is a multipart form, or else taken as JSON."""
    # `fields` names the form's parts other than the file that may occur once, `repeated` those that may occur
    # several times.

    def parse(limits: ApiLimits, text: bytes) -> _Result:
        if text.startswith(_FILE_HEADS) or text[4:8] in _FILE_BOXES:
            raise InvalidFieldError(
                "body",
                "is a file; expected a multipart form with the file as its part 'picture' or 'sound' (curl "
                "-F picture=@FILE), or JSON with the file in base64 as image_base64 or sound_base64",
            )
        return parse_body(limits, text)

    @reads(body)
    async def read(request: Request) -> _Result:
        if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            with reject_incomplete_body():
                form = await _read_form(request, fields, repeated, limit)
            texts = [*form.texts.values(), *itertools.chain.from_iterable(form.lists.values())]
            max_keys = _max_keys(state_of(request).limits)
            for text in texts:
                limit_keys(text.encode(errors="replace"), max_keys)
            size = len(form.file) + sum(map(len, texts))
            return parse_form(form) if size <= INLINE_BYTES else await run_in_threadpool(parse_form, form)
        return await _read_whole(request, parse, limit)

    return Depends(read)


async def _read_whole(
    request: Request, parse: Callable[[ApiLimits, bytes], _Result], limit: Limit
) -> _Result:
    limits = state_of(request).limits
    body_of(request).restrict(limit(limits))
    with reject_incomplete_body():
        body = await request.body()
    max_keys = _max_keys(limits)
    if len(body) <= INLINE_BYTES:
        return parse(limits, limit_keys(body, max_keys))
    return await run_in_threadpool(lambda: parse(limits, limit_keys(body, max_keys)))


@contextlib.contextmanager
def reject_incomplete_body() -> Iterator[None]:
    """Turn a client's disconnect while its body is read into a 400, since it is no error of the service."""
    try:
        yield
    except ClientDisconnect as error:
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "the body ended early: nothing is stored") from error


def _max_keys(limits: ApiLimits) -> int:
    """Return how many keys of JSON objects a body may have."""
    return max(limits.max_batch * _KEYS_PER_ENTRY, MIN_KEY_LIMIT)


def parse_json(model: type[_Model], body: bytes | str, path: tuple[str | int, ...] = ()) -> _Model:
    """Return a model from JSON.
    Raises RequestValidationError with paths below `path`, and ContentTooLargeError for too many values."""
    check_values(body, field_path(path))
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(model, error, path) from error


def validate(model: type[_Model], value: Any) -> _Model:
    """Return a model from values; raises RequestValidationError."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _refusal(model, error) from error


def parse_json_part(name: str, text: str) -> Any:
    """Return the value of a form's JSON part; raises InvalidFieldError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFieldError(name, f"is not valid JSON: {error}") from error


def _refusal(
    model: type[BaseModel], error: ValidationError, path: tuple[str | int, ...] = ()
) -> RequestValidationError:
    faults = faults_of(model, error)
    return RequestValidationError([{**fault, "loc": (*path, *fault["loc"])} for fault in faults])


async def _read_form(
    request: Request, fields: Sequence[str], repeated: Sequence[str], limit: Limit
) -> FormFields:
    limits = state_of(request).limits
    body_of(request).restrict(limit(limits))
    _check_charset(request.headers["content-type"])
    # Browsers can give a part its media type only as a file, so each part may be one.
    async with request.form(max_files=1 + len(fields), max_fields=len(fields) + 10) as form:
        for name in form:
            if name not in (*FILE_PARTS, *fields, *repeated):
                expected = join_words((*FILE_PARTS, *fields, *repeated), "and")
                raise InvalidFieldError(name[:100], f"unknown part, expected {expected}")
            if len(form.getlist(name)) > 1 and name not in repeated:
                raise InvalidFieldError(name, "comes more than once")
        part, content = await _file_of(form, limits.max_picture_bytes)
        texts = {name: await _text_of(name, form[name]) for name in fields if name in form}
        lists = {
            name: [await _text_of(name, part) for part in form.getlist(name)]
            for name in repeated
            if name in form
        }
    return FormFields(part, content, texts, lists)


async def _file_of(form: FormData, max_bytes: int) -> tuple[FilePart, bytes]:
    """Return the name and the content of the one part that is a file."""
    names = [name for name in FILE_PARTS if name in form]
    if len(names) > 1:
        raise InvalidFieldError(names[1], f"comes beside {names[0]}: expected one of them")
    part = names[0] if names else "picture"
    file = form.get(part)
    if not isinstance(file, UploadFile):
        raise InvalidFieldError(part, f"expected a multipart {part} file")
    content = await file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ContentTooLargeError(part, f"more than {max_bytes} bytes")
    return part, content


def _check_charset(content_type: str) -> None:
    """Reject a form in any encoding but UTF-8: the parser would decode it by whatever codec it names."""
    charset = parse_options_header(content_type)[1].get(b"charset", b"utf-8").decode("latin-1")
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        name = ""
    if name not in _CHARSETS:
        raise InvalidFieldError("body", f"expected a form in UTF-8, not in {charset[:40]!r}")


async def _text_of(name: str, part: UploadFile | str) -> str:
    if isinstance(part, str):
        return part
    try:
        return (await part.read()).decode()
    except UnicodeDecodeError as error:
        raise InvalidFieldError(name, "expected text in UTF-8") from error


# Parsed as a whole, a body of 60 MiB may become gigabytes of small values before its first mistake is found.
# Hence a parser in C cuts the list into entries without decoding them, and each is validated by itself.

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
