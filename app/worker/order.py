"""A training as it is ordered: one line of JSON with its order, lines of JSON out with progress."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from app.bootstrap import build
from app.logs import log_to_stderr
from app.settings import Settings
from app.worker.outcome import Failure, attempt


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
