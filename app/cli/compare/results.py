"""The results of a comparison: as plots, as tables for people, and as data over seeds for CSV and LaTeX, with
the points of the curves."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.cli.compare.own_data import ComparedSet
from app.domain.errors import InvalidFieldError
from solver import RankingQuality, RetrievalCurves, RetrievalQuality, retrieval_curves
from solver.comparison import Comparison
from solver.datasets import LABEL
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


_RANK = "rank"  # column of the partner's rank, the one that is no share
CAPTION = (
    "Test split, both directions averaged, in % but for the rank; of the rows with and without PCA the one "
    "that did better in cross-validation. nDCG counts how many facets an item shares with the query, and "
    "whether it is its partner; R and the median rank are those of the partner; P@10 stays below 100 "
    "where fewer than ten items are relevant; lists: different first pages of ten, and the number of queries."
)

Runs = Mapping[int, Sequence[tuple[ComparedSet, Comparison]]]
"""Sets and their comparisons by seed."""
MEASURES = ("image_query", "text_query", "average", "ndcg_at_10", "recall_at_10")
"""Of each line: MAP of the queries of either modality and of both, then nDCG@10 and R@10 of both."""
_SHOWN = MEASURES[:3]
_MOST_SEEDS = 100
_PLUS_MINUS = r"\pm"
_LATEX = {character: f"\\{character}" for character in "_&%$#{}"}


def quality_table(comparison: Comparison, numbers: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of some rows of a comparison, best nDCG first. A measure that there is nothing
    to measure by has no column: MAP without labels, ranks without partners."""
    means = {number: comparison.qualities[number].mean for number in numbers}
    ordered = sorted(numbers, key=lambda number: -_or_zero(means[number].ndcg))
    columns = {
        name: [value(means[number]) for number in ordered]
        for name, value in _measures(means[ordered[0]]).items()
    }
    columns = {name: values for name, values in columns.items() if not all(map(math.isnan, values))}
    lines = [
        [
            comparison.rows[number].method,
            "99 %" if comparison.rows[number].pca else "none",
            *(_cell(name, values[place]) for name, values in columns.items()),
            f"{means[number].n_lists} of {means[number].n_queries}",
        ]
        for place, number in enumerate(ordered)
    ]
    return ["method", "PCA", *columns, "lists"], lines


def _measures(mean: RankingQuality) -> dict[str, Callable[[RankingQuality], float]]:
    measures: dict[str, Callable[[RankingQuality], float]] = {
        "nDCG@10": lambda quality: quality.ndcg,
        "R@1": lambda quality: quality.recall_at_1,
        "R@10": lambda quality: quality.recall_at_10,
        _RANK: lambda quality: quality.median_rank,
    }
    if LABEL in mean.facet_map:
        measures = {"MAP": lambda quality: quality.map, **measures}
    for facet in mean.facet_precision:
        measures[f"{facet} P@10"] = lambda quality, facet=facet: quality.facet_precision[facet]  # type: ignore[misc]
    return measures


def quality_values(quality: RetrievalQuality) -> dict[str, Any]:
    """Return both directions and their mean as JSON values; null where there was nothing to measure."""
    values: dict[str, Any] = _without_nan({**asdict(quality), "mean": asdict(quality.mean)})
    return values


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:g}" if name == _RANK else f"{100 * value:.1f}"


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nan(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


@dataclass(frozen=True, slots=True)
class ResultLine:
    """A method on a set, with or without PCA after the scaling."""

    dataset: str
    method: str
    pca: bool
    # each of the `MEASURES` by seed; NaN where there is nothing to measure by
    values: Mapping[str, Sequence[float]]

    def mean(self, measure: str) -> float:
        return statistics.fmean(self.values[measure])

    def deviation(self, measure: str) -> float:
        """Return the standard deviation between seeds (n - 1); NaN of a single one."""
        values = self.values[measure]
        return statistics.stdev(values) if len(values) > 1 else math.nan

    def show(self, measure: str, sign: str = "±") -> str:
        """Return mean and deviation in percent."""
        shown, deviation = f"{100 * self.mean(measure):.2f}", self.deviation(measure)
        return shown if math.isnan(deviation) else f"{shown} {sign} {100 * deviation:.2f}"


def read_seeds(text: str | None, first: int) -> tuple[int, ...]:
    """Return the seeds of ``--seeds``: a list such as "0,1,2", or how many, counted from the first."""
    words = (text or "1").split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise InvalidFieldError(
            "--seeds", f"expected a number of seeds, or a list such as 0,1,2, got {text!r}"
        )
    numbers = [int(word) for word in words]
    seeds = tuple(range(first, first + numbers[0])) if len(numbers) == 1 else tuple(numbers)
    if not 0 < len(set(seeds)) == len(seeds) <= _MOST_SEEDS:
        raise InvalidFieldError("--seeds", f"expected 1 to {_MOST_SEEDS} different seeds, got {text!r}")
    return seeds


def result_lines(runs: Runs) -> list[ResultLine]:
    """Return a line for each set, method and use of PCA, in the order of the first seed that has it."""
    values: dict[tuple[str, str, bool], dict[str, list[float]]] = {}
    for parts in runs.values():
        for _, comparison in parts:
            for row, quality in zip(comparison.rows, comparison.qualities, strict=True):
                key = comparison.dataset, row.method, row.pca
                line = values.setdefault(key, {measure: [] for measure in MEASURES})
                measured = quality.mean.ndcg, quality.mean.recall_at_10
                for measure, value in zip(
                    MEASURES, (row.image_query, row.text_query, row.average, *measured), strict=True
                ):
                    line[measure].append(value)
    return [ResultLine(*key, line) for key, line in values.items()]


def write_results(folder: Path, runs: Runs) -> None:
    """Write ``results.csv``, ``results.tex`` and ``curves.csv`` of all seeds into an existing folder."""
    lines = result_lines(runs)
    columns = [f"{measure}{end}" for measure in MEASURES for end in ("", "_sd")]
    with (folder / "results.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["dataset", "method", "pca", "n_seeds", *columns])
        for line in lines:
            cells = [cell for name in MEASURES for cell in (line.mean(name), line.deviation(name))]
            n_seeds = len(line.values["average"])
            shown = ["" if math.isnan(cell) else f"{cell:.6f}" for cell in cells]
            table.writerow([line.dataset, line.method, int(line.pca), n_seeds, *shown])
    modalities = {part.name: part.modalities for part, _ in next(iter(runs.values()))}
    tables = [_latex(name, modalities[name], lines) for name in modalities]
    (folder / "results.tex").write_text("\n".join(tables), encoding="utf-8")
    with (folder / "curves.csv").open("w", newline="", encoding="utf-8") as stream:
        points = csv.writer(stream)
        points.writerow(["dataset", "seed", "method", "pca", "query", "curve", "at", "precision"])
        points.writerows(_points(runs))


def _latex(dataset: str, modalities: tuple[str, str], lines: Sequence[ResultLine]) -> str:
    """Return a table of LaTeX (package booktabs) of a set; the best average is bold."""
    of_set = sorted(
        (line for line in lines if line.dataset == dataset), key=lambda line: -line.mean("average")
    )
    n_seeds = max(len(line.values["average"]) for line in of_set)
    over = f", mean $\\pm$ standard deviation over {n_seeds} seeds" if n_seeds > 1 else ""
    rows = []
    for line in of_set:
        cells = [f"${line.show(measure, _PLUS_MINUS)}$" for measure in _SHOWN]
        if line is of_set[0]:
            cells[-1] = f"\\boldmath{cells[-1]}"
        pca = r"99\,\%" if line.pca else "none"
        rows.append(f"{_escape(line.method)} & {pca} & {' & '.join(cells)} " + r"\\")
    return "\n".join(
        [
            f"% {dataset}: MAP in %{over}",
            r"\begin{tabular}{llrrr}",
            r"\toprule",
            f"method & PCA & {_escape(modalities[0])} query & {_escape(modalities[1])} query & average \\\\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _points(runs: Runs) -> Iterator[tuple[object, ...]]:
    """Yield the points of both curves of every row, in both directions."""
    for seed, parts in runs.items():
        for part, comparison in parts:
            labels = comparison.test_labels
            for outcome in comparison.outcomes:
                sides = outcome.x_test, outcome.z_test
                for name, queries, gallery in zip(part.modalities, sides, sides[::-1], strict=True):
                    curves = retrieval_curves(queries, gallery, labels, labels)
                    key = comparison.dataset, seed, outcome.method, int(outcome.pca), name
                    for curve, places, precisions in (
                        ("recall", curves.recall, curves.precision_at_recall),
                        ("scope", curves.scopes, curves.precision_at_scope),
                    ):
                        for at, precision in zip(places, precisions, strict=True):
                            yield (*key, curve, f"{float(at):g}", f"{float(precision):.6f}")
