"""Options and output of the commands: progress bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

OUT, LOG = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)
"""Standard output is for results, standard error for what accompanies them."""
JsonFlag = Annotated[bool, typer.Option("--json", help="print JSON")]
LabelColumnOption = Annotated[
    str | None,
    typer.Option(help="comma-separated, the main label first; 'label' when absent, if there is one"),
]
PairColumnOption = Annotated[
    str | None, typer.Option(help="rows of the same value are partners; each its own when absent")
]
ENCODER_HELP = "TYPE or TYPE:OPTION=VALUE,...; + combines several: hog-color+onnx:path=model.onnx,size=224"
EVERY_SECONDS = 5.0
Show = Callable[[str, int, int, str], None]
"""Called with the current step, the amount done, the total (0 if unknown), and a remark."""
PERCENT = 100
"""A total of which the amount done is the percentage."""


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
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

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
        count = f" {done} %" if total == PERCENT else count
        line = f"{now - began:5.0f} s  {what}{count}{', ' if remark else ''}{remark}"
        console.print(line, highlight=False, markup=False)

    yield show


def read_names(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
