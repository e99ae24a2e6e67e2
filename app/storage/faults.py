"""Full and read-only disks, as the service's errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.domain.errors import storage_error

_MIB = 1 << 20  # bytes
_LOW_SPACE_BYTES = 64 * _MIB
"""A disk with less free space counts as full, so that readiness fails before writes do."""


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn an OSError of a full or read-only disk into a DatabaseUnavailableError."""
    try:
        yield
    except OSError as error:
        fault = storage_error(error)
        if fault is None:
            raise
        raise fault from error


def fault_of_disk(path: Path) -> str | None:
    """Return why writes to a file or folder fail or soon will; None if no fault is known, or nothing exists
    yet. It queries the file system and writes nothing, so it does not see a quota."""
    try:
        disk = os.statvfs(path)
    except FileNotFoundError:
        return None
    if disk.f_flag & os.ST_RDONLY or not os.access(path, os.W_OK):
        return "read-only"
    is_superuser = os.geteuid() == 0
    free_bytes = disk.f_frsize * (disk.f_bfree if is_superuser else disk.f_bavail)
    free_files = disk.f_ffree if is_superuser else disk.f_favail
    # Some file systems count neither blocks nor files, and report 0 of 0.
    if disk.f_blocks and free_bytes < _LOW_SPACE_BYTES:
        return f"full: only {free_bytes // _MIB} MiB free"
    if disk.f_files and not free_files:
        return "full: no more files can be made"
    return None
