"""`index`: what a training would choose for made galleries, and what it measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from rich.table import Table

from app.cli.console import LOG, OUT
from app.domain.entities import Matrix
from app.domain.reports import IndexChoice
from app.services.training.index_tuning import IndexTuner
from solver.benchmark import machine

_QUERIES = 20_000  # some are asked, and the balance of both sides is learned from the others
_CLUSTERS = 100  # of the made factors, of uneven sizes, as those of classes are

_DRAWN_AT_ONCE = 1_000_000
"""Bounds the memory of drawing, in double precision, to a gigabyte for 32 dimensions."""


def index_command(
    sizes: Annotated[str, typer.Option("--items", help="sizes of the galleries, comma-separated")] = "100000",
    dim: Annotated[int, typer.Option("--dim", min=1, help="dimensions of the factors")] = 32,
    recall: Annotated[float, typer.Option("--recall", min=0, max=1, help="recall@10 to be reached")] = 0.99,
    seed: Annotated[int, typer.Option("--seed", help="of the made factors")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Recall, time and memory of approximate indexes, beside the exact search in the same run."""
    tuner = IndexTuner(recall, 1)
    choices: dict[int, IndexChoice] = {}
    for size in (int(text) for text in sizes.split(",")):
        with LOG.status(f"{size} items"):
            _, choices[size] = tuner.choose(*made_gallery(size, _QUERIES, dim, seed))
    if as_json:
        results = [{"items": size, "choice": asdict(choice)} for size, choice in choices.items()]
        typer.echo(json.dumps({"machine": machine(), "results": results}, indent=1))
        return
    OUT.print(_table(choices))


def made_gallery(n_rows: int, n_queries: int, dim: int = 32, seed: int = 0) -> tuple[Matrix, Matrix]:
    """Return rows and queries of another modality: clustered, not centred, of spread norms.
    The queries are of the same clusters, with variances in another order and another mean."""
    rng = np.random.default_rng(seed)
    centres, mean = rng.normal(size=(_CLUSTERS, dim)), rng.normal(size=dim)
    shares, spectrum = rng.dirichlet(np.ones(_CLUSTERS)), np.linspace(1.5, 0.3, dim)

    def draw(count: int, offset: float, scales: npt.NDArray[np.float64]) -> Matrix:
        made = np.empty((count, dim), np.float32)
        for start in range(0, count, _DRAWN_AT_ONCE):
            part = made[start : start + _DRAWN_AT_ONCE]
            rows = offset * mean + centres[rng.choice(_CLUSTERS, len(part), p=shares)]
            rows += 0.6 * rng.normal(size=part.shape)
            norms = np.exp(0.3 * rng.normal(size=(len(part), 1)))
            part[:] = rows * scales * norms
        return made

    return draw(n_rows, 1.0, spectrum), draw(n_queries, 0.3, np.sqrt(spectrum[::-1]))


def _table(choices: dict[int, IndexChoice]) -> Table:
    table = Table("items", "index", "recall@10", "ms", "times exact", "bytes/item", "build s")
    for size, choice in choices.items():
        table.add_row(str(size), "exact", "1", f"{choice.exact_milliseconds or 0.0:.3f}", "1", "", "")
        for trial in choice.trials:
            spec = trial.spec
            table.add_row(
                str(size),
                f"{spec.kind}, {spec.lists} lists, {spec.probes} probes",
                f"{trial.recall_at_10:.4f}",
                f"{trial.milliseconds:.3f}",
                f"{(choice.exact_milliseconds or 0.0) / trial.milliseconds:.1f}",
                f"{trial.bytes_per_item:.0f}",
                f"{trial.build_seconds:.1f}",
            )
        table.add_row(str(size), f"chosen: {choice.spec.kind}", "", "", "", "", "")
    return table
