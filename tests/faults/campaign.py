"""What the campaigns from the command line share: a first line, a folder, and how they end."""

from __future__ import annotations

import argparse
import os
import platform
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class Outcome(Protocol):
    """What happened in a campaign."""

    @property
    def violations(self) -> Sequence[str]:
        """What must not have happened."""
        ...

    def lines(self) -> list[str]:
        """Return it as text."""
        ...


def heading(seed: int, **sizes: object) -> str:
    """Return seed, sizes and machine as one line: what it takes to run it again, and where it ran."""
    given = [f"{name} {value}" for name, value in sizes.items()]
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    return ", ".join([f"seed {seed}", *given, machine, f"load before {load}"])


@contextmanager
def threads(count: int, work: Callable[[threading.Event, int], None]) -> Iterator[None]:
    """Run some threads of the same work, which looks for the end."""
    closing = threading.Event()
    started = [threading.Thread(target=work, args=(closing, number)) for number in range(count)]
    for thread in started:
        thread.start()
    try:
        yield
    finally:
        closing.set()
        for thread in started:
            thread.join()


def conduct(parser: argparse.ArgumentParser, campaign: Callable[[argparse.Namespace, Path], Outcome]) -> None:
    """Run a campaign in a folder of its own; ends with status 1 when anything was violated."""
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="default: random")
    parser.add_argument("--keep", action="store_true", help="keep data and logs")
    options = parser.parse_args()
    sizes = {name: value for name, value in vars(options).items() if name not in ("seed", "keep")}
    sys.stdout.write(f"{heading(options.seed, **sizes)}\n")
    sys.stdout.flush()
    folder = Path(tempfile.mkdtemp(prefix="lrbs-campaign-"))
    began = time.monotonic()
    try:
        outcome = campaign(options, folder)
    finally:
        if options.keep:
            sys.stdout.write(f"kept: {folder}\n")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write("\n".join([*outcome.lines(), f"seconds: {time.monotonic() - began:.0f}", ""]))
    sys.exit(1 if outcome.violations else 0)
