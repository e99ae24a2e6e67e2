"""Galleries on disk: used when the database knows them and they are whole, and never otherwise."""

import logging
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap import build
from app.services.serving.saved_galleries import SavedGalleries
from app.services.storage.pacing import no_pause
from tests.app.closing import close
from tests.app.integration.conftest import EITHER, Pairs, copy_services, kept_trained
from tests.app.integration.loading import current, saved_galleries


@pytest.fixture(params=EITHER)
def saving(request: pytest.FixtureRequest, tmp_path: Path, vectors: Any) -> Iterator[Pairs]:
    """Return services that save galleries after ten changes, over a trained collection of 60 and 50."""
    with copy_services(kept_trained(request), tmp_path, save_after_items=10) as services:
        yield Pairs(services, vectors)


FILES_ALONE = pytest.mark.parametrize("saving", ["sqlite"], indirect=True)
"""For what depends on files, whichever database names them."""


def write(saving: Pairs, *numbers: int, name: str = "a") -> None:
    items = [saving.item("x", f"new{n:02d}", saving.data.X[n], "new", metadata={"n": n}) for n in numbers]
    saving.services.catalogue.add_items(name, items, replace=True)


def save(saving: Pairs) -> Path:
    """Write enough to be saved, wait for it, and return the folder."""
    write(saving, *range(15))
    saving.services.catalogue.delete_item("a", "x03")
    saving.ids("a")
    wait()
    (folder,) = folders(saving)
    return folder


def wait() -> None:
    for thread in threading.enumerate():
        if thread.name == "save-galleries":
            thread.join()


def folders(saving: Pairs) -> list[Path]:
    return sorted((saving.services.settings.data_dir / "galleries").glob("[!.]*"))


def started(saving: Pairs) -> tuple[list[tuple[str, float]], bool]:
    """Return what a new process answers, and whether it used what was saved."""
    # It saves nothing itself.
    fresh = build(saving.services.settings.model_copy(update={"save_after_items": 10**9}))
    used: list[bool] = []
    load = SavedGalleries.load

    def watched(self: SavedGalleries, *arguments: Any) -> Any:
        galleries = load(self, *arguments)
        used.append(galleries is not None)
        return galleries

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SavedGalleries, "load", watched)
        result = Pairs(fresh, saving.data).search("a")
    close(fresh)
    assert len(used) == 1
    return [(hit.id, hit.score) for hit in result.hits], used[0]


def answer(saving: Pairs) -> list[tuple[str, float]]:
    return [(hit.id, hit.score) for hit in saving.search("a").hits]


def check_same(hits: list[tuple[str, float]], expected: list[tuple[str, float]]) -> None:
    assert [item_id for item_id, _ in hits] == [item_id for item_id, _ in expected]
    scores = [[score for _, score in results] for results in (hits, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-6)


def test_a_start_uses_what_is_saved_and_replays_what_came_later(saving: Pairs) -> None:
    save(saving)
    check_same(started(saving)[0], answer(saving))
    write(saving, 16, 2)
    saving.services.catalogue.delete_item("a", "new05")
    saving.services.catalogue.delete_item("a", "x07")
    hits, is_used = started(saving)
    assert is_used
    check_same(hits, answer(saving))
    assert {"new16", "new02"} <= {item_id for item_id, _ in hits}
    assert not {"new05", "x07", "x03"} & {item_id for item_id, _ in hits}


@FILES_ALONE
def test_what_is_missing_or_damaged_is_read_from_the_database(saving: Pairs) -> None:
    folder, expected = save(saving), answer(saving)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        for damaged in (b"", content[:-1], flipped, None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            hits, is_used = started(saving)
            assert not is_used
            check_same(hits, expected)
        path.write_bytes(content)
    assert started(saving)[1]
    folder.rename(folder.with_name("elsewhere"))
    hits, is_used = started(saving)
    assert not is_used
    check_same(hits, expected)


@FILES_ALONE
def test_one_that_is_removed_while_it_is_read_is_not_used(saving: Pairs) -> None:
    folder = save(saving)
    galleries = saved_galleries(saving.services)
    with saving.services.database.read() as work:
        collection = work.collections.get("a")
        version = work.models.get(collection, collection.active_version)
        assert galleries.load(work, collection, version, no_pause) is not None
        assert galleries.load(work, collection, version, lambda: shutil.rmtree(folder)) is None


@FILES_ALONE
def test_damage_is_a_warning_and_absence_is_not(saving: Pairs, caplog: pytest.LogCaptureFixture) -> None:
    folder = save(saving)
    caplog.set_level(logging.INFO, "app.services.serving")
    (folder / "x.npy").unlink()
    started(saving)
    assert [record.levelname for record in caplog.records if "gallery" in record.message] == ["WARNING"]
    caplog.clear()
    folder.rename(folder.with_name("elsewhere"))
    started(saving)
    assert [record.levelname for record in caplog.records if "gallery" in record.message] == ["INFO"]


def test_what_another_version_or_an_older_database_saved_is_not_used(saving: Pairs) -> None:
    save(saving)
    version = saving.train("a")
    saving.services.versions.activate("a", version, "a test", None, None)  # whatever it is judged to be
    hits, is_used = started(saving)
    assert not is_used
    check_same(hits, answer(saving))
    # As after a restore of a copy that was made before: what was saved later is not known.
    write(saving, *range(20, 52))
    saving.ids("a")
    wait()
    assert started(saving)[1]
    with saving.services.database.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM saved_galleries")
    assert not started(saving)[1]


@FILES_ALONE
def test_a_damaged_one_is_replaced(saving: Pairs) -> None:
    folder, expected = save(saving), answer(saving)
    (folder / "x.npy").write_bytes(b"")
    fresh = build(saving.services.settings)
    check_same(answer(Pairs(fresh, saving.data)), expected)
    wait()
    close(fresh)
    assert folder not in folders(saving)
    hits, is_used = started(saving)
    assert is_used
    check_same(hits, expected)


@FILES_ALONE
def test_a_later_one_takes_the_place_of_an_earlier_one(saving: Pairs) -> None:
    first = save(saving)
    write(saving, *range(20, 40))
    saving.ids("a")
    wait()
    (second,) = folders(saving)
    assert second != first
    hits, is_used = started(saving)
    assert is_used
    check_same(hits, answer(saving))


@FILES_ALONE
def test_a_few_changes_are_not_worth_it(saving: Pairs) -> None:
    folder = save(saving)
    write(saving, 20, 21)
    saving.ids("a")
    wait()
    assert folders(saving) == [folder]


@FILES_ALONE
def test_the_first_start_of_a_version_saves_what_it_read(saving: Pairs) -> None:
    expected = answer(saving)
    wait()
    assert len(folders(saving)) == 1
    hits, is_used = started(saving)
    assert is_used
    check_same(hits, expected)


def test_nothing_is_saved_for_a_collection_that_is_gone(saving: Pairs) -> None:
    snapshot = current(saving.services.snapshots, "a")
    wait()
    for folder in folders(saving):
        shutil.rmtree(folder)
    saving.services.catalogue.delete_collection("a")
    fresh = build(saving.services.settings)
    saved = saved_galleries(fresh)
    saved.save(snapshot, no_pause)
    wait()
    assert folders(saving) == []
    close(fresh)
