"""The look for damaged models: collection by collection, without a copy of what it looks at."""

import math
from pathlib import Path
from typing import Any

import pytest

from app.domain.entities import ModelVersion
from app.domain.errors import DamagedBundleError, DatabaseUnavailableError
from app.services.models.model_bundles import ModelBundles
from app.services.storage.pacing import Round
from app.storage.folders import LocalCache
from app.storage.pictures_and_bundles import Bundles
from app.storage.remote_folder import RemoteFolder, open_remote
from app.worker.worker import make_worker

PART = 1000


@pytest.fixture
def folder(tmp_path: Path) -> RemoteFolder:
    return open_remote(f"memory:/{tmp_path}/store")


def fill(path: Path) -> None:
    (path / "large").write_bytes(bytes(range(256)) * 20)
    (path / "empty").touch()


def test_a_stored_bundle_is_read_in_parts_and_not_copied(
    folder: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.remote_folder.PART_BYTES", PART, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no-room-here"))
    store = Bundles(folder, LocalCache(tmp_path / "cache", 1 << 20))
    name, manifest_hash = store.write("1-v1", fill, {})
    sizes: list[int] = []
    cat_file = folder._filesystem.cat_file

    def watch(*arguments: Any, **options: Any) -> bytes:
        content: bytes = cat_file(*arguments, **options)
        sizes.append(len(content))
        return content

    folder._filesystem.cat_file = watch
    store.check(name, manifest_hash)
    assert sum(sizes) > 5120
    assert max(sizes) <= PART
    folder.write(f"{name}/large", bytes(range(256)) * 19 + bytes(256))
    with pytest.raises(DamagedBundleError, match="large does not match its sum"):
        store.check(name, manifest_hash)
    folder.remove(f"{name}/empty")
    with pytest.raises(DamagedBundleError, match="No such file"):
        store.check(name, manifest_hash)


@pytest.fixture
def checked(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The collections whose bundles were looked at; that of "a" meets a full disk, and all are damaged."""
    seen: list[str] = []
    for name in "abc":
        pairs.fill(name)
        pairs.train(name)
    names = {str(pairs.services.catalogue.collection(name)[0].id): name for name in "abc"}

    def check(_: ModelBundles, version: ModelVersion) -> None:
        name = names[version.bundle.partition("-")[0]]
        seen.append(name)
        if name == "a" and seen.count("a") == 1:
            raise DatabaseUnavailableError("storage-full")
        raise DamagedBundleError("damaged")

    monkeypatch.setattr(ModelBundles, "check", check)
    return seen


def test_one_that_cannot_be_looked_at_keeps_no_other_from_it_and_comes_again(
    pairs: Any, checked: list[str]
) -> None:
    assert not pairs.services.repair.go_on(Round())
    assert checked == ["a", "b", "c"]
    assert [len(pairs.services.training.jobs(name, 9)) for name in "abc"] == [1, 2, 2]
    assert pairs.services.repair.go_on(Round())
    assert checked == ["a", "b", "c", "a"]
    assert len(pairs.services.training.jobs("a", 9)) == 2


def test_the_look_ends_after_a_collection_when_the_worker_has_something_else_to_do(
    pairs: Any, checked: list[str]
) -> None:
    over = Round(math.inf, lambda: True)
    for expected in (["a"], ["a", "b"], ["a", "b", "c"]):
        assert not pairs.services.repair.go_on(over)
        assert checked == expected
    pairs.services.catalogue.delete_collection("a")
    assert pairs.services.repair.go_on(over)
    assert checked == ["a", "b", "c"]


def test_a_worker_is_asked_whether_to_stop_between_collections(pairs: Any, checked: list[str]) -> None:
    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(len(checked))
        return len(checked) == 2

    make_worker(pairs.services, should_stop).run_forever()
    assert {0, 1, 2} <= set(asked)
    assert checked == ["a", "b"]
