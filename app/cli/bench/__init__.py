"""The benchmark commands: `lrbs bench`."""

from __future__ import annotations

import typer

from app.cli.bench.dask import dask_command
from app.cli.bench.encoders import encoders_command
from app.cli.bench.engine import engine_command
from app.cli.bench.imports import import_command
from app.cli.bench.index import index_command
from app.cli.bench.load import load_command
from app.cli.bench.overload import overload_command
from app.cli.bench.search import search_command
from app.cli.bench.several import processes_command
from app.cli.bench.solver import solver_command

__all__ = ["bench"]

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    add_completion=False,
    help="Measure speed; every ratio is taken within one run.",
)
bench.command("solver")(solver_command)
bench.command("encoders")(encoders_command)
bench.command("import")(import_command)
bench.command("search")(search_command)
bench.command("load")(load_command)
bench.command("processes")(processes_command)
bench.command("index")(index_command)
bench.command("engine")(engine_command)
bench.command("dask")(dask_command)
bench.command("overload")(overload_command)
