"""Newline-delimited JSON: a stream of bytes cut into numbered lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from app.api.field_path import field_path
from app.api.json_limits import check_values
from app.domain.errors import ContentTooLargeError, InvalidFieldError
from app.domain.names import plain_message

_Model = TypeVar("_Model", bound=BaseModel)


class LineCutter:
    """Cuts a stream into lines; holds no more than one unfinished line."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._pending = 0
        self._number = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield each line that is now complete with its number from 1, except blank ones.
        Raises ServiceError if a line is too long, finished or not."""
        *complete, rest = chunk.split(b"\n")
        for line in complete:
            yield from self._finish(line)
        self._parts.append(rest)
        self._pending += len(rest)
        self._check_length(self._pending)

    def rest(self) -> Iterator[tuple[int, bytes]]:
        """Yield the last line if it did not end in a newline."""
        yield from self._finish(b"")

    def _finish(self, end: bytes) -> Iterator[tuple[int, bytes]]:
        line = b"".join([*self._parts, end])
        self._check_length(len(line))
        self._parts, self._pending = [], 0
        self._number += 1
        if line.strip():
            yield self._number, line

    def _check_length(self, length: int) -> None:
        if length > self._max_bytes:
            error = ContentTooLargeError("body", f"more than {self._max_bytes} bytes in one line")
            raise error.at_line(self._number + 1)


def parse_line(model: type[_Model], line: bytes) -> _Model:
    """Return the model on one line; raises InvalidFieldError with the path within the line."""
    check_values(line, "body")
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise InvalidFieldError(field_path(first["loc"]), plain_message(first["msg"])) from error
