"""All that is stored beside the database: in the data folder, or in an object store for several hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from app.domain.entities import CopiedFiles
from app.domain.ports import BlobStore, BundleFiles
from app.storage.blobs import FileBlobStore
from app.storage.bundles import BundleStore
from app.storage.copies import FolderPlace, Place, RemotePlace, copy_bundles, copy_pictures
from app.storage.local_cache import LocalCache
from app.storage.remote_blobs import RemoteBlobStore
from app.storage.remote_bundles import RemoteBundleStore
from app.storage.remote_folder import open_remote
from app.storage.remote_mark import FolderMark, RemoteFolderMark

_PICTURES, _BUNDLES, _GALLERIES = "pictures", "models", "galleries"
_CACHE = "cache"
_SHARES = {_PICTURES: 0.5, _BUNDLES: 0.25, _GALLERIES: 0.25}  # of the bound on all copies
_COPY = {_PICTURES: copy_pictures, _BUNDLES: copy_bundles}
"""How the files are copied that a backup holds, by their kind."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a service."""

    pictures: BlobStore  # originals of items and of queries
    bundles: BundleFiles  # model versions
    galleries: BundleFiles  # saved ones
    mark: FolderMark  # names the database that all of it belongs to
    # copies what the second folder lacks of the first, but for damaged files; one is the data folder
    copy_files: Callable[[Path, Path], CopiedFiles]
    # returns why the stores could not be used when they were last; None if they could
    find_fault: Callable[[], str | None]


def local_stores(data_folder: Path, trash_seconds: float, mark: FolderMark) -> Stores:
    """Return stores in the data folder, where what was discarded can be restored for a while."""

    def copy_files(source: Path, target: Path) -> CopiedFiles:
        return _copy_all((kind, FolderPlace(source / kind), FolderPlace(target / kind)) for kind in _COPY)

    return Stores(
        FileBlobStore(data_folder / _PICTURES, trash_seconds),
        BundleStore(data_folder / _BUNDLES, trash_seconds),
        BundleStore(data_folder / _GALLERIES),
        mark,
        copy_files,
        lambda: None,
    )


def remote_stores(url: str, data_folder: Path, trash_seconds: float, cache_bytes: int) -> Stores:
    """Return stores in an object store (`open_remote`), with bounded copies in the data folder, half of them
    for pictures."""
    root = open_remote(url)

    caches = {
        kind: LocalCache(data_folder / _CACHE / kind, int(share * cache_bytes))
        for kind, share in _SHARES.items()
    }

    def place_of(folder: Path, kind: str) -> Place:
        is_remote = folder == data_folder
        return RemotePlace(root.child(kind), caches[kind]) if is_remote else FolderPlace(folder / kind)

    def copy_files(source: Path, target: Path) -> CopiedFiles:
        return _copy_all((kind, place_of(source, kind), place_of(target, kind)) for kind in _COPY)

    return Stores(
        RemoteBlobStore(root.child(_PICTURES), caches[_PICTURES], trash_seconds),
        RemoteBundleStore(root.child(_BUNDLES), caches[_BUNDLES], trash_seconds),
        RemoteBundleStore(root.child(_GALLERIES), caches[_GALLERIES]),
        RemoteFolderMark(root),
        copy_files,
        root.find_fault,
    )


def _copy_all(kinds: Iterable[tuple[str, Place, Place]]) -> CopiedFiles:
    """Copy each kind from the first place to the second one; damaged files are named with their kind."""
    copied = [(kind, _COPY[kind](source, target)) for kind, source, target in kinds]
    damaged = tuple(f"{kind}/{name}" for kind, one in copied for name in one.damaged)
    return CopiedFiles(sum(one.count for _, one in copied), damaged)
