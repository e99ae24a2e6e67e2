"""Commands that are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command


class DeferringGroup(TyperGroup):
    """A group of commands with some that are imported when they are asked for.

    Some need the estimators, and so scikit-learn, others the HTTP server: every other command would start
    later for it.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return [*_SERVING, *super().list_commands(ctx), *_OTHERS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, or None."""
        load = _SERVING.get(cmd_name) or _OTHERS.get(cmd_name)
        return super().get_command(ctx, cmd_name) if load is None else get_command(load())


def _load_demo() -> typer.Typer:
    from app.cli.service import demo

    return _single("demo", demo)


def _load_serve() -> typer.Typer:
    from app.cli.service import serve

    return _single("serve", serve)


def _load_server_process() -> typer.Typer:
    from app.cli.service import server_process

    return _single("server-process", server_process, hidden=True)


def _load_worker() -> typer.Typer:
    from app.cli.work import worker

    return _single("worker", worker)


def _load_reference() -> typer.Typer:
    from app.cli.reference import reference

    return reference


def _load_bench() -> typer.Typer:
    from app.cli.bench import bench

    return bench


def _load_codebook() -> typer.Typer:
    from app.cli.codebook import codebook

    return _single("codebook", codebook)


def _load_compare() -> typer.Typer:
    from app.cli.compare import compare

    return _single("compare", compare)


def _single(name: str, command: Callable[..., None], *, hidden: bool = False) -> typer.Typer:
    single = typer.Typer(add_completion=False)
    single.command(name, hidden=hidden)(command)
    return single


_SERVING: dict[str, Callable[[], typer.Typer]] = {
    "demo": _load_demo,
    "serve": _load_serve,
    "server-process": _load_server_process,
    "worker": _load_worker,
}
_OTHERS: dict[str, Callable[[], typer.Typer]] = {
    "reference": _load_reference,
    "codebook": _load_codebook,
    "compare": _load_compare,
    "bench": _load_bench,
}
