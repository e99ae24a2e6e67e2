"""Copies of an object store: made by command, brought back by command, whole or not at all."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.bootstrap import Services, build
from app.settings import Settings
from app.storage.remote_folder import open_remote
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.integration.searching import fill, ids, search, train
from tests.app.integration.test_files import picture
from tests.app.integration.test_ownership import ALBUM
from tests.object_store import ObjectStore

Open = Callable[..., Services]
KINDS = ("pictures", "models")


@pytest.fixture
def opened(object_store: ObjectStore, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens services with a data folder of their own over a bucket."""
    made: list[Services] = []

    def open_one(name: str, url: str = "") -> Services:
        facts = {"data_dir": tmp_path / name, "database_url": "", "storage_url": url}
        services = build(Settings(**facts))  # type: ignore[arg-type]
        made.append(services)
        return services

    yield open_one
    for services in made:
        close(services)


def lrbs(services: Services, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own."""
    settings = {
        "LRBS_DATA_DIR": str(services.settings.data_dir),
        "LRBS_STORAGE_URL": services.settings.storage_url,
        "LRBS_DATABASE_URL": "",
    }
    command = [sys.executable, "-m", "app.cli", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)


def fill_all(services: Services, vectors: SyntheticPairs) -> None:
    services.schema.set_up()
    fill(services, vectors)
    train(services)
    services.catalogue.create("album", ALBUM)
    services.catalogue.add_items("album", [picture(f"p{shade}", shade) for shade in range(5)])
    services.ownership.note_progress()


def sums_of_objects(url: str) -> dict[str, str]:
    folder = open_remote(url)
    return {
        entry.name: hashlib.sha256(folder.read(entry.name)).hexdigest()
        for entry in folder.walk()
        if entry.name.startswith(KINDS)
    }


def sums_of_files(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for kind in KINDS
        for path in (folder / kind).rglob("*")
        if path.is_file()
    }


def test_the_drill_of_a_restore_from_one_bucket_into_another(
    opened: Open, object_store: ObjectStore, vectors: SyntheticPairs, tmp_path: Path
) -> None:
    first = opened("first", object_store.make_bucket())
    fill_all(first, vectors)
    first.catalogue.delete_item("album", "p4")  # its picture is in the trash
    stored, rows = sums_of_objects(first.settings.storage_url), vectors.Z[:3]
    hits = [ids(search(first, row)) for row in rows]
    copy = tmp_path / "monday"
    done = lrbs(first, "db", "backup", copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert sums_of_files(copy) == stored
    assert [name for name in stored if ".trash" in name]

    visited = opened("monday")
    assert [ids(search(visited, row)) for row in rows] == hits
    second = opened("second", object_store.make_bucket())
    done = lrbs(second, "db", "restore", copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert sums_of_objects(second.settings.storage_url) == stored
    assert [ids(search(second, row)) for row in rows] == hits
    assert second.catalogue.content("album", "p3") == first.catalogue.content("album", "p3")
    assert second.readiness.check().reason is None


def test_files_that_are_newer_than_the_copy_stay_beside_it(
    opened: Open, object_store: ObjectStore, vectors: SyntheticPairs, tmp_path: Path
) -> None:
    url = object_store.make_bucket()
    first = opened("first", url)
    fill_all(first, vectors)
    copy = tmp_path / "monday"
    first.backup.make(copy)
    first.catalogue.add_items("album", [picture("newer", 77)])
    first.ownership.note_progress()
    newer = sums_of_objects(url)
    lost = next(name for name in newer if name.startswith("pictures") and name in sums_of_files(copy))
    open_remote(url).remove(lost)

    second = opened("second", url)
    done = lrbs(second, "db", "restore", copy)
    assert (done.returncode, done.stdout) == (0, f"the database and 1 files are those of {copy}\n")
    assert sums_of_objects(url) == newer
    assert [item.id for _, item in second.catalogue.page("album", None, 0, 9).rows] == [
        f"p{shade}" for shade in range(5)
    ]
    assert "older than the files" in str(second.readiness.check().reason)
    assert second.garbage_collector.sweep(any_share=True) == 0
    done = lrbs(second, "db", "sweep")
    assert done.returncode == 1
    assert "older than the files" in done.stderr
    assert lrbs(second, "db", "adopt").returncode == 0
    third = opened("second", url)
    assert third.ownership.status().is_current
    assert sums_of_objects(url) == newer


def test_a_restore_into_the_bucket_of_another_database_changes_nothing(
    opened: Open, object_store: ObjectStore, vectors: SyntheticPairs, tmp_path: Path
) -> None:
    first, other = (opened(name, object_store.make_bucket()) for name in ("first", "other"))
    fill_all(first, vectors)
    first.backup.make(tmp_path / "monday")
    other.schema.set_up()
    other.readiness.check()
    third = opened("third", other.settings.storage_url)
    done = lrbs(third, "db", "restore", tmp_path / "monday")
    assert done.returncode == 1
    assert "belongs to another database" in done.stderr
    assert sums_of_objects(other.settings.storage_url) == {}
