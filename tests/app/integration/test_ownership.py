"""Whose files a data folder holds, and whether the database is of the same time."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.db.copies import copy_sqlite
from app.db.schema import DatabaseSchema
from app.db.session import Database
from app.domain.entities import Mark, Modality
from app.services.storage.ownership import Ownership
from app.settings import Settings
from app.storage.stores import FileFolderMark
from tests.app.closing import close
from tests.app.integration.test_files import files_under, picture, png
from tests.app.refused import refused
from tests.app.repairs import request_repairs

FILE = "lrbs.sqlite3"
SERVER = "postgresql://db:5432/lrbs"
ALBUM = (Modality("image", {"type": "hog-color"}), Modality("text", {"type": "tfidf"}))
Opened = Callable[..., Services]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Return a function that builds services as a new process does."""
    made: list[Services] = []

    def build_over(folder: Path, url: str = "", **settings: Any) -> Services:
        services = build(Settings(data_dir=folder, database_url=url, sweep_grace_seconds=0.0, **settings))
        made.append(services)
        return services

    yield build_over
    for services in made:
        close(services)


@pytest.fixture
def data(opened: Opened, tmp_path: Path) -> Path:
    """Return a folder with a database and twelve pictures, which no process has open."""
    services = opened(tmp_path / "data")
    filled(services)
    close(services)
    return tmp_path / "data"


def filled(services: Services) -> Path:
    services.schema.set_up()
    services.catalogue.create("album", ALBUM)
    store(services, *range(12))
    services.ownership.note_progress()
    return services.settings.data_dir


def store(services: Services, *numbers: int) -> None:
    services.catalogue.add_items("album", [picture(f"p{number}", number) for number in numbers])


def pictures(folder: Path) -> int:
    return len(files_under(folder / "pictures"))


def mark_of(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / ".database").read_text())
    return found


def forget_points(services: Services) -> None:
    """Put the database into the state in which an upgrade from an earlier version leaves it."""
    with services.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE installation SET points = '[]'")


def restore(copy: Path, data: Path) -> None:
    """Put a copy in the place of the database, which no process has open."""
    assert not list(data.glob("*-wal"))
    shutil.copy(copy, data / FILE)


def test_database_and_folder_are_tied_when_both_are_new(opened: Opened, data: Path) -> None:
    with opened(data).database.read() as work:
        found = work.installation.get()
    mark = mark_of(data)
    assert mark == {"identity": found.identity, "point": found.points[-1]}
    assert opened(data).ownership.status().reason is None
    moved = data.rename(data.with_name("moved"))
    services = opened(moved, f"sqlite:///{moved / FILE}")
    store(services, 20)
    services.catalogue.delete_item("album", "p20")
    assert pictures(moved) == 12


def test_a_process_that_was_killed_before_it_wrote_the_mark_does_no_harm(opened: Opened, data: Path) -> None:
    services = opened(data)
    with services.database.write() as work:
        work.installation.add_point("0" * 16)
    assert services.ownership.status().is_current
    services.ownership.note_progress()
    with services.database.read() as work:
        assert mark_of(data)["point"] == work.installation.get().points[-1] != "0" * 16


class SharedMark(FileFolderMark):
    """The mark of a folder of which another process does something before and after this one reads it."""

    def meet(self, act: Callable[[], object]) -> None:
        self._act = act

    def read(self) -> Mark | None:
        self._act()
        found = super().read()
        self._act()
        return found


@pytest.mark.parametrize("is_tied", [True, False])
def test_what_another_process_writes_during_the_look_is_no_reason_to_stop(
    opened: Opened, tmp_path: Path, is_tied: bool
) -> None:
    other = opened(tmp_path / "data")
    other.schema.set_up()
    mark = SharedMark(tmp_path / "data", "", FILE)
    if is_tied:
        other.ownership.status()
        mark.meet(other.ownership.adopt)
    else:
        calls = iter([False, True])
        mark.meet(lambda: other.ownership.status() if next(calls, False) else None)
    found = Ownership(other.database, mark, ()).status()
    assert (found.reason, found.belongs, found.is_current) == (None, True, True)


def test_without_its_database_a_folder_is_left_alone_and_none_is_made(opened: Opened, data: Path) -> None:
    file = data / FILE
    away = file.rename(data.with_name("away"))
    services = opened(data)
    schema = services.schema
    for begin in (schema.set_up, schema.upgrade, schema.require_current):
        with refused("wrong-database", match="lrbs db adopt"):
            begin()
    found = services.health.check()
    assert (found.is_ready, "lrbs db adopt" in str(found.reason)) == (False, True)
    assert not file.exists()
    away.rename(file)
    services.schema.set_up()
    assert services.health.check().reason is None
    assert services.garbage_collector.sweep() == 0
    assert services.catalogue.content("album", "p3")[0] == png(3)


def test_a_log_without_its_database_is_not_thrown_away(opened: Opened, data: Path) -> None:
    services = opened(data)
    store(services, 20)  # what is written last stands in the log
    (data / FILE).rename(data.with_name("away"))
    log = (data / f"{FILE}-wal").read_bytes()
    with refused("database-missing"):
        opened(data).schema.adopt()
    assert (data / f"{FILE}-wal").read_bytes() == log
    data.with_name("away").rename(data / FILE)
    assert opened(data).catalogue.content("album", "p20")[0] == png(20)


@pytest.mark.parametrize("mark", ["of the one that is gone", "none", "of an earlier version"])
def test_an_empty_database_beside_files_writes_and_removes_nothing(
    opened: Opened, data: Path, mark: str, caplog: pytest.LogCaptureFixture
) -> None:
    (data / FILE).unlink()
    if mark == "none":
        (data / ".database").unlink()
    elif mark == "of an earlier version":
        (data / ".database").write_text("inside this folder")
    services = opened(data)
    DatabaseSchema(services.database.engine).upgrade()  # as somebody may who does not ask us
    found = services.health.check()
    assert (found.is_ready, "belong to another database" in str(found.reason)) == (False, True)
    assert services.garbage_collector.sweep() == 0
    assert "no file is removed" in caplog.text
    with refused("wrong-database"):
        services.catalogue.create("album", ALBUM)
    with refused("wrong-database"), services.database.write() as work:
        work.jobs.claim("a worker", 1.0, 1)
    assert pictures(data) == 12


def test_adopted_files_stay_until_a_sweep_is_ordered_and_come_back_after_it(
    opened: Opened, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = (data / FILE).rename(data.with_name("away"))
    services = opened(data)
    services.schema.adopt()
    assert services.health.check().reason is None
    assert services.garbage_collector.sweep() == 0
    assert "lrbs db sweep" in caplog.text
    assert pictures(data) == 12
    assert services.garbage_collector.sweep(any_share=True) == 12
    assert pictures(data) == 0
    close(services)
    away.rename(data / FILE)
    right = opened(data)
    assert not right.health.check().is_ready
    right.schema.adopt()
    assert right.catalogue.content("album", "p3")[0] == png(3)
    assert right.garbage_collector.sweep() == 0
    assert pictures(data) == 12


def copied(services: Services, target: Path) -> Path:
    copy_sqlite(services.database.engine, target)
    return target


def test_an_older_database_serves_and_removes_nothing(opened: Opened, data: Path, tmp_path: Path) -> None:
    services = opened(data)
    older = copied(services, tmp_path / "older")
    store(services, 20, 21)
    services.ownership.note_progress()
    newer = copied(services, tmp_path / "newer")
    close(services)

    restore(older, data)
    restored = opened(data)
    found = restored.health.check()
    assert (found.is_ready, "older than the files" in str(found.reason)) == (True, True)
    assert restored.garbage_collector.sweep() == 0
    with refused("wrong-database"):
        restored.ownership.require_current()
    restored.catalogue.delete_item("album", "p0")
    restored.ownership.note_progress()  # which must not make it look newer
    assert pictures(data) == 14
    close(restored)

    restore(newer, data)
    right = opened(data)
    assert right.health.check().reason is None
    close(right)
    restore(older, data)
    adopting = opened(data)
    adopting.schema.adopt()
    assert adopting.garbage_collector.sweep() == 2
    close(adopting)

    restore(newer, data)  # it was the wrong decision
    back = opened(data)
    assert "histories diverged" in str(back.health.check().reason)
    for number in (20, 21):
        assert back.catalogue.content("album", f"p{number}")[0] == png(number)
    assert pictures(data) == 14


def test_a_served_copy_of_the_database_does_no_harm_to_the_original(
    opened: Opened, data: Path, tmp_path: Path
) -> None:
    services = opened(data)
    services.backup.make(tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    assert copy.health.check().reason is None
    for number in range(11):
        copy.catalogue.delete_item("album", f"p{number}")
    copy.ownership.note_progress()
    mixed = opened(data, f"sqlite:///{tmp_path / 'copy' / FILE}")
    assert "histories diverged" in str(mixed.health.check().reason)
    assert mixed.garbage_collector.sweep() == 0
    mixed.catalogue.delete_item("album", "p11")
    assert pictures(data) == 12
    assert services.health.check().reason is None


def test_more_than_half_is_only_swept_by_order(
    opened: Opened, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    services = opened(data)
    with services.database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM items WHERE item_id <> 'p0'")
    assert services.garbage_collector.sweep() == 0
    assert "11 of 12 look unused" in caplog.text
    assert services.garbage_collector.sweep(any_share=True) == 11
    assert pictures(data) == 1


def test_what_clients_delete_goes_whatever_its_share(opened: Opened, data: Path) -> None:
    services = opened(data, trash_seconds=0.0)
    services.catalogue.delete_collection("album")
    assert [path for path in (data / "pictures").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("written", ["inside this folder", "sqlite://:/{folder}/lrbs.sqlite3"])
def test_an_installation_of_an_earlier_version_is_taken_over(
    opened: Opened, data: Path, written: str
) -> None:
    forget_points(opened(data))
    (data / ".database").write_text(written.format(folder=data))
    services = opened(data)
    assert services.health.check().reason is None
    assert services.garbage_collector.sweep() == 0
    assert len(mark_of(data)["identity"]) == 32


def test_what_an_earlier_version_said_of_another_database_still_holds(opened: Opened, data: Path) -> None:
    forget_points(opened(data))
    for other in (SERVER, f"sqlite://:/{data.parent / FILE}"):
        (data / ".database").write_text(other)
        assert not opened(data).health.check().is_ready
    (data / ".database").unlink()  # never swept: the database knows what lies there
    assert opened(data).health.check().reason is None


@pytest.mark.postgres
def test_an_empty_folder_is_not_that_of_a_database_in_use(
    opened: Opened, postgres_url: str, tmp_path: Path
) -> None:
    filled(opened(tmp_path / "data", postgres_url))
    services = opened(tmp_path / "mounted-too-late", postgres_url)
    assert "mount it" in str(services.health.check().reason)
    assert request_repairs(services) == []
    with refused("wrong-database"):
        store(services, 20)
    assert opened(tmp_path / "data", postgres_url).health.check().reason is None


def sqlite(path: Path) -> str:
    return f"sqlite://:/{path}"


def names(folder: Path, place: str) -> bool:
    return FileFolderMark(folder, place, FILE).names_this_database()


def test_a_file_in_the_folder_is_one_database_by_whatever_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / ".database").write_text("inside this folder")
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    for named in (tmp_path / "link" / FILE, Path("data", FILE), Path("data", "..", "data", FILE)):
        assert names(Path("data"), sqlite(named))
    for other in (sqlite(folder / "other.sqlite3"), sqlite(tmp_path / FILE), SERVER):
        assert not names(folder, other)
    (folder / ".database").write_text(SERVER)
    assert names(folder, SERVER)
    assert not names(folder, "postgresql://other:5432/lrbs")


def test_the_first_mark_stays_unless_it_is_replaced_or_empty(tmp_path: Path) -> None:
    mark = FileFolderMark(tmp_path, SERVER, FILE)
    (tmp_path / ".database").touch()  # an earlier version was killed before it was written
    assert mark.read() is None
    mark.write(Mark("first", "1"), replace=False)
    mark.write(Mark("second", "2"), replace=False)
    assert mark.read() == Mark("first", "1")
    mark.write(Mark("second", "2"), replace=True)
    assert mark.read() == Mark("second", "2")
    assert files_under(tmp_path) == {tmp_path / ".database"}


def test_a_crash_before_the_mark_is_whole_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_: int) -> None:
        raise KeyboardInterrupt

    mark = FileFolderMark(tmp_path, SERVER, FILE)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            mark.write(Mark("first", "1"), replace=False)
    assert mark.read() is None


@pytest.mark.parametrize("is_race", [False, True])
def test_of_two_hosts_with_folders_of_their_own_only_one_is_served(
    opened: Opened, tmp_path: Path, is_race: bool
) -> None:
    """The second one is refused, even where both start on an empty database at the same moment."""
    url = f"sqlite:///{tmp_path / FILE}"
    first, second = opened(tmp_path / "first", url), opened(tmp_path / "second", url)
    DatabaseSchema(first.database.engine).upgrade()
    mark = SharedMark(tmp_path / "second", "", FILE)
    # Of a look at a new folder: before and after its mark is read, and once it has been written.
    moments = iter([not is_race, False, is_race])
    mark.meet(lambda: first.ownership.status() if next(moments, False) else None)
    found = Ownership(Database(second.database.engine), mark, ()).status()
    assert not found.belongs
    assert "several hosts need one that all of them see" in str(found.reason)
    assert second.ownership.status() == found
    assert "several hosts" in str(second.health.check().reason)
    with refused("wrong-database"):
        second.catalogue.create("album", ALBUM)
    first.catalogue.create("album", ALBUM)
    store(first, 3)
    assert pictures(tmp_path / "first") == 1
    assert opened(tmp_path / "first", url).ownership.status().reason is None
