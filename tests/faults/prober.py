"""A light client in a process of its own: searches one collection, probes, and writes how long each took.

``python -m tests.faults.prober URL KEY COLLECTION`` writes a line for each answer, with what was asked, when
by the monotonic clock, how many seconds it took and the status (0: none), until its standard input ends.
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

from tests.faults.material import X, Z, query_vectors

SEARCH = "search"
PROBES = {"readyz": "/readyz", "metrics": "/metrics", "item": "/v1/collections/{collection}/items/x-base-0"}
_SEARCHERS = 2
_PAUSE_SECONDS = {SEARCH: 0.01, "readyz": 0.05, "metrics": 0.2, "item": 0.05}
_TIMEOUT_SECONDS = 120.0
Request = tuple[str, str, bytes | None]


class Asker(threading.Thread):
    """Asks again and again over one connection, with a pause after each answer.

    Parameters
    ----------
    url, key : str
        Where, and with what.
    kind : str
        What its lines begin with.
    requests : callable
        Returns method, path and body of the next request.
    closing : threading.Event
        Ends it.
    """

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
            begin = time.monotonic()
            status = self._ask()
            line = f"{self._kind} {begin:.6f} {time.monotonic() - begin:.6f} {status}\n"
            sys.stdout.write(line)

    def _ask(self) -> int:
        method, path, body = self._requests()
        try:
            self._connection.request(method, path, body, self._headers)
            answer = self._connection.getresponse()
            answer.read()
            return answer.status
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return 0


def search_requests(collection: str) -> Callable[[], Request]:
    """Return a function that makes one search after the other."""
    path = f"/v1/collections/{collection}/search/{Z}-to-{X}"
    bodies = [json.dumps({"vector": row.tolist(), "k": 10}).encode() for row in query_vectors(16)]
    endless = itertools.cycle(bodies)
    return lambda: ("POST", path, next(endless))


def main() -> None:
    """Run it from the command line."""
    url, key, collection = sys.argv[1:]
    closing = threading.Event()
    askers = [Asker(url, key, SEARCH, search_requests(collection), closing) for _ in range(_SEARCHERS)]
    for kind, path in PROBES.items():
        request: Request = ("GET", path.format(collection=collection), None)
        askers.append(Asker(url, key, kind, lambda request=request: request, closing))
    for asker in askers:
        asker.start()
    sys.stdin.read()
    closing.set()
    for asker in askers:
        asker.join(2 * _TIMEOUT_SECONDS)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
