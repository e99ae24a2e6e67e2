"""Commands that are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command


class DeferringGroup(TyperGroup):
    """A group of commands with some that are imported when they are asked for.

    Those need the estimators, and so scikit-learn: every other command, the server and the worker among
    them, would start later for it.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*super().list_commands(ctx), *_LOADERS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, or None."""
        load = _LOADERS.get(cmd_name)
        return super().get_command(ctx, cmd_name) if load is None else get_command(load())


def _load_bench() -> typer.Typer:
    from app.cli.bench import bench

    return bench


def _load_compare() -> typer.Typer:
    from app.cli.compare import compare

    single = typer.Typer(add_completion=False)
    single.command("compare")(compare)
    return single


_LOADERS: dict[str, Callable[[], typer.Typer]] = {"compare": _load_compare, "bench": _load_bench}
