"""The command `lrbs`, and its commands, which are imported when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from app.imports import import_for_good


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and what the list of commands says of it."""

    module: str  # of this package: has the command as a function, or those below it as a `typer.Typer`
    summary: str  # the first line of its help
    is_hidden: bool = False  # the list leaves it out

    def describe(self, name: str) -> TyperCommand:
        """Return a command that can be listed, but not run."""
        return TyperCommand(name, help=self.summary, hidden=self.is_hidden)

    def load(self, name: str) -> Any:
        module = import_for_good(f"app.cli.{self.module}")
        target: typer.Typer | Callable[..., None] = getattr(module, name.replace("-", "_"))
        if isinstance(target, typer.Typer):
            return get_group(target)
        single = typer.Typer(add_completion=False)
        single.command(name, hidden=self.is_hidden)(target)
        return get_command(single)


ENTRIES = {
    "demo": Entry("demo", "Draw the sample set, train on it, serve it and open the page."),
    "serve": Entry("serve", "Serve the API and the page on LRBS_HOST:LRBS_PORT."),
    "server-process": Entry("serve", "Serve as one of several processes.", is_hidden=True),
    "worker": Entry("train", "Run retrain jobs until stopped."),
    "ingest": Entry("imports", "Import data into a collection."),
    "train": Entry("train", "Retrain a collection and activate the new version unless it is worse."),
    "search": Entry("commands", "Search a collection from the command line."),
    "models": Entry(
        "commands", "List model versions; activate one, roll back, or show the history of activations."
    ),
    "feedback": Entry(
        "commands", "Which items are relevant to which queries; the next retrain may learn from it."
    ),
    "collections": Entry("commands", "Collections: two modalities, their items and models."),
    "items": Entry("commands", "Items of a collection: list, show, label, change and delete them."),
    "export": Entry(
        "commands", "Write the items of a collection to a file that `lrbs ingest ndjson` or `tar` reads."
    ),
    "keys": Entry("commands", "API keys."),
    "db": Entry("database", "The database: its schema and copies of it."),
    "reference": Entry("reference", "Print reference tables."),
    "codebook": Entry(
        "encoders", "Learn the visual words of the encoder sift-bovw from a folder of pictures."
    ),
    "compare": Entry(
        "compare",
        "Compare methods: tuned by cross-validation in the training split, then evaluated on the test split.",
    ),
    "bench": Entry("bench", "Measure speed; every ratio is taken within one run."),
}
"""All commands, in the order in which they are listed."""


class DeferringGroup(TyperGroup):
    """A group whose commands are imported one at a time: those that are only listed are not."""

    # Some need the estimators, and so scikit-learn, others the HTTP server, most the database: every other
    # command, and the help, would start later for it.

    def __init__(self, **attributes: Any) -> None:
        described = {name: entry.describe(name) for name, entry in ENTRIES.items()}
        super().__init__(**{**attributes, "commands": described})

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name of the command that is asked for, the command itself, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is None or command is None:
            return name, command, rest
        return name, ENTRIES[name].load(name), rest


cli = typer.Typer(cls=DeferringGroup, no_args_is_help=True)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"lrbs {version('lrbs')}")
        raise typer.Exit


@cli.callback()
def lrbs(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="print the version")
    ] = False,
) -> None:
    """Search pictures by text, and texts by picture."""


def main() -> None:
    """Run a command; an expected error prints one line and exits with status 1 (2 for a bad setting)."""
    try:
        cli()
    except Exception as error:
        # What it knows of errors needs the database and the solver, which a command without one may not.
        from app.cli.failures import describe_failure

        failure = describe_failure(error)
        if failure is None:
            raise
        failure.print()
        sys.exit(failure.status)
