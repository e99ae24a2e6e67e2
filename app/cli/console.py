"""What the commands take and say: bars on a terminal, plain lines everywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from app.domain.names import listed, some_of
from app.services.training.parameters import METHODS
from solver import SCALINGS

EVERY_SECONDS = 5.0
Show = Callable[[str, int, int, str], None]
"""Takes what is being done, how much of it is, of how much (0: unknown), and a remark."""


@contextmanager
def progress(console: Console, announcement: str) -> Iterator[Show]:
    """Say what follows, show how it goes, and say how long it took.

    Parameters
    ----------
    console : Console
        Bars where it is a terminal, else a line for each new step and every few seconds.
    announcement : str
        What follows, and roughly how long it takes.
    """
    began = time.monotonic()
    console.print(announcement, highlight=False, markup=False)
    with _bars(console) if console.is_terminal else _lines(console, began) as show:
        yield show
    console.print(f"done in {time.monotonic() - began:.0f} s", highlight=False)


@contextmanager
def _bars(console: Console) -> Iterator[Show]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[remark]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("starting", total=None, remark="")

        def show(what: str, done: int, total: int, remark: str) -> None:
            bars.update(task, description=what, completed=done, total=total or None, remark=remark)

        yield show


@contextmanager
def _lines(console: Console, began: float) -> Iterator[Show]:
    last_step, last_time = "", 0.0

    def show(what: str, done: int, total: int, remark: str) -> None:
        nonlocal last_step, last_time
        now = time.monotonic()
        if what == last_step and now - last_time < EVERY_SECONDS:
            return
        last_step, last_time = what, now
        count = f" {done} of {total}" if total else f" {done}" if done else ""
        line = f"{now - began:5.0f} s  {what}{count}{', ' if remark else ''}{remark}"
        console.print(line, highlight=False, markup=False)

    yield show


def validation_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return a line for each direction: how good a model was on what was held out of the training items."""
    n_items = facts.get("held_out_items") or {}
    rests_on = " and ".join(f"{count} {name}" for name, count in n_items.items())
    chance = facts.get("chance") or {}
    return [
        f"{direction}: validation MAP {value:.4f}{' on ' if rests_on else ''}{rests_on}"
        f"{' items' if rests_on else ''} held out of the training items"
        + (f" (chance {chance[direction]:.4f})" if direction in chance else "")
        for direction, value in facts["held_out"].items()
    ]


def label_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return lines that say which classes stand on training items of one modality alone."""
    return [
        f"no training item of the other modality is of these classes of {name!r}: {some_of(labels)}"
        for name, labels in facts.get("unmatched_labels", {}).items()
        if labels
    ]


def choice_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return lines that say why a method was chosen, where there was a choice."""
    tried, refused = facts.get("methods", {}), facts.get("refused", {})
    lines = [f"{method!r} could not be tried: {reason}" for method, reason in refused.items()]
    if len(tried) < 2:
        return lines
    figures = ", ".join(f"{method} {value:.4f}" for method, value in tried.items())
    return [f"chose {facts['method']!r} by held-out MAP: {figures}", *lines]


def convergence_line(facts: Mapping[str, Any]) -> str | None:
    """Return a sentence about a fit that did not converge."""
    found = facts["convergence"]
    if found["converged"]:
        return None
    wanted = f", {found['tol']:.2%} was wanted" if "tol" in found else ""
    return (
        f"The fit did not converge: after {found['iteration']} iterations its objective may still fall "
        f"by up to {found['gap']:.2%}{wanted}."
    )


def positive(value: float | None) -> float | None:
    """Refuse an option that is no number above 0."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"expected a finite number above 0, got {value}")
    return value


def known_method(value: str) -> str:
    """Refuse a method that does not exist."""
    if value not in METHODS:
        raise typer.BadParameter(f"expected {listed(METHODS)}, got {value!r}")
    return value


def known_scaling(value: str | None) -> str | None:
    """Refuse a kind of scaling that does not exist."""
    if value is not None and value not in SCALINGS:
        raise typer.BadParameter(f"expected {listed(SCALINGS)}, got {value!r}")
    return value
