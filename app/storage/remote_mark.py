"""The mark in an object store that names the database its files belong to."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import asdict

from app.domain.entities import Mark
from app.domain.errors import UnavailableError
from app.storage.folder_mark import FileFolderMark
from app.storage.remote_folder import RemoteFolder

_MARKER = ".database"
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
            mark = Mark(**json.loads(self._folder.read(_MARKER)))
        except FileNotFoundError:
            self._remembered = None
            return None
        except (ValueError, TypeError):
            mark = Mark("", "")
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
