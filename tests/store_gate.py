"""A way to an S3 server on which a chosen request waits."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from typing_extensions import override

_SECONDS = 60.0
_OWN_HEADERS = {"connection", "transfer-encoding"}


@dataclass
class Held:
    """Requests that wait at a gate."""

    pattern: str  # searched in method and path: ``PUT /bucket/key``
    is_after: bool = False  # the store answers first, and the answer waits
    _reached: threading.Event = field(default_factory=threading.Event)
    _released: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Wait until a request came, and waits."""
        assert self._reached.wait(_SECONDS), f"no request was {self.pattern}"

    def release(self) -> None:
        """Let it go on, and all that come later."""
        self._released.set()

    def stop(self, request: str, is_after: bool) -> None:
        """Wait, if it is about this request."""
        if is_after == self.is_after and not self._released.is_set() and re.search(self.pattern, request):
            self._reached.set()
            assert self._released.wait(_SECONDS)


class StoreGate:
    """Passes requests on to a server, by its URL."""

    def __init__(self, endpoint: str) -> None:
        target = urlsplit(endpoint).netloc
        self.asked: list[str] = []
        """Method and path of each request."""
        self._held: list[Held] = []
        gate = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                request = f"{self.command} {self.path}"
                gate.asked.append(request)
                body = self._read_body()
                gate._stop(request, is_after=False)
                connection = HTTPConnection(target)
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS
                }
                if body:
                    headers["Content-Length"] = str(len(body))
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                gate._stop(request, is_after=True)
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {*_OWN_HEADERS, "content-length", "server", "date"}:
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
                self.send_header("Content-Length", str(length or 0))
                self.end_headers()
                self.wfile.write(content)

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return self.pass_on
                raise AttributeError(name)

            def _read_body(self) -> bytes:
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = []
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                while self.rfile.readline().strip():
                    continue
                return b"".join(parts)

            @override
            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @contextmanager
    def holding(self, pattern: str, is_after: bool = False) -> Iterator[Held]:
        """Hold requests; all go on at the end of the block. Parameters as of `Held`."""
        held = Held(pattern, is_after)
        self._held.append(held)
        try:
            yield held
        finally:
            held.release()
            self._held.remove(held)

    def end(self) -> None:
        """Close the way."""
        self._server.shutdown()
        self._server.server_close()

    def _stop(self, request: str, is_after: bool) -> None:
        for held in list(self._held):
            held.stop(request, is_after)
