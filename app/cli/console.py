"""Options and output of the commands: progress bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

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

from app.domain.entities import TrainingReport
from app.domain.names import join_words, some_of
from app.services.training.parameters import METHODS
from solver import SCALINGS

OUT, LOG = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)
"""Standard output is for results, standard error for what accompanies them."""
JsonFlag = Annotated[bool, typer.Option("--json", help="print JSON")]
EVERY_SECONDS = 5.0
Show = Callable[[str, int, int, str], None]
"""Called with the current step, the amount done, the total (0 if unknown), and a remark."""


@contextmanager
def progress(console: Console, announcement: str) -> Iterator[Show]:
    """Print an announcement, show progress, and print the duration at the end.

    Parameters
    ----------
    console : Console
        Bars on a terminal; elsewhere a line for each new step and every few seconds.
    announcement : str
        What is done, and roughly how long it takes.
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


def validation_lines(report: TrainingReport) -> list[str]:
    """Return a line for each direction with the quality on held-out training items."""
    return [
        f"{direction}: validation MAP {quality.map:.4f} on {item_counts(report)} items held out of training"
        + ("" if quality.chance is None else f" (chance {quality.chance:.4f})")
        for direction, quality in report.held_out.directions.items()
    ]


def item_counts(report: TrainingReport) -> str:
    """Return the number of held-out items of each modality, in words."""
    return " and ".join(f"{count} {name}" for name, count in report.held_out.items.items()) or "unknown"


def label_lines(report: TrainingReport) -> list[str]:
    """Return a warning for classes that only one modality has training items of."""
    return [
        f"no training item of the other modality is of these classes of {name!r}: {some_of(labels)}"
        for name, labels in report.data.unmatched_labels.items()
        if labels
    ]


def choice_lines(report: TrainingReport) -> list[str]:
    """Return lines that explain the choice of the method, where there was one."""
    selection = report.selection
    lines = [f"{method!r} could not be tried: {reason}" for method, reason in selection.refused.items()]
    if len(selection.held_out_map) < 2:
        return lines
    figures = ", ".join(f"{method} {value:.4f}" for method, value in selection.held_out_map.items())
    return [f"chose {report.method!r} by held-out MAP: {figures}", *lines]


def convergence_line(report: TrainingReport) -> str | None:
    """Return a warning if the fit did not converge."""
    end = report.fit.convergence
    if end.converged:
        return None
    tolerance = "" if end.tol is None else f", {end.tol:.2%} was asked for"
    return (
        f"The fit did not converge: after {end.iteration} iterations its objective may still fall "
        f"by up to {end.gap:.2%}{tolerance}."
    )


def positive(value: float | None) -> float | None:
    """Validate that an option is a positive number."""
    if value is not None and not (math.isfinite(value) and value > 0):
        raise typer.BadParameter(f"expected a finite number above 0, got {value}")
    return value


def known_method(value: str) -> str:
    """Validate the name of a method."""
    if value not in METHODS:
        raise typer.BadParameter(f"expected {join_words(METHODS)}, got {value!r}")
    return value


def known_scaling(value: str | None) -> str | None:
    """Validate the kind of scaling."""
    if value is not None and value not in SCALINGS:
        raise typer.BadParameter(f"expected {join_words(SCALINGS)}, got {value!r}")
    return value
