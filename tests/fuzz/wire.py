"""Requests as bytes, and a connection that sends them as they are."""

import http.client
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

BOUNDARY = "fuzz-boundary"
CLOSED = 0
"""What stands for the status where the server closed the connection without an answer."""
SILENT = 599
"""What stands for the status where no answer came in `_PATIENCE_SECONDS`: as bad as any failure."""
_PATIENCE_SECONDS = 300.0
_TYPES = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "form": f"multipart/form-data; boundary={BOUNDARY}",
}


@dataclass(frozen=True)
class Part:
    """One part of a multipart form."""

    name: str
    content: bytes
    filename: str | None = None
    media_type: str | None = None


@dataclass(frozen=True)
class Good:
    """A request that is valid: what mutations start from."""

    name: str
    method: str
    path: str
    kind: str
    value: Any  # of a `json` body, of the lines of `ndjson`, or the parts of a `form`
    status: int

    def with_value(self, value: Any) -> "Good":
        return replace(self, value=value)


@dataclass(frozen=True)
class Wire:
    """What goes over the connection."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    announced: int | None = field(default=None)
    """Length that is announced; that of the body when None."""

    def with_body(self, body: bytes) -> "Wire":
        return replace(self, body=body)

    def with_header(self, name: str, value: str) -> "Wire":
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name.lower())
        return replace(self, headers=(*kept, (name, value)))


def rendered(good: Good) -> Wire:
    """Return a good request as bytes."""
    if good.kind == "form":
        body = form_body(good.value)
    elif good.kind == "ndjson":
        body = b"".join(json.dumps(line).encode() + b"\n" for line in good.value)
    else:
        body = json.dumps(good.value).encode()
    return Wire(good.method, good.path, (("Content-Type", _TYPES[good.kind]),), body)


def form_body(parts: Sequence[Part]) -> bytes:
    """Return a multipart body."""
    lines: list[bytes] = []
    for part in parts:
        disposition = f'form-data; name="{part.name}"'
        if part.filename is not None:
            disposition += f'; filename="{part.filename}"'
        lines += [f"--{BOUNDARY}".encode(), f"Content-Disposition: {disposition}".encode("utf-8", "replace")]
        if part.media_type is not None:
            lines.append(f"Content-Type: {part.media_type}".encode("latin-1", "replace"))
        lines += [b"", part.content]
    return b"\r\n".join([*lines, f"--{BOUNDARY}--".encode(), b""])


@dataclass(frozen=True)
class Answer:
    """Status, media type, ``Retry-After`` and body of an answer."""

    status: int
    media_type: str
    body: bytes


class Connection:
    """Sends requests over one connection, opened anew where the server closed it."""

    def __init__(self, url: str, key: str) -> None:
        self._address = urlsplit(url)
        self._key = key
        self._open: http.client.HTTPConnection | None = None

    def send(self, wire: Wire) -> Answer:
        """Return the answer; one of status `CLOSED` where there is none to a body cut short."""
        if self._open is None:
            self._open = http.client.HTTPConnection(
                self._address.hostname or "", self._address.port, timeout=_PATIENCE_SECONDS
            )
        connection = self._open
        try:
            connection.putrequest(wire.method, wire.path, skip_accept_encoding=True)
            for name, value in (("Authorization", f"Bearer {self._key}"), *wire.headers):
                connection.putheader(name, value.encode("latin-1", "replace"))
            announced = len(wire.body) if wire.announced is None else wire.announced
            connection.putheader("Content-Length", str(announced))
            connection.endheaders()
            connection.send(wire.body)
            if announced > len(wire.body):
                # The server waits for the rest; that none comes is all it can learn.
                self.close()
                return Answer(CLOSED, "", b"")
            found = connection.getresponse()
            answer = Answer(found.status, found.getheader("Content-Type") or "", found.read())
            if announced < len(wire.body):
                self.close()
            return answer
        except TimeoutError:
            self.close()
            return Answer(SILENT, "", b"")
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            # A body that is refused by its length alone is not read to its end.
            self.close()
            return Answer(CLOSED, "", b"")

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._open is not None:
            self._open.close()
        self._open = None
