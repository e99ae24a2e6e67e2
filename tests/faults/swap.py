"""Swap models under load: ``python -m tests.faults.swap --seconds 60 --clients 16 --activations 80``."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from tests.faults.campaign import conduct, threads
from tests.faults.expectation import Expectation
from tests.faults.material import MODALITIES, PAIRS, X, Z, base_items, client_of, query_vectors, train
from tests.faults.observer import observing_engine
from tests.faults.processes import Service, serving
from tests.faults.stores import FolderStore
from tests.faults.tally import Tally

_QUERIES = query_vectors(16)
_ALPHAS = (1e-4, 3e-2)
_K = 100
_TRAIN_SECONDS = 180.0
_PATH = f"/v1/collections/{PAIRS}/search/{Z}-to-{X}"

Answer = list[tuple[str, float]]
"""Ids and scores, best first."""


def ask(client: httpx.Client, query: int) -> httpx.Response:
    """Search with one of the queries."""
    return client.post(_PATH, json={"vector": _QUERIES[query].tolist(), "k": _K, "include": []})


def hits_of(result: dict[str, Any]) -> Answer:
    """Return what an answer ranks."""
    return [(hit["id"], hit["score"]) for hit in result["hits"]]


def train_two_versions(client: httpx.Client) -> list[int]:
    """Fill a collection and train it with two penalties; return the versions."""
    client.post("/v1/collections", json={"name": PAIRS, "modalities": MODALITIES[PAIRS]}).raise_for_status()
    for items in base_items().values():
        client.post(f"/v1/collections/{PAIRS}/items", json={"items": items}).raise_for_status()
    return [train(client, PAIRS, _TRAIN_SECONDS, alpha=alpha, scaling="standard") for alpha in _ALPHAS]


def expected_answers(
    client: httpx.Client, versions: list[int], expectation: Expectation, tally: Tally
) -> dict[int, list[Answer]]:
    """Return each version's answers, asked for while nothing else happens and checked by other means."""
    answers: dict[int, list[Answer]] = {}
    gallery = expectation.gallery(X)
    for version in versions:
        activate(client, version)
        answers[version] = []
        for number, query in enumerate(_QUERIES):
            result = ask(client, number).raise_for_status().json()
            answers[version].append(hits_of(result))
            scores, allowed = expectation.scores(version, Z, query, gallery.features, gallery.carried)
            known = dict(zip(gallery.ids, zip(scores, allowed, strict=True), strict=True))
            for item_id, score in answers[version][-1]:
                if abs(score - known[item_id][0]) > known[item_id][1]:
                    tally.violation(f"version {version} gives {item_id} {known[item_id][0]}, not {score}")
            if result["model_version"] != version or expectation.recall(Z, query, gallery, result, _K) < 1.0:
                tally.violation(f"version {version} does not answer with its own best: {result}")
    if any(first == second for first, second in zip(*answers.values(), strict=True)):
        raise RuntimeError("both versions answer alike: a mixture would go unseen")
    return answers


def activate(client: httpx.Client, version: int) -> None:
    """Let a version serve."""
    client.post(f"/v1/admin/collections/{PAIRS}/models/{version}/activate").raise_for_status()


def asking(
    service: Service, seed: int, answers: dict[int, list[Answer]], tally: Tally
) -> Callable[[threading.Event, int], None]:
    """Return work that asks again as soon as it was answered; the tally gets failures and mixtures, too.
    `answers` is what each version answers to each query."""

    def work(closing: threading.Event, number: int) -> None:
        chance = np.random.default_rng((seed, number))
        with client_of(service.url, service.key) as client:
            while not closing.is_set():
                query = int(chance.integers(len(_QUERIES)))
                try:
                    answer = ask(client, query)
                except httpx.HTTPError as error:
                    tally.violation(f"a request failed: {error!r}")
                    continue
                tally.count("searches")
                if answer.status_code != 200:
                    tally.violation(f"a request failed: {answer.status_code} {answer.text[:200]}")
                    continue
                result = answer.json()
                version = result["model_version"]
                tally.count(f"answers of version {version}")
                if hits_of(result) != answers[version][query]:
                    tally.violation(f"an answer of version {version} is not that version's")

    return work


def campaign(seconds: float, clients: int, activations: int, folder: Path, seed: int = 1) -> Tally:
    """Search with all clients while the active version alternates, in even steps; return what happened.
    The seed is of the order of queries; when activations fall between them, the machine decides."""
    tally = Tally()
    with serving(folder, tally) as service:
        engine = observing_engine(f"sqlite:///{folder / 'data' / 'lrbs.sqlite3'}")
        expectation = Expectation(engine, FolderStore(folder / "data").bundle, PAIRS)
        with client_of(service.url, service.key) as client:
            versions = train_two_versions(client)
            answers = expected_answers(client, versions, expectation, tally)
            with threads(clients, asking(service, seed, answers, tally)):
                for number in range(activations):
                    time.sleep(seconds / (activations + 1))
                    activate(client, versions[number % len(versions)])
                    tally.count("activations")
                time.sleep(seconds / (activations + 1))
    return tally


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--activations", type=int, default=80)
    conduct(
        parser,
        lambda asked, folder: campaign(asked.seconds, asked.clients, asked.activations, folder, asked.seed),
    )


if __name__ == "__main__":
    main()
