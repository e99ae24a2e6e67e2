"""All that is stored beside the database: in the data folder, or in an object store for several hosts."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from app.domain.entities import CopiedFiles
from app.storage.blobs import Blobs
from app.storage.bundles import MANIFEST, Bundles, is_inside, parse_sums
from app.storage.folders import TRASH, LocalFolder
from app.storage.local_cache import LocalCache, Way
from app.storage.marks import FolderMark, RemoteFolderMark
from app.storage.remote_folder import open_remote
from app.storage.trash import Folder

_PICTURES, _BUNDLES, _GALLERIES = "pictures", "models", "galleries"
_CACHE = "cache"
_SHARES = {_PICTURES: 0.5, _BUNDLES: 0.25, _GALLERIES: 0.25}  # of the bound on all copies


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
        for kind, copy in ((_PICTURES, copy_pictures), (_BUNDLES, copy_bundles)):
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


# What is at its place is copied before what is in the trash: a file that moves there in the meantime is found
# there. A file appears in the copy whole or not at all, and the manifest of a bundle after its other files.

_logger = logging.getLogger(__name__)


class _Copy:
    """One copy on its way, with a folder aside for its files."""

    def __init__(self, source: Folder, target: Folder, aside: Path) -> None:
        self._source = source
        self._target = target
        self._aside = aside
        self._present = set(target.keys())
        self._n_files = 0
        self._damaged: list[str] = []

    @property
    def outcome(self) -> CopiedFiles:
        """What was copied so far."""
        return CopiedFiles(self._n_files, tuple(self._damaged))

    def copy_picture(self, name: str) -> None:
        """Copy a file that is named by its sum."""
        with suppress(FileNotFoundError):  # moved or removed in the meantime
            self._copy(name, name.rpartition("/")[2])

    def copy_bundle(self, name: str) -> None:
        """Copy the files that a manifest names, and the manifest after them."""
        manifest = f"{name}/{MANIFEST}"
        with suppress(FileNotFoundError), self._fetch(manifest) as path:
            try:
                sums = parse_sums(path.read_bytes())
            except (ValueError, KeyError, TypeError):
                self._note_damage(manifest)
                return
            for file, expected in sums.items():
                with suppress(FileNotFoundError):
                    self._copy_part(f"{name}/{file}", expected, manifest)
            if manifest not in self._present:
                self._take(path, manifest)

    def _copy_part(self, name: str, expected: str, manifest: str) -> None:
        try:
            self._copy(name, expected)
        except FileNotFoundError:
            with self._fetch(manifest):  # otherwise all of the bundle was moved in the meantime
                self._note_damage(name)

    def _copy(self, name: str, expected: str) -> None:
        if name in self._present:
            return
        with self._fetch(name) as path:
            with path.open("rb") as stream:
                is_whole = hashlib.file_digest(stream, "sha256").hexdigest() == expected
            if is_whole:
                self._take(path, name)
            else:
                self._note_damage(name)

    def _take(self, path: Path, name: str) -> None:
        self._target.take(path, name)
        self._present.add(name)
        self._n_files += 1

    @contextmanager
    def _fetch(self, name: str) -> Iterator[Path]:
        path = self._aside / secrets.token_hex(8)
        try:
            self._source.download(name, path)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _note_damage(self, name: str) -> None:
        """Note a file that is missing or not what its sum says."""
        if name.startswith(f"{TRASH}/"):
            _logger.warning("%s is damaged, and left out of the copy: nothing refers to it", name)
        else:
            self._damaged.append(name)


def copy_pictures(source: Folder, target: Folder, way: Way) -> CopiedFiles:
    """Copy the pictures that the target lacks, unless they are damaged."""
    return _copy_all(source, target, way, lambda folder, names: names, _Copy.copy_picture)


def copy_bundles(source: Folder, target: Folder, way: Way) -> CopiedFiles:
    """Copy the files of bundles that the target lacks, unless they are damaged or of an unfinished bundle."""
    return _copy_all(source, target, way, _bundles_in, _Copy.copy_bundle)


def _copy_all(
    source: Folder,
    target: Folder,
    way: Way,
    find: Callable[[str, list[str]], list[str]],
    copy_one: Callable[[_Copy, str], None],
) -> CopiedFiles:
    with way.make_temporary_folder() as aside:
        copy = _Copy(source, target, Path(aside))
        for folder in ("", TRASH):
            for name in find(folder, [name for name in source.keys(folder) if _is_stored_in(folder, name)]):
                copy_one(copy, name)
        return copy.outcome


def _is_stored_in(folder: str, name: str) -> bool:
    """Return whether a file is stored in a folder, and neither unfinished nor in the trash of that folder."""
    below = name.removeprefix(f"{folder}/") if folder else name
    return is_inside(below) and not any(part.startswith(".") for part in below.split("/"))


def _bundles_in(folder: str, names: list[str]) -> list[str]:
    """Return the folders with a manifest; those of the trash lie in one for each hour."""
    depth = 3 if folder == TRASH else 1
    parts = (name.split("/") for name in names)
    return ["/".join(part[:depth]) for part in parts if part[depth:] == [MANIFEST]]
