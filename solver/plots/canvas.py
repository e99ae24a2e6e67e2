"""What plots are drawn on: figures without global state, their colours, and their files."""

from __future__ import annotations

import importlib
import io
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from solver.validation.errors import InvalidParameterError
from solver.validation.parameters import one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
"""Grounds that plots are drawn for."""
_DOTS_PER_INCH = 144  # of PNG: sharp where a screen has two dots to a pixel
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5)))
_BARE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a name may have dollar signs
    "text.usetex": False,
    "font.family": "sans-serif",
    "font.size": 10.0,
    "figure.dpi": 100.0,
    "savefig.dpi": "figure",
    "savefig.bbox": None,
    "savefig.transparent": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "path.simplify": True,
}
"""Settings that a user's style could change."""
_TURN = threading.RLock()  # settings of Matplotlib are those of the process: one plot is drawn at a time


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours of a theme; those of lines are distinct for colour-blind people (after Okabe and Ito)."""

    ground: str
    ink: str
    muted: str
    grid: str
    lines: tuple[str, ...]

    def line(self, number: int) -> dict[str, Any]:
        """Return the style of a line: no two of the first ones have colour or dashes in common."""
        return {
            "color": self.lines[number % len(self.lines)],
            "linestyle": _DASHES[number % len(_DASHES)],
            "linewidth": 2.2 if number == 0 else 1.6,
            "zorder": 5 if number == 0 else 3,
        }


PALETTES: dict[Theme, Palette] = {
    "light": Palette(
        "#ffffff",
        "#1a1d24",
        "#5d6675",
        "#dfe3ea",
        ("#0b5cad", "#c24e00", "#00795c", "#a3437b", "#8a6100", "#3b3f47", "#007f9e"),
    ),
    "dark": Palette(
        "#1a1d24",
        "#e9ebf0",
        "#a0a8b8",
        "#313744",
        ("#8ea5ff", "#ffb26b", "#5fd3a8", "#f0a3cf", "#f4d35e", "#d5d9e2", "#76d0f0"),
    ),
}
"""As in the pages of the service."""


@dataclass(frozen=True, slots=True, eq=False)
class Plot:
    """A finished plot.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What was drawn; it belongs to no window.
    title : str
        What it shows, for those who cannot see it; the title of its SVG.
    """

    figure: Figure
    title: str

    def svg(self) -> str:
        """Return an SVG element with its text as text; the same plot always gives the same."""
        stream = io.StringIO()
        self._write(stream, "svg", {"Date": None, "Creator": None, "Title": self.title})
        text = stream.getvalue()
        # Metadata say nothing more, and name the addresses of vocabularies.
        return re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)

    def png(self) -> bytes:
        """Return a PNG file; the same plot always gives the same with one release of Matplotlib."""
        stream = io.BytesIO()
        self._write(stream, "png", {"Software": None}, dpi=_DOTS_PER_INCH)
        return stream.getvalue()

    def save(self, path: str | Path) -> None:
        """Write a file that ends in .svg or .png; InvalidParameterError if it ends otherwise."""
        target = Path(path)
        if target.suffix == ".svg":
            target.write_text(self.svg(), encoding="utf-8")
        elif target.suffix == ".png":
            target.write_bytes(self.png())
        else:
            raise InvalidParameterError("path", str(path), "a file that ends in .svg or .png")

    def _repr_svg_(self) -> str:
        """Return what a notebook shows."""
        return self.svg()

    def _write(self, stream: Any, kind: str, metadata: dict[str, str | None], **options: Any) -> None:
        with _own_settings(self.title):
            self.figure.savefig(stream, format=kind, metadata=metadata, **options)


def require_matplotlib() -> None:
    """Import Matplotlib; ImportError, which names the extra that installs it, if it is absent."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise ImportError("plots need Matplotlib, of the extra: pip install 'lrbs[plots]'") from error


def make_plot(
    title: str, size: tuple[float, float], theme: Theme, draw: Callable[[Figure, Palette], None]
) -> Plot:
    """Return a plot that a function draws, of a size in inches; ImportError if Matplotlib is absent."""
    one_of(*THEMES).check("theme", theme)
    require_matplotlib()
    from matplotlib.figure import Figure

    palette = PALETTES[theme]
    with _own_settings(title, palette):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure, palette)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once, every file of the plot is the same
    return Plot(figure, title)


def prepare_axes(axes: Any, palette: Palette, title: str, x_label: str, y_label: str) -> None:
    """Name axes and draw their grid."""
    if title:
        axes.set_title(title, fontsize=10.5)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(color=palette.grid, linewidth=0.6)
    axes.set_axisbelow(True)


def use_integers(axis: Any) -> None:
    """Put ticks at integers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))


def use_logarithm(axes: Any) -> None:
    """Make the vertical axis logarithmic, with plain text at its ticks."""
    from matplotlib.ticker import LogFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(LogFormatter())
    axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.0, 0.4)))


@contextmanager
def _own_settings(salt: str, palette: Palette | None = None) -> Iterator[None]:
    """Draw with settings of our own; the salt makes the names within an SVG the same each time."""
    import matplotlib

    settings = {**_BARE, "svg.hashsalt": salt}
    if palette is not None:
        settings |= dict.fromkeys(
            ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), palette.ink
        )
        settings |= dict.fromkeys(("figure.facecolor", "axes.facecolor", "legend.facecolor"), palette.ground)
        settings |= {"savefig.facecolor": "auto", "axes.titlecolor": "auto"}
    with _TURN, matplotlib.rc_context(settings):
        yield
