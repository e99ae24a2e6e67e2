"""A server process to measure."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from app.settings import Settings

_POLL_SECONDS = 0.01
_STOP_SECONDS = 30.0
_STARTED = re.compile(r"LRBS serves on (http://\S+)")


class ServerProcess:
    """`lrbs serve` on a free port, at `url`; `seconds_to_ready` are from the start to the first positive
    readiness probe."""

    def __init__(self, settings: Settings, seconds: float = 600.0) -> None:
        began = time.perf_counter()
        self._n_processes = settings.processes
        self._log = settings.data_dir / f"server-{time.monotonic_ns()}.log"
        environment = {
            **settings.model_copy(update={"host": "127.0.0.1", "port": 0}).passed_on_in(os.environ),
            "PYTHONUNBUFFERED": "1",
        }
        command = [sys.executable, "-m", "app.cli", "serve", "--no-worker"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self.url = self._wait(began + seconds)
        except BaseException:
            self.stop()
            raise
        self.seconds_to_ready = time.perf_counter() - began

    def peak_memory_mib(self) -> float | None:
        """Return the peak resident memory of the process; None where the system does not report it."""
        status = Path(f"/proc/{self._process.pid}/status")
        if not status.is_file():
            return None
        peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
        return int(peak[1]) / 1024 if peak else None

    def memory_mib(self) -> list[float]:
        """Return what each process takes, shared memory by its share; empty where that is not reported."""
        children = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        pids = [self._process.pid, *(int(pid) for file in children for pid in file.read_text().split())]
        files = [Path(f"/proc/{pid}/smaps_rollup") for pid in pids]
        sizes = [re.search(r"^Pss:\s+(\d+) kB", file.read_text(), re.M) for file in files if file.is_file()]
        return [int(size[1]) / 1024 for size in sizes if size]

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of the process; None where children do the work, or it is not reported."""
        return cpu_seconds(self._process.pid) if self._n_processes == 1 else None

    def stop(self) -> None:
        """Stop the process and wait for its end."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait(self, deadline: float) -> str:
        while time.perf_counter() < deadline:
            output = self._log.read_text(encoding="utf-8", errors="replace")
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended with {self._process.returncode}: {output.strip()}")
            address = _STARTED.search(output)
            if address and _is_ready(address[1]):
                return address[1]
            time.sleep(_POLL_SECONDS)
        raise RuntimeError("the server was not ready in time")


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time of a process; None where the system does not report it."""
    status = Path(f"/proc/{pid}/stat")
    if not status.is_file():
        return None
    # The process name before it may contain spaces; the 14th and 15th field are user and system time.
    fields = status.read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, timeout=600.0).status_code == 200
    except httpx.TransportError:
        return False
