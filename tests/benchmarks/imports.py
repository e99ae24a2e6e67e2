"""`import`: items imported per second over HTTP, and the time a restarted server needs."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import httpx
import numpy as np
import typer
from rich.table import Table

from app.bootstrap import build
from app.cli.bench.measurement import ServerProcess
from app.cli.console import LOG, OUT, JsonFlag
from app.cli.train import train_and_wait
from app.domain.entities import Content, Modality
from app.domain.names import Scope
from app.domain.reports import TrainingParameters
from app.services.catalogue.preparation import NewItem
from app.settings import Settings
from solver.benchmark import machine

_NAME = "bench"
_SIDES = ("image", "text")
_CLASSES, _TRAINED = 10, 500
_BLOCK = 1 << 16


def import_command(
    items: Annotated[int, typer.Option(min=1, help="how many")] = 100_000,
    dim: Annotated[int, typer.Option(min=2, help="numbers of each vector")] = 128,
    database_url: Annotated[
        str, typer.Option(help="an empty database; default: SQLite in a temporary folder")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Import vectors into a trained collection over HTTP, twice, and restart the server."""
    with tempfile.TemporaryDirectory(prefix="lrbs-bench-") as folder, LOG.status("training") as status:
        settings = Settings(data_dir=Path(folder), database_url=database_url, processes=1)
        key, query = _prepare(settings, dim)
        with tempfile.TemporaryFile(dir=folder) as lines:
            status.update(f"drawing {items} items")
            size = _draw(lines, items, dim)
            status.update(f"importing {items} items")
            measured = _measure(settings, key, query, lines, items)
    report = {"machine": machine(), "items": items, "dim": dim, "megabytes": size / 1e6, **measured}
    if as_json:
        typer.echo(json.dumps(report, indent=1))
        return
    table = Table("what", "measured")
    for name, value in report.items():
        if name != "machine":
            table.add_row(name.replace("_", " "), f"{value:,.2f}" if isinstance(value, float) else str(value))
    OUT.print(table)


def _prepare(settings: Settings, dim: int) -> tuple[str, list[float]]:
    """Create a key and a small trained collection; return the key and a query vector."""
    services = build(settings)
    services.schema.upgrade()
    _, key = services.access.create(Scope.ADMIN)
    services.catalogue.create(_NAME, [Modality(side, {"type": "vector"}) for side in _SIDES])
    rows, labels = _vectors(_TRAINED, dim, seed=1)
    for side in _SIDES:
        entries = zip(rows.tolist(), labels.tolist(), strict=True)
        new = [
            NewItem(side, Content(vector=row), f"{side}-{number}", (f"class {label}",))
            for number, (row, label) in enumerate(entries)
        ]
        services.catalogue.add_items(_NAME, new)
    train_and_wait(services, _NAME, TrainingParameters(alpha=1e-3, scaling="standard"), lambda *_: None)
    services.database.engine.dispose()
    return key, rows[0].tolist()


def _vectors(count: int, dim: int, seed: int) -> tuple[Any, Any]:
    """Return vectors around the centres of some classes, and their classes."""
    centres = np.random.default_rng(0).standard_normal((_CLASSES, dim))
    labels = np.arange(count) % _CLASSES
    return centres[labels] + 0.7 * np.random.default_rng(seed).standard_normal((count, dim)), labels


def _draw(lines: IO[bytes], count: int, dim: int) -> int:
    """Write items as NDJSON and return the number of bytes."""
    per_block = 10_000
    for start in range(0, count, per_block):
        rows, labels = _vectors(min(per_block, count - start), dim, seed=2 + start)
        entries = zip(rows.round(6).tolist(), labels.tolist(), strict=True)
        for number, (row, label) in enumerate(entries, start):
            item = {
                "id": f"item-{number:08d}",
                "modality": _SIDES[0],
                "vector": row,
                "labels": [f"class {label}"],
                "metadata": {"split": "test", "number": number},
                "train": False,
            }
            lines.write(json.dumps(item).encode() + b"\n")
    return lines.tell()


def _measure(
    settings: Settings, key: str, query: list[float], lines: IO[bytes], items: int
) -> dict[str, float | int | None]:
    headers = {"Authorization": f"Bearer {key}"}
    server = ServerProcess(settings)
    try:
        with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=None) as client:
            _search(client, query)
            memory_before, cpu_before = server.peak_memory_mib(), server.cpu_seconds()
            seconds = _import(client, lines, {"created": items})
            memory, cpu = server.peak_memory_mib(), server.cpu_seconds()
            next_search = _search(client, query)
            again = _import(client, lines, {"unchanged": items})
            memory_all = server.peak_memory_mib()
    finally:
        server.stop()
    restarted = ServerProcess(settings)
    try:
        with httpx.Client(base_url=restarted.url, headers=headers, trust_env=False, timeout=None) as client:
            first_search = _search(client, query)
    finally:
        restarted.stop()
    return {
        "seconds": seconds,
        "items_per_second": items / seconds,
        "server_cpu_seconds": None if cpu is None or cpu_before is None else cpu - cpu_before,
        "repeated_seconds": again,
        "repeated_items_per_second": items / again,
        "peak_memory_before_mib": memory_before,
        "peak_memory_of_import_mib": memory,
        "peak_memory_with_search_mib": memory_all,
        "search_after_import_ms": next_search * 1000.0,
        "restart_to_ready_seconds": restarted.seconds_to_ready,
        "search_after_restart_ms": first_search * 1000.0,
    }


def _import(client: httpx.Client, lines: IO[bytes], expected: dict[str, int]) -> float:
    lines.seek(0)
    began = time.perf_counter()
    response = client.post(f"/v1/collections/{_NAME}/items:import", content=_blocks(lines))
    seconds = time.perf_counter() - began
    counts = response.raise_for_status().json()
    if any(counts[name] != count for name, count in expected.items()):
        raise RuntimeError(f"expected {expected}, the import created {counts['created']}")
    return seconds


def _blocks(lines: IO[bytes]) -> Iterator[bytes]:
    while block := lines.read(_BLOCK):
        yield block


def _search(client: httpx.Client, query: list[float]) -> float:
    body = {"vector": query, "k": 10}
    began = time.perf_counter()
    # A process that is still loading what was written says after how many seconds to ask again.
    while (
        answer := client.post(f"/v1/collections/{_NAME}/search/text-to-image", json=body)
    ).status_code == 503:
        time.sleep(float(answer.headers["Retry-After"]))
    answer.raise_for_status()
    return time.perf_counter() - began
