"""The plots of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from app.cli.compare.own_data import ComparedSet
from solver import RetrievalCurves, retrieval_curves
from solver.comparison import Comparison
from solver.plots import (
    Interval,
    Plot,
    plot_intervals,
    plot_precision_recall,
    plot_precision_scope,
    plot_retrieval,
    plot_singular_values,
)

_VARIANTS = {False: "without PCA", True: "PCA, 99 % of the energy"}
_MEASURE = "average MAP of both directions (95 % interval)"
_FIRST = ("SemanticBilinear", "LowRankBilinear")
"""Methods of our own: the first of them that takes part stands out."""


def chosen_rows(comparison: Comparison) -> list[int]:
    """Return for each method its row, with or without PCA, that did better in cross-validation."""
    best: dict[str, int] = {}
    for number, row in enumerate(comparison.rows):
        leader = best.get(row.method)
        if leader is None or row.cv_score > comparison.rows[leader].cv_score:
            best[row.method] = number
    return list(best.values())


def curve_plot(comparison: Comparison, modalities: tuple[str, str]) -> Plot:
    """Return precision-recall and precision-scope curves of each method's chosen row, in both directions."""
    directions = _directions(comparison, modalities)
    return plot_retrieval(directions, dict.fromkeys(directions, comparison.chance))


def interval_plot(comparison: Comparison) -> Plot:
    """Return the averages of all rows with their confidence intervals."""
    groups: dict[str, dict[str, Interval]] = {}
    for row in comparison.rows:
        interval = Interval(row.average, *row.intervals["average"])
        groups.setdefault(row.method, {})[_VARIANTS[row.pca]] = interval
    return plot_intervals(groups, _MEASURE)


def spectrum_plot(comparison: Comparison) -> Plot | None:
    """Return the singular values of M of the rows that have any; None where none has."""
    spectra = {
        f"{outcome.method}, {'PCA' if outcome.pca else 'no PCA'}": outcome.singular_values
        for outcome in comparison.outcomes
        if (outcome.singular_values > 0.0).any()
    }
    return plot_singular_values(spectra) if spectra else None


def write_plots(folder: Path, compared: ComparedSet, comparison: Comparison) -> None:
    """Write the plots of a set as SVG and PNG files, ``SET-KIND.svg`` and so on; the folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, plot in _plots(compared, comparison):
        for suffix in ("svg", "png"):
            plot.save(folder / f"{comparison.dataset}-{kind}.{suffix}")


def _plots(compared: ComparedSet, comparison: Comparison) -> Iterator[tuple[str, Plot]]:
    directions = _directions(comparison, compared.modalities)
    chance = dict.fromkeys(directions, comparison.chance)
    yield "precision-recall", plot_precision_recall(directions, chance)
    yield "precision-scope", plot_precision_scope(directions, chance)
    yield "intervals", interval_plot(comparison)
    spectrum = spectrum_plot(comparison)
    if spectrum is not None:
        yield "singular-values", spectrum


def _directions(comparison: Comparison, modalities: tuple[str, str]) -> dict[str, dict[str, RetrievalCurves]]:
    """Return the curves of each method's chosen row by direction."""
    labels, (x_name, z_name) = comparison.test_labels, modalities
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    outcomes = [comparison.outcomes[number] for number in chosen_rows(comparison)]
    outcomes.sort(key=lambda outcome: ranks.get(outcome.method, len(_FIRST)))
    return {
        f"{x_name} query, {z_name} gallery": {
            outcome.method: retrieval_curves(outcome.x_test, outcome.z_test, labels, labels)
            for outcome in outcomes
        },
        f"{z_name} query, {x_name} gallery": {
            outcome.method: retrieval_curves(outcome.z_test, outcome.x_test, labels, labels)
            for outcome in outcomes
        },
    }
