"""A long import is stored beside everybody else: seen whole or not at all, also when the server is killed."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy

from app.bootstrap import Services, build
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.services.catalogue.preparation import NewItem
from app.services.storage.pacing import Round
from app.settings import Settings
from tests.app.integration.conftest import EITHER, FINE
from tests.app.integration.in_process import run_here

BIG, SIDE = "/v1/collections/big", "/v1/collections/side"
OLD, ALL = 750, 4500
"""The new ones are stored in six steps."""
SETTINGS = {"LRBS_LOCK_WAIT_SECONDS": "2", "LRBS_LEASE_SECONDS": "4"}
LEFT = """SELECT (SELECT count(*) FROM imports), (SELECT count(*) FROM replaced_items),
(SELECT count(*) FROM items i JOIN collections c ON c.id = i.collection_id WHERE i.revision > c.revision)"""


def vector(number: int) -> list[float]:
    return [1.0 + number % 7, number % 11 - 5.0, number % 3 - 1.0, 1.0]


def lines(state: str, count: int) -> Iterator[bytes]:
    for number in range(count):
        facts = {
            **{"id": f"i{number:06d}", "modality": "x", "vector": vector(number), "train": False},
            **{"labels": [state], "metadata": {"state": state, "note": "n" * 200}},
        }
        yield json.dumps(facts).encode() + b"\n"


class Place:
    """A database with two collections, the bigger one trained, and a server that can be killed."""

    def __init__(self, folder: Path, url: str, start: Callable[..., Any]) -> None:
        self._start, self._url = start, url
        self._settings = settings = Settings(data_dir=folder, database_url=url)
        services = build(settings)
        services.schema.upgrade()
        for name in ("big", "side"):
            services.catalogue.create(name, [Modality(side, {"type": "vector"}) for side in "xz"])
        self._train(services)
        _, secret = services.access.create(Scope.ADMIN)
        services.database.engine.dispose()
        self._headers = {"Authorization": f"Bearer {secret}"}
        self._engine = sqlalchemy.create_engine(settings.resolved_database_url)
        self.begin()

    def finish_deletions(self) -> None:
        """Do what the worker does beside a server."""
        services = build(self._settings)
        assert services.removal.go_on(Round())
        services.database.engine.dispose()

    @staticmethod
    def _train(services: Services) -> None:
        for side in "xz":
            new = [
                NewItem(
                    side, Content(vector=vector(n)), f"{side}{n}", (f"{n % 3}",), metadata={"state": "any"}
                )
                for n in range(30)
            ]
            services.catalogue.add_items("big", new)
        services.training.request("big", FINE)
        job = run_here(services)
        assert job is not None
        assert job.model_version == 1, job.error

    def begin(self) -> None:
        # The worker would remove what is left; here the next writer does.
        self.server = self._start("--no-worker", LRBS_DATABASE_URL=self._url, **SETTINGS)

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.server.url, headers=self._headers, trust_env=False, verify=False, timeout=120.0
        )

    def store(self, state: str, count: int) -> httpx.Response:
        with self.client() as client:
            return client.post(f"{BIG}/items:import", content=b"".join(lines(state, count)))

    def left(self) -> tuple[int, ...]:
        with self._engine.connect() as connection:
            return tuple(connection.execute(sqlalchemy.text(LEFT)).one())

    def close(self) -> None:
        self._engine.dispose()


@pytest.fixture(params=EITHER)
def place(
    request: pytest.FixtureRequest, tmp_path: Path, start_server: Callable[..., Any]
) -> Iterator[Place]:
    url = ""
    if request.param == "postgres":
        found = sqlalchemy.make_url(request.getfixturevalue("postgres_url"))
        url = found.set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    made = Place(tmp_path / "data", url, start_server)
    yield made
    made.close()


def check_none_or_all(client: httpx.Client) -> str:
    """Return whether the number of items is "old" or "new"; every other way of reading shows one of them."""
    page = client.get(f"{BIG}/items", params={"limit": 1000}).raise_for_status().json()["items"]
    query = {"vector": vector(5), "k": 300}
    hits = client.post(f"{BIG}/search/z-to-x", json=query).raise_for_status().json()["hits"]
    item = client.get(f"{BIG}/items/i{OLD - 1:06d}").raise_for_status().json()
    count = client.get(BIG).raise_for_status().json()["items"]["x"]
    counted = {OLD + 30: "old", ALL + 30: "new"}.get(count, f"{count} items")
    found = [{entry["metadata"]["state"] for entry in entries} - {"any"} for entries in (page, hits, [item])]
    assert all(shown in ({"old"}, {"new"}) for shown in found), found
    # Asked in this order; a search may be answered from a moment before.
    asked = [next(iter(shown)) for shown in (found[0], found[2], {counted})]
    assert asked in (["old"] * 3, ["old", "old", "new"], ["old", "new", "new"], ["new"] * 3), asked
    return counted


def test_others_write_and_read_while_an_import_is_stored(place: Place) -> None:
    assert place.store("old", OLD).status_code == 201
    answers: list[httpx.Response] = []
    importing = threading.Thread(target=lambda: answers.append(place.store("new", ALL)))
    written: list[str] = []
    beside: list[bool] = []
    seen: list[str] = []
    failures: list[BaseException] = []

    def write() -> None:
        with place.client() as client:
            while importing.is_alive():
                item = {"modality": "x", "vector": vector(len(written))}
                is_stored_beside = place.left()[2] > 0
                answer = client.put(f"{SIDE}/items/s{len(written)}", json=item)
                written.append("stored" if answer.status_code == 200 else answer.text)
                beside.append(is_stored_beside and place.left()[2] > 0)

    def read() -> None:
        try:
            with place.client() as client:
                while importing.is_alive():
                    seen.append(check_none_or_all(client))
                seen.append(check_none_or_all(client))
        except BaseException as error:
            failures.append(error)

    importing.start()
    others = [threading.Thread(target=act) for act in (write, read)]
    for other in others:
        other.start()
    for other in (importing, *others):
        other.join()
    assert failures == []
    assert set(written) == {"stored"}
    assert sum(beside) > 3, "nobody wrote while it was stored"
    assert seen[0] == "old"
    assert seen[-1] == "new"
    told = answers[0].json()
    assert (answers[0].status_code, told["created"], told["updated"], told["unchanged"]) == (
        *(201, ALL - OLD, OLD, 0),
    )
    assert place.left() == (0, 0, 0)
    with place.client() as client:
        assert client.get(SIDE).json()["items"]["x"] == len(written)
        places = client.get(f"{BIG}/items", params={"limit": 100, "modality": "x"}).json()["items"]
        assert [entry["id"] for entry in places[30:]] == [f"i{n:06d}" for n in range(70)]


def test_an_import_cut_off_by_a_kill_is_all_or_nothing_and_can_be_repeated(place: Place) -> None:
    assert place.store("old", OLD).status_code == 201
    state = "old"
    for rows in (1, 750, 2000, ALL):
        importing = threading.Thread(target=_ignoring_disconnection, args=(place,))
        importing.start()
        while importing.is_alive() and place.left()[2] < rows:
            time.sleep(0.01)
        place.server.kill()
        importing.join()
        place.begin()
        with place.client() as client:
            state = check_none_or_all(client)
            small = {"modality": "z", "vector": vector(rows), "metadata": {"state": "any"}}
            answer = client.put(f"{BIG}/items/z0", json=small)
            deadline = time.monotonic() + 60
            while answer.status_code == 503:  # until its lease has run out and what it left is removed
                assert answer.json()["type"] == "/problems/import-running"
                assert f"{ALL} items is being stored into 'big'" in answer.json()["detail"]
                assert int(answer.headers["Retry-After"]) > 0
                assert time.monotonic() < deadline
                assert check_none_or_all(client) == state
                time.sleep(0.5)
                answer = client.put(f"{BIG}/items/z0", json=small)
            assert answer.status_code == 200, answer.text
            assert check_none_or_all(client) == state
        if state == "old":
            assert place.left() == (0, 0, 0)
        else:
            break
    told = place.store("new", ALL).raise_for_status().json()
    if state == "old":
        assert (told["created"], told["updated"], told["unchanged"]) == (ALL - OLD, OLD, 0)
    with place.client() as client:
        assert check_none_or_all(client) == "new"


def _ignoring_disconnection(place: Place) -> None:
    with contextlib.suppress(httpx.TransportError):
        place.store("new", ALL)


def test_two_imports_into_one_collection_and_a_deletion(place: Place) -> None:
    answers: list[int] = []
    importing = [
        threading.Thread(target=lambda state=state: answers.append(place.store(state, ALL).status_code))
        for state in ("old", "new")
    ]
    for thread in importing:
        thread.start()
    for thread in importing:
        thread.join()
    assert set(answers) <= {201, 503}
    assert 201 in answers
    assert place.left() == (0, 0, 0)
    importing = [threading.Thread(target=lambda: answers.append(place.store("other", ALL).status_code))]
    importing[0].start()
    while importing[0].is_alive() and not place.left()[0]:
        time.sleep(0.005)
    with place.client() as client:
        client.delete(BIG).raise_for_status()
    importing[0].join()
    assert answers[-1] in (201, 404)
    place.finish_deletions()
    assert place.left() == (0, 0, 0)
