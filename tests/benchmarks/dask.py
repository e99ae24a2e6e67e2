"""`dask`: evaluations on Dask workers, beside what they were expected to cost."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from app.cli.console import LOG, OUT, JsonFlag
from solver.benchmark import machine
from solver.datasets import make_low_rank_pairs
from solver.losses.dask_engine import RANK, DaskEngine, FitCost
from solver.losses.pair_losses import PairLogisticLoss
from solver.supervision.kinds import Labels

_FEATURES, _CLASSES = 64, 12


@dataclass(frozen=True, slots=True)
class CostComparison:
    """Expected and measured time of an evaluation, in seconds."""

    n_samples: int  # of either modality
    expected_seconds: float
    seconds: float  # by the clock, the median
    expected_processor_seconds: float
    processor_seconds: float  # of all workers together, the mean


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


def compare_cost(
    n_samples: int,
    n_evaluations: int = 10,
    *,
    scheduler: str | None = None,
    folder: str | Path | None = None,
    n_workers: int | None = None,
    seed: int = 0,
) -> CostComparison:
    """Measure evaluations along factors on workers (see `DaskEngine`), after their cost was estimated there.
    Samples have 64 features and 12 classes; a first evaluation is not measured."""
    data = make_low_rank_pairs(
        n_samples,
        n_samples,
        n_features_x=_FEATURES,
        n_features_z=_FEATURES,
        n_classes=_CLASSES,
        random_state=seed,
    )
    supervision, costs = Labels(data.x_labels, data.z_labels), list[FitCost]()
    factor = np.full((_FEATURES, RANK), 1e-3, np.float32)
    seconds: list[float] = []
    with DaskEngine(scheduler, folder, n_workers=n_workers, least_pairs=0, announce=costs.append) as engine:
        loss = PairLogisticLoss(data.X, data.Z, supervision, engine=engine)
        loss.value_and_factor_gradients(factor, factor)
        processor_seconds = -_processor_seconds(engine)
        for _ in range(n_evaluations):
            began = time.perf_counter()
            loss.value_and_factor_gradients(factor, factor)
            seconds.append(time.perf_counter() - began)
        processor_seconds += _processor_seconds(engine)
    (cost,) = costs
    return CostComparison(
        n_samples,
        cost.evaluation_seconds,
        median(seconds),
        cost.evaluation_processor_seconds,
        processor_seconds / n_evaluations,
    )


def _processor_seconds(engine: DaskEngine) -> float:
    return float(sum(engine.client.run(time.process_time).values()))


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
