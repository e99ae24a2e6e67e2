"""Galleries on disk: they only shorten a start, and are used only when the database knows them."""
# A saved gallery is a folder with checksums, as a model bundle is. Its row in the database names the model
# that projected it and its revision; a database restored to an earlier state does not know what was saved
# later. Whatever is missing or damaged is read from the database instead.

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace as replace_fields
from pathlib import Path

import numpy as np

from app.db.session import Database, UnitOfWork
from app.domain.entities import Collection, IndexedItem, ModelVersion, SavedGallery
from app.domain.errors import CollectionNotFoundError, DamagedBundleError, ServiceError
from app.index import ExactIndex, load_index, save_index
from app.services.serving.engine_galleries import RemoteGallery
from app.services.serving.galleries import Gallery
from app.services.serving.segments import Segment, merge_indexes
from app.services.serving.snapshot import Snapshot
from app.services.serving.stored_items import StoredItems, text_of
from app.services.storage.collection_lock import lock_collection
from app.services.storage.ownership import ManagedFiles
from app.services.storage.pacing import Pacer
from app.services.storage.sweeping import sweep_unused
from app.storage.pictures_and_bundles import Bundles

_INDEXES = "indexes"  # folder of the approximate indexes, which are not needed to serve
_MIN_UNSAVED_FRACTION = 0.1
"""Below this fraction of unsaved items a start is hardly shortened, while saving writes all items again."""
_GRACE_SECONDS = 3600.0
"""Unreferenced folders younger than this stay: another process may be about to record them."""
_logger = logging.getLogger(__name__)


class SavedGalleries:
    """Writes and reads saved galleries, in a folder that holds nothing else; removes unused ones where it
    owns the files. Saves in a thread, one collection at a time; never those with few unsaved items."""

    def __init__(
        self, database: Database, files: Bundles, owns_files: Callable[[], bool], min_unsaved_items: int = 0
    ) -> None:
        self._database = database
        self._files = files
        self._owns_files = owns_files
        self._min_unsaved_items = min_unsaved_items
        self._is_saving = threading.Lock()
        self._managed = ManagedFiles.of_rows(
            "galleries", files, database, lambda work, names: work.collections.used_galleries(names)
        )

    def load(
        self, work: UnitOfWork, collection: Collection, version: ModelVersion, pause: Callable[[], None]
    ) -> tuple[int, dict[str, Gallery], bool] | None:
        """Return the revision and the galleries saved for a version, and whether their indexes are whole;
        None without any to trust. `pause` is called between steps of the work."""
        saved = work.collections.saved_gallery(collection)
        if saved is None or saved.model_bundle != version.bundle or saved.revision > collection.revision:
            return None
        try:
            with self._open(saved) as (folder, has_indexes):
                galleries = {
                    name: self._read(folder, side, has_indexes, pause)
                    for side, name in zip("xz", collection.modality_names, strict=True)
                }
                return saved.revision, galleries, has_indexes
        except (DamagedBundleError, OSError) as error:  # the folder may be removed while it is read
            if saved.folder not in self._files.names():  # as in a backup, which leaves them out
                _logger.info("%s has no saved gallery; reading its items from the database", collection.name)
            else:
                _logger.warning(
                    "%s: saved gallery cannot be used; reading the items from the database: %s",
                    collection.name,
                    error,
                )
            return None

    def save_if_worthwhile(self, snapshot: Snapshot) -> Snapshot:
        """Start saving a snapshot's galleries if a start would read many items; return the snapshot to hold.
        Not those of a stand-in: other processes, and the next start, look for those of the active version."""
        if any(isinstance(gallery, RemoteGallery) for gallery in snapshot.galleries.values()):
            return snapshot  # an engine keeps them
        if not snapshot.model.is_trained or snapshot.missed is not None:
            return snapshot  # a start fits it again, or places its items with their names
        n_items = sum(gallery.size for gallery in snapshot.galleries.values())
        is_worthwhile = snapshot.n_unsaved >= max(self._min_unsaved_items, _MIN_UNSAVED_FRACTION * n_items)
        if snapshot.load_failure is None and is_worthwhile and self._start(snapshot):
            return replace_fields(snapshot, n_unsaved=0)
        return snapshot

    def _start(self, snapshot: Snapshot) -> bool:
        """Start a thread, unless galleries are being saved; return whether it was started."""
        if not self._is_saving.acquire(blocking=False):
            return False
        try:
            threading.Thread(target=self._save_in_background, args=(snapshot,), name="save-galleries").start()
        except RuntimeError as error:  # the system has no thread left
            self._is_saving.release()
            _logger.warning("%s: could not save galleries: %s", snapshot.collection.name, error)
            return False
        return True

    def _save_in_background(self, snapshot: Snapshot) -> None:
        try:
            self.save(snapshot, Pacer(lambda: False))
        except (OSError, ServiceError) as error:
            _logger.warning("%s: could not save galleries: %s", snapshot.collection.name, error)
        finally:
            self._is_saving.release()

    def save(self, snapshot: Snapshot, pause: Callable[[], None]) -> None:
        """Write the galleries of a snapshot's revision, in place of those saved before.
        `pause` is called between steps of the work."""
        collection, model_bundle = snapshot.collection, snapshot.model_bundle
        incarnation = self._database.incarnation()
        if not self._owns_files() or self._is_saved(collection, model_bundle):
            return

        def fill(folder: Path) -> None:
            for side, name in zip("xz", collection.modality_names, strict=True):
                self._write(folder, side, snapshot.galleries[name], pause)

        manifest = {"collection": collection.id, "model": model_bundle, "revision": collection.revision}
        folder, manifest_hash = self._files.write(f"{collection.id}-r{collection.revision}", fill, manifest)
        try:
            with self._database.write() as work:
                current = lock_collection(work, collection)
                if self._database.incarnation() != incarnation or current.revision < collection.revision:
                    # They are of another time: the database was replaced by an older copy of itself.
                    raise CollectionNotFoundError(collection.name)
                before = work.collections.saved_gallery(collection)
                saved = SavedGallery(model_bundle, collection.revision, folder, manifest_hash)
                work.collections.save_gallery(collection, saved)
            superseded = [] if before is None else [before.folder]
        except CollectionNotFoundError:
            superseded = [folder]
        # A process that is reading it meanwhile reads the database instead.
        self._files.discard(superseded, time.time() + 1.0)
        for _ in sweep_unused(self._managed, time.time() - _GRACE_SECONDS, any_share=True):
            pause()

    def _is_saved(self, collection: Collection, model_bundle: str) -> bool:
        """Return whether another process has saved this revision already, and undamaged."""
        with self._database.read() as work:
            saved = work.collections.saved_gallery(collection)
        if saved is None or (saved.model_bundle, saved.revision) != (model_bundle, collection.revision):
            return False
        try:
            self._files.check(saved.folder, saved.manifest_hash)
        except DamagedBundleError:
            return False
        return True

    @contextmanager
    def _open(self, saved: SavedGallery) -> Iterator[tuple[Path, bool]]:
        """Yield a folder, and whether its indexes are whole; raises DamagedBundleError if others are not."""
        with ExitStack() as opened:
            has_indexes = True
            try:
                folder = opened.enter_context(self._files.open(saved.folder, saved.manifest_hash))
            except DamagedBundleError as error:
                files = self._files.open(saved.folder, saved.manifest_hash, without=[_INDEXES])
                folder, has_indexes = opened.enter_context(files), False
                _logger.warning("%s: searching exactly, as an index is damaged: %s", saved.folder, error)
            yield folder, has_indexes

    def _write(self, folder: Path, side: str, gallery: Gallery, pause: Callable[[], None]) -> None:
        with (folder / f"{side}.json").open("wb") as stream:
            stream.writelines(text_of(((view.segment.items, view.alive) for view in gallery.segments), pause))
        vectors = [view.live_vectors() for view in gallery.segments]
        array = np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32)
        np.save(folder / f"{side}.npy", array, allow_pickle=False)
        if not gallery.is_exact:  # of all rows in one
            (first, *others) = gallery.segments
            is_whole = not others and first.alive is None
            (folder / _INDEXES).mkdir(exist_ok=True)
            index = first.segment.index if is_whole else merge_indexes(gallery.segments)
            save_index(index, folder / _INDEXES / side)
        (folder / f"{side}-unranked.json").write_text(json.dumps(sorted(gallery.unranked)), encoding="utf-8")

    def _read(self, folder: Path, side: str, has_indexes: bool, pause: Callable[[], None]) -> Gallery:
        # First: it is absent in a folder of an early release, and in one that was just removed, where the
        # next file is missed.
        path = folder / f"{side}-unranked.json"
        unranked = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        items = _read_items(folder / f"{side}.json")
        pause()
        vectors = np.load(folder / f"{side}.npy", allow_pickle=False)
        path = folder / _INDEXES / side
        index = load_index(path, vectors) if has_indexes and path.is_file() else ExactIndex(vectors)
        return Gallery.of_segment(Segment(items, index), frozenset(unranked))


def _read_items(path: Path) -> Sequence[IndexedItem]:
    text = path.read_bytes()
    if text.startswith(b"[\n"):
        return StoredItems(text)
    # None at all, or the one line of an early release.
    return [IndexedItem(item_id, tuple(labels), metadata) for item_id, labels, metadata in json.loads(text)]
