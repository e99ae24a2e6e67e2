"""Removing files that no row speaks of: pictures of refused or deleted items, bundles never recorded."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from app.domain.errors import ServiceError
from app.domain.ports import BlobStore, BundleFiles, Database

_logger = logging.getLogger(__name__)


class Housekeeping:
    """Sweeps unreferenced files away once they are old enough that nobody can be about to use them.

    A file is written before the row that speaks of it. Storing a picture again makes it young again, so
    that a sweep never takes what another request is about to commit. Snapshots hold their model in memory
    and lose nothing when a bundle goes.

    Parameters
    ----------
    database : Database
        Says what is used.
    blobs : BlobStore
        Pictures.
    bundles : BundleFiles
        Model bundles.
    grace_seconds : float
        Younger files are left alone.
    owns_files : callable
        Whether the files belong to this database: another one's look unused from here.
    """

    def __init__(
        self,
        database: Database,
        blobs: BlobStore,
        bundles: BundleFiles,
        grace_seconds: float,
        owns_files: Callable[[], bool],
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._bundles = bundles
        self._grace_seconds = grace_seconds
        self._owns_files = owns_files
        self.swept = 0
        """Files and folders removed so far."""

    def sweep(self, content_hashes: Sequence[str] | None = None, bundles: Sequence[str] | None = None) -> int:
        """Remove unused files and return how many.

        Parameters
        ----------
        content_hashes, bundles : sequence of str, optional
            Look only at these; at everything, leftovers of interrupted writes included, when None.
        """
        if not self._owns_files():
            _logger.warning("the files belong to another database: nothing is swept")
            return 0
        before = time.time() - self._grace_seconds
        removed = self._blobs.sweep(before, self._used_content, content_hashes)
        removed += self._bundles.sweep(before, self._used_bundles, bundles)
        self.swept += removed
        if removed:
            _logger.info("swept %d unused files and folders", removed)
        return removed

    def sweep_after_delete(self, content_hashes: Sequence[str], bundles: Sequence[str] = ()) -> None:
        """Sweep what a deletion left; it is done already, so a failure is only logged."""
        try:
            self.sweep(content_hashes, bundles)
        except (OSError, ServiceError) as error:
            _logger.warning("files of deleted items stay until the next sweep: %s", error)

    def _used_content(self, content_hashes: Sequence[str]) -> set[str]:
        with self._database.read() as work:
            return work.items.used_content(content_hashes)

    def _used_bundles(self, bundles: Sequence[str]) -> set[str]:
        with self._database.read() as work:
            return work.models.used_bundles(bundles)
