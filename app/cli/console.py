"""Options and output of the commands: progress bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, BinaryIO, TypeVar

import typer
from rich.console import Console

from app.domain.errors import InvalidFieldError
from app.domain.filters import filter_of

OUT, LOG = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)
"""Standard output is for results, standard error for what accompanies them."""
_Answer = TypeVar("_Answer")
_SHOWN_CHARACTERS = 60
ENCODER_HELP = "TYPE or TYPE:OPTION=VALUE,...; + combines several: hog-color+onnx:path=model.onnx,size=224"
EVERY_SECONDS = 5.0
_RATE_AFTER_SECONDS = 2.0  # before that, the start says more about the rate than the data do
PERCENT = 100
"""A total of which the amount done is the percentage."""


def read_names(text: str) -> tuple[str, ...]:
    """Return the names of a comma-separated list."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def pair_of_names(text: str) -> tuple[str, str]:
    """Return two different names with a comma between them; raises BadParameter."""
    names = read_names(text)
    if len(names) != 2 or names[0] == names[1]:
        raise typer.BadParameter(f"expected two different names and a comma between them, got {text!r}")
    return names[0], names[1]


def shorten(text: str) -> str:
    """Return a text as a part of a line: without breaks, and no longer than one reads there."""
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def print_json(answer: Any) -> None:
    """Print an answer as one line of JSON."""
    print_one(answer, True, str)


def print_one(answer: _Answer, as_json: bool, describe: Callable[[_Answer], str]) -> None:
    """Print an answer as one line: of JSON, or of words."""
    import msgspec

    typer.echo(msgspec.json.encode(answer).decode() if as_json else describe(answer))


def _two_names(text: str) -> str:
    pair_of_names(text)
    return text


JsonFlag = Annotated[bool, typer.Option("--json", help="print JSON")]
JsonLinesFlag = Annotated[bool, typer.Option("--json", help="print JSON lines")]
ModalitiesOption = Annotated[
    str, typer.Option(callback=_two_names, help="names of the two modalities, comma-separated")
]
ImageEncoderOption = Annotated[str, typer.Option(help=ENCODER_HELP)]
TextEncoderOption = Annotated[str, typer.Option(help="likewise, of texts")]
LabelColumnOption = Annotated[
    str | None, typer.Option(help="comma-separated, the main label first; default: 'label', if there is one")
]
PairColumnOption = Annotated[
    str | None, typer.Option(help="rows of the same value are partners; default: each row its own")
]
Show = Callable[[str, int, int, str], None]
"""Called with the current step, the amount done, the total (0 if unknown), and a remark."""


@contextmanager
def progress(console: Console, announcement: str) -> Iterator[Show]:
    """Print an announcement, show progress, and print the duration: bars on a terminal; elsewhere a line for
    each new step and every few seconds."""
    began = time.monotonic()
    console.print(announcement, highlight=False, markup=False)
    with _bars(console) if console.is_terminal else _lines(console, began) as show:
        yield show
    console.print(f"done in {duration(time.monotonic() - began)}", highlight=False)


def pace(done: int, total: int, seconds: float) -> str:
    """Return the rate in words and, where the total is known, the time left; nothing at first."""
    if seconds < _RATE_AFTER_SECONDS or not done:
        return ""
    rate = done / seconds
    figure = f"{rate:.0f}" if rate >= 10.0 else f"{rate:.2g}"  # two digits or more
    return f"{figure}/s" + (f", about {duration(max(total - done, 0) / rate)} left" if total else "")


def duration(seconds: float) -> str:
    """Return a time in words: ``12 s``, ``4 min 10 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(round(whole / 60), 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def time_left(seconds: float) -> str:
    """Return an estimate in steps so coarse that it does not rise and fall from one look to the next.
    It is empty below a minute: a step that takes longer than the others would make it wrong."""
    if seconds < 60:
        return ""
    minutes = math.ceil(seconds / 60)
    # Beyond ten minutes the estimate is no better than to five.
    return f"about {minutes if minutes <= 10 else 5 * math.ceil(minutes / 5)} min left"


@contextmanager
def _bars(console: Console) -> Iterator[Show]:
    from rich import progress as parts

    columns = (
        parts.SpinnerColumn(),
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        parts.MofNCompleteColumn(),
        parts.TextColumn("{task.fields[remark]}"),
        parts.TimeElapsedColumn(),
    )
    with parts.Progress(*columns, console=console, transient=True) as bars:
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


@contextmanager
def whole_file(file: Path | None) -> Iterator[BinaryIO]:
    """Yield what is to be written to, standard output or a file, which is there only once it is complete."""
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    file = file.resolve()
    if file.exists() and not file.is_file():  # a pipe or a device, in whose place no file may come
        with file.open("wb") as stream:
            yield stream
        return
    partial = file.with_name(f"{file.name}.{token_hex(4)}.partial")
    try:
        with partial.open("xb") as stream:
            yield stream
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


LabelFilter = Annotated[list[str] | None, typer.Option("--label", help="only items with any of these labels")]
WhereFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="only items whose metadata meet it: colour=red (of one key any of the values), colour!=black, "
        "'price<50' (also <=, >, >=), 'size in 41,42', 'size not in 41', 'tags contains new', "
        "'name text red shoes'",
    ),
]


def read_filter(labels: Sequence[str] | None, conditions: Sequence[str] | None) -> dict[str, Any]:
    """Return the filter of --label and --where, as REST has it; raises BadParameter for a wrong condition."""
    try:
        return filter_of(labels or (), conditions or ())
    except InvalidFieldError as error:
        raise typer.BadParameter(error.message, param_hint="--where") from error
