"""Taking away files that no row speaks of: pictures of refused or deleted items, bundles never recorded."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence

from app.domain.errors import ServiceError
from app.services.storage.ownership import KeptFiles

_BATCH = 500
_FEW = 10
_MOST_SHARE = 0.5
_logger = logging.getLogger(__name__)


class GarbageCollector:
    """Sweeps unused files into the trash once they are old enough that nobody can be about to use them.

    A file is written before the row that speaks of it. Storing a picture again makes it young again, so that
    a sweep leaves alone what another request is about to commit; where one is faster all the same, the file
    comes back from the trash. Snapshots hold their model in memory and lose nothing when a bundle goes.

    More than half of all files of a kind, and more than ten, are only swept by somebody's order: a database
    that lost rows makes good files look unused.

    Parameters
    ----------
    pictures, bundles : KeptFiles
        What is swept.
    grace_seconds : float
        Younger files are left alone.
    may_remove : callable
        Whether this database can tell which files are unused: to another or an older one, used ones look so.
    """

    def __init__(
        self,
        pictures: KeptFiles,
        bundles: KeptFiles,
        grace_seconds: float,
        may_remove: Callable[[], bool],
    ) -> None:
        self._pictures = pictures
        self._bundles = bundles
        self._grace_seconds = grace_seconds
        self._may_remove = may_remove
        self.swept = 0
        """Files and folders taken away so far."""

    def sweep(self, any_share: bool = False) -> int:
        """Take away unused files and what interrupted writes left; return how many.

        Parameters
        ----------
        any_share : bool
            Whether it is right that most files are unused.
        """
        if not self._may_remove():
            return 0
        before = time.time() - self._grace_seconds
        return self._count(
            sum(self._sweep(kept, before, any_share) for kept in (self._pictures, self._bundles))
        )

    def sweep_after_delete(self, content_hashes: Sequence[str], bundles: Sequence[str] = ()) -> bool:
        """Take away what a deletion left, however young; return whether that was possible.

        What stays is left to the next sweep: the deletion itself is done, so a failure is only logged.
        """
        before = time.time() - self._grace_seconds
        try:
            if not self._may_remove():
                return False
            wanted = ((self._pictures, content_hashes), (self._bundles, bundles))
            self._count(sum(_discard(kept, names, before) for kept, names in wanted if names))
        except (OSError, ServiceError) as error:
            _logger.warning("files of deleted items stay until the next sweep: %s", error)
            return False
        return True

    def _sweep(self, kept: KeptFiles, before: float, any_share: bool) -> int:
        left = kept.files.tidy(before, kept.used)
        total = sum(1 for _ in kept.files.names())
        most = total if any_share else max(_FEW, int(_MOST_SHARE * total))
        unused: list[str] = []
        stale = kept.files.stale(before)
        while names := list(itertools.islice(stale, _BATCH)):
            in_use = kept.used(names)
            unused += [name for name in names if name not in in_use]
            if len(unused) > most:
                _logger.error(
                    "no %s are removed: of %d at least %d look unused, which is more than half: "
                    "is the database whole? If that is right, run lrbs db sweep",
                    kept.kind,
                    total,
                    len(unused),
                )
                return left
        return left + kept.files.discard(unused, before)

    def _count(self, removed: int) -> int:
        self.swept += removed
        if removed:
            _logger.info("swept %d unused files and folders", removed)
        return removed


def _discard(kept: KeptFiles, names: Sequence[str], before: float) -> int:
    in_use = kept.used(names)
    return kept.files.discard([name for name in names if name not in in_use], before)
