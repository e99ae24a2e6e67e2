"""What both stores need to remove unused files without hurting a writer that is about to use them."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

Used = Callable[[Sequence[str]], set[str]]
"""Returns which of the names are used."""

_BATCH = 500
_REMOVED = ".removed-"


def sweep_paths(paths: Iterable[Path], before: float, used: Used) -> int:
    """Remove those paths that are old and unused; return how many.

    Parameters
    ----------
    paths : iterable of Path
        Files or folders.
    before : float
        Only what was last touched before this time, in seconds since the epoch.
    used : callable
        Asked about names of old paths only: a name that becomes used later is touched first.
    """
    removed = 0
    for batch in _batches(path for path in paths if _is_older(path, before)):
        in_use = used([path.name for path in batch])
        removed += sum(_remove(path, before) for path in batch if path.name not in in_use)
    return removed


def sweep_leftovers(folder: Path, prefixes: Sequence[str], before: float) -> int:
    """Remove what interrupted writes and sweeps left in a folder; return how many."""
    if not folder.is_dir():
        return 0
    for aside in folder.glob(f"{_REMOVED}*"):
        _put_back(aside)
    left = [path for path in folder.iterdir() if path.name.startswith(tuple(prefixes))]
    return sum(_delete(path) for path in left if _is_older(path, before))


def _put_back(aside: Path) -> None:
    """Undo a removal that was interrupted, so that the path is judged anew."""
    path = aside.with_name(aside.name.removeprefix(_REMOVED).rpartition("-")[0])
    if path.exists():
        _delete(aside)
    else:
        with contextlib.suppress(FileNotFoundError):
            aside.rename(path)


def _remove(path: Path, before: float) -> bool:
    aside = path.with_name(f"{_REMOVED}{path.name}-{secrets.token_hex(4)}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    if not _is_older(aside, before):
        # A writer found it and touched it a moment ago: it is wanted again.
        aside.rename(path)
        return False
    return _delete(aside)


def _delete(path: Path) -> bool:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return not path.exists()


def _is_older(path: Path, before: float) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime < before
    return False


def _batches(paths: Iterator[Path]) -> Iterator[list[Path]]:
    batch: list[Path] = []
    for path in paths:
        batch.append(path)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
