"""The contract of BlobStore."""

import hashlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.storage.blobs import FileBlobStore

CONTENT = b"\x89PNG not really\x00\xff" * 4000
# Everything is written; the process is gone before the file gets its name.
KILLED = """
import os, pathlib, signal, sys
from app.storage.blobs import FileBlobStore
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
FileBlobStore(pathlib.Path(sys.argv[1])).put(sys.stdin.buffer.read())
"""


@pytest.fixture(params=[FileBlobStore])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileBlobStore:
    made: FileBlobStore = request.param(tmp_path / "blobs")
    return made


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def nothing(_: object) -> set[str]:
    return set()


@pytest.mark.parametrize("content", [b"", b"\x00", CONTENT])
def test_content_is_found_under_its_sum(store: FileBlobStore, tmp_path: Path, content: bytes) -> None:
    content_hash = store.put(content)
    assert content_hash == hashlib.sha256(content).hexdigest()
    assert store.get(content_hash) == content
    assert store.put(content) == content_hash
    assert len(files_in(tmp_path)) == 1


def test_unknown_content_is_not_found(store: FileBlobStore) -> None:
    with pytest.raises(FileNotFoundError):
        store.get("0" * 64)
    store.put(CONTENT)
    with pytest.raises(FileNotFoundError):
        store.get("0" * 64)


def test_puts_of_the_same_at_the_same_time_leave_one_whole_file(store: FileBlobStore, tmp_path: Path) -> None:
    barrier = threading.Barrier(8)

    def put(_: int) -> bytes:
        barrier.wait()
        return store.get(store.put(CONTENT))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(put, range(8))) == {CONTENT}
    assert [path.read_bytes() for path in files_in(tmp_path)] == [CONTENT]


def test_a_write_that_was_killed_leaves_nothing_visible(store: FileBlobStore, tmp_path: Path) -> None:
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
    assert store.sweep(time.time() + 60.0, lambda names: set(names)) == 1
    assert [path.name for path in files_in(tmp_path)] == [content_hash]


def test_a_sweep_takes_old_unused_content_only(store: FileBlobStore, tmp_path: Path) -> None:
    used, unused = store.put(b"used"), store.put(b"unused")
    past, future = time.time() - 60.0, time.time() + 60.0
    assert store.sweep(past, nothing) == 0
    assert store.sweep(future, lambda names: {used} & set(names)) == 1
    assert store.get(used) == b"used"
    with pytest.raises(FileNotFoundError):
        store.get(unused)
    assert store.put(b"unused") == unused
    assert store.sweep(future, nothing, [used, "0" * 64]) == 1
    assert store.get(unused) == b"unused"
    assert len(files_in(tmp_path)) == 1
