"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Return how many cores the machine, its affinity mask and the container's limit leave; at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if affinity is None else len(affinity(0))
    try:
        quota, period = _CONTAINER_LIMIT.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return max(cores, 1)
    return max(min(cores, int(quota) // int(period)), 1) if quota.isdigit() else max(cores, 1)
