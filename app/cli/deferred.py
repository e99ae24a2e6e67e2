"""Commands that are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from app.imports import import_for_good


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and what the list of commands says of it."""

    module: str  # has the command as a function, or commands below it as a `typer.Typer`
    attribute: str
    summary: str  # the first line of its help
    is_hidden: bool = False  # the list leaves it out

    def describe(self, name: str) -> TyperCommand:
        """Return a command that can be listed, but not run."""
        return TyperCommand(name, help=self.summary, hidden=self.is_hidden)

    def load(self, name: str) -> Any:
        """Import the command."""
        target: typer.Typer | Callable[..., None] = getattr(import_for_good(self.module), self.attribute)
        if isinstance(target, typer.Typer):
            return get_group(target)
        single = typer.Typer(add_completion=False)
        single.command(name, hidden=self.is_hidden)(target)
        return get_command(single)


ENTRIES = {
    "demo": Entry("app.cli.service", "demo", "Draw the sample set, train on it, serve it and open the page."),
    "serve": Entry("app.cli.service", "serve", "Serve the API and the page on LRBS_HOST:LRBS_PORT."),
    "server-process": Entry(
        "app.cli.service", "server_process", "Serve as one of several processes.", is_hidden=True
    ),
    "worker": Entry("app.cli.work", "worker", "Run retrain jobs until stopped."),
    "ingest": Entry("app.cli.imports", "ingest", "Import data into a collection."),
    "train": Entry(
        "app.cli.train", "train", "Retrain a collection and activate the new version unless it is worse."
    ),
    "search": Entry("app.cli.search", "search", "Search a collection from the command line."),
    "models": Entry(
        "app.cli.models",
        "models",
        "List model versions; activate one, roll back, or show the history of activations.",
    ),
    "feedback": Entry(
        "app.cli.feedback",
        "feedback",
        "Which items are relevant to which queries; the next retrain may learn from it.",
    ),
    "collections": Entry(
        "app.cli.collections", "collections", "Collections: two modalities, their items and models."
    ),
    "items": Entry("app.cli.items", "items", "Items of a collection: list, show, label and delete them."),
    "keys": Entry("app.cli.keys", "keys", "API keys."),
    "db": Entry("app.cli.database", "db", "The database: its schema and copies of it."),
    "reference": Entry("app.cli.reference", "reference", "Print reference tables."),
    "codebook": Entry(
        "app.cli.codebook",
        "codebook",
        "Learn the visual words of the encoder sift-bovw from a folder of pictures.",
    ),
    "compare": Entry(
        "app.cli.compare",
        "compare",
        "Compare methods: tuned by cross-validation in the training split, then evaluated on the test split.",
    ),
    "bench": Entry("app.cli.bench", "bench", "Measure speed; every ratio is taken within one run."),
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
