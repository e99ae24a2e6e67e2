"""Plots of how good rankings and probabilities are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from solver.evaluation.curves import Reliability, RetrievalCurves
from solver.plots.canvas import Palette, Plot, Theme, make_plot, prepare_axes, use_integers, use_logarithm
from solver.validation.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    title: str,
    kinds: Sequence[str],
    directions: Directions,
    chance: Mapping[str, float] | None,
    theme: Theme,
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
