"""What must be true when the kills are over."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from sqlalchemy import Engine, text

from tests.faults.clients import World
from tests.faults.expectation import Expectation
from tests.faults.material import ALBUM, PAIRS, X, Z, client_of, picture_of
from tests.faults.searcher import QUERIES
from tests.faults.stores import Store

KEPT_VERSIONS = 5
MOST_ACTIVATIONS = 1000
_K = 10
_JOB_SECONDS = 180.0
_VERSIONS = text(
    "SELECT m.version FROM collections c JOIN model_versions m ON m.collection_id = c.id WHERE c.name = :name"
)
_PUBLISHED = text(
    "SELECT j.model_version FROM collections c JOIN jobs j ON j.collection_id = c.id "
    "WHERE c.name = :name AND j.state = 'succeeded'"
)
_FINAL = {"succeeded", "failed", "cancelled"}


def recall(world: World, expectation: Expectation) -> list[float]:
    """Return recall@10 of every query, direction and server against the database's own truth."""
    found: list[float] = []
    galleries = {side: expectation.gallery(side) for side in (X, Z)}
    of_x = galleries[X].features
    queries = {Z: QUERIES, X: of_x[:: max(len(of_x) // len(QUERIES), 1)][: len(QUERIES)]}
    for server in world.servers:
        with client_of(server.url, world.key) as client:
            for source, target in ((Z, X), (X, Z)):
                for query in queries[source]:
                    body = {"vector": np.asarray(query).tolist(), "k": _K, "include": []}
                    answer = client.post(f"/v1/collections/{PAIRS}/search/{source}-to-{target}", json=body)
                    result = answer.raise_for_status().json()
                    found.append(expectation.recall(source, query, galleries[target], result, _K))
    return found


def wait_for_jobs(world: World) -> None:
    """Every acknowledged retrain must come to an end that names what it made or why it did not."""
    deadline = time.monotonic() + _JOB_SECONDS
    with client_of(world.servers[0].url, world.key) as client:
        for job_id in world.jobs:
            while True:
                answer = client.get(f"/v1/admin/jobs/{job_id}")
                job = answer.json()
                if answer.status_code != 200 or job["state"] in _FINAL or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            if answer.status_code != 200 or job["state"] not in _FINAL:
                world.tally.violation(f"job {job_id} does not end: {answer.text[:300]}")
                continue
            world.tally.count(f"retrains {job['state']}")
            _check_end(world, job)


def _check_end(world: World, job: dict[str, Any]) -> None:
    if job["state"] == "failed":
        world.tally.count(f"retrains failed: {job['error']}")
        if not job["error"] or "attempts" not in job["error"]:
            world.tally.violation(f"job {job['id']} failed for another reason than its kills: {job['error']}")


def check_items(world: World) -> None:
    """Every server must list each item once, in a state that the writes allow."""
    for server in world.servers:
        with client_of(server.url, world.key) as client:
            for collection, ledger in world.ledgers.items():
                found: dict[str, int] = {}
                cursor: str | None = "0"
                while cursor is not None:
                    page = client.get(
                        f"/v1/collections/{collection}/items", params={"cursor": cursor, "limit": "200"}
                    )
                    listed = page.raise_for_status().json()
                    for item in listed["items"]:
                        if item["id"] in found:
                            world.tally.violation(f"{item['id']} is listed twice")
                        found[item["id"]] = item["metadata"]["generation"]
                    cursor = listed["next_cursor"]
                for wrong in ledger.wrong(found, None, ledger.known()):
                    world.tally.violation(f"{server.name} at the end: {wrong}")
                world.tally.most(f"items of {collection} at the end", len(found))
                if collection == ALBUM:
                    _check_pictures(world, client, found)


def _check_pictures(world: World, client: httpx.Client, found: dict[str, int]) -> None:
    for item_id, generation in found.items():
        answer = client.get(f"/v1/collections/{ALBUM}/items/{item_id}/content")
        if answer.status_code != 200 or answer.content != picture_of(item_id, generation):
            world.tally.violation(f"the picture of {item_id} is not the one stored: {answer.status_code}")


def check_versions(world: World) -> None:
    """One version is active, each began to serve when the one before it ended, and all servers say so."""
    told: dict[str, Any] = {}
    for server in world.servers:
        with client_of(server.url, world.key) as client:
            models = client.get(f"/v1/admin/collections/{PAIRS}/models").raise_for_status().json()["models"]
            path = f"/v1/admin/collections/{PAIRS}/activations"
            answer = client.get(path, params={"limit": MOST_ACTIVATIONS}).raise_for_status()
            body = {"vector": QUERIES[0].tolist(), "k": _K}
            found = client.post(f"/v1/collections/{PAIRS}/search/{Z}-to-{X}", json=body)
        active = [model["version"] for model in models if model["is_active"]]
        history = answer.json()["activations"]
        result = found.raise_for_status().json()
        for wrong in history_faults(history, active, result["model_version"]):
            world.tally.violation(f"{server.name}: {wrong}")
        hits = [(hit["id"], hit["score"]) for hit in result["hits"]]
        told[server.name] = active, history, result["index_revision"], hits
        world.tally.most("activations", len(history))
    first, *others = told
    for name in others:
        if told[name] != told[first]:
            world.tally.violation(f"{first} says {told[first]}, {name} says {told[name]}")


def history_faults(history: list[dict[str, Any]], active: list[int], served: int) -> list[str]:
    """Return what is wrong with a history of activations, newest first: all, or `MOST_ACTIVATIONS` of them.
    `active` are the versions that are said to be, `served` the one that answers."""
    faults = []
    if len(active) != 1:
        faults.append(f"{active} are active")
    if not history or [history[0]["version"]] != active:
        faults.append(f"{active} is active, the history ends with {history[:1]}")
    if [served] != active:
        faults.append(f"{active} is active, {served} answers")
    for later, earlier in itertools.pairwise(history):
        if later["previous"] != earlier["version"]:
            faults.append(
                f"{later['version']} followed {later['previous']}, after {earlier['version']} began"
            )
        if later["at"] < earlier["at"]:
            faults.append(f"{later['version']} followed {earlier['version']} and began before it")
    if history and len(history) < MOST_ACTIVATIONS and history[-1]["previous"] is not None:
        faults.append(f"what served before {history[-1]['version']} is not told")
    return faults


def check_publications(world: World, engine: Engine) -> None:
    """Every version was published by one job that succeeded: a worker that lost its claim published none."""
    with engine.connect() as connection:
        versions = connection.execute(_VERSIONS, {"name": PAIRS}).scalars().all()
        published = connection.execute(_PUBLISHED, {"name": PAIRS}).scalars().all()
    for version in versions:
        if published.count(version) != 1:
            world.tally.violation(f"version {version} was published by {published.count(version)} jobs")
    for version in sorted(published)[-KEPT_VERSIONS:]:
        if version not in versions:
            world.tally.violation(f"version {version} was published, is among the newest, and is gone")
    world.tally.most("versions at the end", len(versions))


def check_files(world: World, engine: Engine, data_dir: Path, store: Store) -> None:
    """After a sweep there is no file that no row speaks of, and none missing."""
    with engine.connect() as connection:
        bundles = set(connection.execute(text("SELECT bundle FROM model_versions")).scalars())
        hashes = connection.execute(
            text("SELECT content_hash FROM items UNION SELECT content_hash FROM feedback")
        )
        pictures = set(hashes.scalars()) - {None}
        galleries = set(connection.execute(text("SELECT folder FROM saved_galleries")).scalars())
    kept, stored, saved = (store.names(kind) for kind in ("models", "pictures", "galleries"))
    # Those that no row speaks of, which a killed save leaves, are removed by a save an hour later.
    for name in sorted(galleries - saved):
        world.tally.violation(f"saved gallery {name} is missing")
    world.tally.most("galleries saved at the end", len(galleries))
    for path in data_dir.rglob("*"):
        folder = path.relative_to(data_dir).parts[0]
        known = ("models", "pictures", "galleries", "cache", ".database", "lrbs.sqlite3")
        if path.is_file() and not folder.startswith(known):
            world.tally.violation(f"{path.relative_to(data_dir)} is left after the sweep")
    for what, found, used in (("bundle", kept, bundles), ("picture", stored, pictures)):
        for name in sorted(found - used)[:5]:
            world.tally.violation(f"{what} {name} is left after the sweep")
        for name in sorted(used - found)[:5]:
            world.tally.violation(f"{what} {name} is missing")
