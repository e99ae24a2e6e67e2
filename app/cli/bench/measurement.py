"""The measurements of `lrbs bench search`: a server process, and on it a trained collection of vectors, drawn
from a seed, its rank the length of the vectors. Every ratio is taken within one run, in turns."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Self
from urllib.parse import quote

import httpx
import numpy as np
import numpy.typing as npt

from app.bootstrap import Services, build
from app.cli import demo
from app.cli.bench.load import PERCENTILES, LoadPlan, LoadProcess, LoadResult, run_load
from app.cli.train import train_and_wait
from app.domain.entities import Content, Matrix, Modality
from app.domain.names import Scope
from app.domain.reports import TrainingParameters
from app.domain.words import split_words
from app.index import ExactIndex
from app.services.catalogue.preparation import NewItem
from app.settings import Settings

_READY_POLL_SECONDS = 0.01
_START_SECONDS, _STOP_SECONDS = 600.0, 30.0
_STARTED = re.compile(r"LRBS serves on (http://\S+)")
NAME = "bench"
SOURCE, TARGET = "text", "image"
SEED = 0
SEARCH_PATH = f"/v1/collections/{NAME}/search/{SOURCE}-to-{TARGET}"
ITEMS_PER_IMPORT = 100_000
"""Of one request: an import of many has several."""
HUNDREDTH = "hundredth"
"""Metadata key of which each of a hundred values is that of every hundredth item."""
TRAINED_PER_CLASS = 6
_SPREAD, _CENTRE = 0.3, 3.0
"""Deviation within a class, and length of its centre: every class is learned, and the rank is full."""
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

    def __init__(self, settings: Settings) -> None:
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
        self.pid = self._process.pid
        try:
            self.url = self._wait(began + _START_SECONDS)
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
        status = Path(f"/proc/{self.pid}/status")
        if not status.is_file():
            return None
        peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
        return int(peak[1]) / 1024 if peak else None

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of the process; None where children do the work, or it is not reported."""
        return cpu_seconds(self.pid) if self._n_processes == 1 else None

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
        return httpx.get(f"{url}/readyz", trust_env=False, verify=False, timeout=600.0).status_code == 200
    except httpx.TransportError:
        return False


@dataclass(frozen=True, slots=True)
class BenchKeys:
    """Keys of the service: for the load, and for what runs beside it."""

    search: str
    admin: str


def prepare(services: Services, dim: int, n_versions: int, texts: Sequence[str] | None = None) -> BenchKeys:
    """Create keys and a trained collection, whose image gallery is still small; the first of its versions is
    active. `dim` are the numbers of each vector, the classes, and the rank of the model."""
    # `texts`, `TRAINED_PER_CLASS` of each class in turn, take the place of the vectors of their modality.
    services.schema.upgrade()
    encoders = {SOURCE: "vector" if texts is None else "tfidf", TARGET: "vector"}
    services.catalogue.create(NAME, [Modality(side, {"type": encoder}) for side, encoder in encoders.items()])
    for number, (side, encoder) in enumerate(encoders.items()):
        rows, labels = _draw(dim, 0, TRAINED_PER_CLASS * max(dim, 2), stream=number)
        contents = [Content(vector=row) for row in rows.tolist()]
        if texts is not None and encoder == "tfidf":
            contents = [Content(text=text) for text in texts]
        items = [
            NewItem(side, content, f"{side}-{n}", (f"class {label}",))
            for n, (content, label) in enumerate(zip(contents, labels.tolist(), strict=True))
        ]
        services.catalogue.add_items(NAME, items)
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
    return httpx.Client(base_url=url, headers=headers, trust_env=False, verify=False, timeout=None)


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
    with services.database.read_of(NAME) as (work, collection):
        saved = work.collections.saved_gallery(collection)
        if saved is None or collection.active_version is None:
            return False
        return saved.model_bundle == work.models.get(collection, collection.active_version).bundle


DISTURBANCES = ("replay", "swap", "import")
_BARE = "/search"
_FILTER = {"metadata": {HUNDREDTH: 7}}
_FILTERED = "vectors, a hundredth of the items"
_K = 10
_ORACLE_QUERIES = 200  # recall is measured to half a thousandth with these many queries of ten hits
_OPEN_SHARE = 0.5
"""Rate of the open loop, as a share of what the closed loop reached: half, at which queues stay short."""
_OPEN_CONNECTIONS = 64
_WARM_SHARE = 0.1  # part of each load that is not counted
_LONGEST_SECONDS = 3600.0  # an import that takes longer ends the measurement
_WRITTEN, _WRITE_SECONDS = 10, 0.05
"""Items of a write during a replay, and the pause after it: 200 items a second."""


@dataclass(frozen=True, slots=True)
class SearchBench:
    """What is measured: parameters as of the command."""

    collection: str
    pictures: int
    items: int
    dim: int
    clients: int
    seconds: float
    rounds: int
    queries: int
    texts: int
    during: tuple[str, ...]
    lists: bool


@dataclass(frozen=True, slots=True)
class _Target:
    """What is asked of an endpoint, and how to read the CPU time of the process that answers."""

    plan: LoadPlan
    cpu_seconds: Callable[[], float | None]

    def turn(self, share: float) -> LoadPlan:
        """Return it asked from another place on, so that no load begins with what was asked just before."""
        bodies = self.plan.bodies
        first = int(share * len(bodies))
        return replace(self.plan, bodies=[*bodies[first:], *bodies[:first]])


def _summarise(results: Sequence[LoadResult], cpu_ms: Sequence[float] = ()) -> dict[str, Any]:
    """Return medians over the rounds of one load, and the sum of the failures; `cpu_ms` is the CPU time of
    the server per answer."""
    figures: dict[str, Any] = {"qps": median(result.qps for result in results)}
    for name in PERCENTILES:
        values = [v for result in results if (v := getattr(result, name)) is not None]
        figures[name] = median(values) if values else None
    failures = sum((Counter(result.failures) for result in results), Counter[str]())
    figures["cpu_ms"] = median(cpu_ms) if cpu_ms else None
    return {**figures, "failures": failures, "rounds": [result.qps for result in results]}


def measure_search(bench: SearchBench, settings: Settings, on_phase: Callable[[str], None]) -> dict[str, Any]:
    """Make a collection in an empty database, start the service on it, and search it.
    Returns the command's JSON without the machine; ``loads`` by name, latencies in ms."""
    # A training of so few items looks for inverted lists only where they are asked for.
    from_items = 1 if bench.lists else sys.maxsize
    services = build(settings.model_copy(update={"approximate_from_items": from_items}))
    keys = prepare(services, bench.dim, n_versions=2 if "swap" in bench.during else 1)
    rows = draw_queries(bench.dim, bench.queries)
    bodies = [json.dumps({"vector": row, "k": _K}) for row in rows.tolist()]
    on_phase(f"importing {bench.items} items")
    with ServerProcess(settings) as server, open_client(server.url, keys.admin) as client:
        rates = import_gallery(client, bench.dim, bench.items)
        wait_for_gallery(client, services, bodies[0], bench.items)
    index_seconds = None
    if bench.lists:
        # The version that serves from now on is indexed by inverted lists.
        on_phase("training, and building lists")
        began = time.perf_counter()
        services.versions.activate(NAME, train_version(services, seed=0), "bench", None, None)
        index_seconds = time.perf_counter() - began
        with ServerProcess(settings) as server, open_client(server.url, keys.admin) as client:
            wait_for_gallery(client, services, bodies[0], bench.items)
    gallery, ids, projected, rank, kind = _project(services, rows)
    services.database.engine.dispose()
    with (
        ServerProcess(settings) as server,
        _serve_typed(bench, settings, server, keys, on_phase) as (typed, facts),
    ):
        measured = _Measurement(bench, server, keys, bodies, typed, on_phase).run(gallery, ids, projected)
    return {
        **facts,
        "items": bench.items,
        "dim": bench.dim,
        "rank": rank,
        "k": _K,
        "clients": bench.clients,
        "processes": settings.processes,
        "seconds": bench.seconds,
        "seed": SEED,
        "index": kind,
        "seconds_to_train_and_index": index_seconds,
        "items_imported_per_second": bench.items / sum(count / rate for count, rate in rates),
        "items_imported_per_second_at_the_end": rates[-1][1],
        **measured,
    }


@dataclass(frozen=True, slots=True)
class _Measurement:
    """The loads on one running service."""

    bench: SearchBench
    server: ServerProcess
    keys: BenchKeys
    bodies: Sequence[str]
    typed: _Target
    on_phase: Callable[[str], None]

    @property
    def vectors(self) -> _Target:
        plan = LoadPlan(self.server.url + SEARCH_PATH, self.keys.search, self.bodies, self.bench.clients)
        return _Target(replace(plan, seconds=self.bench.seconds), self.server.cpu_seconds)

    def run(self, gallery: Matrix, ids: Sequence[str], projected: Matrix) -> dict[str, Any]:
        cold = self._measure_cold()
        recall = self._measure_recall(gallery, ids, projected)
        summaries, raw = self._measure_in_turns(gallery, projected)
        names = f"vectors, {self.bench.clients} clients", f"bare, {self.bench.clients} clients"
        http_qps, bare_qps = (summaries[name]["qps"] for name in names)
        raw_qps = median(1.0 / median(seconds) for seconds in raw)
        raw_p50 = 1000.0 / raw_qps
        for name, summary in summaries.items():
            bare = summaries[f"bare, {name.partition(', ')[2]}"]["cpu_ms"]
            summary["times_bare"] = summary["cpu_ms"] / bare if bare and summary["cpu_ms"] else None
        one, bare_one = summaries["vectors, 1 client"]["p50"], summaries["bare, 1 client"]["p50"]
        summaries[_FILTERED] = self._measure_filtered()
        summaries |= self._measure_open(http_qps)
        summaries |= self._measure_disturbed()
        return {
            "http_qps": http_qps,
            "raw_index_qps": raw_qps,
            "bare_endpoint_qps": bare_qps,
            "share_of_the_slower": http_qps / min(raw_qps, bare_qps),
            "times_the_exact_scan": http_qps / raw_qps,
            "filtered_qps": summaries[_FILTERED]["qps"],
            "server_cpu_ms_per_search": summaries[names[0]]["cpu_ms"],
            "recall_at_10": recall,
            **{name: summaries[names[0]][name] for name in PERCENTILES},
            "p50_of_one_client": one,
            "p50_over_raw_and_bare": one - raw_p50 - bare_one,
            "peak_memory_mib": self.server.peak_memory_mib(),
            **cold,
            "loads": summaries,
        }

    def _measure_cold(self) -> dict[str, float]:
        """Return what a start costs: the time to ready, and that of the first searches."""
        self.on_phase("first searches")
        with open_client(self.server.url, self.keys.search) as client:
            times = []
            for body in self.bodies[:10]:
                began = time.perf_counter()
                client.post(SEARCH_PATH, content=body).raise_for_status()
                times.append((time.perf_counter() - began) * 1000.0)
        return {
            "seconds_to_ready": self.server.seconds_to_ready,
            "first_search_ms": times[0],
            "next_searches_ms": median(times[1:]),
        }

    def _measure_recall(self, gallery: Matrix, ids: Sequence[str], projected: Matrix) -> float:
        """Return the share of true neighbours among the hits, by scores in double precision."""
        self.on_phase("recall")
        exact, row_of_id = gallery.astype(np.float64), {item_id: row for row, item_id in enumerate(ids)}
        n_true = n_expected = 0
        with open_client(self.server.url, self.keys.search) as client:
            queries = zip(self.bodies[:_ORACLE_QUERIES], projected.astype(np.float64), strict=False)
            for body, query in queries:
                answer = client.post(SEARCH_PATH, content=body).raise_for_status().json()
                scores = exact @ query
                depth = min(_K, len(scores))
                least = np.partition(scores, len(scores) - depth)[len(scores) - depth]
                rows = [row_of_id[hit["id"]] for hit in answer["hits"]]
                n_true += int(np.count_nonzero(scores[rows] >= least))
                n_expected += depth
        return n_true / n_expected

    def _measure_in_turns(
        self, gallery: Matrix, projected: Matrix
    ) -> tuple[dict[str, dict[str, Any]], list[list[float]]]:
        """Return a summary of each load, and the seconds of the searches of the index alone, by round."""
        bench = self.bench
        index, raw = ExactIndex(gallery), []
        results: defaultdict[str, list[LoadResult]] = defaultdict(list)
        cpu_ms: defaultdict[str, list[float]] = defaultdict(list)
        with _bare_endpoint(self.typed) as bare:
            targets = {"typed": self.typed, "vectors": self.vectors, "bare": bare}
            for target in targets.values():
                plan = replace(target.plan, connections=bench.clients, seconds=min(bench.seconds, 1.0))
                run_load(plan)
            for number in range(bench.rounds):
                self.on_phase(f"round {number + 1} of {bench.rounds}")
                raw.append(_raw_seconds(index, projected, bench.seconds / 2))
                for turn, connections in enumerate(sorted({1, bench.clients})):
                    for kind, target in targets.items():
                        share = (number + turn / 2) / bench.rounds
                        plan = replace(
                            target.turn(share),
                            connections=connections,
                            seconds=bench.seconds,
                            warm_seconds=bench.seconds * _WARM_SHARE,
                        )
                        name = f"{kind}, {connections} client{'s' if connections > 1 else ''}"
                        before = target.cpu_seconds()
                        result = run_load(plan)
                        after = target.cpu_seconds()
                        results[name].append(result)
                        if before is not None and after is not None and result.qps:
                            # What is answered while the load warms up is not counted, but takes time, too.
                            cpu_ms[name].append((after - before) * 1000.0 / (result.qps * plan.seconds))
        return {name: _summarise(rounds, cpu_ms[name]) for name, rounds in results.items()}, raw

    def _measure_filtered(self) -> dict[str, Any]:
        """Return the load of searches whose filter lets a hundredth of the items through."""
        self.on_phase("a filter")
        bodies = [json.dumps({**json.loads(body), "filter": _FILTER}) for body in self.bodies]
        plan = replace(self.vectors.plan, bodies=bodies)
        run_load(replace(plan, seconds=min(plan.seconds, 1.0)))  # the first use prepares its rows
        return _summarise([run_load(plan) for _ in range(self.bench.rounds)])

    def _measure_open(self, closed_qps: float) -> dict[str, dict[str, Any]]:
        rate = _OPEN_SHARE * closed_qps
        self.on_phase(f"{rate:.0f} requests a second")
        plan = replace(self.vectors.plan, connections=_OPEN_CONNECTIONS, rate=rate)
        return {f"vectors, open loop, {rate:.0f}/s": asdict(run_load(plan))}

    def _measure_disturbed(self) -> dict[str, dict[str, Any]]:
        works = {"replay": lambda: self._write, "swap": lambda: self._swap, "import": self._draw_import}
        results = {}
        for name in (name for name in works if name in self.bench.during):
            work = works[name]()
            self.on_phase(f"during {name}")
            plan = replace(self.vectors.plan, seconds=_LONGEST_SECONDS)
            with LoadProcess(plan) as load, open_client(self.server.url, self.keys.admin) as client:
                work(client)
                results[f"vectors, during {name}"] = asdict(load.stop())
        return results

    def _write(self, client: httpx.Client) -> None:
        end, number = time.monotonic() + self.bench.seconds, 2 * self.bench.items
        while time.monotonic() < end:
            import_items(client, item_lines(self.bench.dim, number, _WRITTEN), _WRITTEN)
            number += _WRITTEN
            time.sleep(_WRITE_SECONDS)

    def _swap(self, client: httpx.Client) -> None:
        client.post(f"/v1/admin/collections/{NAME}/models/2/activate").raise_for_status()
        end, is_new = time.monotonic() + self.bench.seconds, False
        while time.monotonic() < end or not is_new:
            answer = client.post(SEARCH_PATH, content=self.bodies[0]).raise_for_status().json()
            is_new = answer["model_version"] == 2
            time.sleep(_WRITE_SECONDS)

    def _draw_import(self) -> Callable[[httpx.Client], object]:
        """Return an import whose items are drawn already: that takes a core, which searches would miss."""
        start, count = self.bench.items, min(self.bench.items, ITEMS_PER_IMPORT)
        lines = list(item_lines(self.bench.dim, start, count))
        return partial(import_items, lines=lines, count=count)


def _project(services: Services, rows: Any) -> tuple[Matrix, list[str], Matrix, int, str]:
    """Return the projected gallery, its ids, the projected queries, the model's rank and the index's kind."""
    with services.snapshots.open(NAME) as (snapshot, _):
        views = snapshot.galleries[TARGET].segments
        gallery = np.concatenate([view.live_vectors() for view in views])
        ids = [item.id for view in views for item in view.live_items()]
        projected = np.concatenate([snapshot.model.project(SOURCE, row[None, :]) for row in rows])
        kind = snapshot.galleries[TARGET].index_kind
        return gallery, ids, projected, snapshot.model.projector.rank, kind


def _raw_seconds(index: ExactIndex, queries: Matrix, seconds: float) -> list[float]:
    """Return the duration of each search of the index alone, one at a time in one thread."""
    times: list[float] = []
    end, number = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or not times:
        began = time.perf_counter()
        index.search(queries[number % len(queries)], _K, None)
        times.append(time.perf_counter() - began)
        number += 1
    return times


@contextmanager
def _serve_typed(
    bench: SearchBench,
    settings: Settings,
    server: ServerProcess,
    keys: BenchKeys,
    on_phase: Callable[[str], None],
) -> Iterator[tuple[_Target, dict[str, Any]]]:
    """Yield what is asked with texts, and what is to be known of it: a collection of the own data folder, or
    else the pictures of the demo, beside the vectors."""
    with ExitStack() as until_measured:
        if bench.collection:
            settings = Settings(processes=settings.processes, rate_limit=0)
            services = build(settings)
            key, secret = services.access.create(Scope.SEARCH, "bench")
            until_measured.callback(services.access.revoke, key.id)
            server = until_measured.enter_context(ServerProcess(settings))
        else:
            services, secret = build(settings), keys.search
            demo.prepare(services, bench.pictures, lambda what, *_: on_phase(f"the demo: {what}"))
        until_measured.callback(services.database.engine.dispose)
        name = bench.collection or demo.COLLECTION
        source, target, texts, n_items = draw_typed(services, name, bench.texts)
        url = f"{server.url}/v1/collections/{quote(name)}/search/{quote(source)}-to-{quote(target)}"
        bodies = [json.dumps({"text": text, "k": _K}) for text in texts]
        facts = {"typed_collection": name, "typed_items": n_items, "typed_texts": len(texts)}
        yield _Target(LoadPlan(url, secret, bodies), server.cpu_seconds), facts


@contextmanager
def _bare_endpoint(like: _Target) -> Iterator[_Target]:
    """Serve the bare endpoint in a process of its own, and yield it, asked the same."""
    command = [sys.executable, "-m", "app.cli.bench.bare_endpoint"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError("the bare endpoint did not start")
            yield _Target(replace(like.plan, url=url + _BARE), partial(cpu_seconds, process.pid))
        finally:
            process.terminate()
