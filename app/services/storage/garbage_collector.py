"""Garbage collection of unreferenced files: pictures of rejected or deleted items, unrecorded bundles."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence

from app.domain.errors import ServiceError
from app.services.storage.ownership import ManagedFiles

_BATCH = 500
"""Names that the database is asked about in one query."""
_FEW = 10
_MOST_SHARE = 0.5
"""A database that lost rows makes most files look unused; a few may well be."""
_logger = logging.getLogger(__name__)


class GarbageCollector:
    """Moves unreferenced files to the trash once they are too old to be referenced by a running request.

    A file is written before the row that refers to it. Storing a picture again refreshes its timestamp, so
    that a sweep skips what another request is about to commit; if a sweep wins that race, the file comes
    back from the trash. Snapshots hold their model in memory and are not affected when a bundle is swept.

    More than half of all files of a kind, and more than ten, are swept only on explicit request: a database
    that lost rows makes good files look unused.

    Parameters
    ----------
    pictures, bundles : ManagedFiles
        The files to sweep.
    grace_seconds : float
        Younger files are kept.
    may_remove : callable
        Whether this database is the one that knows which files are used.
    now : callable
        Returns the time, in seconds since the epoch, by a clock that all hosts share.
    """

    def __init__(
        self,
        pictures: ManagedFiles,
        bundles: ManagedFiles,
        grace_seconds: float,
        may_remove: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._pictures = pictures
        self._bundles = bundles
        self._grace_seconds = grace_seconds
        self._may_remove = may_remove
        self._now = now
        self.swept = 0
        """Files and folders swept so far."""

    def sweep(self, any_share: bool = False) -> int:
        """Sweep unused files and leftovers of interrupted writes; return their number.

        Parameters
        ----------
        any_share : bool
            Whether to sweep even if most files are unused.
        """
        if not self._may_remove():
            return 0
        before = self._now() - self._grace_seconds
        return self._count(
            sum(sweep_unused(managed, before, any_share) for managed in (self._pictures, self._bundles))
        )

    def sweep_after_delete(self, content_hashes: Sequence[str], bundles: Sequence[str] = ()) -> bool:
        """Sweep the files of a deletion regardless of their age; return whether that was possible.

        The deletion itself is done, so a failure is only logged, and the next sweep tries again.
        """
        try:
            if not self._may_remove():
                return False
            before = self._now() - self._grace_seconds
            candidates = ((self._pictures, content_hashes), (self._bundles, bundles))
            self._count(sum(_discard(files, names, before) for files, names in candidates if names))
        except (OSError, ServiceError) as error:
            _logger.warning("files of deleted items are kept until the next sweep: %s", error)
            return False
        return True

    def _count(self, removed: int) -> int:
        self.swept += removed
        if removed:
            _logger.info("swept %d unused files and folders", removed)
        return removed


def sweep_unused(managed: ManagedFiles, before: float, any_share: bool) -> int:
    """Sweep unused files of one kind and leftovers of interrupted writes; return their number.

    Parameters
    ----------
    managed : ManagedFiles
        The files.
    before : float
        Files touched after this time are left alone, in seconds since the epoch.
    any_share : bool
        Whether to sweep even if most files are unused.
    """
    n_tidied = managed.files.tidy(before, managed.used)
    total = sum(1 for _ in managed.files.names())
    most = total if any_share else max(_FEW, int(_MOST_SHARE * total))
    unused: list[str] = []
    stale = managed.files.stale(before)
    while names := list(itertools.islice(stale, _BATCH)):
        in_use = managed.used(names)
        unused += [name for name in names if name not in in_use]
        if len(unused) > most:
            _logger.error(
                "no %s are removed: of %d at least %d look unused, which is more than half: "
                "is the database complete? If so, run lrbs db sweep",
                managed.kind,
                total,
                len(unused),
            )
            return n_tidied
    return n_tidied + managed.files.discard(unused, before)


def _discard(managed: ManagedFiles, names: Sequence[str], before: float) -> int:
    in_use = managed.used(names)
    return managed.files.discard([name for name in names if name not in in_use], before)
