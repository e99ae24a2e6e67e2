"""The commands `lrbs reference`: the tables of the documents, made from the code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.api.problems import HTTP, INTERNAL, INVALID_REQUEST
from app.cli.console import JsonLinesFlag
from app.domain.errors import PROBLEMS
from app.settings import Settings

reference = typer.Typer(name="reference", no_args_is_help=True, help="Print reference tables.")

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"))
_OTHER_PROBLEMS = (
    (400, HTTP, "Request malformed, and other errors of HTTP itself (404, 405, 408, 431)"),
    INVALID_REQUEST,
    INTERNAL,
)
"""Problems without an error of a service behind them."""


@reference.command("settings")
def print_settings(as_json: JsonLinesFlag = False) -> None:
    """Print all settings with defaults and meanings, in Markdown."""
    if not as_json:
        typer.echo(settings_table())
        return
    for _, names in _groups():
        for name in names:
            field = Settings.model_fields[name]
            setting = {"variable": _variable(name), "default": field.default, "meaning": field.description}
            typer.echo(json.dumps(setting, default=str))


@reference.command("problems")
def print_problems(as_json: JsonLinesFlag = False) -> None:
    """Print all types of problems with their status, in Markdown."""
    if not as_json:
        typer.echo(problems_table())
        return
    for (status, name), titles in _problem_titles():
        typer.echo(json.dumps({"status": status, "type": name, "meaning": "; ".join(titles)}))


def settings_table() -> str:
    """Return a Markdown table of the settings, by concern."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    for group, names in _groups():
        lines.append(f"| **{(group.__doc__ or '').partition('.')[0].partition(':')[0]}** | | |")
        for name in names:
            field = Settings.model_fields[name]
            lines.append(f"| `{_variable(name)}` | {_default(name, field)} | {field.description} |")
    return "\n".join(lines)


def problems_table() -> str:
    """Return a Markdown table of the problem types, by status."""
    lines = [f"| {status} | `{name}` | {'; '.join(titles)} |" for (status, name), titles in _problem_titles()]
    return "\n".join(["| status | type | meaning |", "|---|---|---|", *lines])


def _problem_titles() -> list[tuple[tuple[int, str], list[str]]]:
    """Return what each status and type of problem may be about, by status."""
    own = [(kind.status, kind.type or code, kind.title) for code, kind in PROBLEMS.items()]
    rows: dict[tuple[int, str], list[str]] = {}
    for status, name, title in [*own, *_OTHER_PROBLEMS]:
        titles = rows.setdefault((status, name), [])
        if title not in titles:
            titles.append(title)
    return sorted(rows.items())


def _groups() -> Iterator[tuple[type[BaseModel], list[str]]]:
    """Yield the concerns of the settings with their names."""
    for group in reversed(Settings.__mro__):
        names = [name for name in vars(group).get("__annotations__", {}) if name in Settings.model_fields]
        if issubclass(group, BaseModel) and names:
            yield group, names


def _variable(name: str) -> str:
    return f"LRBS_{name.upper()}"


def _default(name: str, field: FieldInfo) -> str:
    value: Any = field.default
    if value is None or value == "":
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if name.endswith("_bytes"):
        for size, unit in _SIZES:
            if value and value % size == 0:
                return f"{value // size} {unit}"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
