"""A disk that is full, as `/dev/full` plays it: it takes no byte."""

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from app.domain.entities import Item
from app.services.catalogue.imports import ItemSpool
from tests.app.e2e.refusals import check_problem

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


def lines(count: int) -> str:
    items = [{"id": f"n{n}", "modality": "x", "vector": [float(n)] * 8} for n in range(count)]
    return "".join(json.dumps(item) + "\n" for item in items)


def test_an_import_that_finds_no_space_says_so_and_stores_nothing(
    pairs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs.fill("a")
    client = pairs.client()
    before = client.get("/v1/collections/a").json()
    path = "/v1/collections/a/items:import"
    with monkeypatch.context() as patch:
        patch.setattr(
            "app.services.catalogue.imports.tempfile.SpooledTemporaryFile", lambda **_: FULL.open("r+b")
        )
        for count in (5, 2000):  # what a buffer takes, and more
            problem = check_problem(client.post(path, content=lines(count)), 507, "no space is left")
            assert problem["type"] == "/problems/storage-full"
    assert client.get("/v1/collections/a").json() == before
    assert client.post(path, content=lines(5)).status_code == 201


def test_ids_that_find_no_space_are_a_full_disk_too(tmp_path: Path) -> None:
    spool = ItemSpool(tmp_path)
    spool._ids.execute("PRAGMA max_page_count = 2")
    with pytest.raises(OSError, match="No space left") as raised:
        spool.add([(n, Item(f"a long id of an item {n}", "x")) for n in range(5000)])
    assert raised.value.errno == errno.ENOSPC
    spool.close()


def test_other_errors_of_the_system_are_internal(pairs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs.make("a")

    def fail(**_: Any) -> Any:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr("app.services.catalogue.imports.tempfile.SpooledTemporaryFile", fail)
    answer = pairs.client().post("/v1/collections/a/items:import", content=lines(1))
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/internal"
