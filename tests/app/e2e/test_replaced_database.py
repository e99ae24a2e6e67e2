"""The file of a database is replaced while two processes serve it and a worker waits."""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.bootstrap import build
from app.domain.names import Scope
from app.settings import DATABASE_FILE, Settings
from solver.datasets import make_low_rank_pairs
from tests.app.e2e.conftest import Server
from tests.app.integration.conftest import Pairs

NOTICED_SECONDS = 3.0
"""A second, and what a busy machine adds."""
SUFFIXES = ("", "-wal", "-shm")


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """Store a trained collection; return a key."""
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    services.schema.set_up()
    vectors = make_low_rank_pairs(30, 30, n_features_x=4, n_features_z=4, n_classes=3, random_state=3)
    pairs = Pairs(services, vectors)
    pairs.fill("a")
    pairs.train("a")
    _, made = services.access.create(Scope.ADMIN)
    services.database.engine.dispose()
    return made


class Service:
    """Asks a server over new connections, which any of its processes takes."""

    def __init__(self, server: Server, secret: str) -> None:
        self._url = server.url
        self._headers = {"Authorization": f"Bearer {secret}"}

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return httpx.request(
            method, f"{self._url}{path}", headers=self._headers, trust_env=False, verify=False, **options
        )

    def add(self, item_id: str) -> int:
        vector = np.random.default_rng(len(item_id)).normal(size=4).tolist()
        item = {"id": item_id, "modality": "x", "vector": vector, "labels": ["0"]}
        return self.ask("POST", "/v1/collections/a/items", json={"items": [item]}).status_code

    def found(self) -> set[str]:
        """Return what searches find, which must be what the database holds, in every process."""
        answers = set()
        for _ in range(6):
            body = {"vector": [1.0, 0.5, 0.0, 1.0], "k": 100}
            hits = self.ask("POST", "/v1/collections/a/search/z-to-x", json=body).raise_for_status().json()
            listed = (
                self.ask("GET", "/v1/collections/a/items?limit=1000&modality=x").raise_for_status().json()
            )
            answers |= {frozenset(hit["id"] for hit in hits["hits"])}
            answers |= {frozenset(item["id"] for item in listed["items"])}
        (found,) = answers
        return set(found)


def copy_of(file: Path, folder: Path) -> Path:
    """Return a copy as `lrbs db backup` makes one."""
    folder.mkdir()
    with sqlite3.connect(file) as original, sqlite3.connect(folder / DATABASE_FILE) as copy:
        original.backup(copy)
    copy.close()
    original.close()
    return folder / DATABASE_FILE


def test_an_older_copy_in_its_place_is_served_within_a_second(
    start_server: Callable[..., Server], secret: str, tmp_path: Path
) -> None:
    service = Service(start_server("--processes", "2"), secret)
    file = tmp_path / "data" / DATABASE_FILE
    expected = service.found()

    def move(copy: Path) -> None:
        copy.rename(file)

    def move_without_log(copy: Path) -> None:
        copy.rename(file)
        for suffix in SUFFIXES[1:]:
            file.with_name(file.name + suffix).unlink(missing_ok=True)

    def overwrite(copy: Path) -> None:
        shutil.copyfile(copy, file)

    def overwrite_without_log(copy: Path) -> None:
        shutil.copyfile(copy, file)
        for suffix in SUFFIXES[1:]:
            file.with_name(file.name + suffix).unlink(missing_ok=True)

    for replace in (move, overwrite, move_without_log, overwrite_without_log):
        name = replace.__name__
        copy = copy_of(file, tmp_path / name)
        # As many revisions later as will be written again: their numbers come back with other items.
        assert [service.add(f"{name}-lost-{number}") for number in range(3)] == [201] * 3
        assert len(service.found()) == len(expected) + 3
        replace(copy)
        time.sleep(NOTICED_SECONDS)
        assert service.found() == expected, name
        assert [service.add(f"{name}-kept-{number}") for number in range(3)] == [201] * 3
        expected |= {f"{name}-kept-{number}" for number in range(3)}
        assert service.found() == expected, name
        assert service.ask("GET", "/readyz").status_code == 200
    os.utime(file)  # is no other file
    assert service.found() == expected


def test_another_installation_in_its_place_and_none_at_all_are_refused_with_the_reason(
    start_server: Callable[..., Server], secret: str, tmp_path: Path, copy_migrated: Callable[[Path], None]
) -> None:
    service = Service(start_server("--processes", "2"), secret)
    file = tmp_path / "data" / DATABASE_FILE
    expected = service.found()
    copy = copy_of(file, tmp_path / "copy")
    copy_migrated(tmp_path / "other")
    with sqlite3.connect(copy) as other:
        other.execute("UPDATE installation SET identity = 'another'")
    other.close()
    own = file.rename(tmp_path / "own")
    reasons = {"the database file is not at its place": None, "belong to another database": copy}
    for reason, replacement in reasons.items():
        if replacement is not None:
            replacement.rename(file)
        time.sleep(NOTICED_SECONDS)
        for _ in range(4):
            asked = [
                service.ask("POST", "/v1/collections/a/search/z-to-x", json={"vector": [1.0, 0.5, 0.0, 1.0]}),
                service.ask("GET", "/v1/collections/a/items"),
                service.ask("DELETE", "/v1/collections/a/items/x0"),
            ]
            assert {answer.status_code for answer in asked} == {503}, reason
            assert service.ask("GET", "/readyz").status_code == 503
            assert [answer.text for answer in asked if reason not in answer.text] == [], reason
    own.rename(file)
    time.sleep(NOTICED_SECONDS)
    assert service.found() == expected


def test_a_damaged_file_is_refused_by_every_process_until_a_whole_one_is_in_its_place(
    start_server: Callable[..., Server], secret: str, tmp_path: Path
) -> None:
    service = Service(start_server("--processes", "2"), secret)
    file = tmp_path / "data" / DATABASE_FILE
    expected = service.found()
    copy = copy_of(file, tmp_path / "copy")

    def cut() -> None:
        os.truncate(file, 3 * 4096)

    def overwrite() -> None:
        file.write_bytes(b"no database" * 10_000)

    for damage in (cut, overwrite):
        damage()
        time.sleep(NOTICED_SECONDS)
        for _ in range(4):
            asked = [
                service.ask("POST", "/v1/collections/a/search/z-to-x", json={"vector": [1.0, 0.5, 0.0, 1.0]}),
                service.ask("GET", "/v1/collections/a/items"),
                service.ask("GET", "/readyz"),
            ]
            assert [answer.status_code for answer in asked] == [503] * 3, damage
            assert all("the database file is damaged" in answer.text for answer in asked)
        shutil.copyfile(copy, file)
        time.sleep(NOTICED_SECONDS)
        assert service.found() == expected, damage
        assert service.ask("GET", "/readyz").status_code == 200
