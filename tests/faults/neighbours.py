"""Noisy neighbours: ``python -m tests.faults.neighbours --items 100000 --database sqlite``.

One collection is filled by a large import, replayed, retrained and swapped, and the server is attacked
without keys, while another, small one is searched, a third, small one is written to and searched, and the
service is probed, all from a process of its own. Each phase is compared with the quiet one of the same run,
since the machine may have other work.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from tests.faults.campaign import conduct, threads
from tests.faults.cluster import PostgresCluster
from tests.faults.material import MODALITIES, PAIRS, X, Z, client_of, train, vector_item
from tests.faults.phases import BUSY_SWAP, QUIET, REPLAY, SWAP, Report
from tests.faults.prober import PROBES, SEARCH, search_requests
from tests.faults.processes import ROOT, THIS, Program, Service, serving
from tests.faults.tally import Tally

SMALL, WRITTEN, BIG = "small", "written", "big"
_SMALL_ITEMS, _BASE_ITEMS = 200, 400
_CLIENTS_OF_BIG, _ATTACKERS, _IDLE = 6, 4, 200
_MOST_RATIO, _MOST_PROBE_SECONDS = 3.0, 1.0
_TRAINING = {"seconds": 1800.0, "alpha": 1e-3, "scaling": "standard", "method": "lrbs"}
_BREATH_SECONDS = 0.5
"""After a swap, which may be over before every probe was made once."""


@contextlib.contextmanager
def probing(service: Service, report: Report, folder: Path) -> Iterator[None]:
    """Search the small collection and probe, from another process, and take over what was measured."""
    log = folder / "prober.log"
    with log.open("wb") as stream:
        prober = subprocess.Popen(
            [sys.executable, "-um", "tests.faults.prober", service.url, service.key, SMALL, WRITTEN],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=stream,
        )
    try:
        while not {line.split()[0] for line in log.read_text().splitlines()} >= {SEARCH, *PROBES}:
            assert prober.poll() is None, "the prober has ended"
            time.sleep(0.05)
        yield
    finally:
        assert prober.stdin is not None
        prober.stdin.close()
        prober.wait(600.0)
        for line in log.read_text(encoding="utf-8").splitlines():
            what, at, took, status = line.split()
            report.samples.append((what, float(at), float(took), int(status)))


def fill(client: httpx.Client, name: str, count: int) -> None:
    """Make a collection of vectors of both modalities and train it."""
    client.post("/v1/collections", json={"name": name, "modalities": MODALITIES[PAIRS]}).raise_for_status()
    for side in (X, Z):
        items = [vector_item(side, f"{side}-base-{number}", 0) for number in range(count // 2)]
        client.post(f"/v1/collections/{name}/items", json={"items": items}).raise_for_status()
    train(client, name, **_TRAINING)


def many_items(count: int, seed: int) -> bytes:
    """Return an import of items that are not learned from."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, len(vector_item(X, "x", 0)["vector"]))).round(4).tolist()
    return b"".join(
        json.dumps(
            {
                "id": f"many-{number}",
                "modality": X,
                "vector": row,
                "labels": [f"class {number % 4}"],
                "metadata": {"number": number, "colour": "red", "sizes": ["s", "m"]},
                "train": False,
            }
        ).encode()
        + b"\n"
        for number, row in enumerate(rows)
    )


def search_big(service: Service, tally: Tally) -> Callable[[threading.Event, int], None]:
    """Return work that searches the big collection again and again; what is refused is counted."""

    def work(closing: threading.Event, _: int) -> None:
        requests = search_requests(BIG)
        with client_of(service.url, service.key) as client:
            while not closing.wait(0.02):
                method, path, body = requests()
                answer = client.request(
                    method, path, content=body, headers={"Content-Type": "application/json"}
                )
                tally.count(f"searches of {BIG} answered with {answer.status_code}")
                if answer.status_code not in (200, 503):
                    tally.violation(f"a search of {BIG}: {answer.status_code} {answer.text[:200]}")

    return work


def until_big_has(client: httpx.Client, is_there: Callable[[dict[str, Any]], bool]) -> None:
    """Wait for an answer of the big collection."""
    method, path, body = search_requests(BIG)()
    while True:
        answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
        if answer.status_code == 200 and is_there(answer.json()):
            return
        time.sleep(0.05)


def swap(client: httpx.Client, version: int) -> None:
    """Activate a version of the big collection, and wait until it answers."""
    client.post(f"/v1/admin/collections/{BIG}/models/{version}/activate").raise_for_status()
    until_big_has(client, lambda found: bool(found["model_version"] == version))
    time.sleep(_BREATH_SECONDS)


def attack(service: Service, tally: Tally) -> Callable[[threading.Event, int], None]:
    """Return work that asks for imports and job events with invented keys and sends no body."""
    address = urlsplit(service.url)
    targets = (
        f"POST /v1/collections/{BIG}/items:import HTTP/1.1\r\nContent-Length: 1000000",
        "GET /v1/admin/jobs/none/events HTTP/1.1",
    )

    def work(closing: threading.Event, number: int) -> None:
        while not closing.wait(0.05):
            head = f"{targets[number % 2]}\r\nHost: x\r\nAuthorization: Bearer {secrets.token_hex(8)}\r\n\r\n"
            with (
                contextlib.suppress(OSError),
                socket.create_connection((address.hostname, address.port), timeout=5.0) as connection,
            ):
                connection.sendall(head.encode())
                status = connection.recv(4096).split(b" ")[1:2]
                tally.count(f"attacks answered with {b''.join(status).decode()}")

    return work


@contextlib.contextmanager
def idle_connections(service: Service, count: int) -> Iterator[None]:
    """Hold connections that never send a byte."""
    address = urlsplit(service.url)
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            with contextlib.suppress(OSError):
                made = socket.create_connection((address.hostname, address.port), timeout=5.0)
                stack.enter_context(made)
        yield


def campaign(
    items: int,
    seconds: float,
    folder: Path,
    database_url: str = "",
    seed: int = 0,
    program: Program = THIS,
    most_probe_seconds: float = _MOST_PROBE_SECONDS,
    most_ratio: float | None = None,
) -> Report:
    """Make noise in one collection and measure what another sees of it, in phases of `seconds` or their own
    end."""
    # A probe that takes longer than `most_probe_seconds` is a violation; `most_ratio` bounds the p99 of
    # searches in replay and swap, as a multiple of the quiet one.
    report = Report(Tally())
    with (
        serving(folder, report.tally, database_url, program) as service,
        client_of(service.url, service.key) as client,
    ):
        fill(client, SMALL, _SMALL_ITEMS)
        fill(client, WRITTEN, _SMALL_ITEMS)
        fill(client, BIG, _BASE_ITEMS)
        body = many_items(items, seed)
        until_big_has(client, lambda _: True)
        with probing(service, report, folder):
            with report.phase(QUIET):
                time.sleep(seconds)
            _make_noise(service, client, body, seconds, report)
            time.sleep(0.5)
    report.judge(most_probe_seconds, most_ratio)
    return report


def _make_noise(service: Service, client: httpx.Client, body: bytes, seconds: float, report: Report) -> None:
    big = search_big(service, report.tally)
    with report.phase("import"):
        answer = client.post(
            f"/v1/collections/{BIG}/items:import",
            content=body,
            headers={"Content-Type": "application/x-ndjson"},
        )
        revision = answer.raise_for_status().json()["revision"]
    with report.phase(REPLAY), threads(_CLIENTS_OF_BIG, big):
        until_big_has(client, lambda found: bool(found["index_revision"] >= revision))
    with report.phase("searched"), threads(_CLIENTS_OF_BIG, big):
        time.sleep(seconds)
    with report.phase("retrain"):
        version = train(client, BIG, **_TRAINING)
    with report.phase(SWAP):
        swap(client, 1)
    with report.phase(BUSY_SWAP), threads(_CLIENTS_OF_BIG, big):
        swap(client, version)
    with (
        report.phase("attack"),
        idle_connections(service, _IDLE),
        threads(_ATTACKERS, attack(service, report.tally)),
    ):
        time.sleep(seconds)


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--python", default=THIS.python, help="interpreter of the service's code")
    parser.add_argument("--root", type=Path, default=THIS.root, help="checkout of the service's code")

    def run(asked: argparse.Namespace, folder: Path) -> Report:
        program, size = Program(asked.python, asked.root), (asked.items, asked.seconds, folder)
        with contextlib.ExitStack() as stack:
            url = ""
            if asked.database == "postgres":
                url = stack.enter_context(contextlib.closing(PostgresCluster())).url
            return campaign(*size, url, asked.seed, program, most_ratio=_MOST_RATIO)

    conduct(parser, run)


if __name__ == "__main__":
    main()
