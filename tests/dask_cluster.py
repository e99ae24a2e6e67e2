"""A Dask scheduler and workers, for tests."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_WORKERS = ("--nworkers", "2", "--nthreads", "1", "--preload-nanny", "solver.losses.dask_engine")
_SETTINGS = {
    "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "fork",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "1s",
}
"""A worker, also one that takes the place of a killed one, imports nothing; and who waits only waits."""


class Cluster:
    """A scheduler and two workers as processes of their own, as an operator starts them."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        quiet = ["--dashboard-address", "127.0.0.1:0", "--no-dashboard"]
        self._run("scheduler", "--host", "127.0.0.1", "--port", str(self._port), *quiet)
        self._run("worker", self.address, *_WORKERS, *quiet)

    @property
    def is_running(self) -> bool:
        return bool(self._processes) and all(process.poll() is None for process in self._processes)

    def kill(self) -> None:
        """End the scheduler and all workers without a word, which takes no time."""
        for process in self._processes:
            os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes.clear()

    def signal(self, number: int, *, scheduler: bool) -> None:
        """Send a signal to the scheduler, or to all workers."""
        os.killpg(self._processes[0 if scheduler else 1].pid, number)

    def _run(self, *command: str) -> None:
        arguments = [sys.executable, "-m", "dask", *command]
        self._processes.append(
            subprocess.Popen(
                arguments,
                env={**os.environ, "PYTHONPATH": str(ROOT), **_SETTINGS},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )


def kill_once(folder: str, number: int, kills: bool) -> int:
    """Return a number on a worker, which dies at the first attempt if the call `kills`."""
    mark = Path(folder) / str(number)
    if kills and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number
