"""A copy of the database and of the data folder serves the same answers."""

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.db.schema import DatabaseSchema
from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.domain.names import Scope
from app.services.catalogue.service import NewFeedback, NewItem
from app.services.serving.search import Query
from app.services.storage.pacing import Round
from app.settings import Settings
from app.storage.folders import LocalFolder
from app.storage.pictures_and_bundles import Blobs, Bundles
from tests.app.closing import close
from tests.app.e2e.refusals import png
from tests.app.integration.conftest import Pairs
from tests.app.integration.searching import find
from tests.app.integration.test_ownership import ALBUM


@pytest.fixture
def served(trained_pairs: Any) -> Any:
    trained_pairs.services.catalogue.add_items(
        "a", [trained_pairs.item("x", "late", trained_pairs.data.X[0], "class 0")]
    )
    return trained_pairs


def answers(services: Services, rows: Any) -> list[Any]:
    found = find(services, "a", "z", "x", [Query(Content(vector=row.tolist())) for row in rows], 100)
    return [(one.model_version, [(hit.id, hit.score, hit.item.labels) for hit in one.hits]) for one in found]


def test_a_restored_copy_gives_the_same_answers(
    served: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    expected = answers(served.services, served.data.Z[:5])
    with pytest.raises(InvalidFieldError, match="lies in the data folder"):
        served.services.backup.make(served.services.settings.data_dir / "backup")
    folder = tmp_path_factory.mktemp("backups") / "monday"
    assert served.services.backup.make(folder) > 0
    served.services.catalogue.delete_item("a", "late")
    restored = build(Settings(data_dir=folder, database_url=""))
    assert DatabaseSchema(restored.database.engine).is_current()
    assert answers(restored, served.data.Z[:5]) == expected
    assert answers(served.services, served.data.Z[:5]) != expected
    restored.catalogue.add_items("a", [served.item("x", "later", served.data.X[1], "class 0")])
    assert restored.garbage_collector.sweep() == 0
    with pytest.raises(InvalidFieldError, match="name a new one"):
        served.services.backup.make(folder)
    close(restored)


def test_a_copy_made_while_others_write_is_whole(tmp_path: Path) -> None:
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    services.schema.upgrade()
    services.catalogue.create("a", ALBUM)
    stopped = threading.Event()
    written: list[str] = []

    def write() -> None:
        while not stopped.is_set():
            number = len(written)
            item = NewItem("image", Content(picture=png(8 + number % 50, 8 + number // 50)), f"p{number}")
            services.catalogue.add_items("a", [item])
            written.append(f"p{number}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        counts = []
        for number in range(3):
            before = len(written)
            services.backup.make(tmp_path / f"copy{number}")
            counts.append((before, len(written) + 1))
    finally:
        stopped.set()
        writer.join()
    for number, (fewest, most) in enumerate(counts):
        copy = build(Settings(data_dir=tmp_path / f"copy{number}", database_url=""))
        stored = [item.id for _, item in copy.catalogue.page("a", None, 0, 10_000).rows]
        assert stored == [f"p{n}" for n in range(len(stored))]
        assert fewest <= len(stored) <= most
        for item_id in stored:
            assert copy.catalogue.content("a", item_id)[0] == services.catalogue.content("a", item_id)[0]
        close(copy)
    close(services)


def store_picture(services: Services, number: int) -> None:
    item = NewItem("image", Content(picture=png(8 + number, 8)), f"p{number}")
    services.catalogue.add_items("album", [item])


def state(services: Services, rows: Any) -> Any:
    """What clients see: hits, items with content, feedback, keys, versions and their history."""
    return (
        answers(services, rows),
        [
            services.catalogue.content("album", item.id)
            for _, item in services.catalogue.page("album", None, 0, 10).rows
        ],
        [(one.id, one.item_id, one.created_at) for one in services.feedback.page("a", 0, 10)[0]],
        services.access.list_keys(),
        services.versions.history("a", 10),
    )


def ids(services: Services) -> dict[str, int]:
    return {collection.name: collection.id for collection in services.catalogue.collections()}


@pytest.mark.postgres
def test_the_drill_of_a_restore(
    served: Any, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """SQLite, to PostgreSQL on another machine, and back beside files that are newer than the copy."""
    machine, backups = tmp_path_factory.mktemp("machine"), tmp_path_factory.mktemp("backups")
    first, rows = served.services, served.data.Z[:5]
    first.catalogue.create("album", ALBUM)
    store_picture(first, 1)
    first.feedback.add("a", [NewFeedback("z", "x", "late", True, Content(vector=rows[0].tolist()))])
    _, secret = first.access.create(Scope.SEARCH)
    served.make("gone")
    last_id = ids(first)["gone"]
    first.catalogue.delete_collection("gone")
    assert first.removal.go_on(Round())
    expected = state(first, rows)
    first.backup.make(backups / "monday")

    second = build(Settings(data_dir=machine, database_url=postgres_url))
    with pytest.raises(InvalidFieldError, match="holds no copy"):
        second.backup.restore(machine)
    names = {path.name for path in (backups / "monday").iterdir()}
    assert second.backup.restore(backups / "monday") > 0
    assert {path.name for path in (backups / "monday").iterdir()} == names
    assert state(second, rows) == expected
    assert second.access.require(secret, Scope.SEARCH)
    assert second.health.check().reason is None
    with pytest.raises(InvalidFieldError, match="holds rows"):
        second.backup.restore(backups / "monday")
    Pairs(second, served.data).make("new")
    assert ids(second)["new"] == last_id + 1, "no id is used twice"

    expected = state(second, rows)
    second.backup.make(backups / "tuesday")
    store_picture(second, 2)
    second.ownership.note_progress()
    close(second)
    visited = build(Settings(data_dir=backups / "tuesday", database_url=""))
    assert state(visited, rows) == expected
    third = build(Settings(data_dir=machine, database_url=f"sqlite:///{machine / 'third.sqlite3'}"))
    assert third.backup.restore(backups / "tuesday") == 0, "all its files are there"
    close(visited)
    assert state(third, rows) == expected
    assert "older than the files" in str(third.health.check().reason)
    assert third.garbage_collector.sweep(any_share=True) == 0
    third.schema.adopt()
    assert third.health.check().reason is None
    Pairs(third, served.data).make("newest")
    assert ids(third)["newest"] == last_id + 2
    close(third)


@pytest.mark.parametrize("store", [Blobs, Bundles])
def test_what_a_killed_restore_has_left_is_swept(store: type[Blobs | Bundles], tmp_path: Path) -> None:
    leftover = LocalFolder(tmp_path).make_temporary_folder()
    (Path(leftover.name) / "part").write_bytes(b"part")
    now = Path(leftover.name).stat().st_mtime
    assert sum(store(LocalFolder(tmp_path)).tidy(now - 1.0, set)) == 0
    assert sum(store(LocalFolder(tmp_path)).tidy(now + 1.0, set)) == 1
    assert list(tmp_path.iterdir()) == []
    leftover.cleanup()


def test_a_restore_touches_no_folder_of_another_database(
    served: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    backup = tmp_path_factory.mktemp("backups") / "monday"
    served.services.backup.make(backup)
    folder = tmp_path_factory.mktemp("other")
    other = build(Settings(data_dir=folder, database_url=""))
    other.schema.set_up()
    other.health.check()
    elsewhere = build(Settings(data_dir=folder, database_url=f"sqlite:///{folder / 'empty.sqlite3'}"))
    with pytest.raises(InvalidFieldError, match="belongs to another database"):
        elsewhere.backup.restore(backup)
    assert not (folder / "models").exists()
    assert other.health.check().reason is None
    close(elsewhere)
    close(other)


def postgres_tool(name: str) -> str:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    found = shutil.which(name, path=os.pathsep.join([*map(str, reversed(folders)), os.environ["PATH"]]))
    assert found is not None, f"{name} is not beside the server"
    return found


@pytest.mark.postgres
def test_a_dump_of_postgres_and_a_copy_of_the_folder_give_the_same_answers(
    postgres_url: str, tmp_path: Path, vectors: Any
) -> None:
    data = tmp_path / "data"
    services = build(Settings(data_dir=data, database_url=postgres_url))
    services.schema.upgrade()
    served = Pairs(services, vectors)
    served.fill("a")
    served.train("a")
    expected = answers(services, vectors.Z[:5])
    libpq = postgres_url.replace("+psycopg", "")
    dump = str(tmp_path / "dump")
    subprocess.run([postgres_tool("pg_dump"), "--format=custom", f"--file={dump}", libpq], check=True)
    shutil.copytree(data, tmp_path / "copy")
    served.services.catalogue.delete_collection("a")
    close(services)
    restore = [postgres_tool("pg_restore"), "--clean", "--if-exists", f"--dbname={libpq}", dump]
    subprocess.run(restore, check=True)

    restored = build(Settings(data_dir=tmp_path / "copy", database_url=services.settings.database_url))
    assert DatabaseSchema(restored.database.engine).is_current()
    assert answers(restored, vectors.Z[:5]) == expected
    close(restored)
