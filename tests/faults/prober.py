"""A light client in a process of its own: searches one collection, probes, and writes how long each took.

Another small collection is written to all the while, many items at once, and searched after each write.

``python -m tests.faults.prober URL KEY COLLECTION WRITTEN`` writes a line for each answer, with what was
asked, when by the monotonic clock, how many seconds it took and the status (0: none), until its standard
input ends.
"""

from __future__ import annotations

import http.client
import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.faults.material import X, Z, query_vectors, vector_item

SEARCH, WRITE, OWN = "search", "write", "own"
"""Searches of the first collection, writes to the other one, and the search after each of these."""
PROBES = {"readyz": "/readyz", "metrics": "/metrics", "item": "/v1/collections/{collection}/items/x-base-0"}
_SEARCHERS = 2
_PAUSE_SECONDS = {SEARCH: 0.01, "readyz": 0.05, "metrics": 0.2, "item": 0.05, WRITE: 1.0}
_ITEMS_PER_WRITE = 320
"""More than a search replays itself."""
_TIMEOUT_SECONDS = 120.0
Request = tuple[str, str, bytes | None]


class Asker(threading.Thread):
    """Asks again and again over one connection, with a pause after each answer, until `closing` is set.
    A line of it begins with `kind`."""

    def __init__(
        self, url: str, key: str, kind: str, requests: Callable[[], Request], closing: threading.Event
    ) -> None:
        super().__init__(daemon=True)
        address = urlsplit(url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(
            address.hostname, address.port, timeout=_TIMEOUT_SECONDS
        )
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._kind = kind
        self._requests = requests
        self._closing = closing

    def run(self) -> None:
        """Ask until the end."""
        while not self._closing.wait(_PAUSE_SECONDS[self._kind]):
            self._ask_and_tell(self._kind, self._requests())

    def _ask_and_tell(self, kind: str, request: Request) -> None:
        begin = time.monotonic()
        status = self._ask(request)
        sys.stdout.write(f"{kind} {begin:.6f} {time.monotonic() - begin:.6f} {status}\n")

    def _ask(self, request: Request) -> int:
        method, path, body = request
        try:
            self._connection.request(method, path, body, self._headers)
            answer = self._connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0


class Writer(Asker):
    """Writes again and again over one connection, and searches what it wrote; parameters as of `Asker`."""

    def __init__(self, url: str, key: str, collection: str, closing: threading.Event) -> None:
        self._searches = search_requests(collection)
        super().__init__(url, key, WRITE, write_requests(collection), closing)

    def _ask_and_tell(self, kind: str, request: Request) -> None:
        super()._ask_and_tell(kind, request)
        super()._ask_and_tell(OWN, self._searches())


def write_requests(collection: str) -> Callable[[], Request]:
    """Return a function that makes one import after the other, always of the same items."""
    generations = itertools.count(1)

    def make() -> Request:
        generation = next(generations)
        items = [vector_item(X, f"often-{number}", generation) for number in range(_ITEMS_PER_WRITE)]
        body = "".join(json.dumps({**item, "train": False}) + "\n" for item in items).encode()
        return "POST", f"/v1/collections/{collection}/items:import", body

    return make


def search_requests(collection: str) -> Callable[[], Request]:
    """Return a function that makes one search after the other."""
    path = f"/v1/collections/{collection}/search/{Z}-to-{X}"
    bodies = [json.dumps({"vector": row.tolist(), "k": 10}).encode() for row in query_vectors(16)]
    endless = itertools.cycle(bodies)
    return lambda: ("POST", path, next(endless))


def main() -> None:
    """Run it from the command line."""
    url, key, collection, written = sys.argv[1:]
    closing = threading.Event()
    askers = [Asker(url, key, SEARCH, search_requests(collection), closing) for _ in range(_SEARCHERS)]
    for kind, path in PROBES.items():
        request: Request = ("GET", path.format(collection=collection), None)
        askers.append(Asker(url, key, kind, lambda request=request: request, closing))
    askers.append(Writer(url, key, written, closing))
    for asker in askers:
        asker.start()
    sys.stdin.read()
    closing.set()
    for asker in askers:
        asker.join(2 * _TIMEOUT_SECONDS)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
