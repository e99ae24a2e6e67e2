"""Stores in an object store, on a real S3 server."""

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread, current_thread

import pytest

from app.domain.entities import Mark
from app.domain.errors import DamagedBundleError, UnavailableError
from app.storage import folders, remote_folder
from app.storage.folders import LocalCache
from app.storage.pictures_and_bundles import MANIFEST, Blobs, Bundles
from app.storage.remote_folder import RemoteFolder, open_remote
from app.storage.stores import RemoteFolderMark
from tests.app.refused import refused
from tests.app.stale_files import stale
from tests.app.waiting import wait_for
from tests.object_store import ABSENT, STRANGER, ObjectStore

LATER = 10.0
KEPT = 3600.0
FACTS = {"rank": 3}


def none_used(names: object) -> set[str]:
    return set()


@pytest.fixture
def folder(object_store: ObjectStore) -> RemoteFolder:
    return open_remote(object_store.make_place())


@pytest.fixture
def blobs(folder: RemoteFolder, tmp_path: Path) -> Blobs:
    return Blobs(folder, LocalCache(tmp_path / "blobs", 1 << 20), KEPT)


@pytest.fixture
def bundles(folder: RemoteFolder, tmp_path: Path) -> Bundles:
    return Bundles(folder, LocalCache(tmp_path / "bundles", 1 << 20), KEPT)


def fill(path: Path) -> None:
    (path / "inner").mkdir()
    (path / "model.bin").write_bytes(b"model")
    (path / "inner" / "part.bin").write_bytes(b"part")


def elsewhere(folder: RemoteFolder, path: Path) -> Bundles:
    """Return the same store as another host sees it."""
    return Bundles(folder, LocalCache(path, 1 << 20), KEPT)


def test_content_is_found_by_its_sum_by_every_host(
    blobs: Blobs, folder: RemoteFolder, tmp_path: Path
) -> None:
    name = blobs.put(b"content")
    assert name == hashlib.sha256(b"content").hexdigest()
    assert blobs.put(b"content") == name
    other = Blobs(folder, LocalCache(tmp_path / "other", 1 << 20), KEPT)
    assert (blobs.get(name), other.get(name), list(other.names())) == (b"content", b"content", [name])
    with pytest.raises(FileNotFoundError):
        blobs.get("0" * 64)
    with pytest.raises(FileNotFoundError):
        blobs.touch("0" * 64)


def test_discarded_content_comes_back_until_the_trash_is_emptied(
    blobs: Blobs, folder: RemoteFolder, tmp_path: Path
) -> None:
    first, second = blobs.put(b"first"), blobs.put(b"second")
    now = time.time()
    assert set(stale(blobs, now + LATER)) == {first, second}
    assert stale(blobs, now - 60.0) == []
    assert blobs.discard([first, second, "0" * 64], now) == 2
    assert list(blobs.names()) == []
    sum(blobs.tidy(now + LATER, lambda names: {first} & set(names)))
    assert list(blobs.names()) == [first]
    other = Blobs(folder, LocalCache(tmp_path / "other", 1 << 20))
    assert other.get(second) == b"second"  # restored, since it was asked for
    assert other.discard([second], now) == 1
    sum(other.tidy(now + LATER, none_used))  # keeps nothing
    with pytest.raises(FileNotFoundError):
        Blobs(folder, LocalCache(tmp_path / "third", 1 << 20)).get(second)


def test_what_is_restored_is_left_when_another_host_discards_it_at_the_same_moment(
    blobs: Blobs, bundles: Bundles, folder: RemoteFolder, tmp_path: Path
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
        sum(store.tidy(now + LATER, lambda names: {name, bundle} & set(names)))
    other = Blobs(folder, LocalCache(tmp_path / "other", 1 << 20), KEPT)
    assert other.get(name) == b"content"
    with elsewhere(folder, tmp_path / "third").open(bundle, manifest_hash) as path:
        assert (path / "model.bin").read_bytes() == b"model"


def test_damage_is_noticed_wherever_it_is(blobs: Blobs, folder: RemoteFolder, tmp_path: Path) -> None:
    name = blobs.put(b"content")
    (tmp_path / "blobs" / name).write_bytes(b"another")
    assert blobs.get(name) == b"content"  # of a damaged copy another one is made
    assert (tmp_path / "blobs" / name).read_bytes() == b"content"
    folder.write(f"{name[:2]}/{name}", b"another")
    (tmp_path / "blobs" / name).unlink()
    for use in (blobs.touch, blobs.get):
        with pytest.raises(FileNotFoundError):
            use(name)
    blobs.put(b"content")
    assert blobs.get(name) == b"content"


def test_a_bundle_opens_as_it_was_filled_on_every_host(
    bundles: Bundles, folder: RemoteFolder, tmp_path: Path
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
    bundles: Bundles, folder: RemoteFolder, tmp_path: Path
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
    bundles: Bundles, folder: RemoteFolder, tmp_path: Path
) -> None:
    name, manifest_hash = bundles.write("1-v1", fill, FACTS)
    now = time.time()
    assert stale(bundles, now + LATER) == [name]
    assert bundles.discard([name, "none"], now) == 1
    assert list(bundles.names()) == []
    with elsewhere(folder, tmp_path / "other").open(name, manifest_hash) as path:
        assert (path / "model.bin").read_bytes() == b"model"
    assert list(bundles.names()) == [name]


def test_copies_take_no_more_than_their_bound(folder: RemoteFolder, tmp_path: Path) -> None:
    blobs = Blobs(folder, LocalCache(tmp_path, 20_000))
    names = [blobs.put(bytes([number]) * 1000) for number in range(60)]
    with ThreadPoolExecutor(4) as threads:
        contents = list(threads.map(blobs.get, names))
    assert contents == [bytes([number]) * 1000 for number in range(60)]
    copies = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert 0 < sum(path.stat().st_size for path in copies) <= 21_000


def test_copies_that_come_while_old_ones_are_removed_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = LocalCache(tmp_path, 20_000)
    listed, go_on, measure = Event(), Event(), folders._size_of

    def wait_and_measure(path: Path) -> int:
        if current_thread() is removing:
            listed.set()
            assert go_on.wait(60.0)
        return measure(path)

    monkeypatch.setattr(folders, "_size_of", wait_and_measure)
    removing = Thread(target=cache.write, args=("first", bytes(1000)))
    removing.start()
    assert listed.wait(60.0)
    for number in range(30):
        cache.write(str(number), bytes(1000))
    go_on.set()
    removing.join()
    copies = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    assert 0 < sum(path.stat().st_size for path in copies) <= 20_000


def test_a_mark_is_written_once_unless_it_is_replaced(folder: RemoteFolder) -> None:
    mark = RemoteFolderMark(folder)
    assert mark.read() is None
    mark.write(Mark("a", "1"), replace=False)
    RemoteFolderMark(folder).write(Mark("b", "1"), replace=False)
    assert mark.read() == Mark("a", "1")
    assert folder.create("another", b"")
    assert not folder.create("another", b"")
    assert folder.find_fault() is None
    mark.write(Mark("b", "2"), replace=True)
    assert mark.read() == Mark("b", "2")


def test_a_store_that_is_away_is_said_and_comes_back(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ask in (partial(RemoteFolder.write, content=b"a"), RemoteFolder.read, RemoteFolder.find):
        with refused("storage-unavailable", match="no such bucket"):
            ask(open_remote(f"s3://{ABSENT}/files"), "a")
    with refused("storage-unavailable", match="LRBS_STORAGE_URL is not understood"):
        open_remote("nothing://here")
    with monkeypatch.context() as without_key:
        without_key.setenv("AWS_SECRET_ACCESS_KEY", "")
        with refused("storage-unavailable", match="its keys are missing or incomplete"):
            open_remote(object_store.make_place()).write("a", b"a")
    with monkeypatch.context() as without_profile:
        without_profile.setenv("AWS_PROFILE", ABSENT)
        folder = open_remote(object_store.make_place())
        with refused("storage-unavailable", match="its keys are missing or incomplete"):
            folder.write("a", b"a")
    blobs = Blobs(open_remote(object_store.make_place()), LocalCache(tmp_path, 1 << 20))
    name = blobs.put(b"content")
    object_store.kill()
    assert blobs.get(name) == b"content"  # of the copy
    with refused("storage-unavailable", match=r"it does not answer \(AWS_ENDPOINT_URL\)"):
        blobs.put(b"other")
    object_store.recover()
    (tmp_path / name).unlink()
    wait_for(partial(_put, blobs, b"other"))
    assert blobs.get(name) == b"content"


def test_a_key_that_is_refused_is_named_with_its_setting(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, key = object_store.make_place(), object_store.environment

    def refusal() -> str:
        stores = open_remote(url), open_remote(url), open_remote(url)
        with refused("storage-unavailable") as of_write:
            stores[0].write("a", b"a")
        with refused("storage-unavailable") as of_read:
            stores[1].read("a")
        with refused("storage-unavailable") as of_look:  # whose answer has no reason in it
            stores[2].find("a")
        assert str(of_write.value) == str(of_read.value) == str(of_look.value)
        assert {store.find_fault() for store in stores} == {str(of_write.value)}
        return str(of_write.value)

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    assert refusal().endswith("it does not know the key of AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", STRANGER[0])
    assert refusal().endswith("AWS_SECRET_ACCESS_KEY is not the secret of the key in AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", STRANGER[1])
    assert refusal().endswith("has no access to the bucket, or there is no such bucket")

    credentials = tmp_path / "credentials"
    credentials.write_text(
        f"[default]\naws_access_key_id = {key['AWS_ACCESS_KEY_ID']}\n"
        f"aws_secret_access_key = {key['AWS_SECRET_ACCESS_KEY']}\n"
    )
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    folder = open_remote(url)
    folder.write("a", b"a")
    assert (folder.read("a"), folder.find_fault()) == (b"a", None)


@pytest.fixture
def of_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(remote_folder._OPTIONS["s3"]["config_kwargs"], "read_timeout", 0.3)


@pytest.mark.usefixtures("of_little_patience")
def test_a_store_that_takes_connections_and_answers_none_is_waited_for_within_bounds(
    object_store: ObjectStore, tmp_path: Path
) -> None:
    folder = open_remote(object_store.make_place())
    blobs = Blobs(folder, LocalCache(tmp_path, 1 << 20))
    blobs.put(b"content")
    object_store.fall_silent()
    with refused("storage-unavailable", match="it does not answer"):
        blobs.put(b"other")
    assert folder.find_fault() is not None
    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(lambda number: _put(blobs, bytes([number])), range(8))) == {None}
    object_store.speak_again()
    name = wait_for(partial(_put, blobs, b"other"))
    assert blobs.get(name) == b"other"
    assert folder.find_fault() is None


def _put(blobs: Blobs, content: bytes) -> str | None:
    with suppress(UnavailableError):
        return blobs.put(content)
    return None


@pytest.mark.usefixtures("of_little_patience")
def test_a_mark_that_is_remembered_serves_while_the_store_is_silent(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.stores._SECONDS", 0.0)
    monkeypatch.setattr("app.storage.stores._PATIENCE_SECONDS", 0.1)
    url = object_store.make_place()
    mark = RemoteFolderMark(open_remote(url))
    mark.write(Mark("a", "1"), replace=False)
    assert mark.read() == Mark("a", "1")
    object_store.fall_silent()
    for _ in range(3):
        assert mark.read() == Mark("a", "1")
    object_store.speak_again()
    RemoteFolderMark(open_remote(url)).write(Mark("b", "1"), replace=True)
    assert wait_for(lambda: mark.read() == Mark("b", "1"))
