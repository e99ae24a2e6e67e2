"""`load`: how many searches a second a machine carries, while items are written."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.table import Table

from app.bootstrap import build
from app.cli.bench.load import LoadPlan, LoadProcess, LoadResult
from app.cli.bench.measurement import (
    SEARCH_PATH,
    ServerProcess,
    draw_queries,
    import_gallery,
    import_items,
    item_lines,
    open_client,
    prepare,
    wait_for_gallery,
)
from app.cli.console import LOG, OUT, JsonFlag
from app.settings import Settings
from solver.benchmark import machine

_SHARES = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Rates that are tried, as shares of what the clients reach when each waits for its answer."""
_ATTEMPTS = 3  # a rate out of bounds is tried again: another program may have had the processor
_QUERIES, _K = 1000, 10
_WRITTEN = 10  # items of one write
_LONGEST_SECONDS = 600.0  # a load ends with the writes beside it, long before


@dataclass(slots=True)
class _Writes:
    """What became of the writes beside a load; latencies in ms."""

    stored: int = 0
    refused: int = 0
    latencies: list[float] = field(default_factory=list)

    def p99(self) -> float | None:
        ordered = sorted(self.latencies)
        return ordered[int(0.99 * (len(ordered) - 1))] if ordered else None


@dataclass(frozen=True, slots=True)
class Step:
    """One load."""

    rate: float | None  # requests a second; None: as many as the clients could
    load: LoadResult
    items_written: int  # beside the searches
    writes_refused: int  # writes of ten items that were not stored
    write_p99: float | None  # of such a write, in ms

    def error_share(self) -> float:
        """Return the share of searches that were not answered with hits."""
        failures = sum(self.load.failures.values())
        return failures / max(self.load.requests + failures, 1)

    def is_carried(self, p99: float, error_share: float) -> bool:
        """Return whether latencies and failures are within bounds."""
        return self.load.p99 is not None and self.load.p99 <= p99 and self.error_share() <= error_share

    def figures(self) -> dict[str, Any]:
        """Return what is printed as JSON."""
        return {**asdict(self), "error_share": self.error_share()}


@dataclass(frozen=True, slots=True)
class _Bench:
    dim: int
    clients: int
    seconds: float
    writes: float
    p99: float
    errors: float


def load_command(
    items: Annotated[int, typer.Option(min=100, help="gallery size")] = 100_000,
    dim: Annotated[int, typer.Option(min=2, help="numbers of each vector, and rank of the model")] = 40,
    clients: Annotated[int, typer.Option(min=1, help="connections that search")] = 16,
    processes: Annotated[int, typer.Option(min=1, help="of the server")] = 1,
    seconds: Annotated[float, typer.Option(min=0.2, help="of each load")] = 5.0,
    writes: Annotated[float, typer.Option(min=0.0, help="items written a second, meanwhile")] = 100.0,
    p99: Annotated[float, typer.Option(min=0.0, help="ms that 99 of 100 searches may take")] = 100.0,
    errors: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="share of searches that may be refused")
    ] = 0.001,
    database_url: Annotated[
        str, typer.Option(help="an empty database; default: SQLite in a temporary folder")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Raise the rate of searches over HTTP, while items are written, until they are late or refused."""
    bench = _Bench(dim, clients, seconds, writes, p99, errors)
    with tempfile.TemporaryDirectory(prefix="lrbs-bench-") as folder, LOG.status("training") as status:
        settings = Settings(
            data_dir=Path(folder), database_url=database_url, processes=processes, rate_limit=0
        )
        steps = _measure(bench, items, settings, status.update)
    carried = carried_rate(steps, p99, errors)
    if as_json:
        report = {"machine": machine(), "items": items, "processes": processes, **asdict(bench)}
        steps_of_report = [step.figures() for step in steps]
        typer.echo(json.dumps({**report, "carried_per_second": carried, "loads": steps_of_report}, indent=1))
        return
    _print(bench, items, steps, carried)


def carried_rate(steps: list[Step], p99: float, error_share: float) -> float | None:
    """Return the answers a second at the highest rate up to which all loads are within bounds."""
    carried = None
    for step in steps:
        if step.rate is None:
            continue
        if not step.is_carried(p99, error_share):
            break
        carried = step.load.qps
    return carried


def _measure(bench: _Bench, items: int, settings: Settings, on_phase: Callable[[str], None]) -> list[Step]:
    services = build(settings)
    keys = prepare(services, bench.dim, n_versions=1)
    bodies = [json.dumps({"vector": row, "k": _K}) for row in draw_queries(bench.dim, _QUERIES).tolist()]
    with ServerProcess(settings) as server, open_client(server.url, keys.admin) as client:
        on_phase(f"importing {items} items")
        import_gallery(client, bench.dim, items)
        wait_for_gallery(client, services, bodies[0], items)
        services.database.engine.dispose()
        url = server.url + SEARCH_PATH
        plan = LoadPlan(url, keys.search, bodies, bench.clients, _LONGEST_SECONDS)
        numbers = _numbers(items)

        def run(rate: float | None) -> Step:
            on_phase("as many searches as possible" if rate is None else f"{rate:.0f} searches a second")
            with LoadProcess(replace(plan, rate=rate)) as load:
                writes = _write(client, bench, numbers)
                return Step(rate, load.stop(), writes.stored, writes.refused, writes.p99())

        steps = [run(None)]
        for share in _SHARES:
            for _ in range(_ATTEMPTS):
                step = run(share * steps[0].load.qps)
                if step.is_carried(bench.p99, bench.errors):
                    break
            steps.append(step)
            if not step.is_carried(bench.p99, bench.errors):
                break
        return steps


def _numbers(items: int) -> Iterator[int]:
    """Yield the numbers of the first items of each write."""
    while True:
        yield items
        items += _WRITTEN


def _write(client: httpx.Client, bench: _Bench, numbers: Iterator[int]) -> _Writes:
    """Write items at the rate of the bench for as long as a load takes."""
    writes, began = _Writes(), time.monotonic()
    due = began
    while (now := time.monotonic()) < began + bench.seconds:
        if not bench.writes or now < due:
            time.sleep(min(due - now, 0.05) if bench.writes else bench.seconds)
            continue
        due += _WRITTEN / bench.writes
        lines = item_lines(bench.dim, next(numbers), _WRITTEN)
        try:
            writes.latencies.append(1000.0 * import_items(client, lines, _WRITTEN))
            writes.stored += _WRITTEN
        except httpx.HTTPStatusError:
            writes.refused += 1
    return writes


def _print(bench: _Bench, items: int, steps: list[Step], carried: float | None) -> None:
    table = Table("asked/s", "answered/s", "p50 ms", "p99 ms", "errors", "written/s", "write p99 ms")
    for step in steps:
        rate = "all that go" if step.rate is None else f"{step.rate:,.0f}"
        times = ("" if ms is None else f"{ms:,.1f}" for ms in (step.load.p50, step.load.p99))
        written = f"{step.items_written / bench.seconds:,.0f}"
        slowest = "" if step.write_p99 is None else f"{step.write_p99:,.0f}"
        table.add_row(rate, f"{step.load.qps:,.0f}", *times, f"{step.error_share():.2%}", written, slowest)
    OUT.print(table)
    result = "no rate that was tried" if carried is None else f"{carried:,.0f} searches a second"
    bounds = f"within a p99 of {bench.p99:g} ms and {bench.errors:.2%} errors"
    OUT.print(f"{items:,} items, {bench.clients} clients: {result}, {bounds}")
    OUT.print(", ".join(f"{name} {value}" for name, value in machine().items()))
