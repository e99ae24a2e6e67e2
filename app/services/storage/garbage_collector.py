"""Garbage collection of unreferenced files: pictures of rejected or deleted items, unrecorded bundles."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence

from app.domain.errors import ServiceError
from app.services.storage.ownership import ManagedFiles
from app.services.storage.rounds import Round

_BATCH = 500  # names that the database is asked about in one query
_FEW = 10
_MOST_SHARE = 0.5  # a database that lost rows makes most files look unused; a few may well be
_logger = logging.getLogger(__name__)


class GarbageCollector:
    """Moves unreferenced files to the trash once they are too old to be referenced by a running request."""

    # A file is written before the row that refers to it. Storing a picture again refreshes its timestamp, so
    # that a sweep skips what another request is about to commit; if a sweep wins that race, the file comes
    # back from the trash. Snapshots hold their model in memory and are not affected when a bundle is swept.
    # More than half of all files of a kind, and more than ten, are swept only on explicit request: a database
    # that lost rows makes good files look unused. `now` is in seconds since the epoch, by a clock that all
    # hosts share.

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
        self._unfinished: Iterator[int] | None = None
        self.swept = 0
        """Files and folders swept so far."""

    def sweep(self, any_share: bool = False) -> int:
        """Sweep unused files (`any_share`: even most) and leftovers of interrupted writes; return their
        number."""
        return sum(self._sweep(any_share)) if self._may_remove() else 0

    def go_on(self, time_left: Round) -> bool:
        """Sweep in steps, of some hundred names each; the next round goes on where this one ended.
        Returns whether it came to its end."""
        if not self._may_remove():
            self._unfinished = None
            return True
        steps = self._unfinished or self._sweep(any_share=False)
        self._unfinished = None  # one that fails begins again
        is_finished = time_left.finish(lambda: next(steps, None) is None)
        self._unfinished = None if is_finished else steps
        return is_finished

    def _sweep(self, any_share: bool) -> Iterator[int]:
        before = self._now() - self._grace_seconds
        for managed in (self._pictures, self._bundles):
            for n_swept in sweep_unused(managed, before, any_share):
                self.swept += n_swept
                if n_swept:
                    _logger.info("swept %d unused %s", n_swept, managed.kind)
                yield n_swept

    def sweep_after_delete(self, content_hashes: Sequence[str], bundles: Sequence[str] = ()) -> bool:
        """Sweep the files of a deletion regardless of their age; return whether that was possible.
        The deletion itself is done, so a failure is only logged, and the next sweep tries again."""
        try:
            if not self._may_remove():
                return False
            before = self._now() - self._grace_seconds
            candidates = ((self._pictures, content_hashes), (self._bundles, bundles))
            swept = sum(_discard(files, names, before) for files, names in candidates if names)
        except (OSError, ServiceError) as error:
            _logger.warning("files of deleted items are kept until the next sweep: %s", error)
            return False
        self.swept += swept
        if swept:
            _logger.info("swept %d unused files and folders", swept, extra={"cause": "swept"})
        return True


def sweep_unused(managed: ManagedFiles, before: float, any_share: bool) -> Iterator[int]:
    """Sweep unused files of one kind and leftovers of interrupted writes; yield their number in each step.
    Files touched after `before` (seconds since the epoch) are left alone."""
    yield from managed.files.tidy(before, managed.used)
    total = 0
    unused: list[str] = []
    times = managed.files.times()
    while batch := list(itertools.islice(times, _BATCH)):
        total += len(batch)
        names = [name for name, at in batch if at < before]
        in_use = managed.used(names) if names else set()
        unused += [name for name in names if name not in in_use]
        yield 0
    if not any_share and len(unused) > max(_FEW, int(_MOST_SHARE * total)):
        _logger.error(
            "no %s are removed: %d of %d look unused, which is more than half: "
            "is the database complete? If so, run lrbs db sweep",
            managed.kind,
            len(unused),
            total,
        )
        return
    rest = iter(unused)
    while names := list(itertools.islice(rest, _BATCH)):
        yield _discard(managed, names, before)  # which may have come into use since the last round


def _discard(managed: ManagedFiles, names: Sequence[str], before: float) -> int:
    in_use = managed.used(names)
    return managed.files.discard([name for name in names if name not in in_use], before)
