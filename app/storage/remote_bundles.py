"""Bundles in an object store: their files first, the manifest last, which stands for the whole."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from app.domain.errors import DamagedBundleError
from app.domain.ports import BundleFiles
from app.storage.bundles import MANIFEST, check_folder, describe, expected_sums, require_match, unreadable
from app.storage.faults import translate_errors
from app.storage.local_cache import LocalCache
from app.storage.remote_folder import RemoteFolder
from app.storage.remote_trash import RemoteTrash
from app.storage.trash import Used, delete


class RemoteBundleStore(BundleFiles):
    """Bundles in one folder of a store, with cached copies; discarded ones can be restored for a while."""

    def __init__(self, folder: RemoteFolder, cache: LocalCache, trash_seconds: float = 0.0) -> None:
        self._folder = folder
        self._cache = cache
        self._trash = RemoteTrash(folder, trash_seconds, lambda name: name, self._files_at)

    @translate_errors()
    @override
    def write(self, name: str, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> tuple[str, str]:
        """Write a bundle; see `BundleStore.write`. Until its manifest is written, it is an unused folder."""
        folder = f"{name}-{secrets.token_hex(4)}"
        aside = self._cache.make_aside()
        aside.mkdir()
        try:
            fill(aside)
            files, manifest = describe(aside, facts)
            (aside / MANIFEST).write_bytes(manifest)
            for file in [*files, MANIFEST]:
                self._folder.upload(aside / file, f"{folder}/{file}")
            self._cache.place(aside, folder)
        finally:
            delete(aside)
        return folder, hashlib.sha256(manifest).hexdigest()

    @contextmanager
    @override
    def open(self, folder: str, manifest_hash: str, without: Sequence[str] = ()) -> Iterator[Path]:
        """Yield a bundle's folder on this machine, checked as by `BundleStore.open`."""
        for is_last in (False, True):
            with self._cache.hold(folder, lambda path: self._download(folder, manifest_hash, path)) as path:
                try:
                    check_folder(path, folder, manifest_hash, without)
                except DamagedBundleError:
                    if is_last:
                        raise
                else:
                    yield path
                    return
            self._cache.remove(folder)  # the copy may be damaged, and not the bundle

    @override
    def check(self, folder: str, manifest_hash: str) -> None:
        """Check the sum of every file of a bundle as it is stored; raises DamagedBundleError."""
        manifest = self._read_manifest(folder)
        for file, expected in expected_sums(manifest, folder, manifest_hash).items():
            digest = hashlib.sha256()
            try:
                for part in self._folder.read_parts(f"{folder}/{file}"):
                    digest.update(part)
            except FileNotFoundError as error:
                raise unreadable(folder, error) from error
            require_match(folder, file, digest.hexdigest(), expected)

    @override
    def names(self) -> Iterator[str]:
        """Yield the name of every bundle; some stores list a folder after its last file has gone."""
        names = {entry.name.partition("/")[0] for entry in self._folder.walk()}
        return (name for name in sorted(names) if not name.startswith("."))

    @override
    def times(self) -> Iterator[tuple[str, float]]:
        newest: dict[str, float] = {}
        for entry in self._folder.walk():
            name = entry.name.partition("/")[0]
            newest[name] = max(newest.get(name, 0.0), entry.modified)
        return ((name, at) for name, at in newest.items() if not name.startswith("."))

    @override
    def discard(self, folders: Sequence[str], before: float) -> int:
        for folder in folders:
            self._cache.drop(folder)
        return self._trash.put(folders)

    @override
    def tidy(self, before: float, used: Used) -> Iterator[int]:
        """Tidy the trash; yield 0 after each step.
        What an interrupted write has left is a bundle that nothing refers to."""
        return (0 for _ in self._trash.tidy(before, used))

    def _download(self, folder: str, manifest_hash: str, path: Path) -> None:
        """Copy the files that the manifest names; those that are missing are noticed by their sums."""
        manifest = self._read_manifest(folder)
        sums = expected_sums(manifest, folder, manifest_hash)
        (path / MANIFEST).write_bytes(manifest)
        for file in sums:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._folder.download(f"{folder}/{file}", path / file)

    def _read_manifest(self, folder: str) -> bytes:
        key = f"{folder}/{MANIFEST}"
        try:
            with contextlib.suppress(FileNotFoundError):
                return self._folder.read(key)
            self._trash.give_back(folder)
            return self._folder.read(key)
        except FileNotFoundError as error:
            raise DamagedBundleError(f"bundle {folder}: it is not there") from error

    def _files_at(self, place: str) -> Sequence[str]:
        """Return the files of a bundle, the manifest last."""
        files = [entry.name for entry in self._folder.walk(place)]
        return sorted(files, key=lambda name: (name == MANIFEST, name))
