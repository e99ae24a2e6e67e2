"""`overload`: latencies under more load than the service can answer."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

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
from solver.datasets import make_low_rank_pairs

_NAME, _QUERIES, _DIMENSIONS, _BATCH = "overload", 64, 64, 1000
_PATH = f"/v1/collections/{_NAME}/search/z-to-x/batch"


@dataclass
class _Load:
    """Requests of one load and their latencies, in ms."""

    n_requests: int = 0
    accepted: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    last_request: float = 0.0
    ended: float = 0.0

    def summary(self) -> dict[str, float | None]:
        seconds = self.ended - self.began
        return {
            "asked": self.n_requests / (self.last_request - self.began),
            "answered": len(self.accepted) / seconds,
            "p50": _quantile(self.accepted, 0.5),
            "p99": _quantile(self.accepted, 0.99),
            "refused": len(self.refused) / seconds,
            "refused_p50": _quantile(self.refused, 0.5),
            "refused_p99": _quantile(self.refused, 0.99),
        }


def overload_command(
    seconds: Annotated[float, typer.Option(min=1, help="of each of the three loads")] = 10.0,
    items: Annotated[int, typer.Option(min=100, help="gallery size")] = 20_000,
    times: Annotated[float, typer.Option(min=1, help="offered load, as a multiple of the capacity")] = 4.0,
    as_json: JsonFlag = False,
) -> None:
    """Measure the latency of accepted and rejected searches under overload."""
    with LOG.status("building a gallery") as status:
        measurements = measure_overload(seconds, items, times, on_phase=status.update)
    environment = machine()
    if as_json:
        typer.echo(json.dumps({"machine": environment, **measurements}, indent=1))
        return
    table = Table("load", "asked/s", "answered/s", "p50 ms", "p99 ms", "refused/s", "p50 ms", "p99 ms")
    for name, load in measurements["loads"].items():
        columns = ("asked", "answered", "p50", "p99", "refused", "refused_p50", "refused_p99")
        table.add_row(name, *("" if load[column] is None else f"{load[column]:.1f}" for column in columns))
    OUT.print(table)
    OUT.print(", ".join(f"{name} {value}" for name, value in environment.items()))


def measure_overload(
    seconds: float, items: int, times: float, on_phase: Callable[[str], None]
) -> dict[str, Any]:
    """Measure one client, as many clients as requests may run, and a load of some times the capacity.
    Returns ``loads`` by name, with requests per second and latencies in ms, and the server's ``settings``."""
    # Client and server share the machine. A request is a batch of searches, so that the client's own work is
    # small compared to the server's.
    with tempfile.TemporaryDirectory(prefix="lrbs-overload-") as folder:
        settings = Settings(data_dir=Path(folder), database_url="", processes=1)
        secret, query = _fill(settings, items)
        body = json.dumps({"queries": [{"vector": query}] * _QUERIES, "k": 10}).encode()
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        server = ServerProcess(settings)
        try:
            measured = _measure(server.url, headers, body, seconds, times, settings.max_running, on_phase)
            loads = asyncio.run(measured)
        finally:
            server.stop()
    limits = {"max_running": settings.max_running, "max_waiting": settings.max_waiting}
    return {"loads": loads, "settings": limits, "items": items, "queries": _QUERIES}


def _fill(settings: Settings, items: int) -> tuple[str, list[float]]:
    services = build(settings)
    services.schema.upgrade()
    services.catalogue.create(_NAME, [Modality(name, {"type": "vector"}) for name in ("x", "z")])
    data = make_low_rank_pairs(
        items, 200, n_features_x=_DIMENSIONS, n_features_z=_DIMENSIONS, n_classes=4, random_state=0
    )
    for side, rows, labels in (("x", data.X, data.x_labels), ("z", data.Z, data.z_labels)):
        new = [
            NewItem(
                side,
                Content(vector=row.tolist()),
                f"{side}{n}",
                (f"class {label}",),
                train=n < _BATCH,
            )
            for n, (row, label) in enumerate(zip(rows, labels, strict=True))
        ]
        for start in range(0, len(new), _BATCH):
            services.catalogue.add_items(_NAME, new[start : start + _BATCH])
    train_and_wait(services, _NAME, TrainingParameters(alpha=1e-3, scaling="standard"), lambda *_: None)
    _, secret = services.access.create(Scope.SEARCH)
    services.database.engine.dispose()
    return secret, np.asarray(data.Z[0]).tolist()


async def _measure(
    url: str,
    headers: dict[str, str],
    body: bytes,
    seconds: float,
    times: float,
    running: int,
    on_phase: Callable[[str], None],
) -> dict[str, dict[str, float | None]]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=60.0, limits=limits, trust_env=False
    ) as client:
        await _load_closed(client, body, 1, seconds / 5)  # warm
        on_phase("one client alone")
        alone = await _load_closed(client, body, 1, seconds)
        on_phase("capacity")
        full = await _load_closed(client, body, running, seconds)
        rate = times * len(full.accepted) / (full.ended - full.began)
        on_phase(f"{rate:.0f} requests a second")
        beyond = await _load_open(client, body, rate, seconds)
    return {
        "alone": alone.summary(),
        f"{running} clients": full.summary(),
        f"{times:g} x capacity": beyond.summary(),
    }


async def _load_closed(client: httpx.AsyncClient, body: bytes, clients: int, seconds: float) -> _Load:
    load, end = _Load(), time.perf_counter() + seconds

    async def ask_again() -> None:
        while time.perf_counter() < end:
            await _ask(client, body, load)

    await asyncio.gather(*(ask_again() for _ in range(clients)))
    load.last_request = load.ended = time.perf_counter()
    return load


async def _load_open(client: httpx.AsyncClient, body: bytes, rate: float, seconds: float) -> _Load:
    """Send requests at a fixed rate, whether or not answers arrive (an open loop)."""
    load, began = _Load(), time.perf_counter()
    requests: list[asyncio.Task[None]] = []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(began + number / rate - time.perf_counter(), 0.0))
        requests.append(asyncio.create_task(_ask(client, body, load)))
    load.last_request = time.perf_counter()
    await asyncio.gather(*requests)
    load.ended = time.perf_counter()
    return load


async def _ask(client: httpx.AsyncClient, body: bytes, load: _Load) -> None:
    load.n_requests += 1
    began = time.perf_counter()
    answer = await client.post(_PATH, content=body)
    took = (time.perf_counter() - began) * 1000
    if answer.status_code == 503:
        load.refused.append(took)
    else:
        answer.raise_for_status()
        load.accepted.append(took)


def _quantile(values: list[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None
