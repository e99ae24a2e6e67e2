"""What interrupted writes, and interrupted removals of earlier versions, left in the folder of a store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from app.storage.trash import delete, is_older

_REMOVED = ".removed-"
"""Beginning of a name that versions before the trash gave to what they were removing."""


def sweep_leftovers(folder: Path, prefixes: Sequence[str], before: float) -> int:
    """Remove what interrupted writes left in a folder; return how many files or folders.

    Parameters
    ----------
    folder : Path
        Need not exist.
    prefixes : sequence of str
        Of the names that unfinished writes have.
    before : float
        Only what was last touched before this time, in seconds since the epoch.
    """
    if not folder.is_dir():
        return 0
    for aside in folder.glob(f"{_REMOVED}*"):
        _put_back(aside)
    left = [path for path in folder.iterdir() if path.name.startswith(tuple(prefixes))]
    return sum(delete(path) for path in left if is_older(path, before))


def _put_back(aside: Path) -> None:
    """Undo a removal that was interrupted, so that the path is examined again."""
    path = aside.with_name(aside.name.removeprefix(_REMOVED).rpartition("-")[0])
    if path.exists():
        delete(aside)
    else:
        with contextlib.suppress(FileNotFoundError):
            aside.rename(path)
