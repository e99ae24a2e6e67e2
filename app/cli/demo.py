"""The demo: draw the sample set, train on it, serve it, and evaluate it over HTTP."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import httpx

from app.bootstrap import Services
from app.cli.console import pace
from app.cli.ingest import ensure_collection, split_into_batches, store
from app.cli.local_training import train
from app.cli.serve import bound_socket, url_of
from app.cli.server import Server
from app.domain.entities import Content, Modality
from app.domain.errors import CollectionNotFoundError
from app.domain.names import Scope
from app.sample import KINDS, draw_sample
from app.services.catalogue.service import NewItem
from app.services.training.requests import TrainingParameters
from solver import average_precision, chance_average_precision

COLLECTION = "sample"
PER_KIND = 60
_TEST_EVERY = 5
_HITS_PER_CALL = 50_000
_LEAST_GAIN = 0.5
_SHOWN = 8
_READY_SECONDS = 60.0
_QUESTIONS = (
    ("waves, wind and a white hull under canvas", "sailing boats"),
    ("drops are falling and everybody hides under something colourful", "umbrellas"),
    ("sand, thorns and a burning sun", "deserts"),
    ("glowing windows of tall towers", "city skylines"),
)


def prepare(services: Services, per_kind: int, on_progress: Callable[[str, int, int, str], None]) -> None:
    """Draw, store and train unless that was done before; `on_progress` gets (what, done, total, remark)."""
    total = per_kind * len(KINDS)
    if not _is_complete(services, total):
        image, text = Modality("image", {"type": "hog-color"}), Modality("text", {"type": "tfidf"})
        ensure_collection(services, COLLECTION, [image, text])
        n_drawn, began = 0, time.monotonic()

        def count_pictures() -> Iterator[NewItem]:
            nonlocal n_drawn
            for item in _items(per_kind):
                n_drawn += item.modality == "image"
                yield item

        def on_stored(_: int) -> None:
            remark = pace(n_drawn, total, time.monotonic() - began)
            on_progress("drawing and storing", n_drawn, total, remark)

        store(services, COLLECTION, count_pictures(), on_stored)
    collection, _ = services.catalogue.collection(COLLECTION)
    if collection.active_version is None:
        train(services, COLLECTION, TrainingParameters(), on_progress)


def check(services: Services) -> dict[str, Any]:
    """Query the demo over HTTP in both directions and evaluate the rankings.
    Returns ``passed`` and the figures behind it: ``test`` on the test split, which is never trained on."""
    key, secret = services.access.create(Scope.ADMIN, "demo check")
    try:
        return _check(services, {"Authorization": f"Bearer {secret}"})
    finally:
        services.access.revoke(key.id)


def _check(services: Services, headers: dict[str, str]) -> dict[str, Any]:
    admin = f"/v1/admin/collections/{COLLECTION}"
    with (
        _serve_in_thread(services) as url,
        httpx.Client(base_url=url, headers=headers, timeout=60.0, trust_env=False) as client,
    ):
        if not _wait_until_ready(client):
            return {"ready": False, "passed": False}
        models = client.get(f"{admin}/models").raise_for_status().json()["models"]
        summary: dict[str, Any] = {
            "ready": True,
            "admin_without_key": httpx.post(f"{url}{admin}/retrain", trust_env=False).status_code,
            "test": {
                "image-to-text": _test_figures(client, "image", "text"),
                "text-to-image": _test_figures(client, "text", "image"),
            },
            "questions": [_ask(client, question, kind) for question, kind in _QUESTIONS],
            "model_version": next(model["version"] for model in models if model["is_active"]),
        }
    summary["passed"] = bool(
        summary["admin_without_key"] == 401 and all(is_good(figures) for figures in summary["test"].values())
    )
    return summary


def is_good(figures: Mapping[str, float]) -> bool:
    """Return whether MAP and precision at 1 are at least half-way from chance to perfect."""
    least = figures["chance"] + _LEAST_GAIN * (1.0 - figures["chance"])
    return min(figures["map"], figures["first_right"]) >= least


def _is_complete(services: Services, total: int) -> bool:
    try:
        _, counts = services.catalogue.collection(COLLECTION)
    except CollectionNotFoundError:
        return False
    return counts.get("image") == total


def _items(per_kind: int) -> Iterator[NewItem]:
    order = list(itertools.product(range(per_kind), KINDS))
    # Ctrl-C reaches every process of a terminal; this one stops the others.
    ignored = signal.SIGINT, signal.SIG_IGN
    with ProcessPoolExecutor(os.cpu_count(), initializer=signal.signal, initargs=ignored) as pool:
        drawn = pool.map(_draw, [kind for _, kind in order], [index for index, _ in order], chunksize=8)
        for (index, kind), (sample_id, picture, sentences) in zip(order, drawn, strict=True):
            is_train = index % _TEST_EVERY != 0
            shared: dict[str, Any] = {
                "labels": (kind,),
                "pair_id": sample_id,
                "metadata": {"split": "train" if is_train else "test"},
                "train": is_train,
            }
            yield NewItem("image", Content(picture=picture), f"image-{sample_id}", **shared)
            for number, sentence in enumerate(sentences):
                yield NewItem("text", Content(text=sentence), f"text-{sample_id}-{number}", **shared)


def _draw(kind: str, index: int) -> tuple[str, bytes, tuple[str, ...]]:
    sample = draw_sample(kind, index)
    stream = io.BytesIO()
    sample.image.save(stream, format="JPEG", quality=90)
    return sample.id, stream.getvalue(), sample.sentences


@contextlib.contextmanager
def _serve_in_thread(services: Services) -> Iterator[str]:
    """Serve on a free port, in a thread of this process; yields the base URL."""
    settings = services.settings.model_copy(update={"host": "127.0.0.1", "port": 0})
    server = Server(services, lambda: None)
    with bound_socket(settings) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.05)
            yield url_of(listening)
        finally:
            server.should_exit = True
            thread.join()


def _wait_until_ready(client: httpx.Client) -> bool:
    """Return whether the service becomes ready within the time that loading the model may take."""
    deadline = time.monotonic() + _READY_SECONDS
    while client.get("/readyz").status_code != 200:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _ask(client: httpx.Client, question: str, kind: str) -> dict[str, Any]:
    """Return the labels that a question finds; four questions prove nothing and are not judged."""
    body = {"text": question, "k": _SHOWN, "include": ["labels"]}
    path = f"/v1/collections/{COLLECTION}/search/text-to-image"
    hits = client.post(path, json=body).raise_for_status().json()["hits"]
    labels = [hit["labels"][0] for hit in hits]
    return {"question": question, "expected": kind, "right": labels.count(kind), "found": labels}


def _test_figures(client: httpx.Client, source: str, target: str) -> dict[str, float]:
    """Evaluate every test item of `source` as a query on the test items of `target`."""
    queries, gallery = _test_items(client, source), _test_items(client, target)
    path = f"/v1/collections/{COLLECTION}/search/{source}-to-{target}/batch"
    options = {"k": len(gallery), "filter": {"metadata": {"split": "test"}}, "include": ["labels"]}
    results: list[dict[str, Any]] = []
    for batch in split_into_batches(queries, max(_HITS_PER_CALL // max(len(gallery), 1), 1)):
        body = {"queries": [{"item_id": item_id} for item_id, _ in batch], **options}
        results += client.post(path, json=body).raise_for_status().json()["results"]
    relevant = [
        [hit["labels"][0] == label for hit in result["hits"]]
        for (_, label), result in zip(queries, results, strict=True)
    ]
    precisions = [average_precision(ranking, [-rank for rank in range(len(ranking))]) for ranking in relevant]
    chance = chance_average_precision([label for _, label in queries], [label for _, label in gallery])
    return {
        "map": round(sum(precisions) / len(queries), 4),
        "first_right": round(sum(ranking[0] for ranking in relevant) / len(queries), 4),
        "chance": round(chance, 4),
        "queries": len(queries),
        "gallery": len(gallery),
    }


def _test_items(client: httpx.Client, modality: str) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    cursor: str | None = "0"
    while cursor is not None:
        parameters = {"modality": modality, "cursor": cursor, "limit": "1000"}
        page = client.get(f"/v1/collections/{COLLECTION}/items", params=parameters).raise_for_status().json()
        items += [
            (item["id"], item["labels"][0]) for item in page["items"] if item["metadata"]["split"] == "test"
        ]
        cursor = page["next_cursor"]
    return items
