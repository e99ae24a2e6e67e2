"""The contract of Bundles."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.domain.errors import DamagedBundleError
from app.storage.folders import LocalFolder
from app.storage.pictures_and_bundles import Bundles
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
