"""Feedback through the service: what is stored of a query, and what becomes of it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap import Services, build
from app.domain.entities import Content, Feedback
from app.domain.errors import InvalidFieldError, NotFoundError
from app.services.catalogue.service import FeedbackService, NewFeedback, NewItem
from app.settings import Settings
from tests.app.closing import close
from tests.app.e2e.refusals import png
from tests.app.integration.test_ownership import ALBUM
from tests.app.refused import refused

RED, GREEN = png(20, 20), png(21, 21)


def about(item_id: str = "picture", **facts: Any) -> NewFeedback:
    """Return feedback that a picture answers a text."""
    given = {"content": Content(text="a red square"), **facts}
    return NewFeedback("text", "image", item_id, is_relevant=True, **given)


def asked_by(picture: bytes, item_id: str = "text") -> NewFeedback:
    return NewFeedback("image", "text", item_id, is_relevant=False, content=Content(picture=picture))


def stored(services: Services, name: str = "album") -> list[Feedback]:
    with services.database.read() as work:
        return list(work.feedback.all(work.collections.get(name)))


def pictures(services: Services) -> set[str]:
    return set(services.feedback._preparation.blobs.names())


def fill(services: Services) -> None:
    services.catalogue.create("album", ALBUM)
    items = [
        NewItem("image", Content(picture=RED), "picture"),
        NewItem("text", Content(text="a red square"), "text"),
        NewItem("text", Content(text="a green square"), "other"),
    ]
    services.catalogue.add_items("album", items)


@pytest.fixture
def album(pairs: Any) -> Services:
    """Services over SQLite: what the databases do is in ports/test_feedback."""
    services: Services = pairs.services
    services.settings.sweep_grace_seconds = 0.0
    fill(services)
    return services


def test_a_query_is_stored_as_an_item_would_be(album: Services) -> None:
    revision = album.catalogue.collection("album")[0].revision
    ids = album.feedback.add(
        "album", [about(), asked_by(GREEN), about(content=None, query_item_id="other"), about()]
    )
    text, picture, item, again = stored(album)
    assert tuple(entry.id for entry in (text, picture, item, again)) == ids
    assert text.query is not None
    assert (text.query.text, text.query.features) == ("a red square", None), "the next model encodes it"
    assert picture.query is not None
    assert picture.query.content_hash is not None
    assert album.catalogue._preparation.blobs.get(picture.query.content_hash) == GREEN
    assert picture.query.content_type == "image/png"
    album.catalogue.add_items("album", [NewItem("image", Content(picture=GREEN), "green")])
    with album.database.read() as work:
        same = work.items.get(work.collections.get("album"), "green")
    np.testing.assert_array_equal(picture.query.features, same.features)
    assert (item.query, item.query_item_id) == (None, "other")
    similar = NewFeedback("text", "text", "text", is_relevant=True, query_item_id="other")
    album.feedback.add("album", [similar])
    assert [(entry.source, entry.target) for entry in stored(album)][-1] == ("text", "text")
    assert album.catalogue.collection("album")[0].revision == revision + 1, "of the item alone"


def test_pictures_stay_as_long_as_feedback_has_them(album: Services) -> None:
    before = pictures(album)
    first, second = album.feedback.add("album", [asked_by(GREEN), asked_by(GREEN, "other")])
    (added,) = pictures(album) - before
    assert album.garbage_collector.sweep() == 0
    album.feedback.delete("album", first)
    assert added in pictures(album)
    album.feedback.delete("album", second)
    assert pictures(album) == before
    album.feedback.add("album", [asked_by(GREEN)])
    album.catalogue.delete_item("album", "text")
    assert pictures(album) == before, "the item's feedback went with it"
    album.feedback.add("album", [asked_by(GREEN, "other")])
    album.catalogue.delete_collection("album")
    assert pictures(album) == set()


def test_feedback_goes_with_an_item_for_good(album: Services) -> None:
    album.feedback.add("album", [about(), about(content=None, query_item_id="other"), asked_by(RED)])
    album.catalogue.delete_item("album", "other")
    assert [entry.source for entry in stored(album)] == ["text", "image"]
    album.catalogue.delete_item("album", "picture")
    album.catalogue.add_items("album", [NewItem("image", Content(picture=GREEN), "picture")])
    assert [entry.source for entry in stored(album)] == ["image"], "another item may get the id"


def test_a_collection_keeps_the_newest(album: Services) -> None:
    parts = album.catalogue
    service = FeedbackService(album.database, parts._preparation, album.garbage_collector, 3, 1 << 20)
    before = pictures(album)
    service.add("album", [asked_by(GREEN), about()])
    assert pictures(album) != before
    ids = service.add("album", [about(), about()])
    assert [entry.id for entry in stored(album)][1:] == list(ids)
    assert len(stored(album)) == 3
    assert pictures(album) == before


def test_what_is_refused_leaves_nothing(album: Services) -> None:
    before = pictures(album)
    for bad, code, place in (
        (about("nothing"), "item-not-found", r"feedback\.1\.item_id"),
        (about("text"), "invalid-field", r"feedback\.1\.item_id: item 'text' is of modality 'text'"),
        (about(content=Content(vector=[1.0])), "invalid-field", r"feedback\.1\.query\.vector"),
        (about(content=None, query_item_id="picture"), "invalid-field", r"feedback\.1\.query\.item_id"),
        (about("a\x00"), "invalid-field", r"feedback\.1\.item_id"),
    ):
        with_place = NewFeedback(
            *(bad.source, bad.target, bad.item_id, True, bad.content, bad.query_item_id, "feedback.1")
        )
        with refused(code, match=place):
            album.feedback.add("album", [asked_by(GREEN), with_place])
    assert stored(album) == []
    assert pictures(album) == before


def test_pages_end_before_they_are_too_large(album: Services) -> None:
    parts = album.catalogue
    service = FeedbackService(album.database, parts._preparation, album.garbage_collector, 100, 30)
    ids = service.add("album", [about(), about(), about()])
    pages, after = [], 0
    while True:
        feedback, is_last = service.page("album", after, 100)
        pages.append([entry.id for entry in feedback])
        if is_last:
            break
        after = feedback[-1].id
    assert pages == [list(ids[:2]), list(ids[2:])]


def test_the_first_vector_decides_the_dimension(pairs: Any) -> None:
    services = pairs.services
    pairs.make("fresh")
    services.catalogue.add_items("fresh", [pairs.item("z", "i", [1.0])])
    query = NewFeedback("x", "z", "i", True, Content(vector=[1.0, 2.0]), place="feedback.0")
    services.feedback.add("fresh", [query])
    with pytest.raises(InvalidFieldError, match="has 3 numbers, expected 2"):
        services.catalogue.add_items("fresh", [pairs.item("x", "j", [1.0, 2.0, 3.0])])
    (entry,) = stored(services, "fresh")
    assert entry.query is not None
    np.testing.assert_array_equal(entry.query.features, np.array([1.0, 2.0], np.float32))


def test_feedback_and_a_deletion_at_the_same_time_leave_none_without_its_item(either: Any) -> None:
    album, barrier = either.services, threading.Barrier(2)
    fill(album)

    def give() -> None:
        barrier.wait()
        for _ in range(5):
            try:
                album.feedback.add("album", [about()])
            except NotFoundError:
                return

    with ThreadPoolExecutor(1) as pool:
        giving = pool.submit(give)
        barrier.wait()
        album.catalogue.delete_item("album", "picture")
        giving.result(timeout=60)
    assert stored(album) == []


def test_a_backup_has_the_feedback_and_its_pictures(
    services: Services, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fill(services)
    services.feedback.add("album", [asked_by(GREEN), about()])
    folder: Path = tmp_path_factory.mktemp("backups") / "monday"
    services.backup.make(folder)
    restored = build(Settings(data_dir=folder, database_url="", sweep_grace_seconds=0.0))
    assert [entry.id for entry in stored(restored)] == [entry.id for entry in stored(services)]
    assert restored.garbage_collector.sweep() == 0
    query = stored(restored)[0].query
    assert query is not None
    assert restored.catalogue._preparation.blobs.get(query.content_hash or "") == GREEN
    close(restored)
