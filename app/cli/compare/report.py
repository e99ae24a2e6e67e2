"""The results of a comparison: as plots, as tables for people, and as data over seeds for CSV and LaTeX; a
report of one HTML file and one Markdown file; and what is printed."""

from __future__ import annotations

import base64
import csv
import functools
import importlib
import io
import math
import os
import platform
import shlex
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.compare.own_data import ComparedSet, marked_rows
from app.cli.console import OUT
from app.domain.errors import InvalidFieldError
from app.domain.names import join_words
from app.encoders.pictures import PixelBudget, opened_picture
from app.settings import Settings
from solver import (
    RankingQuality,
    RetrievalCurves,
    RetrievalQuality,
    SemanticBilinear,
    plots,
    rank_gallery,
    retrieval_curves,
)
from solver.comparison import Comparison, ComparisonRow
from solver.datasets import LABEL, PublishedProtocol

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


def curve_plot(comparison: Comparison, modalities: tuple[str, str]) -> plots.Plot:
    """Return precision-recall and precision-scope curves of each method's chosen row, in both directions."""
    directions = _directions(comparison, modalities)
    return plots.plot_retrieval(directions, dict.fromkeys(directions, comparison.chance))


def interval_plot(comparison: Comparison) -> plots.Plot:
    """Return the averages of all rows with their confidence intervals."""
    groups: dict[str, dict[str, plots.Interval]] = {}
    for row in comparison.rows:
        interval = plots.Interval(row.average, *row.intervals["average"])
        groups.setdefault(row.method, {})[_VARIANTS[row.pca]] = interval
    return plots.plot_intervals(groups, _MEASURE)


def spectrum_plot(comparison: Comparison) -> plots.Plot | None:
    """Return the singular values of M of the rows that have any; None where none has."""
    spectra = {
        f"{outcome.method}, {'PCA' if outcome.pca else 'no PCA'}": outcome.singular_values
        for outcome in comparison.outcomes
        if (outcome.singular_values > 0.0).any()
    }
    return plots.plot_singular_values(spectra) if spectra else None


def write_plots(folder: Path, compared: ComparedSet, comparison: Comparison) -> None:
    """Write the plots of a set as SVG and PNG files, ``SET-KIND.svg`` and so on; the folder is created."""
    folder.mkdir(parents=True, exist_ok=True)
    directions = _directions(comparison, compared.modalities)
    chance = dict.fromkeys(directions, comparison.chance)
    plots_by_kind = {
        "precision-recall": plots.plot_precision_recall(directions, chance),
        "precision-scope": plots.plot_precision_scope(directions, chance),
        "intervals": interval_plot(comparison),
        "singular-values": spectrum_plot(comparison),
    }
    for kind, plot in plots_by_kind.items():
        for suffix in ("svg", "png"):
            if plot is not None:
                plot.save(folder / f"{comparison.dataset}-{kind}.{suffix}")


def _directions(comparison: Comparison, modalities: tuple[str, str]) -> dict[str, dict[str, RetrievalCurves]]:
    """Return the curves of each method's chosen row by direction."""
    labels, (x_name, z_name) = comparison.test_labels, modalities
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    outcomes = [comparison.outcomes[number] for number in chosen_rows(comparison)]
    outcomes.sort(key=lambda outcome: ranks.get(outcome.method, len(_FIRST)))
    x, z = ({one.method: getattr(one, side) for one in outcomes} for side in ("x_test", "z_test"))
    return {
        f"{query} query, {gallery} gallery": {
            name: retrieval_curves(queries[name], items[name], labels, labels) for name in queries
        }
        for query, gallery, queries, items in ((x_name, z_name, x, z), (z_name, x_name, z, x))
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
_ESCAPES = str.maketrans({character: f"\\{character}" for character in "_&%$#{}"})  # of LaTeX


def quality_table(comparison: Comparison, numbers: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of some rows of a comparison, best nDCG first. A measure that there is nothing
    to measure by has no column: MAP without labels, ranks without partners."""
    means = {number: comparison.qualities[number].mean for number in numbers}
    ordered = sorted(numbers, key=lambda number: -np.nan_to_num(means[number].ndcg))
    measures = [_measures(means[number]) for number in ordered]
    columns = {name: [values[name] for values in measures] for name in measures[0]}
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


def _measures(quality: RankingQuality) -> dict[str, float]:
    return {
        **({"MAP": quality.map} if LABEL in quality.facet_map else {}),
        "nDCG@10": quality.ndcg,
        "R@1": quality.recall_at_1,
        "R@10": quality.recall_at_10,
        _RANK: quality.median_rank,
        **{f"{facet} P@10": share for facet, share in quality.facet_precision.items()},
    }


def quality_values(quality: RetrievalQuality) -> dict[str, Any]:
    """Return both directions and their mean as JSON values; null where there was nothing to measure."""
    values: dict[str, Any] = _without_nan({**asdict(quality), "mean": asdict(quality.mean)})
    return values


def _cell(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:g}" if name == _RANK else f"{100 * value:.1f}"


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
                ranks = quality.mean.ndcg, quality.mean.recall_at_10
                figures = row.image_query, row.text_query, row.average, *ranks
                for measure, value in zip(MEASURES, figures, strict=True):
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
    first, second = (name.translate(_ESCAPES) for name in modalities)
    over = f", mean $\\pm$ standard deviation over {n_seeds} seeds" if n_seeds > 1 else ""
    rows = []
    for line in of_set:
        cells = [f"${line.show(measure, _PLUS_MINUS)}$" for measure in _SHOWN]
        if line is of_set[0]:
            cells[-1] = f"\\boldmath{cells[-1]}"
        pca = r"99\,\%" if line.pca else "none"
        rows.append(f"{line.method.translate(_ESCAPES)} & {pca} & {' & '.join(cells)} " + r"\\")
    return "\n".join(
        [
            f"% {dataset}: MAP in %{over}",
            r"\begin{tabular}{llrrr}",
            r"\toprule",
            f"method & PCA & {first} query & {second} query & average \\\\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


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


_N_QUERIES, _N_HITS = 4, 6
"""A screen of examples for each direction."""
_SIDE = 112  # pixels of a thumbnail's longer side
_LEVEL, _SMALL = 0.05, 0.001
"""Significance level of the verdict; smaller p values than the second are shown as "< 0.001"."""
_WIDEST = 1000  # characters of the widest table: far more than one of sixteen facets has


def retrieval_examples(
    compared: ComparedSet, comparison: Comparison, number: int, seed: int
) -> list[list[dict[str, Any]]]:
    """Return queries drawn at random with their first hits by outcome `number`: picture queries, then text
    queries. Without the set's original pictures and texts there are none."""
    if not compared.rows:
        return []
    rows = marked_rows(compared.rows, ~compared.data.is_train)
    labels = comparison.test_labels.tolist()
    outcome = comparison.outcomes[number]
    drawn = np.random.default_rng(seed).permutation(len(rows))[:_N_QUERIES].tolist()

    def view(row: int, as_picture: bool, query: int) -> dict[str, Any]:
        """Return a query or a hit; it is relevant if it shares the query's class."""
        picture = _thumbnail(rows[row].picture.read_bytes()) if as_picture else ""
        shown = {"text": "" if as_picture else rows[row].text, "picture": picture}
        return {"label": labels[row], "is_relevant": labels[row] == labels[query], **shown}

    def show(with_picture: bool, source: Any, target: Any) -> list[dict[str, Any]]:
        order = rank_gallery(source[drawn] @ target.T)[:, :_N_HITS].tolist()
        return [
            {
                "query": view(query, with_picture, query),
                "hits": [view(hit, not with_picture, query) for hit in hits],
            }
            for query, hits in zip(drawn, order, strict=True)
        ]

    x_test, z_test = outcome.x_test, outcome.z_test
    return [show(True, x_test, z_test), show(False, z_test, x_test)]


def _thumbnail(content: bytes) -> str:
    limit = Settings().max_picture_pixels
    stream = io.BytesIO()
    with opened_picture("picture", content, limit, PixelBudget(limit)) as picture:
        picture.thumbnail((_SIDE, _SIDE))
        picture.save(stream, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


def require_report_libraries() -> None:
    """Raise ImportError, naming the extra, where a report cannot be made."""
    for name in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(f"--report needs {name}, of the extra: pip install 'lrbs[report]'") from error


def machine() -> str:
    """Describe the machine on which the seconds were measured."""
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"


def write_report(
    folder: Path, runs: Runs, protocols: Sequence[PublishedProtocol | None], n_folds: int
) -> Path:
    """Write ``report.html`` and ``report.md`` and return the first; the folder is created. The sections are
    of the first seed, with results over all of several; each set has a published protocol or None."""
    require_report_libraries()
    folder.mkdir(parents=True, exist_ok=True)
    seeds = list(runs)
    parts = runs[seeds[0]]
    sections = [
        _section(compared, comparison, protocol, seeds[0])
        for (compared, comparison), protocol in zip(parts, protocols, strict=True)
    ]
    comparisons = [comparison for _, comparison in parts]
    rows = [row for comparison in comparisons for row in comparison.rows]
    methods = list(dict.fromkeys(row.method for row in rows))
    plain, escaping = _environment(autoescape=False), _environment(autoescape=True)
    explanation = plain.get_template("explanation.j2").render(
        n_folds=n_folds,
        methods=methods,
        self_tuned=[
            name for name in methods if all(_is_self_tuned(row) for row in rows if row.method == name)
        ],
        semantic=SemanticBilinear(),
    )
    for name, environment in (("report.html", escaping), ("report.md", plain)):
        text = environment.get_template(f"{name}.j2").render(
            sections=sections,
            summary=_summary(comparisons),
            comparisons=comparisons,
            command=shlex.join(["lrbs", *sys.argv[1:]]),
            machine=machine(),
            seeds=seeds,
            n_folds=n_folds,
            lines=result_lines(runs) if len(seeds) > 1 else [],
            methods=methods,
            explanation=explanation.strip().split("\n\n"),
            quality_caption=CAPTION,
        )
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "report.html"


def _environment(autoescape: bool) -> Any:
    import jinja2  # imported here because only reports need it

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("app.cli.compare"),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=lambda value: f"{100 * value:.2f}",
        settings=_settings,
        p_value=_p_value,
        seconds=lambda value: f"{value:.2f}" if value < 10 else f"{value:.0f}",
        words=functools.partial(join_words, last="and"),
    )
    return environment


def verdict(rows: Sequence[ComparisonRow]) -> str:
    """Return a sentence on which method wins a table, by how much, and whether chance could explain it."""
    ordered = sorted(rows, key=lambda row: -row.average)
    if len(ordered) == 1:
        return f"Only {ordered[0].method} was compared."
    first, second = ordered[:2]
    if first.average == second.average:
        return f"{first.method} and {second.method} are tied for first place."
    lead = f"{100 * (first.average - second.average):.2f} points ahead of {second.method}"
    p = 1.0 if first.p_value is None else first.p_value
    weight = "more than" if p < _LEVEL else "within what"
    shown = _p_value(p) if p < _SMALL else f"= {_p_value(p)}"
    return f"{first.method} is first, {lead}: {weight} chance among queries explains (p {shown})."


def _section(
    compared: ComparedSet, comparison: Comparison, protocol: PublishedProtocol | None, seed: int
) -> dict[str, Any]:
    """Return what the templates show of one set."""
    titles = {False: "Without PCA", True: "With PCA (99 % of the energy)"}
    grouped = {pca: [row for row in comparison.rows if row.pca == pca] for pca in titles}
    tables = [(titles[pca], rows, verdict(rows)) for pca, rows in grouped.items() if rows]
    chosen_numbers = chosen_rows(comparison)
    best = max(chosen_numbers, key=lambda number: comparison.rows[number].cv_score)
    header, lines = quality_table(comparison, chosen_numbers)
    spectrum = spectrum_plot(comparison)
    n_train = int(compared.data.is_train.sum())
    return {
        "compared": compared,
        "comparison": comparison,
        "n_train": n_train,
        "n_test": len(compared.data.is_train) - n_train,
        "tables": tables,
        "quality_header": header,
        "quality_lines": lines,
        "published": protocol,
        "differences": protocol.differences(compared.data) if protocol else [],
        "intervals": interval_plot(comparison).svg(),
        "curves": curve_plot(comparison, compared.modalities).svg(),
        "spectrum": "" if spectrum is None else spectrum.svg(),
        "samples": retrieval_examples(compared, comparison, best, seed),
        "shown_method": comparison.rows[best].method,
    }


def _summary(comparisons: Sequence[Comparison]) -> list[tuple[str, list[ComparisonRow | None], float | None]]:
    """Return for each method its chosen row on each set, and its mean where it has all; best mean first."""
    rows_by_method = [
        {comparison.rows[number].method: comparison.rows[number] for number in chosen_rows(comparison)}
        for comparison in comparisons
    ]
    lines: list[tuple[str, list[ComparisonRow | None], float | None]] = []
    for name in dict.fromkeys(name for rows in rows_by_method for name in rows):
        rows_of_method = [rows.get(name) for rows in rows_by_method]
        averages = [row.average for row in rows_of_method if row is not None]
        is_complete = len(averages) == len(rows_of_method)
        lines.append((name, rows_of_method, sum(averages) / len(averages) if is_complete else None))
    return sorted(lines, key=lambda line: -(line[2] or 0.0))


def _p_value(value: float | None) -> str:
    if value is None:
        return "-"
    return f"< {_SMALL}" if value < _SMALL else f"{value:.3f}"


def _is_self_tuned(row: ComparisonRow) -> bool:
    """Return whether a method had nothing to choose before its fit."""
    return row.n_candidates == 1


def _settings(row: ComparisonRow) -> str:
    if _is_self_tuned(row):
        return "inside its fit"
    named = {"x_scaling": "", "z_scaling": ""}
    scalings = " / ".join("raw" if row.params[name] == "none" else str(row.params[name]) for name in named)
    rest = [
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.params.items()
        if name not in named
    ]
    return ", ".join([scalings, *rest])


def size_line(compared: ComparedSet) -> str:
    """Return a line with the number of rows and classes of a set."""
    data = compared.data
    n_train = int(data.is_train.sum())
    return (
        f"{compared.name}: {n_train} rows to train, {len(data.labels) - n_train} to test, "
        f"{len(set(data.labels.tolist()))} {compared.classes}; {compared.features}"
    )


def print_comparison(
    compared: ComparedSet, comparison: Comparison, protocol: PublishedProtocol | None
) -> None:
    """Print the tables of a set: methods without and with PCA, what users look for, published figures."""
    relevance = f"relevant: {compared.relevance}, chance {comparison.chance:.1%}"
    title = f"{comparison.dataset}: test MAP in %, {relevance}"
    table = _table(("method", "PCA", *compared.modalities, "average", "95 %", "p", "fit, s"), title)
    for row in sorted(comparison.rows, key=lambda row: (row.pca, -row.average)):
        table.add_row(*_cells(row))
    OUT.print(table)
    for pca in (False, True):
        rows = [row for row in comparison.rows if row.pca == pca]
        if rows:
            OUT.print(f"{'With' if pca else 'Without'} PCA: {verdict(rows)}", highlight=False)
    _print_quality(comparison)
    if protocol is not None:
        numbers = ", ".join(f"{name} {value:.2%}" for name, value in protocol.published.items())
        differences = "; ".join(protocol.differences(compared.data)) or "same dimensions and split sizes"
        OUT.print(f"Published, average: {numbers}. {differences}.", highlight=False, markup=False)


def print_means(runs: Runs) -> None:
    """Print a table of each set: means and standard deviations over seeds."""
    lines, numbers = result_lines(runs), ", ".join(map(str, runs))
    for compared, _ in next(iter(runs.values())):
        of_set = [line for line in lines if line.dataset == compared.name]
        title = f"{compared.name}: test MAP in %, mean ± standard deviation over the seeds {numbers}"
        table = _table(("method", "PCA", *compared.modalities, "average", "seeds"), title)
        for line in sorted(of_set, key=lambda line: (line.pca, -line.mean("average"))):
            shown = [line.show(measure) for measure in ("image_query", "text_query", "average")]
            pca = "99 %" if line.pca else "none"
            table.add_row(line.method, pca, *shown, str(len(line.values["average"])))
        OUT.print(table)


def _table(header: Iterable[str], title: str | None = None) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left", padding=(0, 1, 0, 0))
    for name in header:
        table.add_column(name, justify="left" if name in ("method", "PCA") else "right", no_wrap=True)
    return table


def _print_quality(comparison: Comparison) -> None:
    header, lines = quality_table(comparison, chosen_rows(comparison))
    table = _table(header)
    for line in lines:
        table.add_row(*line)
    # However many facets there are, a column that is cut off says nothing.
    wide = Console(soft_wrap=True, width=_WIDEST)
    wide.width = max(OUT.width, wide.measure(table).maximum)
    wide.print(table)
    OUT.print(CAPTION, highlight=False, markup=False)


def _cells(row: ComparisonRow) -> tuple[Any, ...]:
    low, high = row.intervals["average"]
    return (
        row.method,
        "99 %" if row.pca else "none",
        f"{100 * row.image_query:.2f}",
        f"{100 * row.text_query:.2f}",
        f"{100 * row.average:.2f}",
        f"{100 * low:.1f}-{100 * high:.1f}",
        "" if row.p_value is None else f"{row.p_value:.4f}",
        f"{row.fit_seconds:.2f}",
    )
