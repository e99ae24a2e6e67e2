import errno
import hashlib
import io
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from app.bootstrap import build
from app.domain.entities import Content, Item
from app.domain.errors import DatabaseUnavailableError, InvalidFieldError
from app.domain.filters import ItemFilter
from app.services.catalogue.imports import ItemSpool
from app.services.catalogue.service import NewItem
from app.storage.folders import TRASH, LocalFolder
from app.storage.pictures_and_bundles import Blobs
from tests.app.closing import close
from tests.app.integration.loading import current
from tests.app.refused import refused

HOUR = 3600.0


def png(shade: int) -> bytes:
    stored = io.BytesIO()
    Image.new("RGB", (16, 16), (shade, 30, 30)).save(stored, "PNG")
    return stored.getvalue()


def picture(item_id: str, shade: int, **facts: Any) -> NewItem:
    return NewItem("image", Content(picture=png(shade)), item_id, **facts)


def files_under(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and TRASH not in path.parts}


def grow_old(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        os.utime(path, (time.time() - 2 * HOUR,) * 2)


@pytest.fixture
def album(pairs: Any) -> Any:
    pairs.make("album", image="hog-color", text="tfidf")
    return pairs


@pytest.fixture
def pictures(album: Any) -> Path:
    folder: Path = album.services.settings.data_dir / "pictures"
    return folder


def test_a_refused_request_leaves_no_picture(album: Any, pictures: Path) -> None:
    text = Content(text="words")
    for field, bad in (
        ("items.1.text", NewItem("text", Content(text=""))),
        ("items.1.id", NewItem("text", text, "..")),
        ("items.1.id", NewItem("text", text, "i" * 200)),
        ("items.1.id", NewItem("text", text, "")),
        ("items.1.pair_id", NewItem("text", text, "a", pair_id="a/b")),
        ("items.1.labels.0", NewItem("text", text, "a", ("\x00",))),
        ("items.1.metadata", NewItem("text", text, "a", metadata={"a": ["\x00"]})),
    ):
        with pytest.raises(InvalidFieldError) as refused:
            album.services.catalogue.add_items("album", [picture("p", 1), bad])
        assert refused.value.field == field
        assert files_under(pictures) == set()


def test_a_taken_id_leaves_no_picture(album: Any, pictures: Path) -> None:
    album.services.catalogue.add_items("album", [picture("p", 1)])
    before = files_under(pictures)
    with refused("item-exists"):
        album.services.catalogue.add_items("album", [picture("q", 2), picture("p", 3)])
    assert files_under(pictures) == before


@pytest.mark.parametrize("last", ["a bad line", "a repeated id", "a client that is gone"])
def test_an_import_that_is_not_stored_leaves_no_picture_but_those_in_use(
    album: Any, pictures: Path, last: str
) -> None:
    album.services.catalogue.add_items("album", [picture("p", 1)])
    used = files_under(pictures)
    begun = album.services.imports.begin("album")
    begun.add([(1, picture("p", 1)), (2, picture("q", 2))])
    if last != "a client that is gone":
        code, wrong = {
            "a bad line": ("invalid-field", NewItem("text", Content(text=""))),
            "a repeated id": ("item-repeated", picture("q", 3)),
        }[last]
        with refused(code, match="line 4: "):
            begun.add([(3, picture("r", 4)), (4, wrong)])
    assert files_under(pictures) > used
    begun.close()
    assert files_under(pictures) == used


@pytest.mark.parametrize("is_import", [False, True], ids=["items", "an import"])
def test_a_picture_that_cannot_be_stored_takes_those_before_it_along(
    album: Any, pictures: Path, is_import: bool
) -> None:
    items = [picture(str(shade), shade) for shade in range(3)]
    pictures.mkdir(exist_ok=True)
    obstacle = pictures / hashlib.sha256(png(2)).hexdigest()[:2]  # where its folder is to be
    obstacle.touch()
    begun = album.services.imports.begin("album")

    def store() -> None:
        if is_import:
            begun.add(list(enumerate(items)))
        else:
            album.services.catalogue.add_items("album", items)

    with pytest.raises(NotADirectoryError):
        store()
    begun.close()
    assert files_under(pictures) == {obstacle}


def test_a_refused_import_tries_once_to_take_its_pictures_away_without_the_database(
    album: Any, pictures: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("app.services.catalogue.imports._ITEMS_PER_BATCH", 1)
    begun = album.services.imports.begin("album")
    begun.add([(shade, picture(str(shade), shade)) for shade in range(3)])
    stored = files_under(pictures)
    with album.services.database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE items RENAME TO away")
    begun.close()
    assert caplog.text.count("files of deleted items are kept") == 1
    assert files_under(pictures) == stored


class UnclosableSpool(ItemSpool):
    """On a disk that has gone bad."""

    def close(self) -> None:
        super().close()
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_refused_import_is_told_its_reason_whatever_closing_it_says(
    album: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.services.catalogue.imports.ItemSpool", UnclosableSpool)
    path = "/v1/collections/album/items:import"
    with album.client(raise_errors=True) as client:
        assert client.post(path, content='{"modality": "text"}\n').status_code == 422
        good = client.post(path, content='{"modality": "text", "text": "words"}\n')
    assert good.status_code == 201
    assert good.json()["created"] == 1


def test_an_import_that_is_stored_keeps_its_pictures(album: Any, pictures: Path) -> None:
    begun = album.services.imports.begin("album")
    begun.add([(1, picture("p", 1)), (2, picture("q", 2))])
    begun.store()
    begun.close()
    assert len(files_under(pictures)) == 2


def test_items_that_the_database_refuses_leave_no_picture(album: Any, pictures: Path) -> None:
    services = build(album.services.settings.model_copy(update={"lock_wait_seconds": 0.1}))
    services.ownership.status()
    with album.services.database.write() as work:
        work.collections.lock("album")
        with pytest.raises(DatabaseUnavailableError):
            services.catalogue.add_items("album", [picture("p", 1)])
    assert files_under(pictures) == set()
    close(services)


def test_a_deleted_items_picture_goes_unless_another_has_it(album: Any, pictures: Path) -> None:
    items = [picture("p", 1), picture("q", 1), picture("r", 2)]
    album.services.catalogue.add_items("album", items)
    grow_old(pictures)
    assert len(files_under(pictures)) == 2
    album.services.catalogue.delete_item("album", "p")
    assert album.services.catalogue.content("album", "q")[0] == png(1)
    album.services.catalogue.delete_item("album", "r")
    assert len(files_under(pictures)) == 1
    album.services.catalogue.delete_item("album", "q")
    assert files_under(pictures) == set()


def test_a_picture_whose_last_row_goes_while_another_is_being_written_comes_back(
    album: Any, pictures: Path
) -> None:
    services = album.services
    services.catalogue.add_items("album", [picture("p", 1)])
    grow_old(pictures)
    # As a request does whose transaction has not begun.
    content_hash = Blobs(LocalFolder(pictures)).put(png(1))
    services.catalogue.delete_item("album", "p")
    assert files_under(pictures) == set()
    with services.database.write() as work:
        collection = work.collections.lock("album")
        item = Item("q", "image", content_hash=content_hash, content_type="image/png")
        work.items.put(collection, [item], work.collections.next_revision(collection))
    assert services.catalogue.content("album", "q")[0] == png(1)
    assert len(files_under(pictures)) == 1
    services.catalogue.delete_item("album", "q")
    assert files_under(pictures) == set()
    Blobs(LocalFolder(pictures), None, 1e6).touch(content_hash)
    assert len(files_under(pictures)) == 1


def test_a_sweep_takes_what_is_old_and_unused_only(album: Any, pictures: Path) -> None:
    album.services.catalogue.add_items("album", [picture("p", 1)])
    used = files_under(pictures)
    store = Blobs(LocalFolder(pictures))
    store.put(b"refused")
    (pictures / "ab").mkdir(exist_ok=True)
    (pictures / "ab" / ".new-cut-short").write_bytes(b"half")
    assert album.services.garbage_collector.sweep() == 0  # all of it may be somebody's work of this moment
    grow_old(pictures)
    young = pictures / "ab" / ".new-just-now"
    young.write_bytes(b"half")
    assert album.services.garbage_collector.sweep() == 2
    assert files_under(pictures) == used | {young}


def test_an_interrupted_removal_is_undone(album: Any, pictures: Path) -> None:
    album.services.catalogue.add_items("album", [picture("p", 1)])
    (path,) = files_under(pictures)
    path.rename(path.with_name(f".removed-{path.name}-0badcafe"))
    grow_old(pictures)
    with refused("content-missing"):
        album.services.catalogue.content("album", "p")
    album.services.garbage_collector.sweep()
    assert album.services.catalogue.content("album", "p")[0] == png(1)


def test_pictures_stored_beside_sweeps_are_never_lost(album: Any, pictures: Path) -> None:
    # Longer than a write takes; an unused picture comes back when it is about that old.
    services = build(album.services.settings.model_copy(update={"sweep_grace_seconds": 1.0}))
    closing = threading.Event()

    def sweep() -> None:
        while not closing.is_set():
            services.garbage_collector.sweep()
            closing.wait(0.02)

    thread = threading.Thread(target=sweep)
    thread.start()
    try:
        for number in range(12):
            services.catalogue.add_items("album", [picture("p", number % 3)], replace=True)
            time.sleep(0.3)
            assert services.catalogue.content("album", "p")[0] == png(number % 3)
    finally:
        closing.set()
        thread.join()
    close(services)


def test_a_deleted_collections_files_go_and_its_snapshot_lives_on(pairs: Any) -> None:
    pairs.fill("kept")
    pairs.fill("gone")
    models = pairs.services.settings.data_dir / "models"
    for name in ("kept", "gone"):
        pairs.train(name)
    kept = pairs.services.catalogue.collection("kept")[0].id
    snapshot = current(pairs.services.snapshots, "gone")
    kept_before = pairs.ids("kept")
    (models / ".partial-9-v9-cut-short").mkdir()
    grow_old(models)
    pairs.services.catalogue.delete_collection("gone")
    assert {path.name.partition("-")[0] for path in models.iterdir()} == {str(kept), ".partial", TRASH}
    gallery = snapshot.galleries["x"]
    query = gallery.segments[0].segment.index.vectors[0]
    assert len(gallery.search(query[None], 5, 0, ItemFilter())[0]) == 5
    pairs.services.garbage_collector.sweep()
    assert {path.name.partition("-")[0] for path in models.iterdir()} == {str(kept), TRASH}
    fresh = build(pairs.services.settings)
    current(fresh.snapshots, "kept")
    close(fresh)
    assert pairs.ids("kept") == kept_before
