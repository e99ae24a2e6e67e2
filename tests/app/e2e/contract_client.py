"""A client written from DESIGN.md alone: the standard library, and nothing of this project."""

import http.client
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

QUERIES_AT_A_TIME = 50


class Client:
    """Speaks the REST interface with one key."""

    def __init__(self, url: str, key: str) -> None:
        self._address = urlsplit(url)
        self._headers = {"Authorization": f"Bearer {key}"}

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and the JSON of an answer; a body that is no JSON value is streamed."""
        headers, is_stream = dict(self._headers), isinstance(body, Iterator)
        if body is not None:
            headers["Content-Type"] = "application/x-ndjson" if is_stream else "application/json"
            body = body if is_stream else json.dumps(body).encode()
        connection = http.client.HTTPConnection(str(self._address.hostname), self._address.port, timeout=300)
        try:
            connection.request(method, path, body, headers, encode_chunked=is_stream)
            answer = connection.getresponse()
            content = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, json.loads(content) if content else None
        finally:
            connection.close()

    def done(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        """Return the JSON of an answer that must have a status."""
        found, _, value = self.call(method, path, body)
        if found != status:
            raise AssertionError(f"{method} {path}: expected {status}, got {found}: {value}")
        return value

    def create(self, name: str, modalities: Sequence[str]) -> None:
        """Create a collection of `vector` encoders."""
        encoders = {modality: {"encoder": {"type": "vector"}} for modality in modalities}
        self.done("POST", "/v1/collections", {"name": name, "modalities": encoders}, 201)

    def import_items(self, collection: str, items: Iterable[dict[str, Any]]) -> Any:
        """Send items as a stream of lines."""
        lines = (json.dumps(item).encode() + b"\n" for item in items)
        return self.done("POST", f"/v1/collections/{collection}/items:import", lines, 201)

    def retrain(self, collection: str, seconds: float) -> int:
        """Retrain with defaults, wait for the end, and return the version."""
        status, headers, _ = self.call("POST", f"/v1/admin/collections/{collection}/retrain")
        if status != 202:
            raise AssertionError(f"retrain: expected 202, got {status}")
        deadline = time.monotonic() + seconds
        while True:
            job = self.done("GET", urlsplit(headers["location"]).path)
            if job["state"] == "succeeded":
                return int(job["model_version"])
            if job["state"] not in ("queued", "running") or time.monotonic() > deadline:
                raise AssertionError(f"the retrain did not succeed: {job}")
            time.sleep(0.2)

    def items(self, collection: str, modality: str) -> Iterator[dict[str, Any]]:
        """Yield all items of a modality, page by page."""
        cursor = ""
        while cursor is not None:
            place = f"&cursor={quote(cursor)}" if cursor else ""
            path = f"/v1/collections/{collection}/items?modality={modality}&limit=500{place}"
            page = self.done("GET", path)
            yield from page["items"]
            cursor = page["next_cursor"]

    def rankings(
        self, collection: str, direction: str, item_ids: Sequence[str], k: int, wanted: dict[str, Any]
    ) -> Iterator[list[dict[str, Any]]]:
        """Yield the hits of each stored item among the items that pass a filter."""
        path = f"/v1/collections/{collection}/search/{direction}/batch"
        for start in range(0, len(item_ids), QUERIES_AT_A_TIME):
            queries = [{"item_id": item_id} for item_id in item_ids[start : start + QUERIES_AT_A_TIME]]
            answer = self.done("POST", path, {"queries": queries, "k": k, "filter": wanted})
            yield from (result["hits"] for result in answer["results"])


def mean_average_precision(rankings: Iterable[list[bool]]) -> float:
    """Return the mean over rankings of the mean precision at each relevant place."""
    precisions = []
    for relevant in rankings:
        found, total = 0, 0.0
        for place, is_relevant in enumerate(relevant, 1):
            if is_relevant:
                found += 1
                total += found / place
        precisions.append(total / found if found else 0.0)
    return sum(precisions) / len(precisions)
