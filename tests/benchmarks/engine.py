"""`engine`: searches of made galleries in the vector engine of the settings, beside memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from app.bootstrap import open_vector_engine
from app.cli.console import LOG, OUT, JsonFlag
from app.domain.entities import IndexedItem, Matrix
from app.domain.filters import ItemFilter
from app.domain.ports import GalleryIndex, GalleryKey, NewGallery, VectorEngine
from app.services.serving.engine_galleries import RemoteGallery
from app.services.serving.galleries import Gallery
from app.services.serving.segments import Segment
from app.services.training.index_tuning import IndexTuner
from app.settings import Settings
from solver.benchmark import machine
from tests.app.galleries import gallery_of
from tests.benchmarks.index import made_gallery

_KEY = GalleryKey(0, "lrbs-bench", "image")  # no collection has the id 0
_DEPTH = 10
_RECALL = 0.99
_QUERIES, _LEARNED_FROM = 300, 20_000
_BATCH = 1000
_TENTHS = 10
_FILTERS = {
    "all": ItemFilter(),
    "a tenth": ItemFilter.of(metadata={"tenth": (3,)}),
    "a hundredth": ItemFilter.of(labels=("hundredth 42",)),
    "a thousandth": ItemFilter.of(labels=("hundredth 42",), metadata={"tenth": (3,)}),
}


@dataclass(frozen=True, slots=True)
class _Figures:
    """What was measured of one gallery under one filter; times in milliseconds."""

    gallery: str
    items: str
    build_seconds: float
    recall_at_10: float
    per_second: float
    median: float
    p99: float


def engine_command(
    n_items: Annotated[int, typer.Option("--items", min=_BATCH, help="items of the gallery")] = 100_000,
    dim: Annotated[int, typer.Option("--dim", min=2, help="dimensions of the factors")] = 32,
    n_clients: Annotated[int, typer.Option("--clients", min=1, help="threads that search")] = 4,
    seconds: Annotated[float, typer.Option("--seconds", help="of each measurement")] = 5.0,
    seed: Annotated[int, typer.Option("--seed", help="of the made factors")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Recall and speed of the vector engine of the settings, beside galleries in memory."""
    settings = Settings()
    engine = open_vector_engine(settings)
    vectors, drawn = made_gallery(n_items, _QUERIES + _LEARNED_FROM, dim, seed)
    queries, learned = drawn[:_QUERIES], drawn[_QUERIES:]
    items = [
        IndexedItem(f"{number:08d}", (f"hundredth {number % 100}",), {"tenth": number // 100 % _TENTHS})
        for number in range(n_items)
    ]
    exact = gallery_of(items, vectors)
    figures: list[_Figures] = []
    with ThreadPoolExecutor(n_clients) as clients:
        for name, gallery, build_seconds in _galleries(engine, settings.vector_engine, exact, learned):
            for of, item_filter in _FILTERS.items():
                with LOG.status(f"{name}, {of}"):
                    recall = _measure_recall(gallery, exact, queries, item_filter)
                    times, elapsed = _search(gallery, queries, item_filter, clients, n_clients, seconds)
                figures.append(
                    _Figures(
                        name,
                        of,
                        build_seconds,
                        recall,
                        len(times) / elapsed,
                        float(np.median(times)),
                        float(np.quantile(times, 0.99)),
                    )
                )
    if engine is not None:
        engine.drop(_KEY)
        engine.close()
    sizes = {"items": n_items, "dimensions": dim, "clients": n_clients, "seed": seed}
    if as_json:
        results = [asdict(row) for row in figures]
        typer.echo(json.dumps({"machine": machine(), **sizes, "results": results}, indent=1))
        return
    OUT.print(_table(figures))
    OUT.print(", ".join(f"{value} {name}" for name, value in sizes.items()))


def _galleries(
    engine: VectorEngine | None, name: str, exact: Gallery, learned: Matrix
) -> Iterator[tuple[str, Gallery, float]]:
    """Yield names, galleries of the same rows, and the seconds that each took to build."""
    (view,) = exact.segments
    items, vectors = list(view.live_items()), view.live_vectors()
    yield "memory, exact", exact, 0.0
    began = time.perf_counter()
    if engine is None:
        tuner = IndexTuner(_RECALL, 1)
        chosen, _ = tuner.choose(vectors, learned)
        if chosen is not None:
            index: GalleryIndex = chosen.index
            gallery = Gallery.of_segment(Segment(items, index))
            yield f"memory, {index.spec.kind}", gallery, time.perf_counter() - began
        return
    engine.drop(_KEY)
    rows = engine.create(NewGallery(_KEY, 1, _batches_of(items, vectors), vectors, learned, ()))
    yield name, RemoteGallery(rows, 1), time.perf_counter() - began


def _batches_of(items: Sequence[IndexedItem], vectors: Matrix) -> Iterator[tuple[list[IndexedItem], Matrix]]:
    for start in range(0, len(items), _BATCH):
        part = items[start : start + _BATCH]
        yield (
            [IndexedItem(item.id, item.labels, dict(item.metadata)) for item in part],
            vectors[start : start + _BATCH],
        )


def _measure_recall(gallery: Gallery, exact: Gallery, queries: Matrix, item_filter: ItemFilter) -> float:
    """Return the share of the best ten that a gallery has, too."""
    n_hits = n_best = 0
    for query in queries[: _QUERIES // 3]:
        (page,) = gallery.search(query[None], _DEPTH, 0, item_filter)
        (best,) = exact.search(query[None], _DEPTH, 0, item_filter)
        n_best += len(best)
        n_hits += len({item.id for item, _ in page} & {item.id for item, _ in best})
    return n_hits / n_best if n_best else 1.0


def _search(
    gallery: Gallery,
    queries: Matrix,
    item_filter: ItemFilter,
    clients: ThreadPoolExecutor,
    n_clients: int,
    seconds: float,
) -> tuple[list[float], float]:
    """Return the milliseconds of each search of some clients, one each at least, and the seconds it took."""
    began = time.perf_counter()

    def search(number: int) -> list[float]:
        times: list[float] = []
        while not times or time.perf_counter() < began + seconds:
            query = queries[(number * 37 + len(times)) % len(queries)]
            started = time.perf_counter()
            gallery.search(query[None], _DEPTH, 0, item_filter)
            times.append(1000.0 * (time.perf_counter() - started))
        return times

    times = [one for of_client in clients.map(search, range(n_clients)) for one in of_client]
    return times, time.perf_counter() - began


def _table(figures: Sequence[_Figures]) -> Table:
    table = Table("gallery", "items that match", "built in s", "recall@10", "searches/s", "p50 ms", "p99 ms")
    for row in figures:
        table.add_row(
            row.gallery,
            row.items,
            f"{row.build_seconds:.1f}",
            f"{row.recall_at_10:.4f}",
            f"{row.per_second:.0f}",
            f"{row.median:.2f}",
            f"{row.p99:.2f}",
        )
    return table
