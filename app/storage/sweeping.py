"""Cleaning up after interrupted writes, and after removals that an earlier version did not finish."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from app.storage.trash import delete, is_older

COPYING = ".copying-"
"""Name prefix of files on their way from or to a copy of the store."""
_REMOVED = ".removed-"
"""Name prefix that versions without a trash gave to files and folders they were removing."""
_logger = logging.getLogger(__name__)


def sweep_leftovers(folder: Path, prefixes: Sequence[str], before: float) -> int:
    """Remove leftovers of interrupted writes of these prefixes in a folder, which need not exist; return
    their number. Only what was last touched before this time (seconds since the epoch) is removed."""
    if not folder.is_dir():
        return 0
    for aside in folder.glob(f"{_REMOVED}*"):
        _put_back(aside)
    leftovers = [path for path in folder.iterdir() if path.name.startswith(tuple(prefixes))]
    n_removed = 0
    for path in leftovers:
        if is_older(path, before):
            if delete(path):
                n_removed += 1
            else:
                _logger.warning("left by an interrupted write, but it cannot be removed: %s", path)
    return n_removed


def _put_back(aside: Path) -> None:
    """Undo an interrupted removal; the next sweep decides again whether the path is unused."""
    name = aside.name.removeprefix(_REMOVED).rpartition("-")[0]
    path = aside.with_name(name or aside.name)
    if path.exists():
        delete(aside)
    else:
        with contextlib.suppress(FileNotFoundError):
            aside.rename(path)
