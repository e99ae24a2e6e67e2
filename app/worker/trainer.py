"""Entry point of the trainer's process, which ends at once when the worker that started it does."""

from __future__ import annotations

import os
import sys
import threading
from queue import SimpleQueue

from app.imports import import_for_good

_LEARNING = ("app.services.training.data", "app.services.training.methods")
"""What a service imports only when it trains."""


def main() -> None:
    """Train once."""
    orders = SimpleQueue[str]()
    # Before the imports, which take long where the machine has too much to do.
    threading.Thread(target=_receive, args=(orders,), daemon=True).start()
    for module in _LEARNING:
        import_for_good(module)
    import_for_good("app.worker.attempts").train_as_ordered(orders.get())


def _receive(orders: SimpleQueue[str]) -> None:
    """Take the order, which is one line, and end this process when its standard input closes."""
    orders.put(sys.stdin.readline())
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
