"""Child processes that are kept alive: restarted when they die, terminated with this process."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from app.settings import Settings

_RESTART_SECONDS = 1.0
"""Between two starts of a child process that dies immediately."""
_IGNORE_INTERRUPTS = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Ctrl-C reaches every process of a terminal; the children ignore it, and this process ends them."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """A command of `lrbs` to be run in a child process.

    Parameters
    ----------
    arguments : tuple of str
        Of the command line.
    environment : mapping of str to str
        All variables.
    descriptors : tuple of int
        Files that it inherits.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    descriptors: tuple[int, ...] = ()

    @classmethod
    def of(cls, settings: Settings, *arguments: str) -> Self:
        """Return a command that has the settings of this process."""
        return cls(arguments, settings.passed_on_in(os.environ))

    def start(self) -> subprocess.Popen[bytes]:
        """Start a process; raises OSError."""
        command = [*_IGNORE_INTERRUPTS, sys.executable, "-m", "app.cli", *self.arguments]
        return subprocess.Popen(command, env=self.environment, pass_fds=self.descriptors)


class KeptProcesses:
    """Processes of one command, kept alive as long as this context lasts.

    Parameters
    ----------
    command : ChildCommand
        What each of them runs.
    stop_seconds : float
        How long they may take to end.
    count : int
        Number of processes.
    on_end : callable
        Gets the id of a process that ended.
    """

    def __init__(
        self,
        command: ChildCommand,
        stop_seconds: float,
        count: int = 1,
        on_end: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._command = command
        self._stop_seconds = stop_seconds
        self._on_end = on_end
        self._closing = threading.Event()
        self._starting = threading.Lock()
        """Held while a process is started, so that none is started after all were terminated."""
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        """The last process of each number."""
        self._threads = [
            threading.Thread(target=self._keep_alive, args=(number,), daemon=True) for number in range(count)
        ]

    def __enter__(self) -> Self:
        """Start the processes."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Terminate them, and kill those that have not ended in time."""
        self.terminate()
        deadline = time.monotonic() + self._stop_seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        for process in self._running.values():
            process.kill()

    def terminate(self) -> None:
        """Ask the processes to end, and start none after them."""
        with self._starting:
            self._closing.set()
        for process in self._running.values():
            process.terminate()

    def _keep_alive(self, number: int) -> None:
        while not self._closing.is_set():
            process = self._start(number)
            if process is not None:
                process.wait()
                self._on_end(process.pid)
            self._closing.wait(_RESTART_SECONDS)

    def _start(self, number: int) -> subprocess.Popen[bytes] | None:
        """Start a process; None when that fails, or when all were terminated meanwhile."""
        with self._starting:
            if self._closing.is_set():
                return None
            try:
                self._running[number] = self._command.start()
            except OSError:
                # Memory, processes or descriptors have run out, perhaps for a moment only.
                _logger.exception("cannot start lrbs %s, will retry", self._command.arguments[0])
                return None
            return self._running[number]
