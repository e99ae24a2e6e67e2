"""Request bodies: JSON, or a multipart form with a picture; read after the key was checked.

FastAPI reads and parses a body before it asks any dependency, so a route that declares one does that work
for callers without a key. Here a body is itself a dependency, which follows those of its route.
Large bodies are parsed outside the event loop.
"""

from __future__ import annotations

import codecs
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import Depends, HTTPException, Request, status
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect

from app.api.middleware.request_body_limits import body_of
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.domain.names import listed

SMALL = 1 << 20
"""Limit for bodies that carry no items and no queries."""
_LARGE = 1 << 14
_SLICE = 1 << 20
_KEYS_PER_ENTRY, _BRACKETS_PER_KEY = 64, 16
FEW_KEYS = 16_000
"""Of JSON objects in one body or one line of an import: refused by nobody."""
_WHITESPACE = b" \t\r\n"
_MAX_VALUES = 1_500_000
"""Of JSON that is parsed at once: more than any vector has, and some 200 MB of memory."""
_CHARSETS = ("utf-8", "ascii")
_readers: set[Callable[..., Any]] = set()
_Model = TypeVar("_Model", bound=BaseModel)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class FormFields:
    """A multipart form with one picture.

    Parameters
    ----------
    picture : bytes
        The file's content.
    texts : mapping of str to str
        The other parts.
    lists : mapping of str to list of str
        Those of them that may come more than once.
    """

    picture: bytes
    texts: Mapping[str, str]
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)


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

    def parse(request: Request, body: bytes) -> _Model:
        return parse_json(model, body) if default is None or body.strip() else default

    return from_json(parse, limit)


def _reader(parse: Callable[..., Any]) -> Any:
    _readers.add(parse)
    return Depends(parse)


def reads_body(request: Request) -> bool:
    """Return whether the route of a request reads its body by one of these dependencies."""
    route: APIRoute = request.scope["route"]
    return any(each.call in _readers for each in route.dependant.dependencies)


def from_json(
    of_json: Callable[[Request, bytes], _Result], limit: Callable[[Request], int] = small_body
) -> Any:
    """Return the dependency that gives what `of_json` makes of a JSON body of at most `limit` bytes."""

    async def parse(request: Request) -> _Result:
        return await _of_whole(request, of_json, limit(request))

    return _reader(parse)


def json_or_form(
    of_json: Callable[[Request, bytes], _Result],
    of_form: Callable[[FormFields], _Result],
    known: Sequence[str],
    limit: Callable[[Request], int],
    repeated: Sequence[str] = (),
) -> Any:
    """Return the dependency that reads what a body holds in either of its forms.

    Parameters
    ----------
    of_json : callable
        Reads a JSON body; any body that is no multipart form is taken for one.
    of_form : callable
        Reads a form.
    known : sequence of str
        Names of the form's parts other than `picture`, of which each may come once.
    limit : callable
        Says how many bytes are allowed.
    repeated : sequence of str
        Names of the form's parts that may come several times.
    """

    async def parse(request: Request) -> _Result:
        if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            with to_its_end():
                form = await _read_form(request, known, repeated, limit(request))
            texts = [*form.texts.values(), *itertools.chain.from_iterable(form.lists.values())]
            for text in texts:
                not_bloated(text.encode(errors="replace"), most_keys(request))
            size = len(form.picture) + sum(map(len, texts))
            return await off_loop_when_large(size, lambda: of_form(form))
        return await _of_whole(request, of_json, limit(request))

    return _reader(parse)


async def _of_whole(request: Request, of_json: Callable[[Request, bytes], _Result], limit: int) -> _Result:
    body = await read_body(request, limit)
    most = most_keys(request)
    return await off_loop_when_large(len(body), lambda: of_json(request, not_bloated(body, most)))


async def off_loop_when_large(size: int, work: Callable[[], _Result]) -> _Result:
    """Return what `work` returns; in a thread where its input is large, so that other requests go on."""
    return work() if size <= _LARGE else await run_in_threadpool(work)


async def read_body(request: Request, limit: int) -> bytes:
    """Return the raw body; raises ContentTooLargeError as soon as it is known to be larger."""
    body_of(request).restrict(limit)
    with to_its_end():
        return await request.body()


@contextlib.contextmanager
def to_its_end() -> Iterator[None]:
    """Read a body in this block; a client that breaks it off is answered 400, and is no error of ours."""
    try:
        yield
    except ClientDisconnect as error:
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "the body ended early: nothing is stored") from error


def not_bloated(body: bytes, most_keys: int) -> bytes:
    """Return a JSON body that is worth parsing; raises ContentTooLargeError.

    The parser keeps all other threads waiting and tells of every unknown key, of millions of them for a
    minute. Keys are counted a slice at a time, with pauses for others, and no further than they are allowed.

    Parameters
    ----------
    body : bytes
        JSON.
    most_keys : int
        How many it may have; brackets, which stand in texts too, may be 16 times as many.
    """
    n_keys = 0
    for start in range(0, len(body), _SLICE):
        n_keys += _count_keys(body[start : start + _SLICE])
        if n_keys > most_keys:
            raise ContentTooLargeError("body", f"more than {most_keys} keys of JSON objects")
    most_brackets = most_keys * _BRACKETS_PER_KEY
    if body.count(b"[") + body.count(b"{") > most_brackets:
        raise ContentTooLargeError("body", f"more than {most_brackets} JSON lists and objects")
    return body


def _count_keys(piece: bytes) -> int:
    """Return how many quotes in a piece of JSON end a key: those before a colon that are not escaped."""
    unescaped = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
    return unescaped.translate(None, _WHITESPACE).count(b'":')


def check_values(body: bytes | str, field: str) -> None:
    """Refuse JSON of too many values before it is parsed; raises ContentTooLargeError.

    They are counted by their commas, those in texts among them.
    """
    commas = body.count(b",") if isinstance(body, bytes) else body.count(",")
    if commas > _MAX_VALUES:
        raise ContentTooLargeError(field, f"more than {_MAX_VALUES} values")


def most_keys(request: Request) -> int:
    """Return how many keys of JSON objects a body may have."""
    max_batch: int = request.app.state.settings.max_batch
    return max(max_batch * _KEYS_PER_ENTRY, FEW_KEYS)


def parse_json(model: type[_Model], body: bytes | str, place: tuple[str | int, ...] = ()) -> _Model:
    """Return a model from JSON.

    Raises RequestValidationError with paths below `place`, and ContentTooLargeError for too many values.
    """
    check_values(body, ".".join(map(str, place)) or "body")
    return _validated(lambda: model.model_validate_json(body), place)


def validated(model: type[_Model], value: Any) -> _Model:
    """Return a model from values; raises RequestValidationError."""
    return _validated(lambda: model.model_validate(value), ())


def json_value(name: str, text: str) -> Any:
    """Return the value of a form's JSON part; raises InvalidFieldError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFieldError(name, f"is not valid JSON: {error}") from error


def _validated(validate: Callable[[], _Model], place: tuple[str | int, ...]) -> _Model:
    try:
        return validate()
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError(
            [{**entry, "loc": (*place, *entry["loc"])} for entry in found]
        ) from error


async def _read_form(
    request: Request, known: Sequence[str], repeated: Sequence[str], limit: int
) -> FormFields:
    body_of(request).restrict(limit)
    _check_charset(request.headers["content-type"])
    max_bytes = request.app.state.settings.max_picture_bytes
    # Browsers can give a part its media type only as a file, so each part may be one.
    async with request.form(max_files=1 + len(known), max_fields=len(known) + 10) as form:
        for name in form:
            if name not in ("picture", *known, *repeated):
                expected = listed(("picture", *known, *repeated), "and")
                raise InvalidFieldError(name[:100], f"unknown part, expected {expected}")
            if len(form.getlist(name)) > 1 and name not in repeated:
                raise InvalidFieldError(name, "comes more than once")
        picture = form.get("picture")
        if not isinstance(picture, UploadFile):
            raise InvalidFieldError("picture", "expected a multipart picture file")
        content = await picture.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise ContentTooLargeError("picture", f"more than {max_bytes} bytes")
        texts = {name: await _text_of(name, form[name]) for name in known if name in form}
        lists = {
            name: [await _text_of(name, part) for part in form.getlist(name)]
            for name in repeated
            if name in form
        }
    return FormFields(content, texts, lists)


def _check_charset(content_type: str) -> None:
    """Refuse a form in any encoding but UTF-8: the parser would decode it by whatever codec it names."""
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
