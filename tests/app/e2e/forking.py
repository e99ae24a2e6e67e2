"""Processes of the command line, forked from one that has imported it, which is this file run as a program:
each takes a second of processor less than one that imports it again."""

import atexit
import functools
import gc
import importlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
_MOST_BYTES = 1 << 17
"""Of a command with its environment."""
_PAUSE_SECONDS = 0.01
_asking = threading.Lock()
_IMPORTED = ("app.cli.main", "app.cli.serve", "app.cli.service", "app.main", "app.bootstrap")


class ForkedProcess:
    """A process of the command line in a session of its own, to be used as one of `subprocess.Popen`."""

    def __init__(self, arguments: tuple[str, ...], environment: Mapping[str, str], output: Path) -> None:
        self.returncode: int | None = None
        self.pid = int(_ask(arguments=arguments, environment=dict(environment), output=str(output)))

    def poll(self) -> int | None:
        if self.returncode is None and (answer := _ask(ended=self.pid)):
            self.returncode = int(answer)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("lrbs", timeout or 0.0)
            time.sleep(_PAUSE_SECONDS)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _ask(**question: object) -> str:
    """Ask the process that others are forked from for another one, or for the exit status of one."""
    with _asking:
        origin = _origin()
        origin.send(json.dumps(question).encode())
        return origin.recv(_MOST_BYTES).decode().strip()


@functools.cache
def _origin() -> socket.socket:
    """Start the process that others are forked from; it ends with this one."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for side in (here, there):
        side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _MOST_BYTES)
    with there:
        process = subprocess.Popen(
            [sys.executable, "-u", __file__, str(there.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=(there.fileno(),),
        )
    atexit.register(_end, here, process)
    return here


def _end(asking: socket.socket, process: subprocess.Popen[bytes]) -> None:
    asking.close()
    process.wait()


def _serve(asking: socket.socket) -> None:
    """Fork a process for each command; returns in a forked one, which then runs it."""
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, (
        "a fork has none of the other threads, but what they locked"
    )
    while question := asking.recv(_MOST_BYTES):
        asked = json.loads(question)
        if "ended" in asked:
            ended, status = os.waitpid(asked["ended"], os.WNOHANG)
            answer = str(os.waitstatus_to_exitcode(status)) if ended else ""
        elif process := os.fork():
            answer = str(process)
        else:
            asking.close()
            _become(asked["arguments"], asked["environment"], asked["output"])
            return
        asking.send(f"{answer}\n".encode())  # a message without a byte would be the end
    sys.exit()


def _become(arguments: list[str], environment: dict[str, str], output: str) -> None:
    """Make of this process what `subprocess.Popen` makes of a new one."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["lrbs", *arguments]
    streams = os.open(os.devnull, os.O_RDONLY), os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(streams[0], 0)
    os.dup2(streams[1], 1)
    os.dup2(streams[1], 2)
    os.closerange(3, streams[1] + 1)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    from app.cli.main import main

    main()
