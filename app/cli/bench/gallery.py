"""A server process to measure, and a trained collection of vectors to be searched on it: drawn from a seed,
its rank the length of the vectors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx
import numpy as np
import numpy.typing as npt

from app.bootstrap import Services
from app.cli.train import train_and_wait
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.domain.reports import TrainingParameters
from app.domain.words import split_words
from app.services.catalogue.preparation import NewItem
from app.settings import Settings

_READY_POLL_SECONDS = 0.01
_STOP_SECONDS = 30.0
_STARTED = re.compile(r"LRBS serves on (http://\S+)")
NAME = "bench"
SOURCE, TARGET = "text", "image"
SEED = 0
SEARCH_PATH = f"/v1/collections/{NAME}/search/{SOURCE}-to-{TARGET}"
ITEMS_PER_IMPORT = 100_000
"""Of one request: an import of many has several."""
HUNDREDTH = "hundredth"
"""Metadata key of which each of a hundred values is that of every hundredth item."""
_TRAINED_PER_CLASS = 6
_SPREAD, _CENTRE = 0.3, 3.0
"""Deviation within a class, and length of its centre: every class is learned, and the rank is full."""
_WORDS = 8  # different words of a class
_ITEMS_OF_WORDS = 10_000
"""Whose words queries are drawn from."""
_DRAWN_AT_ONCE = 10_000  # bounds the memory of drawing
_ITEMS_SAVED_PER_SECOND = 10_000
"""Of a gallery, at least; one that is too small to be saved is not waited for longer."""
_POLL_SECONDS = 0.05  # for a file that takes seconds
_Rows = npt.NDArray[np.float64]


class ServerProcess:
    """`lrbs serve` on a free port, at `url`; `seconds_to_ready` are from the start to the first positive
    readiness probe."""

    def __init__(self, settings: Settings, seconds: float = 600.0) -> None:
        began = time.perf_counter()
        self._n_processes = settings.processes
        self._log = settings.data_dir / f"server-{time.monotonic_ns()}.log"
        environment = {
            **settings.model_copy(update={"host": "127.0.0.1", "port": 0}).passed_on_in(os.environ),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "app.cli", "serve", "--no-worker"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self.url = self._wait(began + seconds)
        except BaseException:
            self.stop()
            raise
        self.seconds_to_ready = time.perf_counter() - began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def peak_memory_mib(self) -> float | None:
        """Return the peak resident memory of the process; None where the system does not report it."""
        status = Path(f"/proc/{self._process.pid}/status")
        if not status.is_file():
            return None
        peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
        return int(peak[1]) / 1024 if peak else None

    def memory_mib(self) -> list[float]:
        """Return what each process takes, shared memory by its share; empty where that is not reported."""
        children = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        pids = [self._process.pid, *(int(pid) for file in children for pid in file.read_text().split())]
        files = [Path(f"/proc/{pid}/smaps_rollup") for pid in pids]
        sizes = [re.search(r"^Pss:\s+(\d+) kB", file.read_text(), re.M) for file in files if file.is_file()]
        return [int(size[1]) / 1024 for size in sizes if size]

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of the process; None where children do the work, or it is not reported."""
        return cpu_seconds(self._process.pid) if self._n_processes == 1 else None

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self, deadline: float) -> str:
        while time.perf_counter() < deadline:
            output = self._log.read_text(encoding="utf-8", errors="replace")
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}: {output.strip()}")
            address = _STARTED.search(output)
            if address and _is_ready(address[1]):
                return address[1]
            time.sleep(_READY_POLL_SECONDS)
        raise RuntimeError("the server was not ready in time")


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process; None where the system does not report it."""
    status = Path(f"/proc/{pid}/stat")
    if not status.is_file():
        return None
    # The process name before it may contain spaces; the 14th and 15th field are user and system time.
    fields = status.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, timeout=600.0).status_code == 200
    except httpx.TransportError:
        return False


@dataclass(frozen=True, slots=True)
class BenchKeys:
    """Keys of the service: for the load, and for what runs beside it."""

    search: str
    admin: str


def prepare(services: Services, dim: int, n_versions: int, has_texts: bool = False) -> BenchKeys:
    """Create keys and a trained collection, whose image gallery is still small; the first of its versions is
    active. `dim` are the numbers of each vector, the classes, and the rank of the model."""
    services.schema.upgrade()
    encoders = {SOURCE: "tfidf" if has_texts else "vector", TARGET: "vector"}
    services.catalogue.create(NAME, [Modality(side, {"type": encoder}) for side, encoder in encoders.items()])
    count = _TRAINED_PER_CLASS * max(dim, 2)
    for number, (side, encoder) in enumerate(encoders.items()):
        if encoder == "tfidf":
            texts, labels = draw_texts(dim, count, stream=number)
            contents = [Content(text=text) for text in texts]
        else:
            rows, labels = _draw(dim, 0, count, stream=number)
            contents = [Content(vector=row) for row in rows.tolist()]
        services.catalogue.add_items(
            NAME,
            [
                NewItem(side, content, f"{side}-{n}", (f"class {label}",))
                for n, (content, label) in enumerate(zip(contents, labels.tolist(), strict=True))
            ],
        )
    for version in range(n_versions):
        train_version(services, seed=version)
    services.versions.activate(NAME, 1, "bench", None, None)
    _, search = services.access.create(Scope.SEARCH)
    _, admin = services.access.create(Scope.ADMIN)
    return BenchKeys(search, admin)


def train_version(services: Services, seed: int) -> int:
    """Train a version, and return its number."""
    # Figures of speed do not depend on how well it has learned: the rank is full after a few iterations.
    parameters = TrainingParameters(
        method="squared", alpha=1e-6, scaling="standard", max_iter=30, tol=0.1, seed=seed
    )
    return train_and_wait(services, NAME, parameters, lambda *_: None)


def draw_queries(dim: int, count: int) -> _Rows:
    """Return query vectors, of shape (count, dim)."""
    return _draw(dim, 0, count, stream=3)[0].round(6)


def draw_texts(dim: int, count: int, stream: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return texts of three words of their class and one that all classes have, and their classes."""
    labels = np.arange(count) % max(dim, 2)
    words = np.random.default_rng((SEED, stream)).integers(_WORDS, size=(count, 4))
    texts = [
        " ".join([*(f"kind{label}word{word}" for word in of_class), f"common{common}"])
        for label, (*of_class, common) in zip(labels.tolist(), words.tolist(), strict=True)
    ]
    return texts, labels


def draw_typed(services: Services, name: str, count: int) -> tuple[str, str, list[str], int]:
    """Return the modalities of a collection that is searched with texts, as many different texts of one to
    four of its words, and its number of items; raises ValueError if it has too few."""
    with services.snapshots.open(name) as (snapshot, work):
        forms = {side: encoder.content_form for side, encoder in snapshot.model.encoders.items()}
        source = next((side for side, form in forms.items() if form == "text"), None)
        if source is None:
            raise ValueError(f"collection {name!r} has no texts")
        target = next((side for side in forms if side != source), source)
        items = (item for _, item in work.items.page(snapshot.collection, source, 0, _ITEMS_OF_WORDS))
        words = sorted({word for item in items for word in split_words(item.text or "")})
        n_items = snapshot.size
    if len(words) ** 2 < count:
        raise ValueError(
            f"the texts of {name!r} have {len(words)} different words, too few for {count} texts"
        )
    rng = np.random.default_rng((SEED, 4))
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[" ".join(rng.choice(words, rng.integers(1, 5)).tolist())] = None
    return source, target, list(texts), n_items


def item_lines(dim: int, start: int, count: int) -> Iterator[bytes]:
    """Yield items `start` to `start + count` of the gallery as pieces of NDJSON."""
    for first in range(start, start + count, _DRAWN_AT_ONCE):
        rows, labels = _draw(dim, first, min(_DRAWN_AT_ONCE, start + count - first), stream=2)
        entries = zip(rows.round(6).tolist(), labels.tolist(), strict=True)
        items = (
            {
                "id": f"item-{number:08d}",
                "modality": TARGET,
                "vector": row,
                "labels": [f"class {label}"],
                "metadata": {"split": "test", "number": number, HUNDREDTH: number % 100},
                "train": False,
            }
            for number, (row, label) in enumerate(entries, first)
        )
        yield b"".join(json.dumps(item).encode() + b"\n" for item in items)


def _draw(dim: int, start: int, count: int, stream: int) -> tuple[_Rows, npt.NDArray[np.int64]]:
    """Return vectors around the centres of as many classes as dimensions, and their classes."""
    n_classes = max(dim, 2)
    labels = np.arange(start, start + count) % n_classes
    basis = np.linalg.qr(np.random.default_rng(SEED).standard_normal((n_classes, n_classes)))[0]
    centres = _CENTRE * basis[:, :dim]
    noise = np.random.default_rng((SEED, stream, start)).standard_normal((count, dim))
    return centres[labels] + _SPREAD * noise, labels


def open_client(url: str, key: str) -> httpx.Client:
    """Return a client that waits for every answer."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=None)


def import_items(client: httpx.Client, lines: Iterable[bytes], count: int) -> float:
    """Import as many items as pieces of NDJSON hold, and return how many seconds that took."""
    began = time.perf_counter()
    response = client.post(
        f"/v1/collections/{NAME}/items:import",
        content=iter(lines),
        headers={"Content-Type": "application/x-ndjson"},
    )
    if response.raise_for_status().json()["created"] != count:
        raise RuntimeError("the import did not create all items")
    return time.perf_counter() - began


def import_gallery(client: httpx.Client, dim: int, count: int) -> list[tuple[int, float]]:
    """Import the gallery, and return size and items a second of each request."""
    rates = []
    for start in range(0, count, ITEMS_PER_IMPORT):
        size = min(ITEMS_PER_IMPORT, count - start)
        rates.append((size, size / import_items(client, item_lines(dim, start, size), size)))
    return rates


def wait_for_gallery(client: httpx.Client, services: Services, body: str, items: int) -> None:
    """Search until the gallery with all items serves, and wait until it is saved for the next start."""
    client.post(SEARCH_PATH, content=body).raise_for_status()
    end = time.monotonic() + items / _ITEMS_SAVED_PER_SECOND
    while not _is_saved(services) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)


def _is_saved(services: Services) -> bool:
    with services.database.read() as work:
        collection = work.collections.get(NAME)
        saved = work.collections.saved_gallery(collection)
        if saved is None or collection.active_version is None:
            return False
        return saved.model_bundle == work.models.get(collection, collection.active_version).bundle
