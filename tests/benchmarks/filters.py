"""`filters`: how long a gallery in memory takes for ranges, beside equality of the same share."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from app.api.schemas.filters import read_filter
from app.cli.console import OUT
from app.index import ExactIndex
from app.services.serving.segments import Segment
from app.services.serving.stored_items import StoredItems
from solver.benchmark import machine

_TENTHS: dict[str, dict[str, Any]] = {
    "tenth = 3": {"tenth": 3},
    "price < 100": {"price": {"lt": 100}},
    "300 <= price < 400": {"price": {"gte": 300, "lt": 400}},
    "date < 2024-02-07": {"date": {"lt": "2024-02-07"}},
}
"""Filters that each let about a tenth of the items through, equality first."""
_REPEATS = 21


def filters_command(
    size: Annotated[int, typer.Option("--items", help="items of the gallery")] = 1_000_000,
    seed: Annotated[int, typer.Option("--seed", help="of the metadata")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Time of ranges beside that of equality, columns being read."""
    segment = Segment(StoredItems.of_lines(_lines(size, seed)), ExactIndex(np.zeros((size, 1), np.float32)))
    measured = {name: _measure(segment, wanted) for name, wanted in _TENTHS.items()}
    if as_json:
        typer.echo(json.dumps({"machine": machine(), "items": size, "results": measured}, indent=1))
        return
    table, equal = Table("filter", "share", "ms", "times equality"), measured["tenth = 3"]["milliseconds"]
    for name, one in measured.items():
        times = f"{one['milliseconds'] / equal:.2f}"
        table.add_row(name, f"{one['share']:.3f}", f"{one['milliseconds']:.2f}", times)
    OUT.print(table)


def _lines(size: int, seed: int) -> Iterator[bytes]:
    rng = np.random.default_rng(seed)
    prices, days = np.round(rng.uniform(0, 1000, size), 4).tolist(), rng.integers(0, 366, size)
    dates = (np.datetime64("2024-01-01") + days).astype(str).tolist()
    for number, (price, date, tenth) in enumerate(
        zip(prices, dates, rng.integers(0, 10, size).tolist(), strict=True)
    ):
        yield json.dumps([f"i{number}", [], {"price": price, "date": date, "tenth": tenth}]).encode()


def _measure(segment: Segment, metadata: dict[str, Any]) -> dict[str, float]:
    item_filter = read_filter({"metadata": metadata}, "filter")
    share = float(segment.matches(item_filter).mean())
    seconds = []
    for _ in range(_REPEATS):
        segment._bitsets.clear()  # which would keep the answer
        began = time.perf_counter()
        segment.matches(item_filter)
        seconds.append(time.perf_counter() - began)
    return {"share": share, "milliseconds": 1000 * statistics.median(seconds)}
