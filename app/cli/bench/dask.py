"""`lrbs bench dask`: evaluations on Dask workers, beside what they were expected to cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from app.cli.console import LOG, OUT, JsonFlag
from solver.benchmark import machine
from solver.cost_benchmark import CostComparison, compare_cost


def dask_command(
    sizes: Annotated[
        str, typer.Option("--sizes", help="comma-separated: samples of either modality")
    ] = "5000,10000,20000",
    n_workers: Annotated[
        int | None,
        typer.Option(
            "--workers", min=1, help="processes to start without a scheduler; one per core by default"
        ),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="address of a Dask scheduler, such as tcp://host:8786")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="with --scheduler: a folder that all workers see")
    ] = None,
    n_evaluations: Annotated[int, typer.Option("--evaluations", min=1, help="measured at each size")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="of the made samples")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Time of evaluations on Dask workers, beside the expected one; nothing else should run there."""
    try:
        numbers = [int(size) for size in sizes.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"{sizes!r} is not numbers with commas between them", param_hint="--sizes"
        ) from error
    if min(numbers) < 100:
        raise typer.BadParameter("a size is 100 at least", param_hint="--sizes")
    results: list[CostComparison] = []
    for number in numbers:
        with LOG.status(f"{number} x {number}"):
            results.append(
                compare_cost(
                    number,
                    n_evaluations,
                    scheduler=scheduler,
                    folder=folder,
                    n_workers=n_workers,
                    seed=seed,
                )
            )
    environment = {**machine(), "seed": seed}
    if as_json:
        typer.echo(
            json.dumps({"machine": environment, "results": [asdict(row) for row in results]}, indent=1)
        )
        return
    OUT.print(_table(results))
    OUT.print(", ".join(f"{name} {value}" for name, value in environment.items()))


def _table(results: list[CostComparison]) -> Table:
    table = Table("samples", "s expected", "s measured", "ratio", "CPU s expected", "CPU s measured", "ratio")
    for row in results:
        table.add_row(
            f"{row.n_samples}²",
            f"{row.expected_seconds:.3f}",
            f"{row.seconds:.3f}",
            f"{row.expected_seconds / row.seconds:.2f}",
            f"{row.expected_processor_seconds:.3f}",
            f"{row.processor_seconds:.3f}",
            f"{row.expected_processor_seconds / row.processor_seconds:.2f}",
        )
    return table
