"""The trainer as a child process: started, followed over pipes, and killed when its job is lost."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from typing import Any

import msgspec

from app.bootstrap import Services
from app.domain.entities import BuiltModel
from app.worker.lease import Lease
from app.worker.outcome import Failure, Outcome

_COMMAND = (sys.executable, "-m", "app.worker.trainer")


def train_in_child(services: Services, lease: Lease) -> Outcome:
    """Train in a process of its own.

    The child changes nothing but files that no row speaks of yet, so it is killed without asking.

    Parameters
    ----------
    services : Services
        Their settings are what the child builds its own from.
    lease : Lease
        The job; its end is the child's.

    Raises
    ------
    Exception
        What ended the lease.
    """
    # A group of its own: Ctrl-C in a terminal is for this process to deal with.
    process = subprocess.Popen(
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", process_group=0
    )
    lease.when_lost(process.kill)
    is_late = threading.Event()

    def end_it() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(limit := services.settings.max_training_seconds, end_it)
    timer.daemon = True
    try:
        timer.start()
        outcome = _followed(process, _order(services, lease), lease)
    finally:
        timer.cancel()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
    lease.require()
    if outcome is None and is_late.is_set():
        return Failure(f"took longer than LRBS_MAX_TRAINING_SECONDS allows: {limit:g} s", may_pass=False)
    return outcome or Failure(f"the trainer {_ending(process.returncode)}", may_pass=True)


def _order(services: Services, lease: Lease) -> str:
    """Return the line that tells the child what to do; settings may hold a password, so they go this way."""
    job = lease.job
    return json.dumps(
        {
            "settings": services.settings.model_dump(mode="json"),
            "collection": job.collection,
            "parameters": dict(job.parameters),
        }
    )


def _followed(process: subprocess.Popen[str], order: str, lease: Lease) -> Outcome | None:
    """Return what the child says in the end; None when it ended without a word."""
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the trainer has no pipes")
    with contextlib.suppress(BrokenPipeError):
        # The pipe stays open: that it closes is how the child learns that this process is gone.
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


def _ending(status: int | None) -> str:
    if status is not None and status < 0:
        name = signal.Signals(-status).name
        return f"was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
    return f"ended with status {status}"
