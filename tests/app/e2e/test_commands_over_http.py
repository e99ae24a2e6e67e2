"""The short commands on a running service, by --url, say what they say on its database."""

import json
import os
import re
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.cli.failures import Failure, describe_failure
from app.client import Client, UnavailableError
from tests.app.e2e.conftest import ROOT, LrbsInside, said
from tests.app.e2e.refusals import png

HEAVY = ("numpy", "scipy", "sqlalchemy", "faiss", "PIL", "fastapi", "solver", "app.bootstrap")
NAME = "afar"
_SEARCH = ("search", "sample", "--text", "a cat", "-k", "4")
READING = [
    ("collections", "list"),
    ("collections", "show", "sample"),
    ("items", "list", "sample", "--modality", "text", "--label", "cats", "--where", "split=test"),
    ("items", "list", "sample", "--limit", "3"),
    ("items", "list", "sample", "--pair", "cats-000"),
    ("items", "show", "sample", "image-cats-000"),
    ("search", "sample", "--text", "a cat xyzzy", "-k", "4", "--where", "split=train"),
    ("search", "sample", "--item", "image-cats-000", "--label", "cats"),
    ("search", "sample", "--item", "image-cats-000", "--to", "image"),
    ("search", "sample", "--item", "image-cats-000", "--text", "at night^2", "--text", "rain^-0.5"),
    (*_SEARCH, "--explain", "--min-probability", "0", "--group-by", "label", "--group-size", "2"),
    (*_SEARCH, "--diversity", ".5", "--emphasis", "label=2", "--emphasis", "words=.5"),
    (*_SEARCH, "--item", "image-cats-000", "--explain", "--group-by", "label", "--include-given"),
    ("models", "sample"),
    ("models", "sample", "--history"),
]
"""Commands that change nothing; with --json each is called, too."""
REFUSED = [
    (("items", "show", "sample", "nothing"), 1),
    (("models", "sample", "--activate", "1", "--expected", "7"), 1),
    (("models", "sample", "--activate", "9"), 1),
    (("search", "sample", "--sound", "picture"), 1),
    (("search", "sample", "--text", "a", "--to", "sound"), 1),
    (("search", "sample", "--text", "a", "--item", "nothing"), 1),
    (("feedback", "delete", "sample", "9"), 1),
    (("keys", "revoke", "nothing"), 1),
    (("collections", "create", "sample"), 1),
    (("collections", "create", "x", "--text-encoder", "{type: tfidf}"), 1),
    (("search", "sample"), 2),
    ((*_SEARCH, "--emphasis", "nothing=2"), 1),
    ((*_SEARCH, "--emphasis", "label=-1"), 2),
    ((*_SEARCH, "--text", "rain^-.0"), 2),
    (("items", "list", "sample", "--where", "split"), 2),
]


@pytest.fixture
def here(lrbs_inside: LrbsInside, demo_folder: Path) -> LrbsInside:
    """Run a command on the database of the demo."""
    return lambda *arguments: lrbs_inside(*arguments, LRBS_DATA_DIR=str(demo_folder))


@pytest.fixture
def there(lrbs_inside: LrbsInside, demo_server: str, demo_key: str) -> LrbsInside:
    """Run a command on the demo over HTTP; nothing of it is in the folder of this test."""
    return lambda *arguments: lrbs_inside(*arguments, "--url", demo_server, "--key", demo_key)


def test_what_is_read_over_http_is_what_is_read_from_the_database(
    here: LrbsInside, there: LrbsInside, tmp_path: Path
) -> None:
    picture = tmp_path / "picture.png"
    picture.write_bytes(png(64, 64))
    by_picture = ("search", "sample", "--picture", str(picture), "-k", "3")
    for command in [*READING, by_picture]:
        at_home, afar = here(*command), there(*command)
        assert said(at_home).splitlines(), command
        assert (afar.stdout, afar.stderr) == (at_home.stdout, at_home.stderr), command
        as_json = said(there(*command, "--json")).splitlines()
        at_home_as_json = said(here(*command, "--json")).splitlines()
        assert list(map(json.loads, as_json)) == list(map(json.loads, at_home_as_json)), command
    for command, status in REFUSED:
        arguments = [str(picture) if word == "picture" else word for word in command]
        at_home, afar = here(*arguments), there(*arguments)
        assert (afar.returncode, afar.stdout) == (at_home.returncode, "") == (status, ""), command
        # Of a field of the request it also says the name.
        assert at_home.stderr.removeprefix("error: ") in afar.stderr, command
    lines = here(*_SEARCH, "--explain").stdout.splitlines()
    assert len(lines) == 8
    assert all(re.search(r"^     .*label \d\.\d{3} \(cats\)", line) for line in lines[1::2])
    for name, words in (("nothing", "; there are: "), ("sampel", "; did you mean 'sample'?\n")):
        for missing in (there("items", "list", name), here("items", "list", name)):
            assert missing.returncode == 1
            assert missing.stderr.startswith(f"error: there is no collection '{name}'")
            assert words in missing.stderr
    assert not (tmp_path / "data").exists()


def test_what_is_written_over_http_is_in_the_database(
    here: LrbsInside, there: LrbsInside, demo_server: str, demo_key: str, tmp_path: Path
) -> None:
    made = said(there("collections", "create", NAME, "--text-encoder", "tfidf:characters=0", "--json"))
    assert json.loads(made)["modalities"]["text"]["encoder"] == {"type": "tfidf", "characters": 0}
    picture = tmp_path / "picture.png"
    picture.write_bytes(png())
    with Client(demo_server, demo_key) as client:
        client.create_items(
            NAME,
            [
                {"id": "p", "modality": "image", "picture": picture},
                {"id": "t", "modality": "text", "text": "größer " * 20},
            ],
        )
    assert json.loads(said(there("items", "label", NAME, "t", "a", "b", "--json")))["ids"] == ["t"]
    shown = said(here("items", "show", NAME, "t"))
    assert shown.startswith("t  text  a, b  größer größer")
    assert said(there("items", "show", NAME, "t")) == shown
    give = ("feedback", "give", NAME)
    assert said(there(*give, "p", "--relevant", "--text", "a red square")).startswith("feedback ")
    assert said(there(*give, "t", "--not-relevant", "--picture", str(picture), "--json")).startswith(
        '{"ids":'
    )
    said(there(*give, "p", "--not-relevant", "--item", "t"))
    judged = said(there("feedback", "list", NAME))
    assert judged.splitlines()[0].split()[3:] == ["relevant", "p", "to", "text", "'a", "red", "square'"]
    assert said(here("feedback", "list", NAME)) == judged
    entries = said(here("feedback", "list", NAME, "--json"))
    assert said(there("feedback", "list", NAME, "--json")) == entries
    said(there("feedback", "delete", NAME, str(json.loads(entries.splitlines()[0])["id"])))
    assert said(here("feedback", "list", NAME)).splitlines() == judged.splitlines()[1:]
    retrain = ("collections", "retraining", NAME)
    limits = ("--changed-items", "1234567", "--hours", "24", "--quiet-hours", "22-6")
    limits_in_words = "1234567 changed items or 24 hours with changes, from 22:00 to 6:00 UTC"
    assert said(there(*retrain, *limits)) == f"{NAME} is trained by itself after {limits_in_words}\n"
    assert said(here(*retrain, *limits))
    assert json.loads(said(there("collections", "show", NAME, "--json")))["retraining"]["hours"] == 24.0
    assert said(here("collections", "show", NAME)).splitlines()[1].endswith(limits_in_words)
    assert said(here(*retrain)).endswith(f"{limits_in_words}\n")
    for run, hours in ((here, "1-2"), (there, "3-23")):
        begin, end = hours.split("-")
        in_words = f"{limits_in_words.partition(',')[0]}, from {begin}:00 to {end}:00 UTC\n"
        assert said(run(*retrain, "--quiet-hours", hours)).endswith(in_words)
    assert said(here(*retrain, "--never")) == f"{NAME} is trained when somebody asks for it\n"
    assert "has no limit yet" in there(*retrain, *limits[4:]).stderr
    for wrong in (
        (*limits, "--never"),
        (*limits[:4], "--quiet-hours", "3-3"),
        limits[4:],
        ("--hours", "inf"),
    ):
        assert there(*retrain, *wrong).returncode == 2
    assert "22-24" in there(*retrain, "--quiet-hours", "22-24").stderr
    assert "hours: Input should be greater than 0" in there(*retrain, "--hours", "0").stderr
    assert said(there("items", "delete", NAME, "p")) == ""
    assert said(here("items", "list", NAME)) == shown
    no_model = there("models", NAME)
    assert (no_model.stdout, "no models yet" in no_model.stderr) == ("", True)

    bounds = ("--collection", NAME, "--expires", "30d", "--rate-limit", "5", "--name", "window")
    key = json.loads(said(there("keys", "create", *bounds, "--json")))
    made = there("keys", "create", "--scope", "write", "--name", "shop window")
    assert re.fullmatch(r"lrbs_\S{43}\n", made.stdout)
    *_, last = said(here("keys", "list")).splitlines()
    assert last.endswith("shop window")
    assert last.split()[0] in made.stderr
    assert made.stdout.strip() not in last
    (line,) = [line for line in said(here("keys", "list")).splitlines() if line.startswith(key["id"])]
    assert line in said(there("keys", "list")).splitlines()
    expires = (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%d")
    assert re.search(rf"never used; only afar; expires {expires} .*; 5 requests a minute  window", line)
    assert json.loads(said(there("keys", "revoke", key["id"], "--json"))) == {"id": key["id"]}
    assert key["id"] not in said(here("keys", "list"))
    assert said(there("collections", "delete", NAME, "--yes")) == ""
    assert NAME not in said(here("collections", "list"))


def test_a_command_over_http_imports_nothing_heavy_and_takes_its_service_from_the_environment(
    demo_server: str, demo_key: str, tmp_path: Path
) -> None:
    program = (
        "import sys\n"
        "from app.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        f"    print([name for name in {HEAVY!r} if name in sys.modules], ended.code or 0)"
    )
    environment = {**os.environ, "LRBS_URL": demo_server, "LRBS_DATA_DIR": str(tmp_path / "none")}
    commands = [
        (("search", "sample", "--text", "cats", "-k", "2"), demo_key, 3),
        (("items", "list", "sample", "--where", "split=test", "--limit", "2"), demo_key, 3),
        (("models", "sample"), demo_key, 3),
        (("keys", "list"), "wrong", 1),
    ]
    for command, key, n_lines in commands:
        done = subprocess.run(
            [sys.executable, "-c", program, *command],
            cwd=ROOT,
            env={**environment, "LRBS_API_KEY": key},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stdout.splitlines()
        assert (lines[-1], len(lines)) == (f"[] {int(key == 'wrong')}", n_lines), (command, done)


def test_a_service_that_cannot_be_called_is_one_sentence(
    lrbs_inside: LrbsInside, demo_server: str, demo_key: str, tmp_path: Path
) -> None:
    def refusal(*arguments: str, **settings: str) -> tuple[int | None, str]:
        done = lrbs_inside(*arguments, **settings)
        assert done.stdout == ""
        return done.returncode, " ".join(done.stderr.replace("│", " ").split())

    status, message = refusal("keys", "list", "--url", demo_server, "--key", "wrong")
    assert status == 1
    assert message.startswith("error: ")
    assert message.endswith(": the secret of a key is taken from --key or LRBS_API_KEY")
    assert "wrong" not in message
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        away = f"http://127.0.0.1:{reserved.getsockname()[1]}"
    status, message = refusal("collections", "create", "x", "--url", away)
    assert (status, message.startswith(f"error: the service does not answer: POST {away}/v1/")) == (1, True)
    by_proxy = describe_failure(UnavailableError(502, {}))
    assert by_proxy == Failure("the service answered 502 without a reason")
    for url in ("nonsense", "ftp://host", "http://", "http://host:port", "http://host:70000"):
        status, message = refusal("collections", "list", "--url", url)
        assert (status, "Invalid value for --url: expected an address such as" in message) == (2, True)
    status, message = refusal("keys", "list", "--url", demo_server, "--key", "schlüssel\n")
    assert (status, "Invalid value for --key" in message, "schlüssel" in message) == (2, True, False)
    file = tmp_path / "items.ndjson"
    file.touch()
    for command in (("train", "sample"), ("ingest", "ndjson", str(file), "-c", "x"), ("db", "upgrade")):
        status, message = refusal(*command, LRBS_URL=demo_server)
        assert status == 2
        assert "LRBS_URL: this command works on the database here, never over HTTP" in message
    status, message = refusal("collections", "list", "--url", "", LRBS_URL=demo_server)
    assert (status, "there is no database" in message) == (1, True)
