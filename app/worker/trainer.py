"""What runs in the trainer's process: one line in says what to train, lines of JSON out say how it goes.

Standard input stays open as long as the parent lives; when it closes, this process ends at once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from app.bootstrap import build
from app.logs import log_to_stderr
from app.settings import Settings
from app.worker.outcome import Failure, attempt


def main() -> None:
    """Train once."""
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Standard output is for the parent; what else is printed goes where errors go.
    told = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def tell(what: str, facts: Mapping[str, Any]) -> None:
        told.write(json.dumps({what: facts}) + "\n")

    settings = Settings(**order["settings"])
    log_to_stderr(settings.log_format)
    services = build(settings)
    outcome = attempt(
        services, order["collection"], order["parameters"], lambda progress: tell("progress", progress)
    )
    tell("failure" if isinstance(outcome, Failure) else "built", msgspec.to_builtins(outcome))
    told.close()


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
