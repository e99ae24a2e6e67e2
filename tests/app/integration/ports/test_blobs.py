"""The contract of Blobs."""

import errno
import hashlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.services.storage.ownership import ManagedFiles
from app.services.storage.sweeping import sweep_unused
from app.storage.folders import LocalFolder
from app.storage.pictures_and_bundles import Blobs
from tests.app.stale_files import stale

CONTENT = b"\x89PNG not really\x00\xff" * 4000
# Everything is written; the process is gone before the file gets its name.
KILLED = """
import os, pathlib, signal, sys
from app.storage.pictures_and_bundles import Blobs
from app.storage.folders import LocalFolder
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
Blobs(LocalFolder(pathlib.Path(sys.argv[1]))).put(sys.stdin.buffer.read())
"""


@pytest.fixture
def store(tmp_path: Path) -> Blobs:
    return Blobs(LocalFolder(tmp_path / "blobs"))


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def nothing(_: object) -> set[str]:
    return set()


@pytest.mark.parametrize("content", [b"", b"\x00", CONTENT])
def test_content_is_found_under_its_sum(store: Blobs, tmp_path: Path, content: bytes) -> None:
    content_hash = store.put(content)
    assert content_hash == hashlib.sha256(content).hexdigest()
    assert store.get(content_hash) == content
    assert store.put(content) == content_hash
    assert len(files_in(tmp_path)) == 1


def test_unknown_content_is_not_found(store: Blobs) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("0" * 64)
    store.put(CONTENT)
    with pytest.raises(FileNotFoundError):
        store.get("0" * 64)


def test_puts_of_the_same_at_the_same_time_leave_one_whole_file(store: Blobs, tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def put(_: int) -> bytes:
        barrier.wait()
        return store.get(store.put(CONTENT))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(put, range(8))) == {CONTENT}
    assert [path.read_bytes() for path in files_in(tmp_path)] == [CONTENT]


def test_a_write_that_was_killed_leaves_nothing_visible(store: Blobs, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "blobs")]
    root = Path(__file__).parents[4]
    killed = subprocess.run(command, input=CONTENT, cwd=root, capture_output=True)
    assert killed.returncode == -9, killed.stderr
    (left,) = files_in(tmp_path)
    content_hash = hashlib.sha256(CONTENT).hexdigest()
    assert left.name != content_hash
    with pytest.raises(FileNotFoundError):
        store.get(content_hash)
    assert store.put(CONTENT) == content_hash
    assert store.get(content_hash) == CONTENT
    assert sum(store.tidy(time.time() + 60.0, set)) == 1
    assert [path.name for path in files_in(tmp_path)] == [content_hash]


def test_content_is_known_by_name_and_age(store: Blobs) -> None:
    assert list(store.names()) == stale(store, time.time() + 60.0) == []
    names = {store.put(b"a"), store.put(b"b")}
    assert set(store.names()) == set(stale(store, time.time() + 60.0)) == names
    assert stale(store, time.time() - 60.0) == []


def test_discarded_content_comes_back_when_it_is_asked_for(store: Blobs) -> None:
    names = [store.put(b"a"), store.put(b"b"), store.put(b"c")]
    assert store.discard([*names, "0" * 64], time.time() - 60.0) == 3
    assert list(store.names()) == []
    assert store.get(names[0]) == b"a"
    store.touch(names[1])
    assert store.put(b"c") == names[2]
    assert set(store.names()) == set(names)
    with pytest.raises(FileNotFoundError):
        store.touch("0" * 64)


def test_discarded_content_that_is_used_comes_back_and_the_rest_goes(store: Blobs, tmp_path: Path) -> None:
    used, unused = store.put(b"used"), store.put(b"unused")
    past, future = time.time() - 60.0, time.time() + 60.0
    store.discard([used, unused], past)
    assert sum(store.tidy(past, lambda names: {used} & set(names))) == 0
    assert list(store.names()) == [used]
    assert len(files_in(tmp_path)) == 2  # too young to go for good
    sum(store.tidy(future, nothing))
    assert [path.name for path in files_in(tmp_path)] == [used]
    store.discard([used], future)
    assert files_in(tmp_path) == []
    with pytest.raises(FileNotFoundError):
        store.get(used)


def test_what_is_kept_goes_when_its_time_is_over(tmp_path: Path) -> None:
    store, future = Blobs(LocalFolder(tmp_path / "blobs"), None, 7200.0), time.time() + 60.0
    name = store.put(b"unused")
    store.discard([name], future)
    sum(store.tidy(future, nothing))
    (kept,) = files_in(tmp_path)
    hour = int(kept.parent.name)
    assert hour <= time.time() < hour + 7200
    kept.parent.rename(kept.parent.with_name(str(hour - 2 * 7200)))
    sum(store.tidy(time.time() - 60.0, nothing))
    assert len(files_in(tmp_path)) == 1
    sum(store.tidy(future, nothing))
    assert files_in(tmp_path) == []
    assert list((tmp_path / "blobs" / ".trash").iterdir()) == []


def test_what_is_discarded_late_in_an_hour_is_kept_as_long(tmp_path: Path) -> None:
    store, future = Blobs(LocalFolder(tmp_path / "blobs"), None, 7200.0), time.time() + 60.0
    store.discard([store.put(b"unused")], future)
    (kept,) = files_in(tmp_path)
    for hours, left in ((2.9, 1), (3.1, 0)):  # since the beginning of the hour in which it was discarded
        batch = kept.parent.with_name(str(int(time.time() - hours * 3600)))
        kept = kept.parent.rename(batch) / kept.name
        sum(store.tidy(future, nothing))
        assert len(files_in(tmp_path)) == left


def test_a_new_folder_is_synced_into_the_one_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    name = Blobs(LocalFolder(tmp_path / "data" / "blobs")).put(b"a")
    folders = [tmp_path, tmp_path / "data", tmp_path / "data" / "blobs"]
    assert [path for path in synced if Path(path).is_dir()] == [
        *map(str, folders),
        str(folders[-1] / name[:2]),
    ]


def test_a_sweep_ends_with_what_it_can_remove(store: Blobs, tmp_path: Path) -> None:
    root = tmp_path / "blobs"
    unused = store.put(CONTENT)
    misplaced = root / unused[:2] / "notes.txt"
    misplaced.write_text("not of the store")
    (root / unused[:2] / f".removed-{unused}").touch()  # of an early version, with a broken name
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / unused[:2] / f"{unused[:2]}link").symlink_to(elsewhere)
    for path in (elsewhere, *root.rglob("*")):
        os.utime(path, (0.0, 0.0), follow_symlinks=False)
    managed = ManagedFiles("pictures", store, nothing)
    before = time.time() - 3600.0
    counts = [sum(sweep_unused(managed, before, any_share=True)) for _ in range(2)]
    assert counts == [2, 0]
    assert files_in(root) == [misplaced]
    assert [name for name, _ in store.times()] == []


def test_what_cannot_be_moved_is_named_and_keeps_nothing_else(
    store: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held, free = store.put(CONTENT), store.put(b"other")
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.name == held:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    assert store.discard([held, free], time.time() + 60.0) == 1
    assert list(store.names()) == [held]
    (record,) = caplog.records
    assert held in record.getMessage()
    assert "Operation not permitted" in record.getMessage()
