"""One attempt at a training: its lease on the job, its outcome, and the pipes to the process that trains."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from app.bootstrap import build
from app.db.session import Database
from app.domain.entities import BuiltModel, Job
from app.domain.errors import DISK_FAULTS, DatabaseUnavailableError, JobCancelledError, ServiceError
from app.domain.reports import ENCODERS, TrainingParameters
from app.logs import log_to_stderr
from app.services.training.progress import Report
from app.settings import Settings

if TYPE_CHECKING:
    from app.services.training.builder import ModelBuilder

LONGEST_WAIT_SECONDS = 6 * 3600.0
"""After this long without the database a worker gives up: longer than a migration or a restore takes."""
_FIRST_PAUSE_SECONDS = 0.25  # doubled after each failure
_LONGEST_PAUSE_SECONDS = 2.0  # bound on the doubled pause, so that a free database is noticed soon
_logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


def pause_after(failures: int) -> float:
    """Return how many seconds to wait after that many failures in a row; it doubles up to a bound."""
    return float(min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 10), _LONGEST_PAUSE_SECONDS))


def patiently(
    act: Callable[[], _Result],
    longest_seconds: Callable[[], float] = lambda: LONGEST_WAIT_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> _Result:
    """Return what `act` returns, retrying with growing pauses while the database is busy, since a brief lock
    must not discard hours of work; what `pause` raises ends that."""
    # Raises DatabaseUnavailableError, on which `act` has changed nothing, after `longest_seconds` in all.
    began, failures = time.monotonic(), 0
    while True:
        try:
            return act()
        except DatabaseUnavailableError:
            failures += 1
            waited = time.monotonic() - began
            if waited >= longest_seconds():
                raise
            _logger.info("the database has been busy for %.0f s, will retry", waited, extra={"cause": "busy"})
        pause(pause_after(failures))


# A busy database ends no lease. While the lease cannot be renewed the thread tries again with growing pauses;
# a lease that expired meanwhile is resumed unless another worker claimed the job, as its fencing token shows.

_TICK_SECONDS = 0.25
"""How often progress is written and a cancellation looked for: soon enough for somebody who watches."""
_MOST_STEPS = 2000  # progress steps held while the database is busy; older ones are dropped
_RENEWALS = 3.0  # a lease is renewed this many times within its length, so that one or two may fail


class WorkerStoppingError(Exception):
    """The worker was asked to stop and gave up its lease on the job."""


class Lease:
    """A claimed job while it is worked on; the lease lasts for some seconds without renewal."""

    def __init__(self, database: Database, job: Job, seconds: float, should_stop: Callable[[], bool]) -> None:
        self.job = job
        self._database = database
        self._seconds = seconds
        self._should_stop = should_stop
        self._steps: list[Mapping[str, Any]] = []
        self._lost: Exception | None = None
        self._on_lost: Callable[[], None] = lambda: None
        self._renewed_at = time.monotonic()
        self._failures, self._next_try = 0, 0.0
        self._guard = threading.Lock()
        self._writing = threading.Lock()  # steps on their way are written before the job is closed
        self._closed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._hold, daemon=True)

    def __enter__(self) -> Lease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def report(self, progress: Mapping[str, Any]) -> None:
        """Queue progress to be written soon; raises what ended the lease."""
        self.require()
        with self._guard:
            self._steps.append(dict(progress))
            del self._steps[:-_MOST_STEPS]

    def require(self) -> None:
        """Raise the error that ended the lease, if it has ended."""
        if self._lost is not None:
            raise self._lost

    def insist(self, act: Callable[[], _Result]) -> _Result:
        """Return what `act` returns, retrying while the database is busy and the lease holds.
        Raises what ended the lease; DatabaseUnavailableError only after hours."""

        def pause(seconds: float) -> None:
            self._ended.wait(seconds)
            self.require()

        self.require()
        return patiently(act, pause=pause)

    def when_lost(self, act: Callable[[], None]) -> None:
        """Call `act` from the lease's thread when the lease is lost; immediately if it already is."""
        with self._guard:
            self._on_lost = act
            is_lost = self._lost is not None
        if is_lost:
            act()

    def write(self) -> None:
        """Write the reported progress and renew the lease; raises JobCancelledError when it has ended."""
        self.require()
        with self._writing:
            with self._guard:
                steps, self._steps = self._steps, []
            try:
                with self._database.write() as work:
                    work.jobs.heartbeat(self.job, self._seconds, *steps)
            except DatabaseUnavailableError:
                with self._guard:
                    self._steps = steps + self._steps
                raise
        self._renewed_at = time.monotonic()

    def _hold(self) -> None:
        while not self._closed.wait(_TICK_SECONDS):
            try:
                self._tick()
            except Exception as error:
                # Whatever the reason, the training must end; `require` raises it in the waiting thread.
                with self._guard:
                    self._lost = error
                    act = self._on_lost
                self._ended.set()
                act()
                return

    def _tick(self) -> None:
        if self._should_stop():
            raise WorkerStoppingError
        now = time.monotonic()
        wants_to_write = bool(self._steps) or now - self._renewed_at >= self._seconds / _RENEWALS
        try:
            if wants_to_write and now >= self._next_try:
                self.write()
                self._failures = 0
            else:
                with self._database.read() as work:
                    work.jobs.check(self.job)
        except DatabaseUnavailableError:
            if time.monotonic() - self._renewed_at > LONGEST_WAIT_SECONDS:
                raise
            self._failures += 1
            # A worker that finds the lease expired gives a notice period, which is longer than this pause.
            self._next_try = time.monotonic() + min(pause_after(self._failures), self._seconds / 4.0)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt produced no model."""

    reason: str  # shown as the job's error
    may_pass: bool  # another attempt may succeed
    counts: bool = True  # as an attempt; one that the database refused does not


Outcome = BuiltModel | Failure


def attempt(builder: ModelBuilder, collection: str, parameters: Mapping[str, Any], report: Report) -> Outcome:
    """Train in this process; what `report` raises because the job was lost reaches the caller."""
    from solver import EngineError  # what waits for a job needs none of the solver

    try:
        rest = {name: value for name, value in parameters.items() if name != ENCODERS}
        encoders = parameters.get(ENCODERS, {})
        return builder.build(collection, TrainingParameters.from_json(rest), report, encoders)
    except (JobCancelledError, WorkerStoppingError):
        raise
    except DatabaseUnavailableError as error:
        # There may be no room for a long time: that attempt counts, so that the job ends and says why.
        return Failure(str(error), may_pass=True, counts=error.code in DISK_FAULTS)
    except EngineError as error:
        return Failure(str(error), may_pass=True)
    except ServiceError as error:
        return Failure(str(error), may_pass=False)
    except Exception as error:
        _logger.exception("training %s failed", collection)
        return Failure(f"internal error: {type(error).__name__}", may_pass=False)


_COMMAND = (sys.executable, "-m", "app.worker.trainer")


def train_as_ordered(line: str) -> None:
    """Train once, as a line of JSON says."""
    order = json.loads(line)
    # Standard output belongs to the messages for the parent; everything else printed goes to standard error.
    messages = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def send(kind: str, content: Mapping[str, Any]) -> None:
        try:
            messages.write(json.dumps({kind: content}) + "\n")
        except BrokenPipeError:  # the worker was killed
            os._exit(1)

    settings = Settings(**order["settings"])
    log_to_stderr(settings.log_format)
    builder, report = build(settings).builder, partial(send, "progress")
    outcome = attempt(builder, order["collection"], order["parameters"], report)
    send("failure" if isinstance(outcome, Failure) else "built", msgspec.to_builtins(outcome))
    messages.close()


def train_in_child(settings: Mapping[str, Any], max_seconds: float, lease: Lease) -> Outcome:
    """Train the job of a lease in a process of its own, which builds its services from settings of JSON
    values; raises what ended the lease, when the child is killed."""
    # The child changes nothing but files that are not referenced yet, so it can be killed at any moment. It
    # has a process group of its own, so that Ctrl-C in a terminal does not reach it.
    process = subprocess.Popen(
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", process_group=0
    )
    lease.when_lost(process.kill)
    is_late = threading.Event()

    def kill_late() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(max_seconds, kill_late)
    timer.daemon = True
    try:
        timer.start()
        job = lease.job
        # The settings may contain a password, so they are sent over the pipe.
        order = {"settings": settings, "collection": job.collection, "parameters": dict(job.parameters)}
        outcome = _follow(process, json.dumps(order), lease)
    finally:
        timer.cancel()
        _end(process)
    lease.require()
    if outcome is None and is_late.is_set():
        limit = f"{max_seconds:g} s"
        return Failure(f"took longer than LRBS_MAX_TRAINING_SECONDS allows: {limit}", may_pass=False)
    return outcome or Failure(f"the trainer {describe_end(process.returncode)}", may_pass=True)


def _follow(process: subprocess.Popen[str], order: str, lease: Lease) -> Outcome | None:
    """Return the outcome that the child reports; None when it ended without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        # The pipe stays open: when it closes, the child knows that this process is gone.
        process.stdin.write(order + "\n")
        process.stdin.flush()
    for line in process.stdout:
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            return None  # cut off in the middle
        if "progress" in message:
            lease.report(message["progress"])
        elif "failure" in message:
            return Failure(**message["failure"])
        else:
            return msgspec.convert(message["built"], BuiltModel)
    return None


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()


def describe_end(status: int | None) -> str:
    """Return how a process ended, by its exit status or the signal that ended it."""
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        return f"was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    return f"ended with status {status}"
