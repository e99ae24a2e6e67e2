"""Model bundles: folders that are filled aside, stored under their name, and never changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.domain.errors import DamagedBundleError
from app.storage.faults import translate_errors
from app.storage.folders import LocalFolder, delete
from app.storage.local_cache import LocalCache, Way
from app.storage.remote_folder import RemoteFolder
from app.storage.trash import Folder, Trash, Used

MANIFEST = "manifest.json"
"""The last file of a bundle, which stands for the whole."""


class Bundles:
    """Bundles in one folder; what was discarded can be restored for a while. A cache has copies of those of a
    folder that is far away, without which they are read where they lie."""

    def __init__(self, folder: Folder, cache: LocalCache | None = None, trash_seconds: float = 0.0) -> None:
        self._folder = folder
        self._cache = cache
        self._way: Way | Folder = folder if cache is None else cache
        self._trash = Trash(folder, trash_seconds, lambda name: name, MANIFEST)

    @translate_errors()
    def write(self, name: str, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> tuple[str, str]:
        """Write a bundle; return its folder, with a random part after `name` so that writers never collide,
        and the SHA-256 of its manifest, which has the facts and the sum of every file."""
        # Raises DatabaseUnavailableError where the disk does not take it; nothing is left behind then but, in
        # an object store, a folder that nothing refers to.
        folder = f"{name}-{secrets.token_hex(4)}"
        assert not isinstance(self._way, RemoteFolder)
        aside = self._way.make_aside(folder)
        try:
            fill(aside)
            files = sorted(file.relative_to(aside).as_posix() for file in aside.rglob("*") if file.is_file())
            sums = {file: _sum(LocalFolder(aside).read_parts(file)) for file in files}
            described = json.dumps({"files": sums, "facts": facts}, indent=2, sort_keys=True, allow_nan=False)
            manifest = described.encode()
            (aside / MANIFEST).write_bytes(manifest)
            self._folder.publish(aside, folder, [*files, MANIFEST])
            if self._cache is not None:
                self._cache.place(aside, folder)
        finally:
            delete(aside)
        return folder, hashlib.sha256(manifest).hexdigest()

    @contextmanager
    def open(self, folder: str, manifest_hash: str, without: Sequence[str] = ()) -> Iterator[Path]:
        """Yield a bundle's folder on this machine, which stays until the end of the block, its files checked;
        raises DamagedBundleError. Subfolders that the caller does not read (`without`) are not checked."""
        if isinstance(self._folder, LocalFolder):
            self._check(folder, manifest_hash, without)
            yield self._folder.path / folder
            return
        assert self._cache is not None
        for is_last in (False, True):
            with self._cache.hold(folder, lambda path: self._download(folder, manifest_hash, path)) as path:
                try:
                    _check_files(LocalFolder(path.parent), folder, manifest_hash, without)
                except DamagedBundleError:
                    if is_last:
                        raise
                else:
                    yield path
                    return
            self._cache.remove(folder)  # the copy may be damaged, and not the bundle

    def check(self, folder: str, manifest_hash: str) -> None:
        """Check the sum of every file of a bundle as it is stored, whatever copies of it there are; raises
        DamagedBundleError."""
        self._check(folder, manifest_hash)

    def names(self) -> Iterator[str]:
        """Yield the name of every bundle."""
        return (name for name, _ in self.times())

    def times(self) -> Iterator[tuple[str, float]]:
        """Yield the name of every bundle, and when it was written, in seconds since the epoch."""
        return ((name, at) for name, at in self._folder.newest().items() if not name.startswith("."))

    def discard(self, folders: Sequence[str], before: float) -> int:
        """Move bundles that no row refers to, to the trash; return how many existed. If the trash keeps
        nothing, those written before this time (seconds since the epoch) go, at once or when it is tidied."""
        for folder in folders:
            if self._cache is not None:
                self._cache.drop(folder)
        return self._trash.put(folders, before)

    def tidy(self, before: float, used: Used) -> Iterator[int]:
        """Tidy the trash, and remove what interrupted writes left before this time (seconds since the epoch);
        yield their number in each step. `used` returns the bundles in use, which are restored."""
        yield from self._trash.tidy(before, used)
        yield from self._folder.sweep_leftovers(before, MANIFEST)

    def _check(self, folder: str, manifest_hash: str, without: Sequence[str] = ()) -> None:
        self._require(folder)
        _check_files(self._folder, folder, manifest_hash, without)

    def _require(self, folder: str) -> None:
        """Bring a bundle back that is missing; raises DamagedBundleError where that fails."""
        try:
            if not self._folder.has(f"{folder}/{MANIFEST}", None):
                self._trash.give_back(folder)
        except OSError as error:
            raise _unreadable(folder, error) from error

    def _download(self, folder: str, manifest_hash: str, path: Path) -> None:
        """Copy the files that the manifest names; those that are missing are noticed by their sums."""
        self._require(folder)
        sums, manifest = _expected_sums(self._folder, folder, manifest_hash)
        (path / MANIFEST).write_bytes(manifest)
        for file in sums:
            (path / file).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._folder.download(f"{folder}/{file}", path / file)


def parse_sums(manifest: bytes) -> dict[str, str]:
    """Return the sums of a manifest by the names of their files, none of which leads out of their folder.
    Raises ValueError, KeyError or TypeError for what is not such a manifest."""
    sums: dict[str, str] = dict(json.loads(manifest)["files"])
    for name in sums:
        if not is_inside(name):
            raise ValueError(f"{name!r} is not a file in the folder of the manifest")
    return sums


def is_inside(name: str) -> bool:
    """Return whether a name with slashes stays in the folder that it is relative to."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _expected_sums(folder: Folder, bundle: str, manifest_hash: str) -> tuple[dict[str, str], bytes]:
    """Return the sum of every file of a bundle by its name, and its manifest; raises DamagedBundleError for
    another one than was published."""
    # It lies where others may write: it is not parsed before its hash was checked.
    try:
        manifest = folder.read(f"{bundle}/{MANIFEST}")
    except OSError as error:
        raise _unreadable(bundle, error) from error
    if hashlib.sha256(manifest).hexdigest() != manifest_hash:
        raise DamagedBundleError(f"bundle {bundle}: the manifest is not the one that was published")
    try:
        return parse_sums(manifest), manifest
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedBundleError(f"bundle {bundle}: its manifest cannot be read") from error


def _check_files(folder: Folder, bundle: str, manifest_hash: str, without: Sequence[str]) -> None:
    """Check the sum of every file of a bundle, not of subfolders `without`; raises DamagedBundleError."""
    sums, _ = _expected_sums(folder, bundle, manifest_hash)
    try:
        for file, expected in sums.items():
            if file.startswith(tuple(f"{part}/" for part in without)):
                continue
            if _sum(folder.read_parts(f"{bundle}/{file}")) != expected:
                raise DamagedBundleError(f"bundle {bundle}: {file} does not match its sum")
    except OSError as error:
        raise _unreadable(bundle, error) from error


def _unreadable(folder: str, error: OSError) -> DamagedBundleError:
    """Return the error of a bundle of which a file cannot be read."""
    # The error's own text contains a path of this machine; it stays in the exception chain.
    return DamagedBundleError(f"bundle {folder}: {error.strerror or 'unreadable'}")


def _sum(parts: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
