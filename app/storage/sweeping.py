"""Cleaning up after interrupted writes, and after removals that an earlier version did not finish."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from app.storage.trash import delete, is_older

COPYING = ".copying-"
"""Name prefix of files on their way from or to a copy of the store."""
_REMOVED = ".removed-"
"""Name prefix that versions without a trash gave to files and folders they were removing."""


def sweep_leftovers(folder: Path, prefixes: Sequence[str], before: float) -> int:
    """Remove the leftovers of interrupted writes in a folder; return the number of files and folders removed.

    Parameters
    ----------
    folder : Path
        Folder of a store; need not exist.
    prefixes : sequence of str
        Name prefixes of unfinished writes.
    before : float
        Only what was last touched before this time is removed, in seconds since the epoch.
    """
    if not folder.is_dir():
        return 0
    for aside in folder.glob(f"{_REMOVED}*"):
        _put_back(aside)
    leftovers = [path for path in folder.iterdir() if path.name.startswith(tuple(prefixes))]
    return sum(delete(path) for path in leftovers if is_older(path, before))


def _put_back(aside: Path) -> None:
    """Undo an interrupted removal; the next sweep decides again whether the path is unused."""
    path = aside.with_name(aside.name.removeprefix(_REMOVED).rpartition("-")[0])
    if path.exists():
        delete(aside)
    else:
        with contextlib.suppress(FileNotFoundError):
            aside.rename(path)
