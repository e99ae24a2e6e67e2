"""The benchmark commands: `lrbs bench`."""

from __future__ import annotations

import typer

from app.cli.bench.search import search_command
from app.cli.bench.solver import solver_command

__all__ = ["bench"]

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    help="Measure speed; every ratio is taken within one run.",
)
bench.command("solver")(solver_command)
bench.command("search")(search_command)
