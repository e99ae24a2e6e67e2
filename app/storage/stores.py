"""All that is stored beside the database: in the data folder, or in an object store for several hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.domain.ports import BlobStore, BundleFiles, FolderMark
from app.storage.blobs import FileBlobStore
from app.storage.bundles import MANIFEST, BundleStore
from app.storage.copies import copy_new_files
from app.storage.local_cache import LocalCache
from app.storage.remote_blobs import RemoteBlobStore
from app.storage.remote_bundles import RemoteBundleStore
from app.storage.remote_folder import RemoteFolder, open_remote
from app.storage.remote_mark import RemoteFolderMark
from app.storage.trash import TRASH

_PICTURES, _BUNDLES, _GALLERIES = "pictures", "models", "galleries"
_CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a service.

    Parameters
    ----------
    pictures : BlobStore
        Originals of items and of queries.
    bundles : BundleFiles
        Model versions.
    galleries : BundleFiles
        Saved galleries.
    mark : FolderMark
        Names the database that all of it belongs to.
    copy_files : callable
        Copies the pictures and bundles of the first folder that the second one lacks; one of them is the data
        folder. Returns how many.
    """

    pictures: BlobStore
    bundles: BundleFiles
    galleries: BundleFiles
    mark: FolderMark
    copy_files: Callable[[Path, Path], int]


def local_stores(data_folder: Path, trash_seconds: float, mark: FolderMark) -> Stores:
    """Return stores in the data folder.

    Parameters
    ----------
    data_folder : Path
        Where they are.
    trash_seconds : float
        How long what was discarded can be restored.
    mark : FolderMark
        Of the folder.
    """

    def copy_files(source: Path, target: Path) -> int:
        return sum(copy_new_files(source / kind, target / kind) for kind in (_PICTURES, _BUNDLES))

    return Stores(
        FileBlobStore(data_folder / _PICTURES, trash_seconds),
        BundleStore(data_folder / _BUNDLES, trash_seconds),
        BundleStore(data_folder / _GALLERIES),
        mark,
        copy_files,
    )


def remote_stores(url: str, data_folder: Path, trash_seconds: float, cache_bytes: int) -> Stores:
    """Return stores in an object store, with copies in the data folder.

    Parameters
    ----------
    url : str
        As of `open_remote`.
    data_folder : Path
        Of this host.
    trash_seconds : float
        How long what was discarded can be restored.
    cache_bytes : int
        Bound on the copies, half of it for pictures.
    """
    root = open_remote(url)

    def cache_of(kind: str, share: float) -> LocalCache:
        return LocalCache(data_folder / _CACHE / kind, int(share * cache_bytes))

    def copy_files(source: Path, target: Path) -> int:
        is_copy_out = source == data_folder
        copy = _copy_out if is_copy_out else _copy_in
        folder = target if is_copy_out else source
        return sum(copy(root.child(kind), folder / kind) for kind in (_PICTURES, _BUNDLES))

    return Stores(
        RemoteBlobStore(root.child(_PICTURES), cache_of(_PICTURES, 0.5), trash_seconds),
        RemoteBundleStore(root.child(_BUNDLES), cache_of(_BUNDLES, 0.25), trash_seconds),
        RemoteBundleStore(root.child(_GALLERIES), cache_of(_GALLERIES, 0.25)),
        RemoteFolderMark(root),
        copy_files,
    )


def _copy_out(remote: RemoteFolder, folder: Path) -> int:
    copied = 0
    folder.mkdir(parents=True, exist_ok=True)
    for entry in remote.walk():
        path = folder / entry.name
        if _is_part_of_a_copy(entry.name) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            aside = path.with_name(f".copying-{path.name}")
            try:
                remote.download(entry.name, aside)
            except FileNotFoundError:  # removed in the meantime
                continue
            aside.rename(path)
            copied += 1
    return copied


def _copy_in(remote: RemoteFolder, folder: Path) -> int:
    present = {entry.name for entry in remote.walk()}
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    names.sort(key=lambda name: (name.endswith(f"/{MANIFEST}"), name))  # which stands for the files before it
    missing = [name for name in names if _is_part_of_a_copy(name) and name not in present]
    for name in missing:
        remote.upload(folder / name, name)
    return len(missing)


def _is_part_of_a_copy(name: str) -> bool:
    parts = name.split("/")
    return not any(part.startswith(".") for part in parts[parts[0] == TRASH :])
