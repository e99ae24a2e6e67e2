"""Whose files a data folder holds."""

import os
from pathlib import Path
from typing import Any

import pytest

from app.bootstrap import Services, build
from app.domain.entities import Content, Modality
from app.services.catalogue import NewItem
from app.settings import Settings
from app.storage.ownership import belongs_to
from tests.app.integration.test_files import files_under, picture

FILE = "lrbs.sqlite3"
SERVER = "postgresql://db:5432/lrbs"


def sqlite(path: Path) -> str:
    return f"sqlite://:/{path}"


def services_over(folder: Path, database_url: str) -> Services:
    services = build(Settings(data_dir=folder, database_url=database_url, sweep_grace_seconds=0.0))
    services.upgrade_schema()
    return services


def test_the_first_database_that_asks_owns_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert belongs_to(folder, SERVER, FILE)
    assert belongs_to(folder, SERVER, FILE)
    assert not belongs_to(folder, "postgresql://other:5432/lrbs", FILE)
    assert not belongs_to(folder, sqlite(folder / FILE), FILE)
    assert files_under(folder) == {folder / ".database"}


def test_a_file_in_the_folder_is_one_database_by_whatever_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    assert belongs_to(folder, sqlite(folder / FILE), FILE)
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    for named in (tmp_path / "link" / FILE, Path("data", FILE), Path("data", "..", "data", FILE)):
        assert belongs_to(Path("data"), sqlite(named), FILE)
    assert not belongs_to(folder, sqlite(folder / "other.sqlite3"), FILE)
    assert not belongs_to(folder, sqlite(tmp_path / FILE), FILE)
    folder.rename(tmp_path / "moved")
    assert belongs_to(tmp_path / "moved", sqlite(tmp_path / "moved" / FILE), FILE)


def test_a_marker_of_an_earlier_version_is_understood(tmp_path: Path) -> None:
    marker = tmp_path / "data" / ".database"
    marker.parent.mkdir()
    for written in (sqlite(tmp_path / "data" / FILE), "inside this folder"):
        marker.write_text(written)
        assert belongs_to(tmp_path / "data", sqlite(tmp_path / "data" / FILE), FILE)
    marker.write_text(sqlite(tmp_path / "elsewhere" / FILE))
    assert not belongs_to(tmp_path / "data", sqlite(tmp_path / "data" / FILE), FILE)
    assert belongs_to(tmp_path / "data", sqlite(tmp_path / "elsewhere" / FILE), FILE)


def test_a_marker_that_was_never_written_names_nobody(tmp_path: Path) -> None:
    (tmp_path / ".database").touch()
    assert belongs_to(tmp_path, SERVER, FILE)
    assert not belongs_to(tmp_path, sqlite(tmp_path / FILE), FILE)


def test_a_crash_before_the_marker_is_whole_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            belongs_to(tmp_path, SERVER, FILE)
    assert belongs_to(tmp_path, "postgresql://other:5432/lrbs", FILE)


@pytest.mark.parametrize("named_first", [False, True])
def test_processes_that_name_the_database_differently_sweep_the_same_folder(
    tmp_path: Path, named_first: bool
) -> None:
    folder = tmp_path / "data"
    urls = ["", f"sqlite:///{folder / FILE}"]
    first, second = (services_over(folder, url) for url in sorted(urls, reverse=named_first))
    modalities = [Modality("image", {"type": "hog-color"}), Modality("text", {"type": "tfidf"})]
    first.catalogue.create("album", modalities)
    first.housekeeping.sweep()
    for number, services in enumerate((first, second)):
        services.catalogue.add_items("album", [picture(f"p{number}", number)])
        services.catalogue.delete_item("album", f"p{number}")
        assert files_under(folder / "pictures") == set()
        services.database.engine.dispose()


def test_another_databases_pictures_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = services_over(folder, "")
    modalities = [Modality("image", {"type": "hog-color"}), Modality("text", {"type": "tfidf"})]
    first.catalogue.create("album", modalities)
    first.catalogue.add_items("album", [picture("p", 1), NewItem("text", Content(text="words"), "t")])
    first.housekeeping.sweep()
    before: Any = files_under(folder / "pictures")
    for url in (f"sqlite:///{folder / 'other.sqlite3'}", f"sqlite:///{tmp_path / FILE}"):
        other = services_over(folder, url)
        assert other.housekeeping.sweep() == 0
        other.database.engine.dispose()
    assert files_under(folder / "pictures") == before
    first.database.engine.dispose()
