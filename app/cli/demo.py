"""The command `lrbs demo`: draw the sample set, train on it, serve it, and evaluate it over HTTP."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated, Any

import httpx
import typer

from app.answers import Hit, Item
from app.bootstrap import Services, build
from app.cli.backend import read_settings
from app.cli.console import LOG, OUT, pace, progress
from app.cli.ingest import ensure_collection, store
from app.cli.serve import Server, bound_socket, is_loopback, serve_on, url_of
from app.cli.train import print_quality, train_and_wait
from app.client import Client, UnavailableError
from app.domain.entities import Content, Modality
from app.domain.errors import CollectionNotFoundError
from app.domain.names import Scope
from app.domain.reports import TrainingParameters
from app.logs import log_to_stderr
from app.sample import KINDS, draw_sample
from app.services.catalogue.preparation import NewItem
from app.services.storage.pacing import in_batches
from app.settings import Settings
from solver import average_precision, chance_average_precision

COLLECTION = "sample"
PER_KIND = 60
_TEST_EVERY = 5
_HITS_PER_CALL = 50_000
_LEAST_GAIN = 0.5
_SHOWN = 8
_READY_SECONDS = 60.0
_ITEMS_PER_PAGE = 1000
_QUESTIONS = (
    ("waves, wind and a white hull under canvas", "sailing boats"),
    ("drops are falling and everybody hides under something colourful", "umbrellas"),
    ("sand, thorns and a burning sun", "deserts"),
    ("glowing windows of tall towers", "city skylines"),
)


def demo(
    check: Annotated[
        bool, typer.Option(help="query the demo over HTTP, print a JSON summary and exit")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser")] = True,
    per_kind: Annotated[int, typer.Option(min=10, max=1000, help="pictures of each kind")] = PER_KIND,
) -> None:
    """Draw the sample set, train on it, serve it and open the page."""
    settings = read_settings()
    settings.open_search = is_loopback(settings.host)
    if check:
        summary = evaluate(_prepared_services(settings, per_kind))
        typer.echo(json.dumps(summary, indent=2))
        raise typer.Exit(0 if summary["passed"] else 1)
    # Bind first: a port that is in use should be reported before the training, not after it.
    settings.processes = settings.processes or 1  # a demo is for one visitor
    with bound_socket(settings) as bound:
        _serve_demo(_prepared_services(settings, per_kind), bound, open_page)


def _prepared_services(settings: Settings, per_kind: int) -> Services:
    services = build(settings)
    services.schema.upgrade()
    what = (
        f"Drawing {per_kind * len(KINDS)} pictures of {len(KINDS)} kinds of scenes with sentences, and "
        "training on four fifths of them, once; the time left is shown as soon as it can be estimated."
    )
    with progress(LOG, what) as show:
        prepare(services, per_kind, show)
    return services


def _serve_demo(services: Services, bound: socket.socket, open_page: bool) -> None:
    log_to_stderr(services.settings.log_format)
    _, secret = services.access.create(Scope.ADMIN, "demo", replace=True)
    versions = services.versions.models(COLLECTION)
    print_quality(next(version for version in versions if version.is_active).report)
    OUT.print("quality on the test split, which is never trained on: lrbs demo --check", highlight=False)
    OUT.print(f"admin key (shown this once, in place of any earlier one): {secret}", highlight=False)

    def on_listening(url: str) -> None:
        OUT.print(f"LRBS serves on {url}   API: {url}/docs   stop with Ctrl-C", highlight=False)
        if open_page and sys.stdout.isatty():
            webbrowser.open(url)

    serve_on(bound, services, with_worker=True, on_listening=on_listening)


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
        train_and_wait(services, COLLECTION, TrainingParameters(), on_progress)


def evaluate(services: Services) -> dict[str, Any]:
    """Query the demo over HTTP in both directions and evaluate the rankings.
    Returns ``passed`` and the figures behind it: ``test`` on the test split, which is never trained on."""
    key, secret = services.access.create(Scope.ADMIN, "demo check")
    headers = {"Authorization": f"Bearer {secret}"}
    try:
        with (
            _serve_in_thread(services) as url,
            httpx.Client(base_url=url, headers=headers, timeout=60.0, trust_env=False) as http,
        ):
            return _evaluate(Client(url, patience=_READY_SECONDS, http=http), url)
    finally:
        services.access.revoke(key.id)


def _evaluate(client: Client, url: str) -> dict[str, Any]:
    try:
        client.readyz()
    except UnavailableError:
        return {"ready": False, "passed": False}
    retrain = f"{url}/v1/admin/collections/{COLLECTION}/retrain"
    summary: dict[str, Any] = {
        "ready": True,
        "admin_without_key": httpx.post(retrain, trust_env=False).status_code,
        "test": {
            "image-to-text": _test_figures(client, "image", "text"),
            "text-to-image": _test_figures(client, "text", "image"),
        },
        "questions": [_ask(client, question, kind) for question, kind in _QUESTIONS],
        "model_version": next(one.version for one in client.list_models(COLLECTION).models if one.is_active),
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
    server = Server(services)
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


def _ask(client: Client, question: str, kind: str) -> dict[str, Any]:
    """Return the labels that a question finds; four questions prove nothing and are not judged."""
    result = client.search(COLLECTION, "text", "image", text=question, k=_SHOWN, include=["labels"])
    labels = [_label_of(hit) for hit in result.hits]
    return {"question": question, "expected": kind, "right": labels.count(kind), "found": labels}


def _test_figures(client: Client, source: str, target: str) -> dict[str, float]:
    """Evaluate every test item of `source` as a query on the test items of `target`."""
    test = {"metadata": {"split": "test"}}
    queries, gallery = (
        list(client.iter_items(COLLECTION, modality=name, where=["split=test"], limit=_ITEMS_PER_PAGE))
        for name in (source, target)
    )
    relevant: list[list[bool]] = []
    for batch in in_batches(queries, max(_HITS_PER_CALL // max(len(gallery), 1), 1)):
        bodies = [{"item_id": item.id} for item in batch]
        answer = client.search_batch(
            COLLECTION, source, target, bodies, k=len(gallery), filter=test, include=["labels"]
        )
        relevant += [
            [_label_of(hit) == _label_of(item) for hit in result.hits]
            for item, result in zip(batch, answer.results, strict=True)
        ]
    precisions = [average_precision(ranking, [-rank for rank in range(len(ranking))]) for ranking in relevant]
    chance = chance_average_precision(list(map(_label_of, queries)), list(map(_label_of, gallery)))
    return {
        "map": round(sum(precisions) / len(queries), 4),
        "first_right": round(sum(ranking[0] for ranking in relevant) / len(queries), 4),
        "chance": round(chance, 4),
        "queries": len(queries),
        "gallery": len(gallery),
    }


def _label_of(shown: Hit | Item) -> str:
    return (shown.labels or [""])[0]
