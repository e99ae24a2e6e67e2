"""Commands are imported when they are asked for, and what they work with when they run."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from app.cli.main import ENTRIES, cli

HEAVY = (
    "fastapi",
    "starlette",
    "uvicorn",
    "sqlalchemy",
    "alembic",
    "PIL",
    "scipy",
    "sklearn",
    "faiss",
    "solver",
    "app.bootstrap",
    "app.settings",
    "httpx",
    "jinja2",
    "matplotlib",
)
SHORT = ("search", "models", "feedback", "keys", "items", "collections", "db", "ingest")


def test_help_is_printed_without_what_commands_work_with() -> None:
    program = (
        "import json, sys\n"
        "from typer.testing import CliRunner\n"
        "from app.cli.main import cli\n"
        "said = {}\n"
        f"for arguments in [[], *([name] for name in {SHORT!r})]:\n"
        "    done = CliRunner().invoke(cli, [*arguments, '--help'])\n"
        f"    found = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "    said[' '.join(arguments)] = [done.exit_code, 'Usage' in done.stdout, found]\n"
        "print(json.dumps(said))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {name: [0, True, []] for name in ("", *SHORT)}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_command_is_listed_with_the_first_line_of_its_help(name: str) -> None:
    entry = ENTRIES[name]
    command = entry.load(name)
    described = entry.describe(name)
    assert (command.help or "").splitlines()[0] == described.help
    assert command.hidden == described.hidden
    assert (name in CliRunner().invoke(cli, ["--help"]).stdout) != entry.is_hidden


def test_the_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(cli, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"lrbs {version('lrbs')}\n")


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("compare --method CCA", "--methods"),
        ("--verison", "--version"),
        ("train things --facets colour", "--facet, --labels, --no-facets"),
    ],
)
def test_a_misspelt_option_is_told_with_the_nearest_one(command: str, meant: str) -> None:
    done = CliRunner().invoke(cli, command.split())
    assert done.exit_code == 2
    assert f"Possible options: {meant})" in " ".join(done.stderr.split())


def test_a_misspelt_command_is_told_with_the_nearest_one() -> None:
    done = CliRunner().invoke(cli, ["serach"])
    assert done.exit_code == 2
    assert "No such command 'serach'. Did you mean 'search'?" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("lrbs co", ["codebook", "collections", "compare"]),
        ("lrbs collections ", ["create", "delete", "list", "retraining", "show"]),
        ("lrbs db ", ["adopt", "backup", "copy", "reindex", "restore", "sweep", "upgrade"]),
        ("lrbs search shop --t", ["--text", "--to"]),
        ("lrbs ingest nu", ["nus-wide"]),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, expected: list[str]) -> None:
    number = str(len(words.split(" ")) - 1)
    asked = {"_LRBS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": number}
    done = CliRunner().invoke(cli, [], prog_name="lrbs", env=asked)
    assert sorted(done.stdout.split()) == expected
