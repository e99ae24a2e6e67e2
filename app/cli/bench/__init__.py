"""The benchmark commands, `lrbs bench`: of the solver, and of searches over HTTP."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from app.cli import demo
from app.cli.bench.measurement import DISTURBANCES, SearchBench, measure_search
from app.cli.console import LOG, OUT, JsonFlag, read_names
from app.domain.names import join_words
from app.settings import Settings
from solver import IterationProgress
from solver.benchmark import DATASETS, SIZES, TARGET, machine, make_instance, run_solver_benchmark

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    help="Measure speed; every ratio is taken within one run.",
)
_LOADS = ("answers/s", "p50 ms", "p95 ms", "p99 ms", "CPU ms", "times bare", "failures")


@bench.command("solver")
def solver_command(
    sizes: Annotated[
        str, typer.Option("--sizes", help=f"comma-separated: {', '.join([*SIZES, *DATASETS])}")
    ] = "tiny,A",
    methods: Annotated[str, typer.Option("--methods", help="some of apg,paper,lbfgs")] = "apg,paper,lbfgs",
    as_json: Annotated[bool, typer.Option("--json", help="print JSON, with every curve")] = False,
) -> None:
    """Objective against time of the solver, of Algorithm 1 to the letter, and of plain L-BFGS."""
    selection = tuple(name.strip() for name in methods.split(","))
    unknown = sorted(set(selection) - {"apg", "paper", "lbfgs"})
    if unknown:
        raise typer.BadParameter(f"unknown method {unknown[0]!r}: give some of apg,paper,lbfgs")
    results = []
    for name in (size.strip() for size in sizes.split(",")):
        with LOG.status(f"{name}: drawing") as status:

            def show(
                method: str, progress: IterationProgress, name: str = name, status: Any = status
            ) -> None:
                gap = "" if progress.gap is None else f", gap {progress.gap:.1e}"
                status.update(f"{name}: {method} step {progress.iteration}, rank {progress.rank}{gap}")

            instance = make_instance(name, Settings().test_data)
            results.append(run_solver_benchmark(instance, selection, on_step=show))
    environment = machine()
    if as_json:
        report = {"machine": environment, "target": TARGET, "results": results}
        typer.echo(json.dumps(report, indent=1))
        return
    OUT.print(_solver_table(results))
    OUT.print(", ".join(f"{name} {value}" for name, value in environment.items()))


def _solver_table(results: list[dict[str, Any]]) -> Table:
    table = Table("set", "method", f"s to {TARGET:g} of the optimum", "times apg", "steps", "certified gap")
    for result in results:
        for curve in result["curves"]:
            method, facts = curve["method"], curve["facts"]
            seconds, ratio = result["seconds_to_target"][method], result["ratio_to_apg"][method]
            table.add_row(
                result["instance"],
                method + (" (extrapolated)" if facts.get("extrapolated") else ""),
                "not reached" if seconds is None else f"{seconds:.2f}",
                "" if ratio is None else f"{ratio:.1f}",
                str(len(curve["seconds"])),
                f"{facts['duality_gap']:.1e}" if "duality_gap" in facts else "",
            )
        cost = result["evaluation"]
        table.add_row(
            result["instance"],
            "one evaluation",
            f"{cost['evaluation']:.1f} ms",
            f"{cost['ratio']:.2f} x floor",
            "",
            f"peak {result['peak_memory_mib']:.0f} MiB",
        )
    return table


@bench.command("search")
def search_command(
    collection: Annotated[
        str, typer.Option(help="typed texts search this one of the data folder; default: the demo's pictures")
    ] = "",
    pictures: Annotated[int, typer.Option(min=2, help="of each kind of the demo's")] = demo.PER_KIND,
    items: Annotated[int, typer.Option(min=100, help="size of the gallery of vectors")] = 100_000,
    dim: Annotated[int, typer.Option(min=2, help="numbers of each vector, and rank of the model")] = 40,
    clients: Annotated[int, typer.Option(min=1, help="of the closed loop")] = 8,
    processes: Annotated[int, typer.Option(min=1, help="of the server")] = 1,
    seconds: Annotated[float, typer.Option(min=0.2, help="of each load")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="each load is repeated; medians count")] = 3,
    queries: Annotated[int, typer.Option(min=10, help="different vectors, sent in turn")] = 2000,
    texts: Annotated[
        int, typer.Option(min=10, help="different typed texts, of words of the collection's, sent in turn")
    ] = 20_000,
    during: Annotated[
        str, typer.Option(help=f"comma-separated: also search during {join_words(DISTURBANCES, 'or')}")
    ] = "",
    lists: Annotated[
        bool, typer.Option("--lists", help="train again on the whole gallery, to serve by inverted lists")
    ] = False,
    database_url: Annotated[
        str, typer.Option(help="an empty database; default: SQLite in a temporary folder")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Search with typed texts, and a gallery of vectors, over HTTP, and compare with a bare endpoint."""
    disturbances = read_names(during)
    for name in disturbances:
        if name not in DISTURBANCES:
            raise typer.BadParameter(f"unknown {name!r}: give some of {', '.join(DISTURBANCES)}")
    with tempfile.TemporaryDirectory(prefix="lrbs-bench-") as folder, LOG.status("training") as status:
        settings = Settings(
            data_dir=Path(folder), database_url=database_url, processes=processes, rate_limit=0
        )
        bench = SearchBench(
            collection, pictures, items, dim, clients, seconds, rounds, queries, texts, disturbances, lists
        )
        report = {"machine": machine(), **measure_search(bench, settings, status.update)}
    if as_json:
        typer.echo(json.dumps(report, indent=1))
        return
    _print_search(report)


def _print_search(report: dict[str, Any]) -> None:
    figures = Table("what", "measured")
    for name, value in report.items():
        if not isinstance(value, dict | list):
            figures.add_row(
                name.replace("_", " "), f"{value:,.3f}" if isinstance(value, float) else str(value)
            )
    OUT.print(figures)
    loads = Table("load", *_LOADS)
    for name, load in report["loads"].items():
        numbers = (load.get(key) for key in ("qps", "p50", "p95", "p99", "cpu_ms", "times_bare"))
        failures = sum(load["failures"].values())
        loads.add_row(name, *("" if n is None else f"{n:,.2f}" for n in numbers), str(failures))
    OUT.print(loads)
    OUT.print(", ".join(f"{name} {value}" for name, value in report["machine"].items()))
