"""Model bundles: folders that are written under a temporary name, renamed into place, and never changed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from app.domain.errors import DamagedBundleError
from app.domain.ports import BundleFiles
from app.storage.faults import translate_errors
from app.storage.folders import make_folder, sync_folder
from app.storage.sweeping import COPYING, sweep_leftovers
from app.storage.trash import Trash, Used

MANIFEST = "manifest.json"
_PARTIAL = ".partial-"  # name prefix of unfinished bundles


class BundleStore(BundleFiles):
    """Bundles in one folder, which is made if missing; what was discarded can be restored for a while."""

    def __init__(self, root: Path, trash_seconds: float = 0.0) -> None:
        self._root = root
        self._trash = Trash(root, trash_seconds)

    @translate_errors()
    @override
    def write(self, name: str, fill: Callable[[Path], None], facts: Mapping[str, Any]) -> tuple[str, str]:
        """Write a bundle; return its folder, with a random part after `name` so that writers never collide,
        and the SHA-256 of its manifest, which has the facts and the sum of every file."""
        # Raises DatabaseUnavailableError where the disk does not take it; nothing is left behind then.
        folder = f"{name}-{secrets.token_hex(4)}"
        partial = self._root / f"{_PARTIAL}{folder}"
        make_folder(self._root)
        partial.mkdir()
        try:
            fill(partial)
            files, manifest = describe(partial, facts)
            (partial / MANIFEST).write_bytes(manifest)
            paths = [partial / file for file in [*files, MANIFEST]]
            for path in paths:
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
            for folder_path in {path.parent for path in paths}:
                sync_folder(folder_path)
            os.replace(partial, self._root / folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        sync_folder(self._root)
        return folder, hashlib.sha256(manifest).hexdigest()

    @contextmanager
    @override
    def open(self, folder: str, manifest_hash: str, without: Sequence[str] = ()) -> Iterator[Path]:
        """Yield a bundle's folder after checking the sum of every file; raises DamagedBundleError.
        Subfolders that the caller does not read (`without`) are not checked."""
        self._check(folder, manifest_hash, without)
        yield self._root / folder

    @override
    def check(self, folder: str, manifest_hash: str) -> None:
        self._check(folder, manifest_hash)

    @override
    def names(self) -> Iterator[str]:
        return (path.name for path in self._bundles())

    @override
    def times(self) -> Iterator[tuple[str, float]]:
        """Yield the name of every bundle, and when it was written, in seconds since the epoch."""
        for path in self._bundles():
            with contextlib.suppress(FileNotFoundError):
                yield path.name, path.stat().st_mtime

    @override
    def discard(self, folders: Sequence[str], before: float) -> int:
        """Move bundles that no row refers to, to the trash; return how many existed. If the trash keeps
        nothing, only those written before this time (seconds since the epoch) go, at once."""
        return self._trash.put([self._root / folder for folder in folders], before)

    @override
    def tidy(self, before: float, used: Used) -> Iterator[int]:
        """Tidy the trash, and remove what interrupted writes left before this time (seconds since the epoch);
        yield their number in each step. `used` returns the bundles in use, which are restored."""
        for _ in self._trash.tidy(lambda folder: self._root / folder, before, used):
            yield 0
        yield sweep_leftovers(self._root, [_PARTIAL, COPYING], before)

    def _check(self, folder: str, manifest_hash: str, without: Sequence[str] = ()) -> None:
        path = self._root / folder
        if not path.exists():
            try:
                self._trash.give_back(path)
            except OSError as error:
                raise unreadable(folder, error) from error
        check_folder(path, folder, manifest_hash, without)

    def _bundles(self) -> Iterator[Path]:
        if not self._root.is_dir():
            return iter(())
        return (path for path in self._root.iterdir() if path.name[0] != ".")


def describe(path: Path, facts: Mapping[str, Any]) -> tuple[list[str], bytes]:
    """Return the names of the files of a folder, and a manifest with the sum of each and the facts."""
    files = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    sums = {file: _sum(path / file) for file in files}
    manifest = json.dumps({"files": sums, "facts": facts}, indent=2, sort_keys=True, allow_nan=False)
    return files, manifest.encode()


def expected_sums(manifest: bytes, folder: str, manifest_hash: str) -> dict[str, str]:
    """Return the sum of every file of a bundle by its name; raises DamagedBundleError for another manifest
    than was published. It lies where others may write: it is not read before its hash was checked."""
    if hashlib.sha256(manifest).hexdigest() != manifest_hash:
        raise DamagedBundleError(f"bundle {folder}: the manifest is not the one that was published")
    try:
        return parse_sums(manifest)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedBundleError(f"bundle {folder}: its manifest cannot be read") from error


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


def check_folder(path: Path, folder: str, manifest_hash: str, without: Sequence[str] = ()) -> None:
    """Check the sum of every file of a folder, not of subfolders `without`; raises DamagedBundleError."""
    try:
        sums = expected_sums((path / MANIFEST).read_bytes(), folder, manifest_hash)
        for file_name, expected in sums.items():
            if file_name.startswith(tuple(f"{part}/" for part in without)):
                continue
            require_match(folder, file_name, _sum(path / file_name), expected)
    except OSError as error:
        raise unreadable(folder, error) from error


def require_match(folder: str, file: str, actual: str, expected: str) -> None:
    """Raise DamagedBundleError unless the sum of a file is the expected one."""
    if actual != expected:
        raise DamagedBundleError(f"bundle {folder}: {file} does not match its sum")


def unreadable(folder: str, error: OSError) -> DamagedBundleError:
    """Return the error of a bundle of which a file cannot be read."""
    # The error's own text contains a path of this machine; it stays in the exception chain.
    return DamagedBundleError(f"bundle {folder}: {error.strerror or 'unreadable'}")


def _sum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
