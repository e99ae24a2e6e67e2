"""Copies of an object store: made by command, brought back by command, whole or not at all."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.bootstrap import Services, build
from app.domain.errors import InvalidFieldError
from app.settings import DATABASE_FILE, Settings
from app.storage.remote_folder import RemoteFolder, open_remote
from solver.datasets import SyntheticPairs
from tests.app.closing import close
from tests.app.conftest import LrbsInside
from tests.app.integration.searching import ids, search
from tests.app.integration.test_files import picture, png
from tests.app.integration.test_ownership import ALBUM
from tests.app.refused import refused
from tests.object_store import ObjectStore
from tests.store_gate import StoreGate

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


def start_lrbs(services: Services, *arguments: object, **others: str) -> subprocess.Popen[str]:
    """Start a command as a process of its own."""
    settings = {
        "LRBS_DATA_DIR": str(services.settings.data_dir),
        "LRBS_STORAGE_URL": services.settings.storage_url,
        "LRBS_DATABASE_URL": "",
    }
    command, environment = [sys.executable, "-m", "app.cli"], {**os.environ, **settings, **others}
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def folder_of(services: Services) -> RemoteFolder:
    """Return where its pictures and models are."""
    return open_remote(services.settings.storage_url or services.settings.data_dir.as_uri())


@pytest.fixture
def open_first(opened: Open, _kept_named: Settings) -> Open:
    """Return a function that opens services with a copy of a trained collection, and with an album."""

    def open_one(url: str) -> Services:
        services, kept = opened("first", url), _kept_named.data_dir
        if url:
            shutil.copy(kept / DATABASE_FILE, services.settings.data_dir)
            folder, files = open_remote(url), (path for path in kept.rglob("*") if path.is_file())
            for path in files:
                folder.upload(path, path.relative_to(kept).as_posix())
            folder.remove(DATABASE_FILE)
        else:
            shutil.copytree(kept, services.settings.data_dir, dirs_exist_ok=True)
        services.catalogue.create("album", ALBUM)
        services.catalogue.add_items("album", [picture(f"p{shade}", shade) for shade in range(5)])
        services.ownership.note_progress()
        return services

    return open_one


def sums_of_objects(folder: RemoteFolder) -> dict[str, str]:
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
    open_first: Open,
    opened: Open,
    lrbs: LrbsInside,
    object_store: ObjectStore,
    vectors: SyntheticPairs,
    tmp_path: Path,
) -> None:
    first = open_first(object_store.make_place())
    first.catalogue.delete_item("album", "p4")  # its picture is in the trash
    stored, rows = sums_of_objects(open_remote(first.settings.storage_url)), vectors.Z[:3]
    hits = [ids(search(first, row)) for row in rows]
    copy = tmp_path / "monday"
    done = lrbs(first, "db", "backup", copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert sums_of_files(copy) == stored
    assert [name for name in stored if ".trash" in name]

    visited = opened("monday")
    assert [ids(search(visited, row)) for row in rows] == hits
    second = opened("second", object_store.make_place())
    done = lrbs(second, "db", "restore", copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert sums_of_objects(open_remote(second.settings.storage_url)) == stored
    assert [ids(search(second, row)) for row in rows] == hits
    assert second.catalogue.content("album", "p3") == first.catalogue.content("album", "p3")
    assert second.health.check().reason is None


def test_files_that_are_newer_than_the_copy_stay_beside_it(
    open_first: Open, opened: Open, lrbs: LrbsInside, object_store: ObjectStore, tmp_path: Path
) -> None:
    url = object_store.make_place()
    first = open_first(url)
    copy = tmp_path / "monday"
    first.backup.make(copy)
    first.catalogue.add_items("album", [picture("newer", 77)])
    first.ownership.note_progress()
    newer = sums_of_objects(open_remote(url))
    lost = next(name for name in newer if name.startswith("pictures") and name in sums_of_files(copy))
    open_remote(url).remove(lost)

    second = opened("second", url)
    done = lrbs(second, "db", "restore", copy)
    assert (done.returncode, done.stdout) == (0, f"the database and 1 files are those of {copy}\n")
    assert sums_of_objects(open_remote(url)) == newer
    assert [item.id for _, item in second.catalogue.page("album", None, 0, 9).rows] == [
        f"p{shade}" for shade in range(5)
    ]
    assert "older than the files" in str(second.health.check().reason)
    assert second.garbage_collector.sweep(any_share=True) == 0
    done = lrbs(second, "db", "sweep")
    assert done.returncode == 1
    assert "older than the files" in done.stderr
    assert lrbs(second, "db", "adopt").returncode == 0
    third = opened("second", url)
    assert third.ownership.status().is_current
    assert sums_of_objects(open_remote(url)) == newer


def test_a_restore_into_the_bucket_of_another_database_changes_nothing(
    open_first: Open, opened: Open, lrbs: LrbsInside, object_store: ObjectStore, tmp_path: Path
) -> None:
    first, other = open_first(object_store.make_place()), opened("other", object_store.make_place())
    first.backup.make(tmp_path / "monday")
    other.schema.set_up()
    other.health.check()
    third = opened("third", other.settings.storage_url)
    done = lrbs(third, "db", "restore", tmp_path / "monday")
    assert done.returncode == 1
    assert "belongs to another database" in done.stderr
    assert sums_of_objects(open_remote(other.settings.storage_url)) == {}


@pytest.fixture(params=["folder", "bucket"])
def stored(
    request: pytest.FixtureRequest, open_first: Open, object_store: ObjectStore
) -> tuple[Services, RemoteFolder]:
    """Services with pictures and a model, and where their files are."""
    services = open_first(object_store.make_place() if request.param == "bucket" else "")
    return services, folder_of(services)


def a_file(folder: RemoteFolder, start: str, end: str = "") -> str:
    return next(
        entry.name for entry in folder.walk() if entry.name.startswith(start) and entry.name.endswith(end)
    )


def test_a_damaged_file_is_named_and_no_copy_without_it_is_taken_for_a_whole_one(
    stored: tuple[Services, RemoteFolder],
    opened: Open,
    lrbs: LrbsInside,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    services, folder = stored
    picture_file = a_file(folder, "pictures/", hashlib.sha256(png(0)).hexdigest())
    model = a_file(folder, "models/", "model.safetensors")
    whole, content = folder.read(picture_file), folder.read(model)
    folder.write(picture_file, b"other")
    folder.write(model, content[:-1] + bytes([content[-1] ^ 1]))
    done = lrbs(services, "db", "backup", tmp_path / "monday")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: damaged: {picture_file}, {model}; the others were copied into" in done.stderr
    assert not (tmp_path / "monday").exists()
    copy = tmp_path / "monday.incomplete"
    kept = sums_of_files(copy)
    assert set(kept) == set(sums_of_objects(folder)) - {picture_file, model}
    with pytest.raises(InvalidFieldError, match="of a copy that was not finished: remove it"):
        services.backup.make(tmp_path / "monday")
    assert sums_of_files(copy) == kept

    folder.write(picture_file, whole)
    folder.remove(model)
    with refused("damaged-files", match=f"damaged: {model}; the others"):
        services.backup.make(tmp_path / "tuesday")
    folder.write(model, content)
    services.catalogue.delete_item("album", "p4")
    thrown_away = a_file(folder, "pictures/.trash/")
    folder.write(thrown_away, b"other")
    services.backup.make(tmp_path / "wednesday")
    expected = sums_of_objects(folder)
    del expected[thrown_away]
    assert sums_of_files(tmp_path / "wednesday") == expected

    (tmp_path / "wednesday" / picture_file).write_bytes(b"other")
    target = opened("second", services.settings.storage_url and object_store.make_place())
    with refused("damaged-files", match=f"damaged: {picture_file}; the database was not filled"):
        target.backup.restore(tmp_path / "wednesday")
    (tmp_path / "wednesday" / picture_file).unlink()
    target.backup.restore(tmp_path / "wednesday")


@pytest.fixture
def gate(object_store: ObjectStore) -> Iterator[StoreGate]:
    way = StoreGate(object_store.endpoint)
    yield way
    way.end()


def test_a_copy_whose_process_is_killed_is_not_there(
    open_first: Open, object_store: ObjectStore, gate: StoreGate, tmp_path: Path
) -> None:
    first = open_first(object_store.make_place())
    for number, held in enumerate(("GET .*/pictures/", "GET .*/model.safetensors", "PUT .*[.]database")):
        copy = tmp_path / f"copy{number}"
        with (
            gate.holding(held) as request,
            start_lrbs(first, "db", "backup", copy, AWS_ENDPOINT_URL=gate.endpoint) as process,
        ):
            request.wait()
            process.kill()
            process.communicate()
        assert not copy.exists()
        assert (tmp_path / f"copy{number}.incomplete").is_dir()
    first.backup.make(tmp_path / "another")


def test_of_a_copy_from_a_store_that_goes_away_nothing_is_left(
    open_first: Open, object_store: ObjectStore, gate: StoreGate, tmp_path: Path
) -> None:
    first = open_first(object_store.make_place())
    with gate.holding("GET .*/model.safetensors") as request:
        process = start_lrbs(first, "db", "backup", tmp_path / "copy", AWS_ENDPOINT_URL=gate.endpoint)
        request.wait()
        object_store.kill()
    _, stderr = process.communicate()
    assert process.returncode == 1
    assert "LRBS_STORAGE_URL" in stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_what_is_thrown_away_while_it_is_copied_is_in_the_copy(
    open_first: Open, opened: Open, object_store: ObjectStore, gate: StoreGate, tmp_path: Path
) -> None:
    first = open_first(object_store.make_place())
    name, late = (hashlib.sha256(png(shade)).hexdigest() for shade in (2, 77))
    with (
        gate.holding(f"GET .*/{name}") as copied,
        gate.holding(f"GET .*/{late}") as copied_later,
        start_lrbs(first, "db", "backup", tmp_path / "copy", AWS_ENDPOINT_URL=gate.endpoint) as process,
    ):
        copied.wait()
        first.catalogue.add_items(
            "album", [picture("late", 77)]
        )  # too late to be listed, but not for its row
        copied.release()
        copied_later.wait()
        first.catalogue.delete_item("album", "late")  # listed, and in the trash before it is read
        copied_later.release()
        _, stderr = process.communicate()
    assert (process.returncode, stderr) == (0, "")
    copy = opened("copy")
    assert copy.catalogue.content("album", "late")[0] == png(77)
