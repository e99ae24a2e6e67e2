"""Stores in an object store, on a real S3 server."""

import hashlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.domain.entities import Mark
from app.domain.errors import DamagedBundleError, StorageUnavailableError
from app.storage.bundles import MANIFEST
from app.storage.local_cache import LocalCache
from app.storage.remote_blobs import RemoteBlobStore
from app.storage.remote_bundles import RemoteBundleStore
from app.storage.remote_folder import RemoteFolder, open_remote
from app.storage.remote_mark import RemoteFolderMark
from tests.object_store import ObjectStore

LATER = 10.0
KEPT = 3600.0
FACTS = {"rank": 3}


def none_used(names: object) -> set[str]:
    return set()


@pytest.fixture
def folder(object_store: ObjectStore) -> RemoteFolder:
    return open_remote(object_store.make_bucket())


@pytest.fixture
def blobs(folder: RemoteFolder, tmp_path: Path) -> RemoteBlobStore:
    return RemoteBlobStore(folder, LocalCache(tmp_path / "blobs", 1 << 20), KEPT)


@pytest.fixture
def bundles(folder: RemoteFolder, tmp_path: Path) -> RemoteBundleStore:
    return RemoteBundleStore(folder, LocalCache(tmp_path / "bundles", 1 << 20), KEPT)


def fill(path: Path) -> None:
    (path / "inner").mkdir()
    (path / "model.bin").write_bytes(b"model")
    (path / "inner" / "part.bin").write_bytes(b"part")


def elsewhere(folder: RemoteFolder, path: Path) -> RemoteBundleStore:
    """Return the same store as another host sees it."""
    return RemoteBundleStore(folder, LocalCache(path, 1 << 20), KEPT)


def test_content_is_found_by_its_sum_by_every_host(
    blobs: RemoteBlobStore, folder: RemoteFolder, tmp_path: Path
) -> None:
    name = blobs.put(b"content")
    assert name == hashlib.sha256(b"content").hexdigest()
    assert blobs.put(b"content") == name
    other = RemoteBlobStore(folder, LocalCache(tmp_path / "other", 1 << 20), KEPT)
    assert (blobs.get(name), other.get(name), list(other.names())) == (b"content", b"content", [name])
    with pytest.raises(FileNotFoundError):
        blobs.get("0" * 64)
    with pytest.raises(FileNotFoundError):
        blobs.touch("0" * 64)


def test_discarded_content_comes_back_until_the_trash_is_emptied(
    blobs: RemoteBlobStore, folder: RemoteFolder, tmp_path: Path
) -> None:
    first, second = blobs.put(b"first"), blobs.put(b"second")
    now = time.time()
    assert set(blobs.stale(now + LATER)) == {first, second}
    assert list(blobs.stale(now - 60.0)) == []
    assert blobs.discard([first, second, "0" * 64], now) == 2
    assert list(blobs.names()) == []
    blobs.tidy(now + LATER, lambda names: {first} & set(names))
    assert list(blobs.names()) == [first]
    other = RemoteBlobStore(folder, LocalCache(tmp_path / "other", 1 << 20))
    assert other.get(second) == b"second"  # restored, since it was asked for
    assert other.discard([second], now) == 1
    other.tidy(now + LATER, none_used)  # keeps nothing
    with pytest.raises(FileNotFoundError):
        RemoteBlobStore(folder, LocalCache(tmp_path / "third", 1 << 20)).get(second)


def test_what_is_restored_is_left_when_another_host_discards_it_at_the_same_moment(
    blobs: RemoteBlobStore, bundles: RemoteBundleStore, folder: RemoteFolder, tmp_path: Path
) -> None:
    name, (bundle, manifest_hash) = blobs.put(b"content"), bundles.write("1-v1", fill, FACTS)
    now = time.time()
    blobs.discard([name], now)
    bundles.discard([bundle], now)
    blobs.touch(name)
    with bundles.open(bundle, manifest_hash):
        pass
    # The other host has copied both into the trash before, and removes what it found at their places.
    folder.remove(f"{name[:2]}/{name}")
    for file in (MANIFEST, "model.bin", "inner/part.bin"):
        folder.remove(f"{bundle}/{file}")
    for store in (blobs, bundles):
        store.tidy(now + LATER, lambda names: {name, bundle} & set(names))
    other = RemoteBlobStore(folder, LocalCache(tmp_path / "other", 1 << 20), KEPT)
    assert other.get(name) == b"content"
    with elsewhere(folder, tmp_path / "third").open(bundle, manifest_hash) as path:
        assert (path / "model.bin").read_bytes() == b"model"


def test_damage_is_noticed_wherever_it_is(
    blobs: RemoteBlobStore, folder: RemoteFolder, tmp_path: Path
) -> None:
    name = blobs.put(b"content")
    (tmp_path / "blobs" / name).write_bytes(b"another")
    assert blobs.get(name) == b"content"  # of a damaged copy another one is made
    assert (tmp_path / "blobs" / name).read_bytes() == b"content"
    folder.write(f"{name[:2]}/{name}", b"another")
    (tmp_path / "blobs" / name).unlink()
    with pytest.raises(FileNotFoundError):
        blobs.get(name)
    blobs.put(b"content")
    assert blobs.get(name) == b"content"


def test_a_bundle_opens_as_it_was_filled_on_every_host(
    bundles: RemoteBundleStore, folder: RemoteFolder, tmp_path: Path
) -> None:
    name, manifest_hash = bundles.write("1-v1", fill, FACTS)
    for store in (bundles, elsewhere(folder, tmp_path / "other")):
        assert list(store.names()) == [name]
        with store.open(name, manifest_hash) as path:
            assert (path / "model.bin").read_bytes() == b"model"
            assert (path / "inner" / "part.bin").read_bytes() == b"part"
    bundles.check(name, manifest_hash)
    with pytest.raises(DamagedBundleError), bundles.open(name, "0" * 64):
        pass
    with pytest.raises(DamagedBundleError), bundles.open("none", manifest_hash):
        pass


def test_a_damaged_bundle_is_refused_but_for_parts_that_are_not_read(
    bundles: RemoteBundleStore, folder: RemoteFolder, tmp_path: Path
) -> None:
    name, manifest_hash = bundles.write("1-v1", fill, FACTS)
    (tmp_path / "bundles" / name / "model.bin").write_bytes(b"other")
    with bundles.open(name, manifest_hash) as path:  # of a damaged copy another one is made
        assert (path / "model.bin").read_bytes() == b"model"
    folder.remove(f"{name}/inner/part.bin")
    with pytest.raises(DamagedBundleError, match="No such file"):
        bundles.check(name, manifest_hash)
    other = elsewhere(folder, tmp_path / "other")
    with pytest.raises(DamagedBundleError), other.open(name, manifest_hash):
        pass
    with other.open(name, manifest_hash, without=["inner"]) as path:
        assert (path / "model.bin").read_bytes() == b"model"


def test_a_discarded_bundle_comes_back_when_it_is_opened(
    bundles: RemoteBundleStore, folder: RemoteFolder, tmp_path: Path
) -> None:
    name, manifest_hash = bundles.write("1-v1", fill, FACTS)
    now = time.time()
    assert list(bundles.stale(now + LATER)) == [name]
    assert bundles.discard([name, "none"], now) == 1
    assert list(bundles.names()) == []
    with elsewhere(folder, tmp_path / "other").open(name, manifest_hash) as path:
        assert (path / "model.bin").read_bytes() == b"model"
    assert list(bundles.names()) == [name]


def test_copies_take_no_more_than_their_bound(folder: RemoteFolder, tmp_path: Path) -> None:
    blobs = RemoteBlobStore(folder, LocalCache(tmp_path, 20_000))
    names = [blobs.put(bytes([number]) * 1000) for number in range(60)]
    with ThreadPoolExecutor(4) as threads:
        contents = list(threads.map(blobs.get, names))
    assert contents == [bytes([number]) * 1000 for number in range(60)]
    copies = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert 0 < sum(path.stat().st_size for path in copies) <= 21_000


def test_a_mark_is_written_once_unless_it_is_replaced(folder: RemoteFolder) -> None:
    mark = RemoteFolderMark(folder)
    assert mark.read() is None
    mark.write(Mark("a", "1"), replace=False)
    RemoteFolderMark(folder).write(Mark("b", "1"), replace=False)
    assert mark.read() == Mark("a", "1")
    mark.write(Mark("b", "2"), replace=True)
    assert mark.read() == Mark("b", "2")


@pytest.fixture
def short_lived() -> Iterator[ObjectStore]:
    store = ObjectStore()
    yield store
    store.end()


def test_a_store_that_is_away_is_said_and_comes_back(
    object_store: ObjectStore, short_lived: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageUnavailableError, match="no such bucket"):
        open_remote("s3://lrbs-none/files").write("a", b"a")
    with pytest.raises(StorageUnavailableError, match="LRBS_STORAGE_URL is not understood"):
        open_remote("nothing://here")
    with monkeypatch.context() as without_key:
        without_key.setenv("AWS_SECRET_ACCESS_KEY", "")
        with pytest.raises(StorageUnavailableError, match="its keys are missing or incomplete"):
            open_remote(object_store.make_bucket()).write("a", b"a")
    monkeypatch.setenv("AWS_ENDPOINT_URL", short_lived.endpoint)
    blobs = RemoteBlobStore(open_remote(short_lived.make_bucket()), LocalCache(tmp_path, 1 << 20))
    name = blobs.put(b"content")
    short_lived.end()
    assert blobs.get(name) == b"content"  # of the copy
    with pytest.raises(StorageUnavailableError, match="it does not answer"):
        blobs.put(b"other")
