"""Copies of pictures and bundles between a folder and a store, each file checked by its sum on its way."""
# What is at its place is copied before what is in the trash: a file that moves there in the meantime is found
# there. A file appears in the copy whole or not at all, and the manifest of a bundle after its other files.

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from app.domain.entities import CopiedFiles
from app.storage.bundles import MANIFEST, is_inside, parse_sums
from app.storage.local_cache import LocalCache
from app.storage.remote_folder import RemoteFolder
from app.storage.sweeping import COPYING
from app.storage.trash import TRASH

_logger = logging.getLogger(__name__)


class FolderPlace:
    """Files in a folder, which is made when a file is added."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all files, or of those below a folder; unfinished ones may be among them."""
        return sorted(
            (Path(inside) / file).relative_to(self._folder).as_posix()
            for inside, _, files in os.walk(self._folder / folder)
            for file in files
        )

    def fetch(self, name: str, path: Path) -> None:
        """Write a file of this machine from one of these; raises FileNotFoundError."""
        shutil.copy2(self._folder / name, path)

    def aside(self) -> TemporaryDirectory[str]:
        """Return a folder for what is on its way here."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return TemporaryDirectory(dir=self._folder, prefix=COPYING)

    def take(self, path: Path, name: str) -> None:
        """Add a file that is complete in the folder aside."""
        target = self._folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)


@dataclass(eq=False)
class RemotePlace:
    """Files in an object store; on their way they are in the cache: one may be larger than the system's
    temporary folder."""

    _folder: RemoteFolder
    _cache: LocalCache

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all files, or of those below a folder; unfinished ones may be among them."""
        prefix = f"{folder}/" if folder else ""
        return [f"{prefix}{entry.name}" for entry in self._folder.walk(folder)]

    def fetch(self, name: str, path: Path) -> None:
        """Write a file of this machine from one of these; raises FileNotFoundError."""
        self._folder.download(name, path)

    def aside(self) -> TemporaryDirectory[str]:
        """Return a folder for what is on its way here."""
        return self._cache.make_temporary_folder()

    def take(self, path: Path, name: str) -> None:
        """Add a file that is complete in the folder aside."""
        self._folder.upload(path, name)
        path.unlink()


Place = FolderPlace | RemotePlace
"""Files by names with slashes."""


class _Copy:
    """One copy on its way, with a folder aside for its files."""

    def __init__(self, source: Place, target: Place, aside: Path) -> None:
        self._source = source
        self._target = target
        self._aside = aside
        self._present = set(target.names())
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
            self._source.fetch(name, path)
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _note_damage(self, name: str) -> None:
        """Note a file that is missing or not what its sum says."""
        if name.startswith(f"{TRASH}/"):
            _logger.warning("%s is damaged, and left out of the copy: nothing refers to it", name)
        else:
            self._damaged.append(name)


def copy_pictures(source: Place, target: Place) -> CopiedFiles:
    """Copy the pictures that the target lacks, unless they are damaged."""
    return _copy_all(source, target, _pictures_in, _Copy.copy_picture)


def copy_bundles(source: Place, target: Place) -> CopiedFiles:
    """Copy the files of bundles that the target lacks, unless they are damaged or of an unfinished bundle."""
    return _copy_all(source, target, _bundles_in, _Copy.copy_bundle)


def _copy_all(
    source: Place,
    target: Place,
    find: Callable[[str, list[str]], list[str]],
    copy_one: Callable[[_Copy, str], None],
) -> CopiedFiles:
    with target.aside() as aside:
        copy = _Copy(source, target, Path(aside))
        for folder in ("", TRASH):
            for name in find(folder, [name for name in source.names(folder) if _is_stored_in(folder, name)]):
                copy_one(copy, name)
        return copy.outcome


def _is_stored_in(folder: str, name: str) -> bool:
    """Return whether a file is stored in a folder, and neither unfinished nor in the trash of that folder."""
    below = name.removeprefix(f"{folder}/") if folder else name
    return is_inside(below) and not any(part.startswith(".") for part in below.split("/"))


def _pictures_in(folder: str, names: list[str]) -> list[str]:
    return names


def _bundles_in(folder: str, names: list[str]) -> list[str]:
    """Return the folders with a manifest; those of the trash lie in one for each hour."""
    depth = 3 if folder == TRASH else 1
    parts = (name.split("/") for name in names)
    return ["/".join(part[:depth]) for part in parts if part[depth:] == [MANIFEST]]
