"""The contract of Bundles, and names in manifests and buckets: none leads out of its folder."""

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.domain.errors import DamagedBundleError
from app.storage.folders import LocalCache, LocalFolder
from app.storage.pictures_and_bundles import MANIFEST, Bundles
from app.storage.remote_folder import RemoteFolder, open_remote
from app.storage.stores import copy_store
from tests.app.stale_files import stale

FACTS = {"rank": 2, "text": "Straße"}
FILES = {"model.bin": b"\x00\x01" * 500, "ids.json": b"[]", "empty": b""}
KILLED = """
import os, pathlib, signal, sys
from app.storage.pictures_and_bundles import Bundles
from app.storage.folders import LocalFolder
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
folder = LocalFolder(pathlib.Path(sys.argv[1]))
Bundles(folder).write("1-v1", lambda f: (f / "a").write_bytes(b"a") and None, {})
"""


def fill(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def store(tmp_path: Path) -> Bundles:
    return Bundles(LocalFolder(tmp_path / "models"))


def open_folder(store: Bundles, folder: str, manifest_hash: str) -> Path:
    with store.open(folder, manifest_hash) as opened:
        return opened


def test_a_bundle_opens_as_it_was_filled(store: Bundles) -> None:
    folder, manifest_hash = store.write("1-v1", fill, FACTS)
    assert folder.startswith("1-v1")
    with store.open(folder, manifest_hash) as opened:
        assert {name: (opened / name).read_bytes() for name in FILES} == FILES


def test_bundles_of_the_same_name_at_the_same_time_are_two(store: Bundles) -> None:
    with ThreadPoolExecutor(6) as pool:
        written = list(pool.map(lambda _: store.write("1-v1", fill, FACTS), range(6)))
    assert len({folder for folder, _ in written}) == 6
    for folder, manifest_hash in written:
        open_folder(store, folder, manifest_hash)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize("damage", [flip, cut, grow, Path.unlink])
@pytest.mark.parametrize("name", ["model.bin", "ids.json", "manifest.json"])
def test_damage_to_any_file_is_noticed(store: Bundles, name: str, damage: Callable[[Path], None]) -> None:
    folder, manifest_hash = store.write("1-v1", fill, FACTS)
    damage(open_folder(store, folder, manifest_hash) / name)
    with pytest.raises(DamagedBundleError, match=folder):
        open_folder(store, folder, manifest_hash)


def test_another_manifest_is_refused_even_if_it_is_whole(store: Bundles) -> None:
    folder, _ = store.write("1-v1", fill, FACTS)
    _, other = store.write("1-v2", fill, {"rank": 3})
    with pytest.raises(DamagedBundleError, match="manifest"):
        open_folder(store, folder, other)
    with pytest.raises(DamagedBundleError):
        open_folder(store, "none", other)


def test_a_filling_that_fails_leaves_nothing(store: Bundles, tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise KeyError("out of disk")

    with pytest.raises(KeyError):
        store.write("1-v1", fail, FACTS)
    assert list((tmp_path / "models").iterdir()) == []
    with pytest.raises(ValueError, match="JSON compliant"):
        store.write("1-v1", fill, {"gap": float("nan")})
    assert list((tmp_path / "models").iterdir()) == []


def test_a_write_that_was_killed_leaves_nothing_visible(store: Bundles, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "models")]
    killed = subprocess.run(command, cwd=Path(__file__).parents[4], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    (left,) = (tmp_path / "models").iterdir()
    assert left.name.startswith(".")
    folder, manifest_hash = store.write("1-v1", fill, FACTS)
    assert sum(store.tidy(time.time() + 60.0, set)) == 1
    assert [path.name for path in (tmp_path / "models").iterdir()] == [folder]
    open_folder(store, folder, manifest_hash)


def test_bundles_are_known_by_name_and_age(store: Bundles) -> None:
    assert list(store.names()) == stale(store, time.time() + 60.0) == []
    names = {store.write(name, fill, FACTS)[0] for name in ("a", "b")}
    assert set(store.names()) == set(stale(store, time.time() + 60.0)) == names
    assert stale(store, time.time() - 60.0) == []


def test_a_discarded_bundle_comes_back_when_it_is_opened(store: Bundles) -> None:
    folder, manifest_hash = store.write("a", fill, FACTS)
    for _ in range(2):
        assert store.discard([folder, "none"], time.time() - 60.0) == 1
        assert list(store.names()) == []
        assert (open_folder(store, folder, manifest_hash) / "model.bin").read_bytes() == FILES["model.bin"]


def test_a_discarded_bundle_that_is_used_comes_back_and_the_rest_goes(store: Bundles, tmp_path: Path) -> None:
    (used, used_hash), (unused, unused_hash) = (store.write(name, fill, FACTS) for name in ("a", "b"))
    store.discard([used, unused], time.time() - 60.0)
    sum(store.tidy(time.time() + 60.0, lambda names: {used} & set(names)))
    open_folder(store, used, used_hash)
    with pytest.raises(DamagedBundleError):
        open_folder(store, unused, unused_hash)
    assert list((tmp_path / "models" / ".trash").iterdir()) == []


def test_a_bundle_that_was_brought_back_as_a_copy_may_go_again(store: Bundles, tmp_path: Path) -> None:
    folder, manifest_hash = store.write("a", fill, FACTS)
    copy = shutil.copytree(tmp_path / "models" / folder, tmp_path / "copy")
    store.discard([folder], time.time() - 60.0)
    copy.rename(tmp_path / "models" / folder)
    assert store.discard([folder], time.time() - 60.0) == 1
    open_folder(store, folder, manifest_hash)


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
