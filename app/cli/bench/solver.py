"""`lrbs bench solver`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from app.cli.console import LOG, OUT
from app.settings import Settings
from solver import IterationProgress
from solver.benchmark import (
    DATASETS,
    SIZES,
    TARGET,
    machine,
    make_instance,
    run_solver_benchmark,
)


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
    OUT.print(_table(results))
    OUT.print(", ".join(f"{name} {value}" for name, value in environment.items()))


def _table(results: list[dict[str, Any]]) -> Table:
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
