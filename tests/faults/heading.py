"""The first line of a campaign: what it takes to run it again, and where it ran."""

from __future__ import annotations

import os
import platform


def heading(seed: int, **sizes: object) -> str:
    """Return seed, sizes and machine as one line."""
    given = [f"{name} {value}" for name, value in sizes.items()]
    machine = f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"
    return ", ".join([f"seed {seed}", *given, machine])
