"""Copies on a host, which several threads and processes make, read and remove at the same time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.storage.folders import LocalCache, LocalFolder
from app.storage.pictures_and_bundles import Blobs, Bundles
from app.storage.remote_folder import open_remote
from app.storage.stores import remote_stores

SECONDS = 10.0


@pytest.fixture
def cache(tmp_path: Path) -> LocalCache:
    return LocalCache(tmp_path / "cache", 1 << 20)


def fill(path: Path) -> None:
    (path / "file").write_bytes(b"content")


@contextmanager
def held(cache: LocalCache, during_fetch: bool) -> Iterator[None]:
    """Have another thread make a copy, or read one, until the end of the block."""
    is_busy, may_end = threading.Event(), threading.Event()

    def wait() -> None:
        is_busy.set()
        assert may_end.wait(SECONDS)

    def fetch(path: Path) -> None:
        fill(path)
        if during_fetch:
            wait()

    def read() -> None:
        with cache.hold("other", fetch) as path:
            assert (path / "file").read_bytes() == b"content"
            if not during_fetch:
                wait()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert is_busy.wait(SECONDS)
        yield
    finally:
        may_end.set()
        thread.join(SECONDS)
    assert not thread.is_alive()


def finishes(act: threading.Thread) -> bool:
    act.start()
    act.join(1.0)
    return not act.is_alive()


@pytest.mark.parametrize("during_fetch", [True, False], ids=["a download", "a reader"])
def test_what_is_discarded_waits_for_nothing(tmp_path: Path, cache: LocalCache, during_fetch: bool) -> None:
    store = Bundles(open_remote(f"memory:/{tmp_path}/store"), cache, 3600.0)
    name, manifest_hash = store.write("1-v1", fill, {})
    with held(cache, during_fetch):
        counts: list[int] = []
        assert finishes(threading.Thread(target=lambda: counts.append(store.discard([name], 0.0))))
        assert counts == [1]
    with store.open(name, manifest_hash) as path:  # of the copy, or back from the trash
        assert (path / "file").read_bytes() == b"content"


def test_a_damaged_copy_is_removed_while_another_one_is_made(tmp_path: Path, cache: LocalCache) -> None:
    with cache.hold("one", fill):
        pass
    with held(cache, during_fetch=True):
        assert finishes(threading.Thread(target=lambda: cache.remove("one")))
    assert not (tmp_path / "cache" / "one").exists()


def test_two_that_make_the_same_copy_read_a_whole_one(cache: LocalCache, tmp_path: Path) -> None:
    with (
        held(cache, during_fetch=True),
        cache.hold("other", fill) as path,
    ):
        assert (path / "file").read_bytes() == b"content"
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name != ".lock"] == ["other"]


def test_a_restore_into_a_store_needs_no_room_but_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content_hash = Blobs(LocalFolder(tmp_path / "copy" / "pictures")).put(b"content")
    data = tmp_path / "data"
    stores = remote_stores(f"memory:/{tmp_path}/store", data, 0.0, 1 << 20)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no-room-here"))
    assert stores.copy_files(tmp_path / "copy", data).count == 1
    assert not [path for path in data.rglob("*") if path.is_file()]
    assert {path.name for path in data.rglob("*")} == {"cache", "pictures", "models"}
    assert stores.pictures.get(content_hash) == b"content"
