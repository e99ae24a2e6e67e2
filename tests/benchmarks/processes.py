"""`processes`: what more server processes bring, and what memory they take."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from app.bootstrap import build
from app.cli.bench.load import LoadPlan, LoadResult, run_load
from app.cli.bench.measurement import (
    NAME,
    SEARCH_PATH,
    SEED,
    TRAINED_PER_CLASS,
    ServerProcess,
    draw_queries,
    import_gallery,
    open_client,
    prepare,
    train_version,
    wait_for_gallery,
)
from app.cli.console import LOG, OUT, JsonFlag
from app.settings import Settings
from solver.benchmark import machine

_QUERIES, _K = 1000, 10
_WORDS = 8  # different words of a class
_WARM_SECONDS = 2.0  # of the first load on each server: all its processes read the gallery


@dataclass(frozen=True, slots=True)
class _Bench:
    items: int
    dim: int
    processes: Sequence[int]
    clients: Sequence[int]
    seconds: float
    rounds: int
    typed: bool


def processes_command(
    items: Annotated[int, typer.Option(min=100, help="gallery size")] = 100_000,
    dim: Annotated[int, typer.Option(min=2, help="numbers of each vector, and classes")] = 40,
    processes: Annotated[str, typer.Option(help="numbers of server processes to compare")] = "1,2",
    clients: Annotated[str, typer.Option(help="numbers of connections, each with one request")] = "1,8,32",
    seconds: Annotated[float, typer.Option(min=0.2, help="of each load")] = 3.0,
    rounds: Annotated[int, typer.Option(min=1, help="each load is repeated; medians count")] = 5,
    typed: Annotated[bool, typer.Option("--typed", help="queries are texts instead of vectors")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Search over HTTP with one server process and with several, in turns within each round."""
    bench = _Bench(
        items,
        dim,
        _numbers("processes", processes),
        _numbers("clients", clients),
        seconds,
        rounds,
        typed,
    )
    with tempfile.TemporaryDirectory(prefix="lrbs-bench-") as folder, LOG.status("training") as status:
        measured = _measure(
            bench, Settings(data_dir=Path(folder), database_url="", rate_limit=0), status.update
        )
    report = {"machine": machine(), "load_of_machine": os.getloadavg()[2], "items": items, **measured}
    if as_json:
        typer.echo(json.dumps(report, indent=1))
        return
    _print(report)


def draw_texts(dim: int, count: int, stream: int) -> list[str]:
    """Return texts of three words of their class, one after the other, and one that all classes have."""
    words = np.random.default_rng((SEED, stream)).integers(_WORDS, size=(count, 4)).tolist()
    return [
        " ".join([*(f"kind{number % max(dim, 2)}word{word}" for word in of_class), f"common{common}"])
        for number, (*of_class, common) in enumerate(words)
    ]


def memory_mib(pid: int) -> list[float]:
    """Return what each process takes, shared memory by its share; empty where that is not reported."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = [pid, *(int(child) for file in children for child in file.read_text().split())]
    files = [Path(f"/proc/{pid}/smaps_rollup") for pid in pids]
    sizes = [re.search(r"^Pss:\s+(\d+) kB", file.read_text(), re.M) for file in files if file.is_file()]
    return [int(size[1]) / 1024 for size in sizes if size]


def _numbers(name: str, listed: str) -> list[int]:
    try:
        numbers = [int(number) for number in listed.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"--{name}: give numbers with commas between them, as in 1,2")
    return numbers


def _measure(bench: _Bench, settings: Settings, on_phase: Callable[[str], None]) -> dict[str, Any]:
    services = build(settings)
    n_trained = TRAINED_PER_CLASS * max(bench.dim, 2)
    texts = draw_texts(bench.dim, n_trained, stream=0) if bench.typed else None
    keys = prepare(services, bench.dim, 1, texts)
    bodies = [json.dumps({**query, "k": _K}) for query in _queries(bench)]
    alone = settings.model_copy(update={"processes": 1})
    on_phase(f"importing {bench.items} items")
    with ServerProcess(alone) as server, open_client(server.url, keys.admin) as client:
        idle = memory_mib(server.pid)
        import_gallery(client, bench.dim, bench.items)
        wait_for_gallery(client, services, bodies[0], bench.items)
    if bench.items >= settings.approximate_from_items:
        on_phase("training on the gallery")
        services.versions.activate(NAME, train_version(services, seed=0), "bench", None, None)
        with ServerProcess(alone) as server, open_client(server.url, keys.admin) as client:
            wait_for_gallery(client, services, bodies[0], bench.items)
    with services.snapshots.open(NAME) as (snapshot, _):
        kinds = {name: gallery.index_kind for name, gallery in snapshot.galleries.items()}
    services.database.engine.dispose()
    del services, snapshot
    with ExitStack() as until_measured:
        servers = {
            count: until_measured.enter_context(
                ServerProcess(settings.model_copy(update={"processes": count}))
            )
            for count in bench.processes
        }
        plans = {
            count: LoadPlan(server.url + SEARCH_PATH, keys.search, bodies)
            for count, server in servers.items()
        }
        for count, plan in plans.items():
            on_phase(f"first searches of {count}")
            run_load(replace(plan, connections=max(bench.clients), seconds=_WARM_SECONDS))
        results = _in_turns(bench, plans, on_phase)
        memory = {count: memory_mib(server.pid) for count, server in servers.items()}
    return {
        "queries": "texts" if bench.typed else "vectors",
        "index": kinds,
        "idle_mib": idle,
        "memory_mib": memory,
        "loads": [_figures(connections, of_clients) for connections, of_clients in results.items()],
    }


def _queries(bench: _Bench) -> list[dict[str, Any]]:
    if bench.typed:
        return [{"text": text} for text in draw_texts(bench.dim, _QUERIES, stream=3)]
    return [{"vector": row} for row in draw_queries(bench.dim, _QUERIES).tolist()]


def _in_turns(
    bench: _Bench, plans: Mapping[int, LoadPlan], on_phase: Callable[[str], None]
) -> dict[int, dict[int, list[LoadResult]]]:
    """Return the results by number of clients and of processes; who is first changes from round to round."""
    results: dict[int, dict[int, list[LoadResult]]] = {
        connections: {count: [] for count in plans} for connections in bench.clients
    }
    for number in range(bench.rounds):
        on_phase(f"round {number + 1} of {bench.rounds}")
        for connections in bench.clients:
            for count in list(plans)[:: -1 if number % 2 else 1]:
                plan = replace(plans[count], connections=connections, seconds=bench.seconds)
                results[connections][count].append(run_load(plan))
    return results


def _figures(connections: int, of_clients: Mapping[int, Sequence[LoadResult]]) -> dict[str, Any]:
    first, *_ = of_clients.values()
    return {
        "clients": connections,
        "qps": {count: median(result.qps for result in rounds) for count, rounds in of_clients.items()},
        "p99": {
            count: median(result.p99 or 0.0 for result in rounds) for count, rounds in of_clients.items()
        },
        "times_the_first": {
            count: median(one.qps / max(base.qps, 1e-9) for one, base in zip(rounds, first, strict=True))
            for count, rounds in of_clients.items()
        },
        "failures": sum(sum(result.failures.values()) for rounds in of_clients.values() for result in rounds),
    }


def _print(report: dict[str, Any]) -> None:
    table = Table("clients", "processes", "answers/s", "times", "p99 ms", "memory MiB")
    for load in report["loads"]:
        for count, qps in load["qps"].items():
            memory = sum(report["memory_mib"][count])
            numbers = f"{qps:,.0f}", f"{load['times_the_first'][count]:.2f}", f"{load['p99'][count]:.1f}"
            table.add_row(str(load["clients"]), str(count), *numbers, f"{memory:,.0f}")
    OUT.print(table)
    OUT.print(
        f"{report['items']:,} items, queries are {report['queries']}; "
        f"without a gallery a process takes {sum(report['idle_mib']):,.0f} MiB; "
        f"load of the machine {report['load_of_machine']:.1f}; "
        f"refused or lost: {sum(load['failures'] for load in report['loads']):,}"
    )
    OUT.print(", ".join(f"{name} {value}" for name, value in report["machine"].items()))
