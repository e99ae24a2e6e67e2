"""Plots of what was learned and how good it is, for pages, reports and notebooks.

Each function returns a `Plot`, which a notebook shows, and which becomes SVG or PNG: the same numbers always
give the same bytes. They need Matplotlib, of the extra `plots`, which is imported when the first is drawn;
where it is absent, ImportError names the extra. InvalidInputError says that there is nothing to draw, or that
a number cannot be. Matplotlib's global state (pyplot, the style of a notebook) is neither used nor changed.
"""

from solver.plots.canvas import THEMES, Plot, Theme, require_matplotlib
from solver.plots.fits import ConvergenceStep, plot_convergence, plot_singular_values
from solver.plots.quality import (
    Interval,
    plot_intervals,
    plot_precision_recall,
    plot_precision_scope,
    plot_reliability,
    plot_retrieval,
)

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
