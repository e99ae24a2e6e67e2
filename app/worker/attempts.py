"""One attempt at a training: its outcome, and both ends of the pipes to the child process that makes it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from app.bootstrap import build
from app.domain.entities import BuiltModel
from app.domain.errors import DISK_FAULTS, DatabaseUnavailableError, JobCancelledError, ServiceError
from app.domain.reports import ENCODERS, TrainingParameters
from app.logs import log_to_stderr
from app.services.training.builder import ModelBuilder
from app.services.training.progress import Report
from app.settings import Settings
from app.worker.lease import Lease, WorkerStoppingError
from solver import EngineError

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt produced no model."""

    reason: str  # shown as the job's error
    may_pass: bool  # another attempt may succeed
    counts: bool = True  # as an attempt; one that the database refused does not


Outcome = BuiltModel | Failure


def attempt(builder: ModelBuilder, collection: str, parameters: Mapping[str, Any], report: Report) -> Outcome:
    """Train in this process; what `report` raises because the job was lost reaches the caller."""
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
    services = build(settings)
    outcome = attempt(
        services.builder,
        order["collection"],
        order["parameters"],
        lambda progress: send("progress", progress),
    )
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
