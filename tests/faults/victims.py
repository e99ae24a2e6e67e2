"""Who is killed or paused next."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.cluster import PostgresCluster
from tests.faults.processes import Managed, children_of, command_line, descendants_of
from tests.faults.tally import Tally

_TRAINER_SECONDS = 6.0
_SAVING_SECONDS = 10.0
_HELPERS = ("resource_tracker", "forkserver", "tests.forking")


class Victims:
    """Finds and kills one process at a time: of servers, workers, those below them, and a cluster.
    Servers save what they hold in `galleries`."""

    def __init__(
        self, processes: list[Managed], cluster: PostgresCluster | None, tally: Tally, galleries: Path
    ) -> None:
        self._processes = processes
        self._galleries = galleries
        self._cluster = cluster
        self._tally = tally
        self._bag: list[str] = []

    def kill_one(self, chance: random.Random) -> None:
        """Kill one process, of a kind that is drawn so that every kind has its turn."""
        if not self._bag:
            self._bag = ["server", "saving server", "worker", "trainer", "trainer"]
            if self._cluster is not None:
                self._bag += ["backend", "backend", "postmaster"]
            chance.shuffle(self._bag)
        kind = self._bag.pop()
        if kind == "server":
            # What is just being started again is killed once more: that is a kill, too.
            while not chance.choice(self._servers).kill():
                time.sleep(0.05)
        elif kind == "saving server":
            kind = self._kill_saving()
        elif kind == "worker":
            self._kill(chance.choice(self._wait_for(self._workers)))
        elif kind == "trainer":
            kind = self._kill_trainer(chance)
        elif kind == "backend":
            self._kill_backend(chance)
        elif self._cluster is not None:
            self._cluster.kill()
            time.sleep(chance.uniform(0.0, 2.0))
            self._cluster.start()
        self._tally.count(f"kills of a {kind}")
        self._tally.count("kills")

    def pause_one(self, chance: random.Random, seconds: float) -> None:
        """Stop a worker and all below it for a while: it comes back believing that its job is its own."""
        trainers = self._trainers()
        busy = [worker for worker in self._workers() if set(children_of(worker)) & set(trainers)]
        workers = busy or self._workers()
        if not workers:
            return
        worker = chance.choice(workers)
        stopped = [worker, *descendants_of(worker)]
        for process in stopped:
            _send(process, signal.SIGSTOP)
        time.sleep(seconds)
        for process in stopped:
            _send(process, signal.SIGCONT)
        self._tally.count("pauses of a worker beyond its lease")

    @property
    def _servers(self) -> list[Managed]:
        return [process for process in self._processes if process.name.startswith("api")]

    def _kill_saving(self) -> str:
        """Kill both servers while one of them writes its galleries; at some moment when none does."""
        deadline = time.monotonic() + _SAVING_SECONDS
        before = self._unfinished()  # left by those who were killed earlier
        while not self._unfinished() - before and time.monotonic() < deadline:
            time.sleep(0.001)
        while not sum([server.kill() for server in self._servers]):
            time.sleep(0.05)
        time.sleep(0.05)  # what is dying may still have been at the end of it
        return "saving server" if self._unfinished() - before else "server"

    def _unfinished(self) -> set[str]:
        return {path.name for path in self._galleries.glob(".partial-*")}

    def _kill_trainer(self, chance: random.Random) -> str:
        """Kill the process that trains at some moment of its life; its worker when it has none."""
        deadline = time.monotonic() + _TRAINER_SECONDS
        while time.monotonic() < deadline:
            if self._trainers():
                time.sleep(chance.uniform(0.0, 1.5))
                # Looked for anew: by now it may have ended, and its number may be another's.
                if trainers := self._trainers():
                    self._kill(chance.choice(trainers))
                    return "trainer"
            time.sleep(0.02)
        self._kill(chance.choice(self._wait_for(self._workers)))
        return "worker"

    def _kill_backend(self, chance: random.Random) -> None:
        """Kill the process behind one connection: PostgreSQL then ends all others and recovers."""
        if self._cluster is None:
            return
        while True:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if backends := self._cluster.backends():
                    os.kill(chance.choice(backends), signal.SIGKILL)
                    return
            time.sleep(0.05)

    def _kill(self, process: int) -> None:
        owner = next((managed for managed in self._processes if managed.pid == process), None)
        if owner is not None:
            owner.kill()
            return
        _send(process, signal.SIGKILL)

    @staticmethod
    def _wait_for(find: Callable[[], list[int]]) -> list[int]:
        while not (found := find()):
            time.sleep(0.05)
        return found

    def _workers(self) -> list[int]:
        """Return the workers: those started here, and those beside a server."""
        alone = [process.pid for process in self._processes if process.name == "worker"]
        beside = [
            child
            for process in self._processes
            if process.name.startswith("api")
            for child in children_of(process.pid)
            if " worker " in f"{command_line(child)} "
        ]
        return [process for process in (*alone, *beside) if command_line(process)]

    def _trainers(self) -> list[int]:
        """Return the children of workers, but for what Python itself starts beside them."""
        children = [child for worker in self._workers() for child in children_of(worker)]
        return [
            child
            for child in children
            if command_line(child) and not any(helper in command_line(child) for helper in _HELPERS)
        ]


def _send(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)
