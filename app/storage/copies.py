"""Copies of the folders of pictures and bundles, whose files never change once they have their name."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from app.storage.trash import TRASH


def copy_new_files(source: Path, target: Path) -> int:
    """Copy every file that the target lacks; return how many.

    What is removed meanwhile, and what is not yet written to its end, is left out.

    Parameters
    ----------
    source : Path
        Folder; nothing is copied when it is missing.
    target : Path
        Folder; made when missing.
    """
    copied = 0
    for folder, folders, names in os.walk(source):
        # Unfinished writes and removals begin with a dot; what was put into the trash meanwhile is needed.
        folders[:] = [name for name in folders if name[0] != "." or name == TRASH]
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        for name in (name for name in names if name[0] != "."):
            copied += not (here / name).exists() and _copy(Path(folder) / name, here / name)
    return copied


def _copy(source: Path, target: Path) -> bool:
    unfinished = target.with_name(f".copying-{target.name}")
    try:
        shutil.copy2(source, unfinished)
    except FileNotFoundError:
        return False
    unfinished.rename(target)
    return True
