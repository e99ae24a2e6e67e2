"""Whose files a data folder holds: the first database that asks marks the folder as its own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from app.storage.blobs import sync_folder

_MARKER = ".database"
_SQLITE = "sqlite://:/"
_INSIDE = "inside this folder"


def belongs_to(folder: Path, database: str, usual_file: str) -> bool:
    """Return whether a folder's files are this database's; the first one to ask gets them.

    Parameters
    ----------
    folder : Path
        Made when missing.
    database : str
        ``backend://host:port/database``. A SQLite file inside the folder stays the same database
        wherever both are moved to, by whatever path it is named.
    usual_file : str
        Name of the SQLite file that a folder has when no other database is set.
    """
    folder.mkdir(parents=True, exist_ok=True)
    marker, name = folder / _MARKER, _lasting(folder, database, usual_file)
    if not marker.exists():
        _write(marker, name, os.link)
    held = marker.read_text(encoding="utf-8")
    if held != name and (not held or _lasting(folder, held, usual_file) == name):
        # Written to no end before a crash, or by an earlier version, with a path.
        _write(marker, name, os.replace)
        held = name
    return held == name


def _lasting(folder: Path, database: str, usual_file: str) -> str:
    """Return what a database is called in the marker: without the folder's path when it lies there."""
    path = database.removeprefix(_SQLITE)
    if path == database or path.startswith((":", "file:")):
        return database
    file, root = Path(path).resolve(), folder.resolve()
    if not file.is_relative_to(root):
        return database
    inside = file.relative_to(root).as_posix()
    return _INSIDE if inside == usual_file else f"{_INSIDE}: {inside}"


def _write(marker: Path, name: str, publish: Callable[[Path, Path], None]) -> None:
    """Write a marker aside and give it its name once it is whole; `os.link` does so only if it is new."""
    descriptor, aside = tempfile.mkstemp(dir=marker.parent, prefix=f"{_MARKER}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(name)
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):  # another one asked at the same time
            publish(Path(aside), marker)
    finally:
        Path(aside).unlink(missing_ok=True)
    sync_folder(marker.parent)
