"""`python -m tests.benchmarks NAME`: tools that measure; every ratio is taken within one run."""

from __future__ import annotations

import typer

from tests.benchmarks.composed import composed_command
from tests.benchmarks.dask import dask_command
from tests.benchmarks.encoders import encoders_command
from tests.benchmarks.engine import engine_command
from tests.benchmarks.filters import filters_command
from tests.benchmarks.imports import import_command
from tests.benchmarks.index import index_command
from tests.benchmarks.load import load_command
from tests.benchmarks.overload import overload_command
from tests.benchmarks.placement import placement_command
from tests.benchmarks.processes import processes_command
from tests.benchmarks.words import words_command

benchmarks = typer.Typer(name="benchmarks", no_args_is_help=True, add_completion=False)
benchmarks.command("composed")(composed_command)
benchmarks.command("dask")(dask_command)
benchmarks.command("encoders")(encoders_command)
benchmarks.command("engine")(engine_command)
benchmarks.command("filters")(filters_command)
benchmarks.command("import")(import_command)
benchmarks.command("index")(index_command)
benchmarks.command("load")(load_command)
benchmarks.command("overload")(overload_command)
benchmarks.command("placement")(placement_command)
benchmarks.command("processes")(processes_command)
benchmarks.command("words")(words_command)

if __name__ == "__main__":
    benchmarks()
