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
from app.worker.attempts import describe_end

_RESTART_SECONDS = 1.0  # between two starts of a child process that dies immediately
_IGNORE_INTERRUPTS = ("/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""Ctrl-C reaches every process of a terminal; the children ignore it, and this process ends them."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """A command of `lrbs` to be run in a child process."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]  # all variables
    descriptors: tuple[int, ...] = ()  # files that it inherits

    @classmethod
    def of(cls, settings: Settings, *arguments: str) -> Self:
        """Return a command that has the settings of this process."""
        return cls(arguments, settings.passed_on_in(os.environ))

    def start(self) -> subprocess.Popen[bytes]:
        """Start a process; raises OSError."""
        command = [*_IGNORE_INTERRUPTS, sys.executable, "-m", "app.cli", *self.arguments]
        return subprocess.Popen(command, env=self.environment, pass_fds=self.descriptors)


class KeptProcesses:
    """Processes of one command, kept alive as long as this context lasts; they may take `stop_seconds` to
    end. `describe` gets the id of one that ended, and returns what it was doing, for the log."""

    def __init__(
        self,
        command: ChildCommand,
        stop_seconds: float,
        count: int = 1,
        describe: Callable[[int], str] = lambda _: "",
    ) -> None:
        self._command = command
        self._stop_seconds = stop_seconds
        self._describe = describe
        self._closing = threading.Event()
        self._starting = threading.Lock()
        """Held while a process is started, so that none is started after all were terminated."""
        self._running: dict[int, subprocess.Popen[bytes]] = {}  # the last process of each number
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
                doing = self._describe(process.pid)
                if not self._closing.is_set():
                    self._log_end(process, doing)
            self._closing.wait(_RESTART_SECONDS)

    def _log_end(self, process: subprocess.Popen[bytes], doing: str) -> None:
        name, end = self._command.arguments[0], describe_end(process.returncode)
        facts = name, process.pid, end, doing and f" while {doing}"
        _logger.error("%s %d %s%s, another is started", *facts, extra={"cause": process.pid})

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
            _logger.info("%s %d is started", self._command.arguments[0], self._running[number].pid)
            return self._running[number]
