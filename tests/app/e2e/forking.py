"""Processes of the command line, forked from one that has imported it, which is this file run as a program:
each takes a second of processor less than one that imports it again."""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
_MOST_BYTES = 1 << 17
"""Of a command with its environment."""
_IMPORTED = ("app.cli.main", "app.cli.serve", "app.cli.service", "app.main", "app.bootstrap")


class ForkedProcess:
    """A process of the command line in a session of its own, to be used as one of `subprocess.Popen`."""

    def __init__(self, arguments: tuple[str, ...], environment: Mapping[str, str], output: Path) -> None:
        self._origin = _origin()
        asked = {"arguments": arguments, "environment": dict(environment), "output": str(output)}
        self.pid = self._ask(asked)
        self.returncode: int | None = None
        self._end = os.pidfd_open(self.pid)

    def _ask(self, question: Mapping[str, object]) -> int:
        self._origin.send(json.dumps(question).encode())
        return int(self._origin.recv(_MOST_BYTES))

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            ended, _, _ = select.select([self._end], [], [], timeout)
            if not ended:
                raise subprocess.TimeoutExpired("lrbs", timeout or 0.0)
            os.close(self._end)
            self.returncode = self._ask({"reaped": self.pid})
        return self.returncode

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


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
        if "reaped" in asked:
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["reaped"], 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                asking.close()
                _become(asked["arguments"], asked["environment"], asked["output"])
                return
        asking.send(str(answer).encode())
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
