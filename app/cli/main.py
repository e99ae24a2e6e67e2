"""The command `lrbs`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from app.cli.deferred import DeferringGroup

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
