"""Two server processes on one database: what one was told, both know."""

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from app.bootstrap import Services, build
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.services.catalogue.preparation import NewItem
from app.settings import Settings
from solver.datasets.synthetic import make_low_rank_pairs
from tests.app.conftest import migrated_database
from tests.app.e2e.conftest import servers
from tests.app.integration.conftest import EITHER, PARAMETERS
from tests.app.integration.in_process import run_here

ITEMS, SEARCH = "/v1/collections/pairs/items", "/v1/collections/pairs/search/z-to-x"
DATA = make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=3, random_state=3)
QUERY = np.asarray(DATA.Z[0]).tolist()


@pytest.fixture(scope="module", params=EITHER)
def started(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Services, tuple[httpx.Client, httpx.Client]]]:
    """Services over a database, and clients of two servers on it."""
    folder = tmp_path_factory.mktemp("live") / "data"
    with contextlib.ExitStack() as until_ended:
        url = until_ended.enter_context(migrated_database(request, request.param, folder))
        services = build(Settings(data_dir=folder, database_url=url))
        until_ended.callback(services.database.engine.dispose)
        _, key = services.access.create(Scope.ADMIN)
        clients, start = [], until_ended.enter_context(servers())
        for _ in range(2):
            server = start(folder, ("serve", "--no-worker"), LRBS_DATABASE_URL=url)
            headers = {"Authorization": f"Bearer {key}"}
            client = httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=60.0)
            clients.append(until_ended.enter_context(client))
        yield services, (clients[0], clients[1])


@pytest.fixture
def clients(
    started: tuple[Services, tuple[httpx.Client, httpx.Client]],
) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Both, with a trained collection of this test's own."""
    services, both = started
    services.catalogue.create("pairs", [Modality(name, {"type": "vector"}) for name in "xz"])
    for name, rows, labels in (("x", DATA.X, DATA.x_labels), ("z", DATA.Z, DATA.z_labels)):
        items = [
            NewItem(name, Content(vector=np.asarray(row).tolist()), f"{name}{n:02d}", (f"class {label}",))
            for n, (row, label) in enumerate(zip(rows, labels, strict=True))
        ]
        services.catalogue.add_items("pairs", items)
    services.training.request("pairs", PARAMETERS)
    run_here(services)
    yield both
    services.catalogue.delete_collection("pairs")


def item(number: int, *labels: str) -> dict[str, Any]:
    return {"modality": "x", "vector": np.asarray(DATA.X[number % 60]).tolist(), "labels": list(labels)}


def search(client: httpx.Client, **options: Any) -> dict[str, Any]:
    body = {"vector": QUERY, "k": 1000, **options}
    found: dict[str, Any] = client.post(SEARCH, json=body).raise_for_status().json()
    return found


def ids(result: dict[str, Any]) -> set[str]:
    return {hit["id"] for hit in result["hits"]}


def test_the_next_search_of_either_process_knows_of_a_write(
    clients: tuple[httpx.Client, httpx.Client],
) -> None:
    original = ids(search(clients[0]))
    assert original == ids(search(clients[1])) == {f"x{n:02d}" for n in range(60)}
    for number in range(10):
        writer, other = clients[number % 2], clients[1 - number % 2]
        told = writer.put(f"{ITEMS}/new{number}", json=item(number, "fresh")).raise_for_status().json()
        for client in (writer, other):
            found = search(client, filter={"labels": ["fresh"]})
            assert found["index_revision"] == told["revision"]
            assert ids(found) == {f"new{number}"}
        told = writer.put(f"{ITEMS}/new{number}", json=item(number, "stale")).raise_for_status().json()
        for client in (other, writer):
            assert (
                client.post(SEARCH, json={"vector": QUERY, "filter": {"labels": ["fresh"]}}).status_code
                == 422
            )
            assert f"new{number}" in ids(search(client, filter={"labels": ["stale"]}))
        writer.delete(f"{ITEMS}/new{number}").raise_for_status()
        for client in (other, writer):
            assert ids(search(client)) == original


def test_every_search_is_answered_from_one_revision(clients: tuple[httpx.Client, httpx.Client]) -> None:
    labels = {f"x{n:02d}": {f"class {label}"} for n, label in enumerate(DATA.x_labels)}
    revision = search(clients[0])["index_revision"]
    states = {revision: dict(labels)}
    answers: list[tuple[str | None, dict[str, Any]]] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def watch(client: httpx.Client, wanted: str | None) -> None:
        try:
            while not done.is_set():
                given = {} if wanted is None else {"filter": {"labels": [wanted]}}
                answers.append((wanted, search(client, **given)))
                done.wait(0.02)
        except BaseException as error:
            failures.append(error)

    watchers = [
        threading.Thread(target=watch, args=(client, wanted))
        for client in clients
        for wanted in (None, "class 1")
    ]
    for watcher in watchers:
        watcher.start()
    chance = random.Random(4)
    try:
        for number in range(150):
            client, item_id = chance.choice(clients), f"x{chance.randrange(80):02d}"
            if item_id in labels and chance.random() < 0.4:
                told = client.delete(f"{ITEMS}/{item_id}").raise_for_status().json()
                del labels[item_id]
            else:
                label = f"class {chance.randrange(3)}"
                given = item(number, label, f"write {number}")
                told = client.put(f"{ITEMS}/{item_id}", json=given).raise_for_status().json()
                labels[item_id] = {label, f"write {number}"}
            states[told["revision"]] = dict(labels)
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()
    assert failures == []
    assert len({answer["index_revision"] for _, answer in answers}) > 5
    for wanted, answer in answers:
        state = states[answer["index_revision"]]
        assert ids(answer) == {name for name, found in state.items() if wanted is None or wanted in found}
        assert all(set(hit["labels"]) == state[hit["id"]] for hit in answer["hits"])


def test_pages_are_stable_while_others_write(clients: tuple[httpx.Client, httpx.Client]) -> None:
    reader, writer = clients
    done = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for number in range(100_000):
                if done.is_set():
                    return
                # New ones come and go, and those that stay are changed.
                writer.put(f"{ITEMS}/w{number}", json=item(number)).raise_for_status()
                writer.put(f"{ITEMS}/x{number % 60:02d}", json=item(number, f"n{number}")).raise_for_status()
                if number > 5:
                    writer.delete(f"{ITEMS}/w{number - 5}").raise_for_status()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    stayed = [f"x{n:02d}" for n in range(60)]
    try:
        for _ in range(5):
            seen, cursor, pages = [], "0", 0
            while cursor is not None and pages < 60:
                parameters: dict[str, str] = {"modality": "x", "cursor": cursor, "limit": "7"}
                page = reader.get(ITEMS, params=parameters).raise_for_status().json()
                seen += [found["id"] for found in page["items"]]
                cursor, pages = page["next_cursor"], pages + 1
            assert len(seen) == len(set(seen))
            assert [item_id for item_id in seen if item_id in stayed] == stayed
    finally:
        done.set()
        thread.join()
    assert failures == []
