"""Galleries on disk: they only shorten a start, and are used only when the database knows them.

A saved gallery is a folder with sums, as a model bundle is. Its row in the database says which model it was
projected by and at which revision; a database that was brought back to an earlier state does not know what
was saved later. Whatever is missing or damaged is read from the database instead.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from app.domain.entities import Collection, ModelVersion, SavedGallery
from app.domain.errors import CollectionNotFoundError, DamagedBundleError, ServiceError
from app.domain.ports import BundleFiles, Database, UnitOfWork
from app.services.serving.galleries import Gallery, IndexMaker, Row
from app.services.serving.renewals import in_steps, no_pause

_GRACE_SECONDS = 3600.0
_ROWS_PER_STEP = 250
_MOST_UNSAVED = 0.1
_logger = logging.getLogger(__name__)


class SavedGalleries:
    """Writes and reads them.

    Parameters
    ----------
    database : Database
        Knows which ones are to be used.
    files : BundleFiles
        Where they are kept; nothing else is kept there.
    make_index : callable
        Builds an index over projected rows.
    owns_files : callable
        Whether this database can tell which files are used.
    least_unsaved : int
        Fewer items are never worth it.
    """

    def __init__(
        self,
        database: Database,
        files: BundleFiles,
        make_index: IndexMaker,
        owns_files: Callable[[], bool],
        least_unsaved: int,
    ) -> None:
        self._database = database
        self._files = files
        self._make_index = make_index
        self._owns_files = owns_files
        self._least_unsaved = least_unsaved
        self._saving = threading.Lock()

    def is_worth_it(self, size: int, unsaved: int) -> bool:
        """Return whether a start that reads so many items from the database is long enough to shorten."""
        return unsaved >= max(self._least_unsaved, _MOST_UNSAVED * size)

    def load(
        self,
        work: UnitOfWork,
        collection: Collection,
        version: ModelVersion,
        pause: Callable[[], None] = no_pause,
    ) -> tuple[int, dict[str, Gallery]] | None:
        """Return what is saved of a version and at which revision; None when there is nothing to trust.

        `pause` is called between steps of the work.
        """
        saved = work.collections.saved_gallery(collection)
        if saved is None or saved.model_bundle != version.bundle or saved.revision > collection.revision:
            return None
        try:
            folder = self._files.open(saved.folder, saved.manifest_hash)
            return saved.revision, {
                name: self._read(folder, side, pause)
                for side, name in zip("xz", collection.modality_names, strict=True)
            }
        except DamagedBundleError as error:
            if saved.folder not in self._files.names():  # as in a backup, which is made without them
                _logger.info("%s has no saved gallery: its items are read from the database", collection.name)
            else:
                _logger.warning(
                    "%s: its items are read from the database: saved gallery: %s", collection.name, error
                )
            return None

    def save(
        self,
        collection: Collection,
        model_bundle: str,
        galleries: Mapping[str, Gallery],
        pause: Callable[[], None] = no_pause,
    ) -> None:
        """Write galleries as they are at the collection's revision, in place of what was saved before.

        `pause` is called between steps of the work.
        """
        if not self._owns_files() or self._is_saved(collection, model_bundle):
            return

        def fill(folder: Path) -> None:
            for side, name in zip("xz", collection.modality_names, strict=True):
                self._write(folder, side, galleries[name], pause)

        facts = {"collection": collection.id, "model": model_bundle, "revision": collection.revision}
        folder, manifest_hash = self._files.write(f"{collection.id}-r{collection.revision}", fill, facts)
        try:
            with self._database.write() as work:
                if work.collections.lock(collection.name).id != collection.id:
                    raise CollectionNotFoundError(collection.name)
                before = work.collections.saved_gallery(collection)
                saved = SavedGallery(model_bundle, collection.revision, folder, manifest_hash)
                work.collections.save_gallery(collection, saved)
            superseded = [] if before is None else [before.folder]
        except CollectionNotFoundError:
            superseded = [folder]
        # Whoever is reading it right now finds it damaged, and reads the database.
        self._files.discard(superseded, time.time() + 1.0)
        self._remove_unused(time.time() - _GRACE_SECONDS)

    def save_beside(
        self,
        collection: Collection,
        model_bundle: str,
        galleries: Mapping[str, Gallery],
        pause: Callable[[], None],
    ) -> bool:
        """Save in a thread, unless one is at it; return whether it has begun. Parameters as of `save`."""
        if not self._saving.acquire(blocking=False):
            return False

        def save() -> None:
            try:
                self.save(collection, model_bundle, galleries, pause)
            except (OSError, ServiceError) as error:
                _logger.warning("%s: galleries are not saved: %s", collection.name, error)
            finally:
                self._saving.release()

        try:
            threading.Thread(target=save, name="save-galleries").start()
        except RuntimeError as error:  # the system gives no thread
            self._saving.release()
            _logger.warning("%s: galleries are not saved: %s", collection.name, error)
            return False
        return True

    def _is_saved(self, collection: Collection, model_bundle: str) -> bool:
        """Return whether another process was faster, and what it wrote is whole."""
        with self._database.read() as work:
            saved = work.collections.saved_gallery(collection)
        if saved is None or (saved.model_bundle, saved.revision) != (model_bundle, collection.revision):
            return False
        try:
            self._files.open(saved.folder, saved.manifest_hash)
        except DamagedBundleError:
            return False
        return True

    def _remove_unused(self, before: float) -> None:
        self._files.tidy(before, self._used)
        stale = list(self._files.stale(before))
        used = self._used(stale)
        self._files.discard([folder for folder in stale if folder not in used], before)

    def _used(self, folders: Sequence[str]) -> set[str]:
        with self._database.read() as work:
            return work.collections.used_galleries(folders)

    def _write(self, folder: Path, side: str, gallery: Gallery, pause: Callable[[], None]) -> None:
        living = [part.living() for part in gallery.parts]
        rows = itertools.chain.from_iterable(found for found, _ in living)
        with (folder / f"{side}.json").open("w", encoding="utf-8") as stream:
            # One JSON array, an entry in each line: it can be read in steps.
            begin = "[\n"
            for step in in_steps(rows, _ROWS_PER_STEP):
                lines = (json.dumps([row.id, row.labels, row.metadata]) for row in step)
                stream.write(begin + ",\n".join(lines))
                begin = ",\n"
                pause()
            stream.write("\n]" if gallery.size else "[]")
        vectors = (
            np.concatenate([vectors for _, vectors in living]) if living else np.zeros((0, 0), np.float32)
        )
        np.save(folder / f"{side}.npy", vectors, allow_pickle=False)
        (folder / f"{side}-unranked.json").write_text(json.dumps(sorted(gallery.unranked)), encoding="utf-8")

    def _read(self, folder: Path, side: str, pause: Callable[[], None]) -> Gallery:
        rows: list[Row] = []
        with (folder / f"{side}.json").open(encoding="utf-8") as stream:
            is_in_lines = stream.readline() == "[\n"
            if not is_in_lines:
                stream.seek(0)
            for step in in_steps(stream, _ROWS_PER_STEP):
                text = "".join(step)
                if is_in_lines:
                    text = f"[{text.removesuffix(']').rstrip().removesuffix(',')}]"
                entries = json.loads(text)
                rows += [Row(item_id, tuple(labels), metadata) for item_id, labels, metadata in entries]
                pause()
        vectors = np.load(folder / f"{side}.npy", allow_pickle=False)
        unranked = folder / f"{side}-unranked.json"  # absent in a folder of an earlier release
        left_out = json.loads(unranked.read_text(encoding="utf-8")) if unranked.is_file() else []
        return Gallery.of(rows, vectors, self._make_index, frozenset(left_out))
