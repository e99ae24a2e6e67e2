"""What commands print with --json are the fields of the routes."""

import io
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from app.answers import Key
from app.bootstrap import build
from app.main import create_app
from app.settings import Settings
from tests.app.e2e.conftest import LrbsInside
from tests.app.e2e.refusals import client_of


def test_commands_answer_as_the_routes_do(
    lrbs_inside: LrbsInside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(*arguments: str) -> list[Any]:
        done = lrbs_inside(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    create = ("collections", "create", "shop", "--modalities", "photo,words", "--image-encoder", "vector")
    (created,) = lines(*create)
    assert list(created["modalities"]) == ["photo", "words"]
    file = tmp_path / "items.ndjson"
    items = [
        {"id": f"t{number}", "modality": "words", "text": f"text {number}", "labels": ["a"], "pair_id": "p"}
        | {"metadata": {"size": number}}
        for number in range(3)
    ]
    file.write_text("\n".join(map(json.dumps, items)))
    (told,) = lines("ingest", "ndjson", str(file), "-c", "shop", "--modalities", "photo,words")
    assert told == {"revision": 1, "created": 3, "updated": 0, "unchanged": 0, "refused": 0, "reasons": []}
    (key,) = lines("keys", "create", "--scope", "admin", "--name", "till", "--expires", "30d")
    assert key.keys() == {field.name for field in fields(Key)}

    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    with client_of(create_app(services), {"Authorization": f"Bearer {key['secret']}"}) as client:
        shop = "/v1/collections/shop"
        (listed_key,) = lines("keys", "list")
        (answered_key,) = client.get("/v1/admin/keys").json()["keys"]
        assert listed_key == {**answered_key, "last_used_at": None}  # listed before its first use
        assert lines("collections", "list") == client.get("/v1/collections").json()["collections"]
        assert lines("collections", "show", "shop") == [client.get(shop).json()]
        assert lines("items", "list", "shop") == client.get(f"{shop}/items").json()["items"]
        assert [item["id"] for item in lines("items", "list", "shop", "--limit", "2")] == ["t0", "t1"]
        assert lines("items", "list", "shop", "--modality", "photo") == []
        filtered = lines("items", "list", "shop", "--label", "a", "--where", "size=2", "--where", "size=3")
        where = {"label": "a", "where": ["size=2", "size=3"]}
        assert [item["id"] for item in filtered] == ["t2"]
        assert filtered == client.get(f"{shop}/items", params=where).json()["items"]
        ranged = lines("items", "list", "shop", "--where", "size>0", "--where", "size!=2")
        assert [item["id"] for item in ranged] == ["t1"]
        assert lines("items", "show", "shop", "t1") == [client.get(f"{shop}/items/t1").json()]
        assert lines("items", "label", "shop", "t1", "b", "c") == [{"ids": ["t1"], "revision": 2}]
        assert client.get(f"{shop}/items/t1").json()["labels"] == ["b", "c"]
        assert lines("items", "delete", "shop", "t0") == [{"ids": ["t0"], "revision": 3}]
        exported = tmp_path / "exported.ndjson"
        lrbs_inside("export", "shop", str(exported), "--where", "size>=1")
        assert exported.read_bytes() == client.get(f"{shop}/items:export").content
        assert lrbs_inside("export", "shop", "-").stdout == exported.read_text()
        assert not Path("-").exists()
        assert lrbs_inside("export", "shop", str(exported)).returncode == 2
        link, pipe = tmp_path / "link", tmp_path / "pipe"  # neither is replaced by a file
        link.symlink_to(exported)
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        for place in (link, pipe):
            assert lrbs_inside("export", "shop", str(place), "--replace").returncode == 0
        assert (link.is_symlink(), os.read(reader, 1 << 16)) == (True, exported.read_bytes())
        os.close(reader)
        lines("ingest", "ndjson", str(exported), "-c", "again", "--modalities", "photo,words")
        kept = ("id", "labels", "pair_id", "metadata", "text")
        originals, copies = (
            [[one[name] for name in kept] for one in lines("items", "list", name)]
            for name in ("shop", "again")
        )
        assert copies == originals
        update = (
            "items",
            "update",
            "shop",
            "--where",
            "size<2",
            "--add-label",
            "small",
            "--set",
            "size=null",
            "--set",
            "maker=NaN",
        )
        (dry,) = lines(*update, "--dry-run")
        assert dry == {"matched": 1, "changed": 1, "ids": ["t1"], "revision": 3}
        assert lines(*update, "--yes") == [dry | {"revision": 4}]
        changed = client.get(f"{shop}/items/t1").json()
        assert (changed["labels"], changed["metadata"]) == (["b", "c", "small"], {"maker": "NaN"})
        for wrong in (("items", "delete", "shop"), ("items", "delete", "shop", "--all", "--json")):
            assert lrbs_inside(*wrong).returncode == 2
        declined = lrbs_inside("items", "delete", "shop", "--label", "small")
        assert (declined.returncode, declined.stdout.strip()) == (1, "1 of 1 items to delete: t1")

        class Meanwhile(io.StringIO):
            def readline(self, size: int | None = -1) -> str:
                client.put(f"{shop}/items/t2/labels", json={"labels": ["small"]})
                return super().readline(-1 if size is None else size)

        monkeypatch.setattr("sys.stdin", Meanwhile("y\nn\n"))
        declined = lrbs_inside("items", "delete", "shop", "--label", "small")
        counts = ["1 of 1 items to delete: t1", "2 of 2 items to delete: t1, t2"]
        shown = [line.strip() for line in declined.stdout.splitlines()]
        assert (declined.returncode, shown[:2]) == (1, counts)
        client.put(f"{shop}/items/t2/labels", json={"labels": ["a"]})
        (deleted,) = lines("items", "delete", "shop", "--label", "small", "--yes")
        assert deleted == {"matched": 1, "changed": 1, "ids": ["t1"], "revision": 7}
        assert client.get(f"{shop}/items/t0").status_code == 404
        assert lines("keys", "revoke", key["id"]) == [{"id": key["id"]}]
        assert client.get("/v1/admin/keys").status_code == 401
    assert lines("db", "upgrade") == [{"schema": "current"}]
    assert lines("db", "adopt") == [{"adopted": True}]
    problems = {(problem["status"], problem["type"]) for problem in lines("reference", "problems")}
    assert (404, "item-not-found") in problems
    settings = {setting["variable"]: setting["default"] for setting in lines("reference", "settings")}
    assert settings["LRBS_PORT"] == 8000
    services.database.engine.dispose()


def test_collections_and_items_in_words(
    lrbs_inside: LrbsInside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lrbs_inside("collections", "create", "shop", "--image-encoder", "vector").stdout
    assert made.startswith("shop  image (vector), text (tfidf)  no model yet  20")
    again = lrbs_inside("collections", "create", "shop")
    assert (again.returncode, "'shop' exists" in again.stderr) == (1, True), again.stderr
    file = tmp_path / "items.ndjson"
    file.write_text(
        json.dumps({"id": "t", "modality": "text", "text": "word " * 20, "labels": ["a"], "train": False})
    )
    assert lrbs_inside("ingest", "ndjson", str(file), "-c", "shop").returncode == 0
    shown = lrbs_inside("items", "show", "shop", "t").stdout
    assert shown == f"t  text  a  {'word ' * 11}word…  not learned from\n"
    assert lrbs_inside("items", "show", "shop", "u").stderr == "error: collection 'shop' has no item 'u'\n"
    assert "1 text (tfidf)" in lrbs_inside("collections", "show", "shop").stdout
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    kept = lrbs_inside("collections", "delete", "shop")
    assert kept.returncode == 1
    assert "Delete 'shop' with 1 text items and all its models?" in kept.stderr
    assert lrbs_inside("collections", "delete", "shop", "--yes").returncode == 0
    assert lrbs_inside("collections", "list").stdout == ""
