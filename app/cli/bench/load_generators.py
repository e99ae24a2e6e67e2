"""Load generators: a compiled one where it is installed, and otherwise the client of `load_client`."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Self

from click import ClickException

from app.cli.bench import load_client
from app.cli.bench.load_client import PERCENTILES, LoadPlan, LoadResult

OWN = "own"
"""The client of `load_client`."""
_WRK_SCRIPT = """
local bodies, n = {}, 0
for line in io.lines("BODIES") do bodies[#bodies + 1] = line end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer KEY"
request = function()
  n = n + 1
  return wrk.format(nil, nil, nil, bodies[n % #bodies + 1])
end
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format("lrbs %d %d %d %.0f %.0f %.0f\\n", summary.requests, summary.duration,
    e.status + e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
"""


def installed_generator() -> str:
    """Return the name of the first compiled load generator that is installed; `OWN` without one."""
    return next((name for name in COMPILED if shutil.which(name)), OWN)


def run_generator(generator: str, plan: LoadPlan) -> LoadResult:
    """Run a load to its end; only `OWN` knows open loops and warming. Raises ClickException."""
    if generator == OWN:
        with OwnLoad(plan) as load:
            return load.result()
    if plan.rate is not None:
        raise ValueError("an open loop needs the client of this package")
    command_of, parse = COMPILED[generator]
    with tempfile.TemporaryDirectory(prefix="lrbs-load-") as folder:
        command = command_of(plan, Path(folder))
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    try:
        return parse(run.stdout, plan)
    except (ValueError, KeyError, IndexError) as error:
        raise ClickException(f"{generator}: {run.stderr.strip() or run.stdout.strip()}") from error


class OwnLoad:
    """The client of this package in a process of its own; starts when made, and is a context manager."""

    def __init__(self, plan: LoadPlan) -> None:
        # By its file and not as a module of this package, whose other imports take seconds.
        command = [sys.executable, "-P", load_client.__file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin
        self._input.write(json.dumps(asdict(plan)) + "\n")
        self._input.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        with self._process:
            pass

    def stop(self) -> LoadResult:
        """End the load before its time is over, and return what came of it."""
        self._input.close()
        return self.result()

    def result(self) -> LoadResult:
        """Wait for the end of the load, and return what came of it; raises ClickException."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        output = self._process.stdout.read()
        if not output:
            raise ClickException(f"the client ended without a result: {self._process.stderr.read()}")
        return LoadResult(**json.loads(output))


def _wrk(plan: LoadPlan, folder: Path) -> list[str]:
    bodies, script = folder / "bodies", folder / "load.lua"
    bodies.write_text("\n".join(plan.bodies) + "\n", encoding="utf-8")
    script.write_text(_WRK_SCRIPT.replace("BODIES", str(bodies)).replace("KEY", plan.key), encoding="utf-8")
    load = ["-t1", f"-c{plan.connections}", f"-d{max(round(plan.seconds), 1)}s", "-s", str(script)]
    return ["wrk", *load, _url(plan)]


def _parse_wrk(output: str, _: LoadPlan) -> LoadResult:
    values = output[output.index("lrbs ") :].split()[1:7]
    requests, microseconds, failures, *latencies = (int(float(value)) for value in values)
    n_good = requests - failures
    return LoadResult(
        n_good / (microseconds / 1e6),
        n_good,
        {"other": failures} if failures else {},
        **{name: latency / 1000.0 for name, latency in zip(PERCENTILES, latencies, strict=True)},
    )


def _oha(plan: LoadPlan, folder: Path) -> list[str]:
    load = ["-z", f"{plan.seconds:g}s", "-c", str(plan.connections), "--no-tui", "--output-format", "json"]
    return ["oha", *load, *_request_options(plan, folder), _url(plan)]


def _parse_oha(output: str, plan: LoadPlan) -> LoadResult:
    report = json.loads(output)
    statuses: dict[str, int] = dict(report["statusCodeDistribution"])
    n_good = statuses.pop("200", 0)
    latencies = report["latencyPercentiles"]
    return LoadResult(
        n_good / plan.seconds,
        n_good,
        statuses,
        **{name: 1000.0 * latencies[name] for name in PERCENTILES},
    )


def _hey(plan: LoadPlan, folder: Path) -> list[str]:
    load = ["-z", f"{plan.seconds:g}s", "-c", str(plan.connections), "-o", "csv"]
    return ["hey", *load, *_request_options(plan, folder), _url(plan)]


def _parse_hey(output: str, plan: LoadPlan) -> LoadResult:
    rows = list(csv.DictReader(io.StringIO(output)))
    good = sorted(float(row["response-time"]) for row in rows if row["status-code"] == "200")
    return LoadResult(
        len(good) / plan.seconds,
        len(good),
        dict(Counter(row["status-code"] for row in rows if row["status-code"] != "200")),
        **{name: 1000.0 * good[min(int(len(good) * q), len(good) - 1)] for name, q in PERCENTILES.items()},
    )


def _request_options(plan: LoadPlan, folder: Path) -> list[str]:
    body = folder / "body"
    body.write_text(plan.bodies[0], encoding="utf-8")
    options = ["-m", "POST", "-T", "application/json", "-D", str(body)]
    return [*options, "-H", f"Authorization: Bearer {plan.key}"]


def _url(plan: LoadPlan) -> str:
    return f"http://{plan.host}:{plan.port}{plan.path}"


_Generator = tuple[Callable[[LoadPlan, Path], list[str]], Callable[[str, LoadPlan], LoadResult]]
COMPILED: Mapping[str, _Generator] = MappingProxyType(
    {"wrk": (_wrk, _parse_wrk), "oha": (_oha, _parse_oha), "hey": (_hey, _parse_hey)}
)
"""How to run each compiled generator, and how to read its output."""
