"""Plots of what was learned and how good it is, for pages, reports and notebooks.

Each function returns a `Plot`, which a notebook shows, and which becomes SVG or PNG: the same numbers always
give the same bytes. They need Matplotlib, of the extra `plots`, which is imported when the first is drawn;
where it is absent, ImportError names the extra. InvalidInputError says that there is nothing to draw, or that
a number cannot be. Matplotlib's global state (pyplot, the style of a notebook) is neither used nor changed.
"""

from __future__ import annotations

import importlib
import io
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from solver.evaluation.metrics import Reliability, RetrievalCurves
from solver.validation import InvalidInputError, InvalidParameterError, one_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = [
    "THEMES",
    "ConvergenceStep",
    "Interval",
    "Plot",
    "Theme",
    "plot_convergence",
    "plot_intervals",
    "plot_precision_recall",
    "plot_precision_scope",
    "plot_reliability",
    "plot_retrieval",
    "plot_singular_values",
    "require_matplotlib",
]

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


_MOST_MARKED = 60  # points of a line that are marked; more of them would touch


class ConvergenceStep(Protocol):
    """One iteration of a fit; `solver.IterationProgress` is one."""

    @property
    def iteration(self) -> int:
        """Its number."""

    @property
    def objective(self) -> float:
        """Objective after it."""

    @property
    def gap(self) -> float | None:
        """Relative duality gap; None where it was not computed."""

    @property
    def rank(self) -> int:
        """Rank of M."""


def plot_singular_values(
    values: npt.ArrayLike | Mapping[str, npt.ArrayLike], *, theme: Theme = "light"
) -> Plot:
    """Plot the singular values of M in descending order.

    Parameters
    ----------
    values : array-like, or mapping of str to array-like
        Singular values of one M, or of several by name. Those of several are drawn as shares of the largest,
        since the matrices are of different features; each name says its rank.
    theme : {"light", "dark"}
        The ground to draw on.
    """
    named = isinstance(values, Mapping)
    spectra = values if isinstance(values, Mapping) else {"": values}
    lines = {name: _spectrum(name, entry) for name, entry in spectra.items()}
    if not lines or not any(map(len, lines.values())):
        raise InvalidInputError("there are no positive singular values")

    def draw(figure: Figure, palette: Palette) -> None:
        axes = figure.subplots()
        for number, (name, line) in enumerate(lines.items()):
            shown = line / line[0] if named and len(line) else line
            marker = "o" if len(shown) <= _MOST_MARKED else None
            axes.plot(
                np.arange(1, len(shown) + 1),
                shown,
                marker=marker,
                markersize=4,
                label=f"{name}: rank {len(line)}",
                **palette.line(number),
            )
        y_label = "share of the largest" if named else "singular value"
        prepare_axes(axes, palette, "", "number of the singular value", y_label)
        axes.set_ylim(bottom=0.0)
        use_integers(axes.xaxis)
        if named:
            axes.legend(frameon=False, fontsize=9)

    return make_plot("Singular values of M", (7.0, 3.2) if named else (5.0, 3.2), theme, draw)


def plot_convergence(steps: Sequence[ConvergenceStep], *, theme: Theme = "light") -> Plot:
    """Plot objective, relative duality gap and rank of M by iteration.

    Parameters
    ----------
    steps : sequence of ConvergenceStep
        Such as the `history_` of a fit; iterations in ascending order.
    theme : {"light", "dark"}
        The ground to draw on.
    """
    if not len(steps):
        raise InvalidInputError("steps must not be empty")
    with_gap = [step for step in steps if step.gap is not None and step.gap > 0.0]

    def draw(figure: Figure, palette: Palette) -> None:
        axes = figure.subplots(3, 1, sharex=True)
        numbers = [step.iteration for step in steps]
        _draw_steps(axes[0], numbers, [step.objective for step in steps], palette, 0)
        _draw_steps(
            axes[1], [step.iteration for step in with_gap], [step.gap for step in with_gap], palette, 1
        )
        axes[2].step(numbers, [step.rank for step in steps], where="post", **palette.line(2))
        for panel, name in zip(axes, ("objective", "duality gap", "rank"), strict=True):
            prepare_axes(panel, palette, "", "", name)
        if with_gap:
            use_logarithm(axes[1])
        axes[2].set_ylim(bottom=0.0)
        use_integers(axes[2].yaxis)
        use_integers(axes[2].xaxis)
        axes[2].set_xlabel("iteration")
        figure.align_ylabels(axes)

    return make_plot("Objective, duality gap and rank by iteration", (5.0, 5.4), theme, draw)


def _draw_steps(
    axes: Any, numbers: Sequence[int], values: Sequence[Any], palette: Palette, line: int
) -> None:
    marker = "o" if len(numbers) <= _MOST_MARKED else None
    axes.plot(numbers, values, marker=marker, markersize=3, **palette.line(line))


def _spectrum(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    array = np.sort(np.asarray(values, np.float64).ravel())[::-1]
    if not (np.isfinite(array).all() and (array >= 0.0).all()):
        where = f" of {name!r}" if name else ""
        raise InvalidInputError(f"singular values{where} must be finite and not negative")
    return array[array > 0.0]


Directions = Mapping[str, Mapping[str, RetrievalCurves]]
"""Curves by direction, and in each by method; the first method stands out."""
_RECALL, _SCOPE = "recall", "scope: results looked at"
_PANEL_WIDTH, _PANEL_HEIGHT = 4.6, 3.2  # inches: text of ten points is read at this size on a telephone, too
_MARKERS = "os^D"
_REFERENCE_WIDTH = 1.5  # points: dots of less are hard to distinguish from the grid on a dark ground


@dataclass(frozen=True, slots=True)
class Interval:
    """A measured value with its confidence interval, all as fractions.

    Parameters
    ----------
    value : float
    low, high : float
    """

    value: float
    low: float
    high: float


def plot_precision_recall(
    directions: Directions, chance: Mapping[str, float] | None = None, *, theme: Theme = "light"
) -> Plot:
    """Plot interpolated precision against recall, one panel for each direction.

    Parameters
    ----------
    directions : mapping of str to mapping of str to RetrievalCurves
        Curves by direction, and in each by method (see `solver.retrieval_curves`).
    chance : mapping of str to float, optional
        Precision of a random ranking, by direction.
    theme : {"light", "dark"}
        The ground to draw on.
    """
    return _plot_curves("Precision against recall", (_RECALL,), directions, chance, theme)


def plot_precision_scope(
    directions: Directions, chance: Mapping[str, float] | None = None, *, theme: Theme = "light"
) -> Plot:
    """Plot precision of the first results against their number, one panel for each direction.

    Parameters are as of `plot_precision_recall`.
    """
    return _plot_curves("Precision of the first results", (_SCOPE,), directions, chance, theme)


def plot_retrieval(
    directions: Directions, chance: Mapping[str, float] | None = None, *, theme: Theme = "light"
) -> Plot:
    """Plot both kinds of curves, precision-recall above precision-scope.

    Parameters are as of `plot_precision_recall`.
    """
    title = "Precision against recall, and of the first results"
    return _plot_curves(title, (_RECALL, _SCOPE), directions, chance, theme)


def plot_reliability(reliability: Reliability | Mapping[str, Reliability], *, theme: Theme = "light") -> Plot:
    """Plot the share of pairs that match against the probability they were given; below it their number.

    Parameters
    ----------
    reliability : Reliability or mapping of str to Reliability
        Of one model, or of several by name (see `solver.measure_reliability`).
    theme : {"light", "dark"}
        The ground to draw on.
    """
    named = isinstance(reliability, Mapping)
    models = reliability if isinstance(reliability, Mapping) else {"this model": reliability}
    if not models or not all(len(model.counts) for model in models.values()):
        raise InvalidInputError("there are no pairs whose probabilities could be judged")

    def draw(figure: Figure, palette: Palette) -> None:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        above.plot([0, 1], [0, 1], **_reference(palette), label="reliable")
        for number, (name, model) in enumerate(models.items()):
            style = palette.line(number)
            above.plot(model.probabilities, model.shares, marker="o", markersize=4, label=name, **style)
            below.plot(model.probabilities, model.counts, marker="o", markersize=3, **style)
        prepare_axes(above, palette, "", "", "share that matches")
        prepare_axes(below, palette, "", "estimated probability of a match", "pairs")
        above.set_ylim(-0.03, 1.03)
        below.set_xlim(-0.03, 1.03)
        use_logarithm(below)
        figure.align_ylabels([above, below])
        above.legend(frameon=False, fontsize=9, loc="upper left" if not named else "best")

    return make_plot("Reliability of the probabilities", (_PANEL_WIDTH, 4.4), theme, draw)


def plot_intervals(
    groups: Mapping[str, Mapping[str, Interval]], measure: str, *, theme: Theme = "light"
) -> Plot:
    """Plot values with their confidence intervals, the best group at the top.

    Parameters
    ----------
    groups : mapping of str to mapping of str to Interval
        Values by group (such as a method), and in each by variant (such as with and without PCA).
    measure : str
        What was measured; "%" is added.
    theme : {"light", "dark"}
        The ground to draw on.
    """
    if not groups or not all(groups.values()):
        raise InvalidInputError("each group must have a value")
    names = sorted(groups, key=lambda name: max(interval.value for interval in groups[name].values()))
    variants = list(dict.fromkeys(variant for group in groups.values() for variant in group))
    offsets = np.linspace(0.14, -0.14, len(variants)) if len(variants) > 1 else np.zeros(1)

    def draw(figure: Figure, palette: Palette) -> None:
        axes = figure.subplots()
        for number, variant in enumerate(variants):
            intervals = [
                (place, groups[name][variant]) for place, name in enumerate(names) if variant in groups[name]
            ]
            places = np.array([place for place, _ in intervals]) + offsets[number]
            colour = palette.lines[number % len(palette.lines)]
            axes.hlines(
                places,
                [100 * interval.low for _, interval in intervals],
                [100 * interval.high for _, interval in intervals],
                color=colour,
                linewidth=1.6,
            )
            marker = _MARKERS[number % len(_MARKERS)]
            values = [100 * interval.value for _, interval in intervals]
            axes.plot(values, places, linestyle="", marker=marker, color=colour, markersize=5, label=variant)
        prepare_axes(axes, palette, "", f"{measure}, %", "")
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(names)), names)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(variants), frameon=False, fontsize=9)

    return make_plot(f"{measure} of each method", (8.0, 1.2 + 0.42 * len(names)), theme, draw)


def _plot_curves(
    title: str, kinds: Sequence[str], directions: Directions, chance: Mapping[str, float] | None, theme: Theme
) -> Plot:
    if not directions or not all(directions.values()):
        raise InvalidInputError("each direction must have curves")

    def draw(figure: Figure, palette: Palette) -> None:
        reference = _reference(palette)
        panels = figure.subplots(len(kinds), len(directions), sharey="row", squeeze=False)
        for place, (row, kind) in enumerate(zip(panels, kinds, strict=True)):
            for axes, (direction, curves) in zip(row, directions.items(), strict=True):
                _draw_curves(axes, kind, curves, palette)
                level = (chance or {}).get(direction)
                if level is not None:
                    axes.axhline(level, **reference, label="chance")
                y_label = "precision" if axes is row[0] else ""
                prepare_axes(axes, palette, direction if place == 0 else "", kind, y_label)
            for axes in row:  # they share the axis, so not before all are drawn
                axes.set_ylim(bottom=0.0)
        handles, names = panels[0, 0].get_legend_handles_labels()
        figure.legend(
            handles, names, loc="outside lower center", ncols=2 * len(directions), frameon=False, fontsize=9
        )

    return make_plot(title, (_PANEL_WIDTH * len(directions), _PANEL_HEIGHT * len(kinds) + 0.4), theme, draw)


def _reference(palette: Palette) -> dict[str, Any]:
    return {"color": palette.muted, "linewidth": _REFERENCE_WIDTH, "linestyle": ":"}


def _draw_curves(axes: Any, kind: str, curves: Mapping[str, RetrievalCurves], palette: Palette) -> None:
    for number, (name, line) in enumerate(curves.items()):
        is_recall = kind == _RECALL
        x = line.recall if is_recall else line.scopes
        y = line.precision_at_recall if is_recall else line.precision_at_scope
        axes.plot(x, y, label=name, **palette.line(number))
    if kind == _SCOPE:
        use_integers(axes.xaxis)
