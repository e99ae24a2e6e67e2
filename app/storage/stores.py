"""All that is stored beside the database: in the data folder, or in an object store for several hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.domain.entities import CopiedFiles
from app.storage.blobs import Blobs
from app.storage.bundles import Bundles
from app.storage.copies import copy_bundles, copy_pictures
from app.storage.folders import LocalFolder
from app.storage.local_cache import LocalCache
from app.storage.marks import FolderMark, RemoteFolderMark
from app.storage.remote_folder import open_remote
from app.storage.trash import Folder

_PICTURES, _BUNDLES, _GALLERIES = "pictures", "models", "galleries"
_CACHE = "cache"
_SHARES = {_PICTURES: 0.5, _BUNDLES: 0.25, _GALLERIES: 0.25}  # of the bound on all copies
_COPY = {_PICTURES: copy_pictures, _BUNDLES: copy_bundles}
"""How the files are copied that a backup holds, by their kind."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a service."""

    pictures: Blobs  # originals of items and of queries
    bundles: Bundles  # model versions
    galleries: Bundles  # saved ones
    mark: FolderMark  # names the database that all of it belongs to
    # copies what the second folder lacks of the first, but for damaged files; one is the data folder
    copy_files: Callable[[Path, Path], CopiedFiles]
    # returns why the stores could not be used when they were last; None if they could
    find_fault: Callable[[], str | None]


def local_stores(data_folder: Path, trash_seconds: float, mark: FolderMark) -> Stores:
    """Return stores in the data folder, where what was discarded can be restored for a while."""
    folders: dict[str, Folder] = {kind: LocalFolder(data_folder / kind) for kind in _SHARES}
    return _stores(data_folder, folders, {}, trash_seconds, mark, lambda: None)


def remote_stores(url: str, data_folder: Path, trash_seconds: float, cache_bytes: int) -> Stores:
    """Return stores in an object store (`open_remote`), with bounded copies in the data folder, half of them
    for pictures."""
    root = open_remote(url)
    folders: dict[str, Folder] = {kind: root.child(kind) for kind in _SHARES}
    caches = {
        kind: LocalCache(data_folder / _CACHE / kind, int(share * cache_bytes))
        for kind, share in _SHARES.items()
    }
    return _stores(data_folder, folders, caches, trash_seconds, RemoteFolderMark(root), root.find_fault)


def _stores(
    data_folder: Path,
    folders: dict[str, Folder],
    caches: dict[str, LocalCache],
    trash_seconds: float,
    mark: FolderMark,
    find_fault: Callable[[], str | None],
) -> Stores:
    def place_of(folder: Path, kind: str) -> Folder:
        return folders[kind] if folder == data_folder else LocalFolder(folder / kind)

    def copy_files(source: Path, target: Path) -> CopiedFiles:
        count = 0
        damaged: list[str] = []
        for kind, copy in _COPY.items():
            way = caches[kind] if caches and target == data_folder else LocalFolder(target / kind)
            copied = copy(place_of(source, kind), place_of(target, kind), way)
            count += copied.count
            damaged += [f"{kind}/{name}" for name in copied.damaged]
        return CopiedFiles(count, tuple(damaged))

    return Stores(
        Blobs(folders[_PICTURES], caches.get(_PICTURES), trash_seconds),
        Bundles(folders[_BUNDLES], caches.get(_BUNDLES), trash_seconds),
        Bundles(folders[_GALLERIES], caches.get(_GALLERIES)),
        mark,
        copy_files,
        find_fault,
    )
