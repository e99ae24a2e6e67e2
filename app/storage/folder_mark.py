"""The mark in a data folder that names the database its files belong to."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from app.domain.entities import Mark
from app.storage.folders import durable_file

_MARKER = ".database"
_SQLITE = "sqlite://:/"
_INSIDE = "inside this folder"


@dataclass(eq=False)
class FileFolderMark:
    """A small file in the data folder, created when a mark is written."""

    # Earlier versions wrote the location of the database instead of its identity:
    # ``backend://host:port/name``, or that it lies inside this folder, in its usual file.

    _folder: Path
    _location: str
    _usual_file: str

    def read(self) -> Mark | None:
        """Return the mark; None if there is none, or if a crash of an earlier version left it empty."""
        text = self._text()
        if not text:
            return None
        try:
            return Mark(**json.loads(text))
        except (ValueError, TypeError):
            return Mark("", "")

    def names_this_database(self) -> bool:
        """Return whether an earlier version marked the folder with the location of the current database."""
        text = self._text()
        name = _portable_name(self._folder, self._location, self._usual_file)
        return bool(text) and name in (text, _portable_name(self._folder, text, self._usual_file))

    def write(self, mark: Mark, replace: bool) -> None:
        """Write a mark atomically, through a temporary file, in place of an existing one only with `replace`;
        raises OSError."""
        with durable_file(self._folder, f"{_MARKER}-", json.dumps(asdict(mark)).encode()) as aside:
            if replace or ((self._folder / _MARKER).exists() and not self._text()):
                os.replace(aside, self._folder / _MARKER)
            else:
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.link(aside, self._folder / _MARKER)

    def _text(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self._folder / _MARKER).read_text(encoding="utf-8")
        return ""


def _portable_name(folder: Path, database: str, usual_file: str) -> str:
    """Return the name of a database in the marker file: without the folder's path if it lies inside."""
    path = database.removeprefix(_SQLITE)
    if path == database or path.startswith((":", "file:")):
        return database
    file, root = Path(path).resolve(), folder.resolve()
    if not file.is_relative_to(root):
        return database
    inside = file.relative_to(root).as_posix()
    return _INSIDE if inside == usual_file else f"{_INSIDE}: {inside}"
