"""Looks at the database and at the processes from outside while the run goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import sqlalchemy
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import SQLAlchemyError

from tests.faults.material import PAIRS
from tests.faults.processes import command_line, state_of
from tests.faults.tally import Tally

_EVERY_SECONDS = 0.05
_STRAY_LOOKS = 30

_ROWS = text("SELECT id, revision, active_version FROM collections WHERE name = :name")
_VERSIONS = text("SELECT version FROM model_versions WHERE collection_id = :id")
_OPEN = text("SELECT count(*) FROM jobs WHERE collection_id = :id AND state IN ('queued', 'running')")


def observing_engine(url: str) -> Engine:
    """Return an engine whose every transaction is one consistent view, on connections of its own."""
    engine = create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ")

    @event.listens_for(engine, "begin")
    def _begin(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN")

    @event.listens_for(engine, "connect")
    def _connect(connection: object, _: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]

    return engine


class Observer:
    """Samples what must hold at every moment; `strays` are processes that nothing alive is responsible for.
    With `swaps` earlier versions become active again."""

    def __init__(
        self, engine: Engine, tally: Tally, strays: Callable[[], set[int]], swaps: bool = False
    ) -> None:
        self._engine = engine
        self._tally = tally
        self._strays = strays
        self._swaps = swaps
        self._looks: dict[int, int] = {}
        self._last: tuple[int, int] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        """Begin, once there is an active version."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._closed.set()
        self._thread.join(60.0)

    def _run(self) -> None:
        looked = 0.0
        while not self._closed.wait(_EVERY_SECONDS):
            try:
                self._look()
            except SQLAlchemyError:
                self._tally.count("database samples without an answer")
            if time.monotonic() - looked > 1.0:
                looked = time.monotonic()
                self._look_for_strays()

    def _look(self) -> None:
        with self._engine.connect() as connection:
            rows = connection.execute(_ROWS, {"name": PAIRS}).all()
            if len(rows) != 1:
                self._tally.violation(f"{len(rows)} collections of one name")
                return
            key, revision, active = rows[0]
            versions = connection.execute(_VERSIONS, {"id": key}).scalars().all()
            running = connection.execute(_OPEN, {"id": key}).scalar_one()
        self._tally.count("database samples")
        if active is None or versions.count(active) != 1:
            self._tally.violation(f"the active version is {active}, versions are {sorted(versions)}")
        if running > 1:
            self._tally.violation(f"{running} open jobs of one collection")
        # Where nobody rolls back both only grow.
        found = revision, 0 if self._swaps else active or 0
        if self._last is not None and (found[0] < self._last[0] or found[1] < self._last[1]):
            self._tally.violation(f"revision and active version went back from {self._last} to {found}")
        self._last = found

    def _look_for_strays(self) -> None:
        """Count looks, not seconds: where everything stands still for a while, nobody is late."""
        self._looks = {process: self._looks.get(process, 0) + 1 for process in self._strays()}
        for process, looks in self._looks.items():
            kind = "a worker" if " worker " in command_line(process) else "a trainer"
            self._tally.most(f"most looks, one a second, at an orphan of {kind}", looks)
            if looks == _STRAY_LOOKS:
                self._tally.violation(
                    f"{kind} ({process}) outlives its parent by {_STRAY_LOOKS} s: {state_of(process)}"
                )
