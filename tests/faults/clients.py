"""Clients that write and retrain while processes die, and compare every answer with what they know."""

from __future__ import annotations

import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.faults.ledger import Ledger, Outcome, State, Write
from tests.faults.material import ALBUM, PAIRS, X, Z, client_of, picture_item, vector_item
from tests.faults.processes import Managed
from tests.faults.tally import Tally

SWAPS = "swaps acknowledged"
_OPEN_STATES = {"queued", "running"}


@dataclass(frozen=True)
class World:
    """What every client shares."""

    servers: list[Managed]
    key: str
    ledgers: dict[str, Ledger]
    tally: Tally
    stopping: threading.Event
    jobs: list[str]
    """Every acknowledged retrain."""


class Client(ABC):
    """A thread that acts again and again until the run stops; `seed` is of its choices."""

    def __init__(self, world: World, name: str, seed: int) -> None:
        self.world = world
        self.name = name
        self.chance = random.Random(f"{name}-{seed}")
        self._clients = [client_of(server.url, world.key) for server in world.servers]
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, after the run was told to stop."""
        self._thread.join(180.0)
        if self._thread.is_alive():
            self.world.tally.violation(f"client {self.name} hangs")

    @abstractmethod
    def act(self) -> None:
        """Do one thing."""

    def send(
        self, method: str, path: str, server: int | None = None, **arguments: Any
    ) -> httpx.Response | None:
        """Send a request to some server; None where no answer came."""
        number = self.chance.randrange(len(self._clients)) if server is None else server
        try:
            answer = self._clients[number].request(method, path, **arguments)
        except httpx.TimeoutException:
            self.world.tally.violation(f"{self.name}: {method} {path} was never answered")
            return None
        except httpx.TransportError:
            self.world.tally.count("requests cut off")
            self.world.stopping.wait(0.1)
            return None
        if answer.status_code in (429, 503):
            self.world.tally.count(f"answers {answer.status_code}")
            self.world.stopping.wait(0.1)
        elif answer.status_code >= 500:
            self.world.tally.violation(
                f"{self.name}: {method} {path}: {answer.status_code} {answer.text[:300]}"
            )
        return answer

    def _run(self) -> None:
        try:
            while not self.world.stopping.is_set():
                self.act()
        except Exception as error:
            self.world.tally.violation(f"client {self.name} stumbled: {error!r}")
        finally:
            for client in self._clients:
                client.close()


class Writer(Client):
    """Creates, replaces and deletes items of its own, and sends what must be refused whole."""

    _LOOSE = 25
    _MOST_PAIRS = 150

    def __init__(self, world: World, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self._pairs = 0
        self._generation = 0

    def act(self) -> None:
        """Write once."""
        self._generation += 1
        choice = self.chance.random()
        if choice < 0.25 and self._pairs < self._MOST_PAIRS:
            self._store_pair()
        elif choice < 0.32:
            self._store_a_pair_with_a_fault()
        elif choice < 0.42:
            self._import()
        else:
            collection = ALBUM if choice > 0.8 else PAIRS
            modality = "image" if collection == ALBUM else self.chance.choice((X, X, Z))
            self._change(collection, modality, f"{modality}-{self.name}-{self.chance.randrange(self._LOOSE)}")
        self.world.stopping.wait(self.chance.uniform(0.0, 0.15))

    def _store_pair(self) -> None:
        self._pairs += 1
        first, second = (f"x-{self.name}-pair{self._pairs}{end}" for end in "ab")
        write = self.world.ledgers[PAIRS].begin(dict.fromkeys((first, second), 0), (first, second))
        items = [vector_item(X, item_id, 0) for item_id in (first, second)]
        self._close(PAIRS, write, self.send("POST", f"/v1/collections/{PAIRS}/items", json={"items": items}))

    def _import(self) -> None:
        """Stream new content for some items, slowly enough to be interrupted on the way."""
        numbers = self.chance.sample(range(self._LOOSE), 8)
        ids = [f"{modality}-{self.name}-{number}" for number, modality in zip(numbers, "xz" * 4, strict=True)]
        write = self.world.ledgers[PAIRS].begin(dict.fromkeys(ids, self._generation))
        lines = [json.dumps(vector_item(item_id[0], item_id, self._generation)) + "\n" for item_id in ids]
        path = f"/v1/collections/{PAIRS}/items:import"
        if self._close(PAIRS, write, self.send("POST", path, content=_slowly(lines))) is not None:
            self.world.tally.count("imports answered")

    def _store_a_pair_with_a_fault(self) -> None:
        first, second = (f"x-{self.name}-bad{self._generation}{end}" for end in "ab")
        items = [vector_item(X, item_id, 0) for item_id in (first, second)]
        items[1]["vector"] = [1.0]
        write = self.world.ledgers[PAIRS].begin(dict.fromkeys((first, second), 0))
        answer = self.send("POST", f"/v1/collections/{PAIRS}/items", json={"items": items})
        # Whatever was answered, nothing of it may ever be found.
        self.world.ledgers[PAIRS].close(write, Outcome.REFUSED)
        if answer is not None and answer.status_code < 400:
            self.world.tally.violation(f"a wrong dimension was taken: {answer.text}")

    def _change(self, collection: str, modality: str, item_id: str) -> None:
        ledger = self.world.ledgers[collection]
        before = ledger.possible(item_id)
        make = picture_item if modality == "image" else lambda i, g: vector_item(modality, i, g)
        path = f"/v1/collections/{collection}/items"
        choice = self.chance.random()
        if before == {None} or (None in before and choice < 0.3):
            write = ledger.begin({item_id: self._generation})
            body = {"items": [make(item_id, self._generation)]}
            answer = self._close(collection, write, self.send("POST", path, json=body))
            self._judge(answer, 201, 409, before, f"creating {item_id}")
        elif choice < 0.75:
            write = ledger.begin({item_id: self._generation})
            body = make(item_id, self._generation)
            self._close(collection, write, self.send("PUT", f"{path}/{item_id}", json=body))
            self._read_back(collection, item_id)
        else:
            write = ledger.begin({item_id: None})
            answer = self._close(collection, write, self.send("DELETE", f"{path}/{item_id}"))
            self._judge(answer, 200, 404, before, f"deleting {item_id}")

    def _judge(
        self, answer: httpx.Response | None, done: int, refused: int, before: set[State], what: str
    ) -> None:
        """Compare an answer that tells whether the item was there with what was possible."""
        if answer is None or answer.status_code not in (done, refused):
            return
        was_there = (answer.status_code == 409) if refused == 409 else (answer.status_code == 200)
        if (was_there and before == {None}) or (not was_there and None not in before):
            self.world.tally.violation(f"{what}: answered {answer.status_code}, states were {before}")

    def _read_back(self, collection: str, item_id: str) -> None:
        answer = self.send("GET", f"/v1/collections/{collection}/items/{item_id}")
        if answer is None or answer.status_code >= 500 or answer.status_code == 429:
            return
        found = answer.json()["metadata"]["generation"] if answer.status_code == 200 else None
        if found not in (allowed := self.world.ledgers[collection].possible(item_id)):
            self.world.tally.violation(f"read {item_id}: {found}, possible: {allowed}")

    def _close(self, collection: str, write: Write, answer: httpx.Response | None) -> httpx.Response | None:
        ledger, tally = self.world.ledgers[collection], self.world.tally
        wrong = None
        if answer is None or answer.status_code >= 500:
            ledger.close(write, Outcome.UNSURE)
            tally.count("writes unacknowledged")
        elif answer.status_code in (200, 201):
            wrong = ledger.close(write, Outcome.ACKNOWLEDGED, answer.json()["revision"])
            tally.count("writes acknowledged")
        else:
            ledger.close(write, Outcome.REFUSED)
            if answer.status_code not in (404, 409, 429):
                wrong = f"a good write was refused: {answer.status_code} {answer.text[:300]}"
        if wrong is not None:
            tally.violation(wrong)
        return answer


def _slowly(lines: list[str]) -> Iterator[bytes]:
    for line in lines:
        time.sleep(0.02)
        yield line.encode()


class Retrainer(Client):
    """Asks for one retrain after the other and follows each to its end; cancels some."""

    def act(self) -> None:
        """Retrain once."""
        body: dict[str, Any] = {"seed": self.chance.randrange(1000)}
        if self.chance.random() < 0.5:
            body |= {"alpha": 10.0 ** self.chance.uniform(-4.0, -2.5), "scaling": "standard"}
        answer = self.send("POST", f"/v1/admin/collections/{PAIRS}/retrain", json=body)
        if answer is None or answer.status_code != 202:
            if answer is not None and answer.status_code not in (409, 429, 503):
                self.world.tally.violation(f"retrain: {answer.status_code} {answer.text[:300]}")
            self.world.stopping.wait(0.5)
            return
        self.world.tally.count("retrains acknowledged")
        job = answer.json()["id"]
        self.world.jobs.append(job)
        cancel_at = time.monotonic() + (self.chance.uniform(0.0, 3.0) if self.chance.random() < 0.1 else 1e9)
        while not self.world.stopping.wait(0.2):
            if time.monotonic() > cancel_at:
                cancel_at = 1e18
                self.send("POST", f"/v1/admin/jobs/{job}/cancel")
            answer = self.send("GET", f"/v1/admin/jobs/{job}")
            if answer is None or answer.status_code in (429, 503):
                continue
            if answer.status_code != 200:
                self.world.tally.violation(f"acknowledged job {job}: {answer.status_code} {answer.text}")
                return
            if answer.json()["state"] not in _OPEN_STATES:
                return


class Swapper(Client):
    """Activates one of the versions that are there, again and again."""

    def act(self) -> None:
        """Activate one version."""
        self.world.stopping.wait(self.chance.uniform(0.2, 1.0))
        answer = self.send("GET", f"/v1/admin/collections/{PAIRS}/models")
        if answer is None or answer.status_code != 200:
            return
        others = [model["version"] for model in answer.json()["models"] if not model["is_active"]]
        if not others:
            return
        version = self.chance.choice(others)
        answer = self.send("POST", f"/v1/admin/collections/{PAIRS}/models/{version}/activate")
        if answer is None or answer.status_code in (429, 503):
            return
        if answer.status_code == 200:
            self.world.tally.count(SWAPS)
        elif answer.status_code != 404:  # removed meanwhile, as an old one
            self.world.tally.violation(f"activation of {version}: {answer.status_code} {answer.text[:300]}")
