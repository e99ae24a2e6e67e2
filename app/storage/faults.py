"""Disks that take no writes, in the service's words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.domain.errors import storage_error

_LITTLE_BYTES = 64 << 20
_MIB = 1 << 20


@contextmanager
def translated() -> Iterator[None]:
    """Raise StorageFullError or StorageReadOnlyError for what the system says of a disk; pass on the rest."""
    try:
        yield
    except OSError as error:
        fault = storage_error(error)
        if fault is None:
            raise
        raise fault from error


def fault_of_disk(path: Path) -> str | None:
    """Return why writes to a file or folder fail or soon will; None when nothing is known to be wrong.

    It asks the file system and writes nothing, so it does not see a quota. A path that does not exist yet
    has no fault.

    Parameters
    ----------
    path : Path
        What is written to.
    """
    try:
        found = os.statvfs(path)
    except FileNotFoundError:
        return None
    if found.f_flag & os.ST_RDONLY or not os.access(path, os.W_OK):
        return "read-only"
    is_superuser = os.geteuid() == 0
    left = found.f_frsize * (found.f_bfree if is_superuser else found.f_bavail)
    files_left = found.f_ffree if is_superuser else found.f_favail
    # Some file systems count neither and say 0 of 0.
    if found.f_blocks and left < _LITTLE_BYTES:
        return f"full but for {left // _MIB} MiB"
    if found.f_files and not files_left:
        return "full: no more files can be made"
    return None
