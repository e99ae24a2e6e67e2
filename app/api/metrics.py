"""Metrics for Prometheus; every label comes from a bounded set."""
# Where several server processes share their metrics (``PROMETHEUS_MULTIPROC_DIR``) each of them reports all:
# counts are summed, and of the state of a collection the worst of all processes is reported. The state of
# jobs is read from the database for each answer.

from __future__ import annotations

import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from app.api.admission import ConcurrencyLimiter
from app.domain.errors import ServiceError
from app.services.health import CollectionStatus, HealthService, IndexStatus

# The files by which the Prometheus client shares metrics cannot drop a label, while collections come and go:
# hence each process writes the state of its collections to a file of its own, beside those of the client.

_STATUSES = msgspec.json.Decoder(list[CollectionStatus])


def share_statuses(folder: Path, statuses: Sequence[CollectionStatus]) -> None:
    """Write the state of this process's collections for the other processes behind the port."""
    path = _file_of(folder, os.getpid())
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(msgspec.json.encode(statuses))
    unfinished.replace(path)


def merge_statuses(folder: Path, statuses: Sequence[CollectionStatus]) -> list[CollectionStatus]:
    """Return the states of this process, each value replaced by the worst of all processes."""
    by_name: dict[str, list[CollectionStatus]] = {status.name: [status] for status in statuses}
    own = _file_of(folder, os.getpid())
    for path in folder.glob(_file_of(folder, "*").name):
        if path == own:
            continue
        try:
            others = _STATUSES.decode(path.read_bytes())
        except FileNotFoundError:
            continue  # its process has ended
        for status in others:
            if status.name in by_name:
                by_name[status.name].append(status)
    return [_worst(status, by_name[status.name]) for status in statuses]


def forget_process(pid: int, folder: str) -> None:
    """Remove the state that an ended process shared; its counts stay."""
    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]
    _file_of(Path(folder), pid).unlink(missing_ok=True)


def _file_of(folder: Path, pid: int | str) -> Path:
    return folder / f"collections_{pid}.json"


def _worst(own: CollectionStatus, statuses: Sequence[CollectionStatus]) -> CollectionStatus:
    versions = [status.served_version for status in statuses if status.served_version is not None]
    lags = [status.revision_lag for status in statuses if status.revision_lag is not None]
    return dataclasses.replace(
        own,
        served_version=min(versions, default=None),
        revision_lag=max(lags, default=None),
        indexes=_worst_indexes([status.indexes for status in statuses]),
    )


def _worst_indexes(of_processes: Sequence[Mapping[str, IndexStatus]]) -> dict[str, IndexStatus]:
    """Return by modality the index of the lowest recall, and whether any process serves without its index."""
    worst: dict[str, IndexStatus] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(of_processes)):
        indexes = [indexes[name] for indexes in of_processes if name in indexes]
        worst[name] = dataclasses.replace(
            min(indexes, key=lambda index: index.recall),
            is_fallback=any(index.is_fallback for index in indexes),
            n_items=min((index.n_items for index in indexes if index.n_items is not None), default=None),
        )
    return worst


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_MAX_COLLECTIONS = 200  # collections with metrics of their own; bounds the number of time series
_SHARED = "PROMETHEUS_MULTIPROC_DIR"


class Metrics(Collector):
    """The metrics of one application, with this process's counts of swept files and damaged bundles; it
    collects the state of collections and jobs for each answer."""

    def __init__(self, health: HealthService, swept: Callable[[], int], damaged: Callable[[], int]) -> None:
        own = self._own = CollectorRegistry()
        self.shared_folder = Path(os.environ[_SHARED]) if _SHARED in os.environ else None
        self._read = CollectorRegistry()
        self._read.register(self)
        self._health = health
        counter = partial(Counter, registry=own)
        gauge = partial(Gauge, multiprocess_mode="livesum", registry=own)
        self._mirrors = (
            _mirror(swept, counter("lrbs_swept_files", "Unused files that servers removed.")),
            _mirror(
                damaged,
                counter("lrbs_damaged_bundles", "Loads of a version that its damaged bundle prevented."),
            ),
        )
        labels = ("method", "route", "status")
        self._requests = counter("lrbs_http_requests", "Answered requests.", labels)
        self._seconds = Histogram(
            "lrbs_http_request_seconds",
            "Time to the end of the answer.",
            labels[:2],
            buckets=_BUCKETS,
            registry=own,
        )
        self._open = gauge("lrbs_http_requests_in_progress", "Requests that are being answered.")
        places = "Places that are taken: one for each request, or for searches answered together."
        self._running = gauge("lrbs_queue_running", places, ["lane"])
        self._waiting = gauge("lrbs_queue_waiting", "Requests that wait for a place.", ["lane"])
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._lanes: dict[str, tuple[Gauge, Gauge]] = {}
        self._refused = counter("lrbs_queue_refused", "Requests refused for lack of room.", ["lane"])

    def on_answer(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        answers = self._answers.get((method, route, status))
        if answers is None:
            # Looking labels up takes longer than counting.
            answers = self._requests.labels(method, route, str(status)), self._seconds.labels(method, route)
            self._answers[method, route, status] = answers
        answers[0].inc()
        answers[1].observe(seconds)

    def on_change(self, step: int) -> None:
        """Count a request that arrives (1) or is answered (-1)."""
        self._open.inc(step)

    def on_queue_change(self, limiter: ConcurrencyLimiter) -> None:
        """Record how many requests run and wait."""
        lane = self._lanes.get(limiter.name)
        if lane is None:
            lane = self._running.labels(limiter.name), self._waiting.labels(limiter.name)
            self._lanes[limiter.name] = lane
        lane[0].set(limiter.running)
        lane[1].set(limiter.waiting)

    def on_refusal(self, limiter: ConcurrencyLimiter) -> None:
        """Count a rejected request."""
        self._refused.labels(limiter.name).inc()

    def share(self) -> None:
        """Write this process's metrics for the other processes; raises what the database raises."""
        for update in self._mirrors:
            update()
        if self.shared_folder is not None:
            share_statuses(self.shared_folder, self._health.collections(_MAX_COLLECTIONS)[1])

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        for update in self._mirrors:
            update()
        counted = self._own
        if self.shared_folder is not None:
            counted = CollectorRegistry()
            MultiProcessCollector(counted)  # type: ignore[no-untyped-call]
        return generate_latest(counted) + generate_latest(self._read)

    def describe(self) -> list[Metric]:
        """Return nothing: the names are known only once the state is read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the state by the database; of that only that it is down if it does not answer."""
        backends = GaugeMetricFamily(
            "lrbs_backend_up",
            "Whether an object store or a vector engine answered when it was last asked.",
            labels=["backend"],
        )
        for name, is_up in self._health.backends().items():
            backends.add_metric([name], is_up)
        yield backends
        up = GaugeMetricFamily("lrbs_database_up", "Whether the database answered.")
        try:
            metrics = [*self._jobs(), *self._collections()]
        except ServiceError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        yield from metrics

    def _jobs(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("lrbs_jobs", "Retrain jobs.", labels=["state"])
        for state, count in self._health.jobs().items():
            jobs.add_metric([state.value], count)
        yield jobs

    def _collections(self) -> Iterator[Metric]:
        total, statuses = self._health.collections(_MAX_COLLECTIONS)
        if self.shared_folder is not None:
            statuses = merge_statuses(self.shared_folder, statuses)
        yield GaugeMetricFamily("lrbs_collections", "Collections.", value=total)
        of_collection = {
            name: GaugeMetricFamily(f"lrbs_{name}", text, labels=["collection"])
            for name, text in (
                ("active_version", "Model version that serves, by the database."),
                ("served_version", "Model version that is held; the lowest of several processes'."),
                (
                    "revision_lag",
                    "Writes that the next search replays first; the most of several processes'.",
                ),
            )
        }
        for status in statuses:
            for name, family in of_collection.items():
                value = getattr(status, name)
                if value is not None:
                    family.add_metric([status.name], value)
        yield from of_collection.values()
        yield from _indexes(statuses)


def _mirror(total: Callable[[], int], counter: Counter) -> Callable[[], None]:
    """Return what brings a counter up to a total of this process that a service keeps."""
    counted = 0
    lock = threading.Lock()

    def update() -> None:
        nonlocal counted
        with lock:
            now = total()
            counter.inc(now - counted)
            counted = now

    return update


def _indexes(statuses: Sequence[CollectionStatus]) -> Iterator[Metric]:
    """Yield what is known of the index of each gallery."""
    families = {
        name: GaugeMetricFamily(f"lrbs_index_{name}", text, labels=["collection", "modality", *more])
        for name, text, more in (
            ("items", "Rows of an index, by the last count of a vector engine.", []),
            ("serves", "1 for the kind of index that serves.", ["kind"]),
            ("fallback", "Whether an exact search stands in for the version's approximate index.", []),
            ("recall", "Share of true neighbours found: by live queries, or else by the training's.", []),
            ("recall_bound", "Bounds of the recall of live queries, wrong once in a million.", ["bound"]),
            ("recall_queries", "Live queries that the recall was measured with.", []),
            ("published_recall", "Recall of the version's approximate index in its training.", []),
        )
    }
    for status, (modality, index) in ((one, entry) for one in statuses for entry in one.indexes.items()):
        values: list[tuple[str, float | None, list[str]]] = [
            ("items", index.n_items, []),
            ("serves", 1, [index.kind]),
            ("fallback", index.is_fallback, []),
            ("recall", index.recall, []),
            ("published_recall", index.published_recall, []),
        ]
        if index.live is not None:
            values += [
                ("recall_bound", index.live.lower, ["lower"]),
                ("recall_bound", index.live.upper, ["upper"]),
                ("recall_queries", index.live.n_queries, []),
            ]
        for name, value, more in values:
            if value is not None:
                families[name].add_metric([status.name, modality, *more], value)
    yield from families.values()
