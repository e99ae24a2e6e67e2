"""Durable files and folders: what is made here survives a power cut."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents durably: each survives a power cut."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


@contextmanager
def durable_file(folder: Path, prefix: str, content: bytes) -> Iterator[Path]:
    """Write a file under a temporary name, which the block replaces by the final one with a rename or a link.
    The temporary name is gone afterwards, whether the block ends well or not. Raises OSError."""
    make_folder(folder)
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=prefix)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        yield Path(name)
    finally:
        # On a full disk it would take up the space that is left.
        Path(name).unlink(missing_ok=True)
    sync_folder(folder)
