"""The figures of a report, as SVG elements for an HTML page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver import FloatArray, precision_at_scope, precision_recall_curve, score_blocks
from solver.comparison import Comparison

_RECALL_LEVELS = np.linspace(0.0, 1.0, 21)
_N_SCOPES = 40
"""Points of a precision-scope curve: enough for a smooth line of this size."""
_EMPHASISED = {"LowRankBilinear": "#b3001b", "SemanticBilinear": "#0b3c8c"}
_COLOURS = ("#e08214", "#1b7837", "#762a83", "#35978f", "#8c510a", "#dd6fb0", "#636363", "#9ebd13")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (5, 1.5, 1.5, 1.5)))


@dataclass(frozen=True, slots=True)
class Curves:
    """Means over the queries of one direction.

    Parameters
    ----------
    precision_at_recall : ndarray of shape (n_levels,)
        Interpolated precision at the levels of recall.
    scopes : ndarray of int, shape (n_scopes,)
        Numbers of results looked at.
    precision_at_scope : ndarray of shape (n_scopes,)
        Precision of the first results, for each scope.
    """

    precision_at_recall: FloatArray
    scopes: Any
    precision_at_scope: FloatArray


def curves(queries: FloatArray, gallery: FloatArray, labels: Any) -> Curves:
    """Return the mean precision-recall and precision-scope curves of one direction."""
    n_gallery = len(gallery)
    scopes = np.unique(np.linspace(1, n_gallery, min(_N_SCOPES, n_gallery)).astype(np.intp))
    precision, scope_precision = [], []
    for relevant, scores in score_blocks(queries, gallery, labels, labels):
        precision.append(precision_recall_curve(relevant, scores, _RECALL_LEVELS)[0])
        scope_precision.append(precision_at_scope(relevant, scores, scopes))
    return Curves(
        np.nanmean(np.concatenate(precision), axis=0), scopes, np.concatenate(scope_precision).mean(axis=0)
    )


def curve_figure(comparison: Comparison, numbers: Sequence[int], modalities: tuple[str, str]) -> str:
    """Return precision-recall and precision-scope curves of some rows, in both directions.

    Parameters
    ----------
    comparison : Comparison
        Whose rows.
    numbers : sequence of int
        Which of them.
    modalities : tuple of str
        Names of both modalities.
    """
    labels = comparison.test_labels

    def draw(figure: Any) -> None:
        axes = figure.subplots(2, 2, sharey="row")
        for column, (source, target) in enumerate((modalities, modalities[::-1])):
            above, below = axes[0, column], axes[1, column]
            for order, number in enumerate(numbers):
                outcome = comparison.outcomes[number]
                x, z = outcome.x_test, outcome.z_test
                means = curves(x, z, labels) if column == 0 else curves(z, x, labels)
                style = _style(outcome.method, order)
                above.plot(_RECALL_LEVELS, means.precision_at_recall, label=outcome.method, **style)
                below.plot(means.scopes, means.precision_at_scope, **style)
            above.set_title(f"{source} query, {target} gallery", fontsize=10)
            above.set_xlabel("recall")
            below.set_xlabel("scope: results looked at")
            for axis in (above, below):
                axis.axhline(comparison.chance, color="#999999", linewidth=0.8, linestyle=":")
                axis.grid(color="#e5e5e5", linewidth=0.6)
            above.text(0.0, comparison.chance, "chance", va="bottom", fontsize=8, color="#777777")
        for first in axes[:, 0]:  # both columns share it, so not before both are drawn
            first.set_ylim(bottom=0)
        axes[0, 0].set_ylabel("precision")
        axes[1, 0].set_ylabel("precision")
        handles, names = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9)

    return _svg(f"curves-{comparison.dataset}", (9.0, 7.2), draw)


def interval_figure(comparison: Comparison) -> str:
    """Return the averages of all rows with their confidence intervals."""
    rows = comparison.rows
    names = list(dict.fromkeys(row.method for row in rows))
    best = {name: max(row.average for row in rows if row.method == name) for name in names}
    names.sort(key=lambda name: best[name])

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for row in rows:
            position = names.index(row.method) + (-0.14 if row.pca else 0.14)
            low, high = row.intervals["average"]
            colour = "#777777" if row.pca else "#b3001b"
            axis.plot([100 * low, 100 * high], [position, position], color=colour, linewidth=1.6)
            axis.plot(
                [100 * row.average], [position], marker="s" if row.pca else "o", color=colour, markersize=5
            )
        axis.set_yticks(range(len(names)), names)
        axis.set_xlabel("average MAP of both directions, % (95 % interval)")
        axis.grid(axis="x", color="#e5e5e5", linewidth=0.6)
        handles = [
            axis.plot([], [], marker="o", color="#b3001b", label="without PCA")[0],
            axis.plot([], [], marker="s", color="#777777", label="PCA, 99 % of the energy")[0],
        ]
        axis.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False, fontsize=9
        )

    return _svg(f"intervals-{comparison.dataset}", (8.0, 1.2 + 0.42 * len(names)), draw)


def spectrum_figure(comparison: Comparison, numbers: Sequence[int]) -> str:
    """Return the singular values of M for the rows that have any."""

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for order, number in enumerate(numbers):
            outcome = comparison.outcomes[number]
            values = np.sort(outcome.singular_values)[::-1]
            values = values[values > 0]
            label = f"{outcome.method}, {'PCA' if outcome.pca else 'no PCA'}: rank {len(values)}"
            style = _style(outcome.method, order)
            style["linestyle"] = "--" if outcome.pca else "-"
            share = values / values[0] if len(values) else values
            axis.plot(np.arange(1, len(values) + 1), share, marker="o", markersize=4, label=label, **style)
        axis.set_xlabel("number of the singular value")
        axis.set_ylabel("share of the largest")
        axis.set_ylim(bottom=0)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(color="#e5e5e5", linewidth=0.6)
        axis.legend(frameon=False, fontsize=9)

    return _svg(f"spectrum-{comparison.dataset}", (7.0, 3.2), draw)


def _style(method: str, order: int) -> dict[str, Any]:
    emphasised = _EMPHASISED.get(method)
    if emphasised is not None:
        return {"color": emphasised, "linewidth": 2.2, "linestyle": "-", "zorder": 5}
    dashes = _DASHES[1 + order % (len(_DASHES) - 1)]
    return {"color": _COLOURS[order % len(_COLOURS)], "linewidth": 1.4, "linestyle": dashes}


def _svg(name: str, size: tuple[float, float], draw: Callable[[Any], None]) -> str:
    """Return a figure as an SVG element; the same figure always gives the same text."""
    # Imported here because it loads slowly, and every command would wait for it.
    import matplotlib
    import matplotlib.figure

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 9.5,
        "font.family": "sans-serif",
    }
    settings |= {"axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(settings):
        figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
        draw(figure)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
