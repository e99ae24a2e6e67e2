"""The mark in an object store that names the database its files belong to."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

from typing_extensions import override

from app.domain.entities import Mark
from app.domain.errors import StorageUnavailableError
from app.domain.ports import FolderMark
from app.storage.remote_folder import RemoteFolder

_MARKER = ".database"
_SECONDS = 10.0
"""How long a mark is remembered: the store is not asked by every request."""


class RemoteFolderMark(FolderMark):
    """A small object beside the others.

    Parameters
    ----------
    folder : RemoteFolder
        The whole store.
    """

    def __init__(self, folder: RemoteFolder) -> None:
        self._folder = folder
        self._remembered: tuple[float, Mark] | None = None

    @override
    def read(self) -> Mark | None:
        """Return the mark; the one that was read last while the store is away. None if there is none."""
        if self._remembered is not None and time.monotonic() - self._remembered[0] < _SECONDS:
            return self._remembered[1]
        try:
            mark = Mark(**json.loads(self._folder.read(_MARKER)))
        except FileNotFoundError:
            return None
        except StorageUnavailableError:
            if self._remembered is None:
                raise
            return self._remembered[1]
        except (ValueError, TypeError):
            return Mark("", "")
        self._remembered = (time.monotonic(), mark)
        return mark

    @override
    def names_this_database(self) -> bool:
        """Return False: there were no such marks in earlier versions."""
        return False

    @override
    def write(self, mark: Mark, replace: bool) -> None:
        """Write a mark; one that is there stays unless it is to be replaced."""
        content = json.dumps(asdict(mark)).encode()
        self._remembered = None
        if replace:
            self._folder.write(_MARKER, content)
        else:
            self._folder.create(_MARKER, content)
