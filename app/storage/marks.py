"""The mark that names the database to which files belong: in a data folder, or in an object store."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from app.domain.entities import Mark
from app.domain.errors import UnavailableError
from app.storage.folders import durable_file
from app.storage.remote_folder import RemoteFolder

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
        return _mark_of(text) if text else None

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


def _mark_of(text: str | bytes) -> Mark:
    """Return a mark as it was written; that of an earlier version names no database."""
    try:
        return Mark(**json.loads(text))
    except (ValueError, TypeError):
        return Mark("", "")


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


_SECONDS = 10.0  # how long a mark is remembered: the store is not asked by every request
_PATIENCE_SECONDS = 2.0
"""How long a request waits for a mark to be read again; what is remembered serves until it comes."""


class RemoteFolderMark:
    """A small object beside the others of the store."""

    def __init__(self, folder: RemoteFolder) -> None:
        self._folder = folder
        self._remembered: tuple[float, Mark] | None = None
        self._guard = threading.Lock()
        self._inquiry: threading.Thread | None = None

    def read(self) -> Mark | None:
        """Return the mark; the one that was read last while the store is away. None if there is none."""
        remembered = self._remembered
        if remembered is None:
            return self._ask()
        if time.monotonic() - remembered[0] >= _SECONDS and self._ask_in_background():
            remembered = self._remembered
        return None if remembered is None else remembered[1]

    def _ask_in_background(self) -> bool:
        """Return whether the store answered, or refused, soon enough for the caller to wait."""
        with self._guard:
            if self._inquiry is not None and self._inquiry.is_alive():
                return False
            self._inquiry = threading.Thread(target=self._ask_again, name="ask-for-mark", daemon=True)
            self._inquiry.start()
            inquiry = self._inquiry
        inquiry.join(_PATIENCE_SECONDS)
        return not inquiry.is_alive()

    def _ask_again(self) -> None:
        with suppress(UnavailableError):  # its outage is known, and what is remembered stays
            self._ask()

    def _ask(self) -> Mark | None:
        try:
            mark = _mark_of(self._folder.read(_MARKER))
        except FileNotFoundError:
            self._remembered = None
            return None
        self._remembered = (time.monotonic(), mark)
        return mark

    def names_this_database(self) -> bool:
        """Return False: there were no such marks in earlier versions."""
        return False

    def write(self, mark: Mark, replace: bool) -> None:
        content = json.dumps(asdict(mark)).encode()
        self._remembered = None
        if replace:
            self._folder.write(_MARKER, content)
        else:
            self._folder.create(_MARKER, content)


FolderMark = FileFolderMark | RemoteFolderMark
"""What a data folder, or the store in its place, remembers of its database."""
