"""A long import outlasts a database that is busy or does not answer for a moment, whatever it just does."""

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from app.bootstrap import Services, build
from app.domain.entities import Content, Item
from app.domain.errors import InvalidFieldError
from app.encoders.registry import ContentLimits, EncoderRegistry
from app.services.catalogue.imports import ImportService, ItemSpool
from app.services.catalogue.preparation import NewItem, Preparation
from app.settings import Settings
from app.storage.folders import LocalFolder
from app.storage.pictures_and_bundles import Blobs
from tests.app.closing import close
from tests.app.integration.conftest import MODALITIES, Pairs
from tests.app.integration.test_busy_database import HELD_SECONDS, LEASE_SECONDS, LOCK_WAIT_SECONDS, locked

SIZE = 1200


class HookedSpool(ItemSpool):
    """Does something when a part of an import is about to be read: the one before is stored by then."""

    def __init__(self, folder: Path, at: int, act: Callable[[], None]) -> None:
        super().__init__(folder)
        self._at, self._act = at, act

    def batches(self, size: int, max_bytes: int | None = None) -> Iterator[list[tuple[int, Item]]]:
        for number, batch in enumerate(super().batches(size, max_bytes)):
            if number == self._at:
                self._act()
            yield batch
        if self._at < 0:
            self._act()


def imported(services: Services, at: int, act: Callable[[], None]) -> tuple[int, int, int]:
    """Import `SIZE` items, do something before part `at` (-1: after the last one), and return the counts."""
    settings = services.settings
    limits = ContentLimits(settings.max_picture_bytes, settings.max_picture_pixels, settings.max_text_chars)
    begun = ImportService(
        services.database,
        Preparation(Blobs(LocalFolder(settings.data_dir / "pictures")), EncoderRegistry(limits)),
        lambda: HookedSpool(settings.data_dir / "imports", at, act),
        services.snapshots.is_searched,
        services.garbage_collector.sweep_after_delete,
        settings.lock_wait_seconds,
        settings.lease_seconds,
    ).begin("big")
    try:
        begun.add([(n, NewItem("x", Content(vector=[1.0, float(n)]), f"i{n:04d}")) for n in range(SIZE)])
        stored = begun.store()
    finally:
        begun.close()
    return stored.created, stored.updated, stored.unchanged


def check_whole(services: Services) -> None:
    assert services.catalogue.collection("big")[1]["x"] == SIZE
    with services.database.engine.connect() as connection:
        assert connection.scalar(sqlalchemy.text("SELECT count(*) FROM imports")) == 0


@pytest.mark.parametrize("at", [0, 2, -1], ids=["its beginning", "a part", "its publication"])
def test_an_import_outlasts_a_lock_held_for_longer_than_its_lease(either: Any, at: int) -> None:
    short = {"lease_seconds": LEASE_SECONDS, "lock_wait_seconds": LOCK_WAIT_SECONDS}
    hurried = build(either.services.settings.model_copy(update=short))
    hurried.catalogue.create("big", MODALITIES)
    release = threading.Timer(HELD_SECONDS, lambda: holding.__exit__(None, None, None))
    holding = locked(hurried, "collections, imports, items")

    def hold() -> None:
        holding.__enter__()
        release.start()

    assert imported(hurried, at, hold) == (SIZE, 0, 0)
    release.join()
    check_whole(hurried)
    close(hurried)


class CuttingRelay:
    """Stands before PostgreSQL and cuts one connection, at the commit that follows certain words.
    With `is_passed_on` the server still gets the commit, and only its answer is lost."""

    def __init__(self, server: tuple[str, int], words: bytes, is_passed_on: bool) -> None:
        self._server, self._words, self._is_passed_on = server, words, is_passed_on
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        asked = b""
        with contextlib.suppress(OSError), client, socket.create_connection(self._server) as server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    if source is server:
                        client.sendall(data)
                        continue
                    asked = (asked + data)[-100_000:]
                    if not self.cuts and b"COMMIT" in asked.partition(self._words)[2]:
                        self.cuts += 1
                        if self._is_passed_on:
                            server.sendall(data)
                            server.recv(65536)  # it is done by then
                        return
                    server.sendall(data)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.mark.postgres
@pytest.mark.parametrize("is_passed_on", [True, False], ids=["the answer is lost", "the commit is lost"])
@pytest.mark.parametrize(
    "words",
    [b"INSERT INTO imports", b"COPY items", b"UPDATE collections SET revision"],
    ids=["its beginning", "a part", "publication"],
)
def test_an_import_outlasts_a_lost_connection(
    migrated_postgres_url: str, tmp_path: Path, words: bytes, is_passed_on: bool
) -> None:
    found = sqlalchemy.make_url(migrated_postgres_url)
    relay = CuttingRelay((found.host or "127.0.0.1", found.port or 5432), words, is_passed_on)
    url = found.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
    services = build(Settings(data_dir=tmp_path, database_url=url))
    services.catalogue.create("big", MODALITIES)
    assert imported(services, 0, lambda: None) == (SIZE, 0, 0)
    assert relay.cuts == 1
    check_whole(services)
    close(services)
    relay.close()


def test_an_import_whose_vectors_no_longer_fit_names_the_line_of_the_first(pairs: Pairs) -> None:
    pairs.make("a")
    begun = pairs.services.imports.begin("a")
    try:
        begun.add([(3, pairs.item("x", "x0", [1.0, 2.0])), (7, pairs.item("z", "z0", [1.0]))])
        pairs.services.catalogue.add_items("a", [pairs.item("x", "other", [1.0, 2.0, 3.0])])
        with pytest.raises(InvalidFieldError) as refusal:
            begun.store()
    finally:
        begun.close()
    assert refusal.value.line == 3
