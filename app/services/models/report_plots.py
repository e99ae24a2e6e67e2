"""Plots of what a training report holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from app.domain.errors import NotFoundError, UnavailableError
from app.domain.reports import Curve, ReliabilityBins, TrainingReport
from solver import Reliability, RetrievalCurves
from solver.plots import (
    Plot,
    Theme,
    plot_convergence,
    plot_precision_recall,
    plot_precision_scope,
    plot_reliability,
    plot_singular_values,
    require_matplotlib,
)

PlotKind = Literal["singular-values", "convergence", "precision-recall", "precision-scope", "reliability"]


def draw_report(report: TrainingReport, kind: PlotKind, theme: Theme, direction: str | None = None) -> Plot:
    """Return a plot of a training report; of curves, those of one direction, such as ``"image-to-text"``.
    Raises NotFoundError without what it is drawn from, UnavailableError without Matplotlib."""
    draw = _drawing(report, kind, theme, direction)
    if draw is None:
        of_direction = "" if direction is None else f" of {direction!r}"
        raise NotFoundError("plot-not-found", f"the report holds nothing to plot {kind}{of_direction} from")
    try:
        require_matplotlib()
    except ImportError as error:
        reason = "the service has no Matplotlib to draw with: pip install 'lrbs[plots]'"
        raise UnavailableError("plots-unavailable", reason) from error
    return draw()


def _drawing(
    report: TrainingReport, kind: PlotKind, theme: Theme, direction: str | None
) -> Callable[[], Plot] | None:
    fit, held_out = report.fit, report.held_out
    match kind:
        case "singular-values":
            has_any = any(value > 0.0 for value in fit.singular_values)
            return (lambda: plot_singular_values(fit.singular_values, theme=theme)) if has_any else None
        case "convergence":
            return (lambda: plot_convergence(fit.history, theme=theme)) if fit.history else None
        case "reliability":
            bins = held_out.reliability
            return None if bins is None else lambda: plot_reliability(_reliability(bins), theme=theme)
    directions, chance = _curves(report, direction, with_scopes=kind == "precision-scope")
    if not directions:
        return None
    plot = plot_precision_scope if kind == "precision-scope" else plot_precision_recall
    return lambda: plot(directions, chance, theme=theme)


def _curves(
    report: TrainingReport, direction: str | None, with_scopes: bool
) -> tuple[dict[str, dict[str, RetrievalCurves]], dict[str, float]]:
    """Return the curves of each direction by method, the chosen one first, and chance."""
    directions, chance = {}, {}
    for name, quality in report.held_out.directions.items():
        curve = quality.curve
        if curve is None or direction not in (None, name) or (with_scopes and not curve.scopes):
            continue
        title = name.replace("-to-", " to ")
        curves = {report.method: curve, **quality.rivals}
        directions[title] = {method: _retrieval_curves(entry) for method, entry in curves.items()}
        if quality.chance is not None:
            chance[title] = quality.chance
    return directions, chance


def _retrieval_curves(curve: Curve) -> RetrievalCurves:
    return RetrievalCurves(
        np.array(curve.recall),
        np.array(curve.precision),
        np.array(curve.scopes, np.intp),
        np.array(curve.precision_at_scope),
    )


def _reliability(bins: ReliabilityBins) -> Reliability:
    return Reliability(np.array(bins.probabilities), np.array(bins.shares), np.array(bins.counts, np.intp))
