import json
import signal
import socket
import sqlite3
import subprocess
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from alembic.command import downgrade
from alembic.config import Config
from alembic.migration import MigrationContext
from PIL import Image
from typer.testing import CliRunner

from app.answers import Hit
from app.bootstrap import build
from app.cli.main import cli
from app.cli.serve import run_server
from app.db.schema import DatabaseSchema
from app.domain.errors import ServiceError
from app.settings import Settings
from tests.app.e2e.conftest import LRBS, ROOT, archive_of_pairs, environment_of, said
from tests.app.e2e.conftest import LrbsInside as Lrbs
from tests.app.waiting import wait_for

COLOURS = {"sky": (60, 120, 230), "grass": (40, 170, 60), "brick": (180, 70, 50)}
WORDS = {"sky": "clouds wind blue", "grass": "meadow lawn green", "brick": "wall house red"}


@pytest.fixture
def lrbs(lrbs_inside: Lrbs) -> Lrbs:
    return lrbs_inside


def fails(done: "subprocess.CompletedProcess[str]", status: int, *words: str) -> None:
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: "), line
    for word in words:
        assert word in line


def make_table(folder: Path) -> Path:
    rng = np.random.default_rng(3)
    lines = ["id,image,text,label,split"]
    for kind, colour in COLOURS.items():
        words = WORDS[kind].split()
        for number in range(10):
            noise = rng.integers(0, 40, (40, 40, 3))
            Image.fromarray((np.array(colour) - 20 + noise).astype(np.uint8)).save(
                folder / f"{kind}{number}.png"
            )
            text = f"{words[number % 3]} {words[(number + 1) % 3]}"
            split = "train" if number < 8 else "test"
            lines.append(f"{kind}{number},{kind}{number}.png,{text},{kind},{split}")
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_backup_of_what_is_not_there_is_refused_and_leaves_nothing(lrbs: Lrbs, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    fails(lrbs("db", "backup", str(copy), LRBS_DATA_DIR=str(tmp_path / "dtaa")), 1, "there is no database")
    elsewhere = f"sqlite:///{tmp_path / 'none.sqlite3'}"
    fails(lrbs("db", "backup", str(copy), LRBS_DATABASE_URL=elsewhere), 1, "there is no database")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lrbs.sqlite3").touch()
    fails(lrbs("db", "backup", str(copy)), 1, "lrbs db upgrade")
    fails(lrbs("db", "backup", str(tmp_path / "typo" / "copy")), 1, "there is no folder")
    fails(lrbs("db", "backup", str(tmp_path / "data" / "copy")), 1, "lies in the data folder")
    fails(lrbs("db", "backup", str(tmp_path)), 1, "name a new one")
    assert not copy.exists()


@pytest.mark.parametrize(
    "command",
    [
        *("search c --text a", "models c", "keys list", "collections list", "items list c", "train c"),
        *("feedback list c", "compare --collection c", "ingest collection c -c d", "worker", "db sweep"),
    ],
)
def test_a_mistyped_folder_is_told_and_not_made(command: str, lrbs: Lrbs, tmp_path: Path) -> None:
    folder = tmp_path / "dtaa"
    done = lrbs(*command.split(), LRBS_DATA_DIR=str(folder))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert all(words in last for words in (str(folder), "there is no database", "LRBS_DATA_DIR")), done.stderr
    assert not folder.exists()


def test_a_mistyped_setting_is_named_with_the_nearest_one(lrbs: Lrbs) -> None:
    done = lrbs("collections", "create", "c", LRBS_PROCESES="3")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: LRBS_PROCESES is not a setting")
    assert "do you mean LRBS_PROCESSES?" in done.stderr
    assert "c " in said(lrbs("collections", "list"))


def test_a_table_is_brought_in_trained_and_searched(lrbs: Lrbs, tmp_path: Path) -> None:
    table = str(make_table(tmp_path))
    encoders = ("--image-encoder", "hog-color+hog-color", "--text-encoder", "tfidf:ngrams=1")
    assert "60 items stored in 'things'" in said(
        lrbs("ingest", "table", table, "-c", "things", "--split-column", "split", *encoders)
    )
    trained = json.loads(said(lrbs("train", "things", "--method", "lrbs", "--json")))
    assert (trained["version"], trained["is_active"]) == (1, True)
    report = trained["report"]
    assert report["data"]["classes"] == sorted(COLOURS)
    assert report["data"]["items"] == {"image": 24, "text": 24}
    assert report["held_out"]["directions"] == {}  # of six items nothing can be said
    assert report["held_out"]["caution"] == "too few items are held out for figures, 6 of image and 6 of text"

    lines = said(lrbs("search", "things", "--text", "meadow green", "-k", "5", "--json")).splitlines()
    hits = [json.loads(line) for line in lines]
    assert [hit["rank"] for hit in hits] == [1, 2, 3, 4, 5]
    assert [hit["labels"] for hit in hits] == [["grass"]] * 5
    assert hits[0].keys() == {field.name for field in fields(Hit)}
    addresses = [f"/v1/collections/things/items/{hit['id']}/content" for hit in hits]
    assert [hit["content_url"] for hit in hits] == addresses
    assert all(isinstance(hit["metadata"], dict) and 0 < hit["probability"] < 1 for hit in hits)
    assert all(hit["id"].startswith("image-grass") for hit in hits)
    plain = said(lrbs("search", "things", "--picture", str(tmp_path / "brick9.png"), "-k", "3"))
    assert len(plain.splitlines()) == 3
    assert all("brick" in line for line in plain.splitlines())
    by_item = said(lrbs("search", "things", "--item", "text-sky1", "-k", "1"))
    assert "image-sky" in by_item
    similar = said(
        lrbs("search", "things", "--item", "text-sky1", "--to", "text", "--label", "sky", "--json")
    )
    assert {json.loads(line)["id"][:8] for line in similar.splitlines()} == {"text-sky"}
    assert lrbs("search", "things").returncode == 2

    brick = str(tmp_path / "brick9.png")
    composed = lrbs("search", "things", "--picture", f"{brick}^-1", "--text", "sky", "--item", "image-sky1^2")
    ids = [line.split()[-1] for line in said(composed).splitlines()]
    assert all(name.startswith("image-sky") for name in ids[:3])
    assert not [name for name in ids if name.startswith("image-brick")]
    assert "image-sky1" not in ids
    of_two = ("--text", "sky", "--item", "image-sky1", "--include-given")
    assert "image-sky1" in said(lrbs("search", "things", *of_two))
    texts = ("--text", "sky", "--text", "grass^-1", "--to", "text")
    of_texts = said(lrbs("search", "things", *texts, "-k", "3"))
    assert "text-sky" in of_texts
    assert "text-grass" not in of_texts
    for wrong, fault in (
        (("--text", "a", "--text", "b^0"), "a weight from -100 to 100"),
        (("--text", "a", "--picture", f"{brick}^101"), "a weight from -100 to 100"),
        (("--text", "a", "--picture", "nothing.png^2"), "'nothing.png' does not exist"),
        (("--text", "a") * 17, "1 to 16"),
        (("--text", "a", "--group-size", "2"), "takes --group-by beside it"),
        (("--text", "a", "--include-given"), "for a query of several parts"),
    ):
        refused = lrbs("search", "things", *wrong)
        assert refused.returncode == 2
        assert fault in " ".join(refused.stderr.replace("│", " ").split())
    refused = lrbs("items", "update", "things", "--all", "--dry-run", "--add-label", "\udcff")
    assert (refused.returncode, refused.stderr) == (2, "error: an argument is no UTF-8: '\\udcff'\n")

    given = ("--alpha", "0.001", "--scaling", "l2", "--reason", "new prices")
    assert "version 2" in said(lrbs("train", "things", *given))
    listed = said(lrbs("models", "things")).splitlines()
    assert [line[:5] for line in listed] == ["*   2", "     ", "    1"]
    assert listed[1].strip() == "new prices"
    said(lrbs("models", "things", "--activate", "1"))
    models = [json.loads(line) for line in said(lrbs("models", "things", "--json")).splitlines()]
    assert [(model["version"], model["is_active"]) for model in models] == [(2, False), (1, True)]
    fit = models[0]["report"]["fit"]
    assert fit["alpha"] == 0.001
    assert fit["history"][-1]["iteration"] == fit["convergence"]["iteration"]
    fails(lrbs("models", "things", "--activate", "2", "--expected", "2"), 1, "version 1 is")
    listed = said(lrbs("models", "things", "--rollback", "--reason", "worse on mobile")).splitlines()
    assert [line.split()[0] for line in listed] == ["*", "new", "1"]
    entries = [
        json.loads(line) for line in said(lrbs("models", "things", "--history", "--json")).splitlines()
    ]
    assert [(entry["version"], entry["previous"]) for entry in entries[:2]] == [(2, 1), (1, 2)]
    assert (entries[0]["by"], entries[0]["reason"]) == ("command line", "worse on mobile")
    assert "version 2 after 1, by command line: worse" in said(lrbs("models", "things", "--history"))
    assert lrbs("models", "things", "--history", "--rollback").returncode == 2
    check_feedback(lrbs, tmp_path / "brick9.png")


def check_feedback(lrbs: Lrbs, picture: Path) -> None:
    give = ("feedback", "give", "things")
    by_text = ("image-grass1", "--relevant", "--text", "a lawn")
    by_picture = ("text-sky1", "--not-relevant", "--picture", str(picture))
    by_item = ("image-sky2", "--not-relevant", "--item", "text-brick1")
    assert said(lrbs(*give, *by_text)) == "feedback 1 stored\n"
    assert json.loads(said(lrbs(*give, *by_picture, "--json"))) == {"ids": [2]}
    said(lrbs(*give, *by_item))
    entries = [json.loads(line) for line in said(lrbs("feedback", "list", "things", "--json")).splitlines()]
    shown = [(entry["source"], entry["target"], entry["item_id"], entry["relevant"]) for entry in entries]
    assert shown == [
        ("text", "image", "image-grass1", True),
        ("image", "text", "text-sky1", False),
        ("text", "image", "image-sky2", False),
    ]
    assert [entry["query"]["form"] for entry in entries] == ["text", "image_base64", "item_id"]
    said(lrbs("feedback", "delete", "things", "2"))
    first, last = said(lrbs("feedback", "list", "things")).splitlines()
    assert first.endswith("relevant      image-grass1  to text 'a lawn'")
    assert last.endswith("not relevant  image-sky2  to text item text-brick1")
    fails(lrbs("feedback", "delete", "things", "2"), 1, "no feedback 2")
    fails(lrbs(*give, "nothing", "--relevant", "--text", "a lawn"), 1, "no item 'nothing'")
    for refused in (("image-sky2", "--text", "a lawn"), ("image-sky2", "--relevant")):
        assert lrbs(*give, *refused).returncode == 2


def test_the_schema_is_upgraded_once_and_a_worker_asks_for_it(
    lrbs: Lrbs, lrbs_process: Lrbs, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    fails(lrbs_process("worker"), 1, "lrbs db upgrade")
    for _ in range(2):
        assert said(lrbs("db", "upgrade")) == "the schema is current\n"
    with sqlite3.connect(tmp_path / "data" / "lrbs.sqlite3") as database:
        database.execute("UPDATE alembic_version SET version_num = 'from-the-future'")
    fails(lrbs("db", "upgrade"), 1, "from-the-future")


@pytest.mark.parametrize(
    "command", ["keys list", "models a", "train a", "search a --text b", "serve", "db adopt"]
)
def test_only_an_upgrade_changes_an_older_schema(command: str, tmp_path: Path) -> None:
    services = build(Settings(data_dir=tmp_path, database_url=""))
    services.schema.set_up()
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with services.database.engine.begin() as connection:
        config.attributes["connection"] = connection
        downgrade(config, "0005")
    environment = {"LRBS_DATA_DIR": str(tmp_path), "LRBS_PORT": "0"}
    refused = CliRunner().invoke(cli, command.split(), env=environment)
    assert isinstance(refused.exception, ServiceError)
    assert refused.exception.code == "schema-outdated"
    assert "lrbs db upgrade" in str(refused.exception)
    with services.database.engine.connect() as connection:
        assert MigrationContext.configure(connection).get_current_revision() == "0005"
    assert CliRunner().invoke(cli, ["db", "upgrade"], env=environment).exit_code == 0
    assert DatabaseSchema(services.database.engine).is_current()
    services.database.engine.dispose()


ENGINE, URL = "LRBS_VECTOR_ENGINE", "LRBS_DATABASE_URL"
BUCKET = "LRBS_STORAGE_URL: has to name a bucket, as in s3://bucket/prefix"


@pytest.mark.parametrize(
    ("arguments", "settings", "status", "words"),
    [
        ("serve", {"LRBS_PORT": "many"}, 2, ["LRBS_PORT", "integer"]),
        ("serve", {"LRBS_PORT": "70000"}, 2, ["LRBS_PORT", "65535"]),
        ("serve", {"LRBS_HOST": "203.0.113.7"}, 1, ["cannot listen", "203.0.113.7"]),
        ("serve", {ENGINE: "foo"}, 2, [f"{ENGINE}: Input should be 'faiss', 'postgresql' or 'milvus'"]),
        ("serve", {ENGINE: "postgresql"}, 2, [f"{ENGINE} is postgresql: {URL} has to be that of PostgreSQL"]),
        (
            "serve",
            {ENGINE: "milvus", "LRBS_MILVUS_URI": "milvus.db"},
            2,
            [f"{ENGINE} is milvus: LRBS_MILVUS_URI has to begin with http:// or https://"],
        ),
        ("serve", {"LRBS_STORAGE_URL": "s3://"}, 2, [BUCKET]),
        ("serve", {"LRBS_STORAGE_URL": "bucket"}, 2, [BUCKET]),
        ("serve", {"LRBS_MILVUS_TOKEN_FILE": "/none"}, 2, ["LRBS_MILVUS_TOKEN_FILE: /none cannot be read"]),
        ("keys list", {URL: "nonsense"}, 2, [URL, "is not a URL"]),
        ("keys list", {URL: "sqlite:////nowhere/at/all.db"}, 1, ["database"]),
        ("keys list", {URL: "mysql://a:secret@b/c"}, 2, [URL, "names mysql"]),
        ("keys list", {"LRBS_DATA_DIR": "/dev/null/data"}, 1, ["/dev/null/data"]),
        ("ingest npz /nowhere.npz -c a", {}, 1, ["/nowhere.npz"]),
        ("ingest wikipedia /nowhere", {}, 1, ["nowhere"]),
        ("ingest table /nowhere.csv -c a", {}, 1, ["/nowhere.csv"]),
    ],
)
def test_what_goes_wrong_is_one_line(
    arguments: str, settings: dict[str, str], status: int, words: list[str], lrbs: Lrbs
) -> None:
    fails(lrbs(*arguments.split(), **settings), status, *words)


def test_what_is_not_in_the_database_is_one_line(lrbs: Lrbs) -> None:
    said(lrbs("db", "upgrade"))
    fails(lrbs("train", "nothing"), 1, "no collection 'nothing'", "; there is none")
    said(lrbs("collections", "create", "boots"))
    fails(lrbs("train", "bots"), 1, "no collection 'bots'", "; did you mean 'boots'?")
    assert lrbs("train", "boots").stderr.startswith("Training on 'boots', which has no items: ")
    fails(lrbs("search", "nothing", "--text", "a"), 1, "no collection 'nothing'")
    fails(lrbs("models", "nothing"), 1, "no collection 'nothing' in the data folder", "LRBS_DATA_DIR")
    fails(lrbs("keys", "revoke", "nothing"), 1, "no key 'nothing'")


def test_a_taken_port_is_said_before_anything_is_drawn(lrbs_process: Lrbs, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        fails(lrbs_process("serve", LRBS_PORT=port), 1, "cannot listen", port)
        began = time.monotonic()
        fails(lrbs_process("demo", "--no-open", LRBS_PORT=port), 1, "cannot listen", port)
        assert time.monotonic() - began < 30
    assert not (tmp_path / "data" / "pictures").exists()


def test_who_is_told_the_address_can_connect(tmp_path: Path) -> None:
    class ToldError(Exception):
        pass

    def connect(url: str) -> None:
        host, port = url.removeprefix("http://").rsplit(":", 1)
        socket.create_connection((host, int(port)), timeout=5).close()
        raise ToldError

    services = build(Settings(data_dir=tmp_path, database_url="", port=0))
    with pytest.raises(ToldError):
        run_server(services, False, connect)
    services.database.engine.dispose()


def test_an_interrupted_training_ends_and_can_be_repeated(lrbs: Lrbs, tmp_path: Path) -> None:
    said(lrbs("ingest", "npz", archive_of_pairs(tmp_path / "pairs.npz"), "-c", "arrays"))
    with subprocess.Popen(
        [*LRBS, "train", "arrays"],
        cwd=ROOT,
        env=environment_of(tmp_path / "data"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        with sqlite3.connect(tmp_path / "data" / "lrbs.sqlite3") as database:
            wait_for(lambda: database.execute("SELECT count(*) FROM jobs").fetchone()[0])
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    with sqlite3.connect(tmp_path / "data" / "lrbs.sqlite3") as database:
        (state,) = database.execute("SELECT state FROM jobs").fetchone()
    assert state in ("cancelled", "succeeded")
    assert json.loads(said(lrbs("train", "arrays", "--json")))["version"] >= 1
