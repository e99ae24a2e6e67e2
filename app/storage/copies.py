"""Copies of the folders of pictures and bundles, whose files never change once they have their final name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from app.storage.trash import TRASH


def copy_new_files(source: Path, target: Path) -> int:
    """Copy every file that the target lacks; return how many were copied.

    Files removed in the meantime, and files not completely written yet, are left out.

    Parameters
    ----------
    source : Path
        Folder; nothing is copied if it is missing.
    target : Path
        Folder; created if missing.
    """
    copied = 0
    for folder, folders, names in os.walk(source):
        # Names of unfinished writes and removals begin with a dot. The trash is copied: a file moved there
        # in the meantime may be one that the copied database needs.
        folders[:] = [name for name in folders if name[0] != "." or name == TRASH]
        counterpart = target / Path(folder).relative_to(source)
        counterpart.mkdir(parents=True, exist_ok=True)
        for name in (name for name in names if name[0] != "."):
            copied += not (counterpart / name).exists() and _copy(Path(folder) / name, counterpart / name)
    return copied


def _copy(source: Path, target: Path) -> bool:
    unfinished = target.with_name(f".copying-{target.name}")
    try:
        shutil.copy2(source, unfinished)
    except FileNotFoundError:
        return False
    unfinished.rename(target)
    return True
