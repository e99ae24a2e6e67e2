"""Sweeps: several files at a time, and in steps between which a worker does something else."""

import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.services.storage.ownership import ManagedFiles
from app.services.storage.pacing import Round
from app.services.storage.sweeping import sweep_unused
from app.storage.folders import Entry, LocalCache, LocalFolder
from app.storage.pictures_and_bundles import MANIFEST, Blobs, Bundles
from app.storage.remote_folder import RemoteFolder, open_remote
from tests.app.integration.test_files import files_under, grow_old, picture
from tests.app.integration.test_ownership import ALBUM

SECONDS = 10.0
KEPT = 3600.0
PARTS = ("a", "b", "c", "d")


@pytest.fixture
def folder(tmp_path: Path) -> RemoteFolder:
    return open_remote(f"memory:/{tmp_path}/store")


class Watch:
    """Keeps what is asked of a store waiting until several are: `wait_for` of `method` at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, wait_for: int) -> None:
        self.keys: list[str] = []
        self._barrier = threading.Barrier(wait_for)
        act = getattr(RemoteFolder, method)

        def wait(folder: RemoteFolder, *keys: str) -> Any:
            self.keys.append(keys[0])
            if not keys[0].endswith(MANIFEST):
                self._barrier.wait(SECONDS)
            return act(folder, *keys)

        monkeypatch.setattr(RemoteFolder, method, wait)


@pytest.mark.parametrize("method", ["find", "copy", "remove"])
def test_several_files_are_discarded_at_a_time(
    folder: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    blobs = Blobs(folder, LocalCache(tmp_path, 1 << 20), KEPT)
    names = [blobs.put(bytes([number])) for number in range(8)]
    with monkeypatch.context() as patch:
        Watch(patch, method, len(names))
        assert blobs.discard(names, 0.0) == 8
    assert all(Blobs(folder, trash_seconds=KEPT).get(name) for name in names)


def test_of_a_bundle_several_are_and_the_manifest_after_and_before_them(
    folder: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: Path) -> None:
        for name in PARTS:
            (path / name).touch()

    bundles = Bundles(folder, LocalCache(tmp_path, 1 << 20), KEPT)
    name, _ = bundles.write("1-v1", fill, {})
    copied, removed = (Watch(monkeypatch, method, len(PARTS)) for method in ("copy", "remove"))
    assert bundles.discard([name], 0.0) == 1
    assert copied.keys[-1] == removed.keys[0] == f"{name}/{MANIFEST}"
    assert len(copied.keys) == len(removed.keys) == 5


def test_the_trash_is_emptied_several_files_at_a_time(
    folder: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(folder, LocalCache(tmp_path, 1 << 20))
    names = [blobs.put(bytes([number])) for number in range(8)]
    blobs.discard(names, 0.0)
    Watch(monkeypatch, "remove", len(names))
    assert sum(blobs.tidy(math.inf, lambda _: set())) == 0
    with pytest.raises(FileNotFoundError):
        Blobs(folder).get(names[0])


def test_of_a_store_with_many_files_one_folder_is_listed_at_a_time_and_once(
    folder: RemoteFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(folder, LocalCache(tmp_path, 1 << 20), KEPT)
    stored = {blobs.put(number.to_bytes(2)) for number in range(300)}
    listed: list[str] = []
    sizes: list[int] = []

    def watch(method: str) -> None:
        act = getattr(RemoteFolder, method)

        def note(folder: RemoteFolder, key: str = "") -> list[Entry]:
            entries: list[Entry] = act(folder, key)
            listed.append(key)
            sizes.append(sum(not entry.is_folder for entry in entries))
            return entries

        monkeypatch.setattr(RemoteFolder, method, note)

    for method in ("entries", "walk"):
        watch(method)
    seen: set[str] = set()

    def find_used(names: Sequence[str]) -> set[str]:
        seen.update(names)
        return set(names)

    assert sum(sweep_unused(ManagedFiles("pictures", blobs, find_used), math.inf, any_share=False)) == 0
    assert seen == stored
    assert len(listed) == len(set(listed))
    assert sum(sizes) == len(stored)
    assert max(sizes) < 20


@pytest.fixture
def pictures(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one picture that is used, and three that are not."""
    monkeypatch.setattr("app.services.storage.sweeping._BATCH", 1)
    pairs.services.catalogue.create("album", ALBUM)
    pairs.services.catalogue.add_items("album", [picture("p", 1)])
    folder: Path = pairs.services.settings.data_dir / "pictures"
    for content in (b"a", b"b", b"c"):
        Blobs(LocalFolder(folder)).put(content)
    grow_old(folder)
    return folder


def test_a_sweep_ends_after_each_step_when_the_worker_has_something_else_to_do(
    pairs: Any, pictures: Path
) -> None:
    over, left = Round(math.inf, lambda: True), [len(files_under(pictures))]
    while not pairs.services.garbage_collector.go_on(over):
        left.append(len(files_under(pictures)))
        assert left[-2] - left[-1] <= 1
        assert len(left) < 1000
    assert left[-1] == 1
    assert pairs.services.garbage_collector.swept == 3


def test_what_comes_into_use_between_two_rounds_stays(pairs: Any, pictures: Path) -> None:
    collector, over = pairs.services.garbage_collector, Round(math.inf, lambda: True)
    while len(files_under(pictures)) == 4:
        assert not collector.go_on(over)
    used = min(path.name for path in files_under(pictures) if path.read_bytes() in (b"a", b"b", b"c"))
    with pairs.services.database.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE items SET content_hash = '{used}'")
    grow_old(pictures)
    while not collector.go_on(over):
        assert any(path.name == used for path in files_under(pictures))
    assert any(path.name == used for path in files_under(pictures))
    assert collector.swept == 2


def test_a_sweep_that_fails_begins_again(pairs: Any, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = pairs.services.garbage_collector
    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "discard", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            collector.go_on(Round())
    assert len(files_under(pictures)) == 4
    assert collector.go_on(Round())
    assert len(files_under(pictures)) == 1
