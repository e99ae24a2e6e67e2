"""Names in manifests and buckets: none of them leads out of the folder that it is meant for."""

import hashlib
import json
from pathlib import Path

import pytest

from app.domain.errors import DamagedBundleError
from app.storage.folders import LocalCache, LocalFolder
from app.storage.pictures_and_bundles import MANIFEST, Bundles
from app.storage.remote_folder import RemoteFolder, open_remote
from app.storage.stores import copy_store

CONTENT = b"what an intruder wants to have here"
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> RemoteFolder:
    """A store that others write to; its files are those of a folder."""
    (tmp_path / "store").mkdir()
    return open_remote((tmp_path / "store").as_uri())


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    return tmp_path / "outside" / "file"


def put_bundle(folder: RemoteFolder, tmp_path: Path, name: str) -> str:
    """Store a bundle whose manifest names a file that is where the name leads; return the manifest's sum."""
    manifest = json.dumps({"files": {name: SUM}, "facts": {}}).encode()
    (tmp_path / "store" / "1-v1").mkdir()
    folder.write(f"1-v1/{MANIFEST}", manifest)
    source = (tmp_path / "store" / "1-v1" / name.lstrip("/")).resolve()
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_bytes(CONTENT)
    return hashlib.sha256(manifest).hexdigest()


NAMES = ["{outside}", "../../../outside/file", "a/../../../../outside/file", "a//b", "./a", "a/", ""]


@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize("is_expected", [False, True], ids=["another manifest", "the manifest"])
def test_a_bundle_is_not_written_outside_the_cache(
    folder: RemoteFolder, tmp_path: Path, outside: Path, name: str, is_expected: bool
) -> None:
    manifest_hash = put_bundle(folder, tmp_path, name.format(outside=outside))
    outside.parent.mkdir(exist_ok=True)
    outside.unlink(missing_ok=True)
    store = Bundles(folder, LocalCache(tmp_path / "a" / "cache", 1 << 20))
    downloaded: list[str] = []
    folder.download = lambda key, file: downloaded.append(key)  # type: ignore[method-assign]
    with (
        pytest.raises(DamagedBundleError),
        store.open("1-v1", manifest_hash if is_expected else "0" * 64),
    ):
        pass
    assert downloaded == []
    assert not outside.exists()


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_with_such_a_name_is_damaged(tmp_path: Path, outside: Path, name: str) -> None:
    folder = tmp_path / "models" / "1-v1"
    folder.mkdir(parents=True)
    manifest = json.dumps({"files": {name.format(outside=outside): SUM}, "facts": {}}).encode()
    (folder / MANIFEST).write_bytes(manifest)
    with pytest.raises(DamagedBundleError, match="its manifest cannot be read"):
        Bundles(LocalFolder(tmp_path / "models")).check("1-v1", hashlib.sha256(manifest).hexdigest())


class OpenPlace(LocalFolder):
    """A folder that has every file."""

    def __init__(self, *names: str, manifest: bytes = b"") -> None:
        self._names = names
        self._manifest = manifest

    def keys(self, key: str = "") -> list[str]:
        return [name for name in self._names if name.startswith(key)]

    def download(self, key: str, file: Path) -> None:
        file.write_bytes(self._manifest if key.endswith(MANIFEST) else CONTENT)


@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize("is_remote", [False, True], ids=["into a folder", "into a store"])
def test_a_copy_writes_nothing_outside_its_target(
    folder: RemoteFolder, tmp_path: Path, outside: Path, name: str, is_remote: bool
) -> None:
    outside.parent.mkdir()
    manifest = json.dumps({"files": {name.format(outside=outside): SUM}}).encode()
    source = OpenPlace(f"1-v1/{MANIFEST}", manifest=manifest)
    cache = LocalCache(tmp_path / "cache", 1 << 20)
    into = LocalFolder(tmp_path / "copy" / "models")
    copied = copy_store(source, *((folder, cache) if is_remote else (into, into)), is_of_bundles=True)
    assert (copied.count, copied.damaged) == (0, (f"1-v1/{MANIFEST}",))
    assert not outside.exists()


@pytest.mark.parametrize("folder_name", ["", ".trash/"])
def test_a_picture_whose_name_begins_with_a_slash_is_not_copied(tmp_path: Path, folder_name: str) -> None:
    """As of an object whose key has two slashes in a row."""
    inside = OpenPlace(f"{folder_name}{tmp_path}/outside/{SUM}")
    into = LocalFolder(tmp_path / "copy" / "pictures")
    copied = copy_store(inside, into, into, is_of_bundles=False)
    assert copied.count == 0
    assert not (tmp_path / "outside").exists()
