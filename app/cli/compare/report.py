"""The report of a comparison: one self-contained HTML file and one Markdown file."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.cli.compare.figures import chosen_rows, curve_plot, interval_plot, spectrum_plot
from app.cli.compare.quality import CAPTION, quality_table
from app.cli.compare.results import ResultLine
from app.cli.compare.samples import RetrievalExample, retrieval_examples
from app.cli.compare.sets import ComparedSet
from app.domain.names import join_words
from solver import SemanticBilinear
from solver.comparison import Comparison, ComparisonRow
from solver.datasets import PublishedProtocol

_LEVEL, _SMALL = 0.05, 0.001
"""Significance level of the verdict; smaller p values than the second are shown as "< 0.001"."""


@dataclass(frozen=True, slots=True)
class RunDescription:
    """Description of the run in a report."""

    command: str
    machine: str  # on which the seconds were measured
    seeds: tuple[int, ...]  # of folds, drawn splits and resampling; the sections are of the first
    n_folds: int


@dataclass(frozen=True, slots=True)
class Section:
    """One set of the report."""

    compared: ComparedSet
    comparison: Comparison
    tables: list[tuple[str, list[ComparisonRow], str]]
    quality_header: list[str]
    quality_lines: list[list[str]]
    published: PublishedProtocol | None
    differences: list[str]
    intervals: str
    curves: str
    spectrum: str
    samples: list[list[RetrievalExample]]
    shown_method: str

    @property
    def n_train(self) -> int:
        """Pairs in the training split."""
        return int(self.compared.data.is_train.sum())

    @property
    def n_test(self) -> int:
        """Pairs in the test split."""
        return len(self.compared.data.is_train) - self.n_train


def require_report_libraries() -> None:
    """Raise ImportError, naming the extra, where a report cannot be made."""
    for name in ("jinja2", "matplotlib"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ImportError(f"--report needs {name}, of the extra: pip install 'lrbs[report]'") from error


def write_report(
    folder: Path,
    parts: Sequence[tuple[ComparedSet, Comparison]],
    protocols: Sequence[PublishedProtocol | None],
    run: RunDescription,
    lines: Sequence[ResultLine],
) -> tuple[Path, Path]:
    """Write ``report.html`` and ``report.md`` and return both; the folder is created.
    Results over all seeds are shown where there are several; each set has a published protocol or None."""
    require_report_libraries()
    folder.mkdir(parents=True, exist_ok=True)
    sections = [
        _section(compared, comparison, protocol, run.seeds[0])
        for (compared, comparison), protocol in zip(parts, protocols, strict=True)
    ]
    comparisons = [comparison for _, comparison in parts]
    rows = [row for comparison in comparisons for row in comparison.rows]
    methods = list(dict.fromkeys(row.method for row in rows))
    plain, escaping = _environment(autoescape=False), _environment(autoescape=True)
    explanation = plain.get_template("explanation.j2").render(
        run=run,
        methods=methods,
        self_tuned=[
            name for name in methods if all(_is_self_tuned(row) for row in rows if row.method == name)
        ],
        semantic=SemanticBilinear(),
    )
    paths = []
    for name, environment in (("report.html", escaping), ("report.md", plain)):
        text = environment.get_template(f"{name}.j2").render(
            sections=sections,
            summary=_summary(comparisons),
            comparisons=comparisons,
            run=run,
            lines=lines if len(run.seeds) > 1 else [],
            methods=methods,
            explanation=explanation.strip().split("\n\n"),
            quality_caption=CAPTION,
        )
        path = folder / name
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths[0], paths[1]


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
        percent=_percent,
        settings=_settings,
        p_value=_p_value,
        seconds=_seconds,
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
) -> Section:
    titles = {False: "Without PCA", True: "With PCA (99 % of the energy)"}
    grouped = {pca: [row for row in comparison.rows if row.pca == pca] for pca in titles}
    tables = [(titles[pca], rows, verdict(rows)) for pca, rows in grouped.items() if rows]
    chosen_numbers = chosen_rows(comparison)
    best = max(chosen_numbers, key=lambda number: comparison.rows[number].cv_score)
    header, lines = quality_table(comparison, chosen_numbers)
    spectrum = spectrum_plot(comparison)
    return Section(
        compared=compared,
        comparison=comparison,
        tables=tables,
        quality_header=header,
        quality_lines=lines,
        published=protocol,
        differences=protocol.differences(compared.data) if protocol else [],
        intervals=interval_plot(comparison).svg(),
        curves=curve_plot(comparison, compared.modalities).svg(),
        spectrum="" if spectrum is None else spectrum.svg(),
        samples=retrieval_examples(compared, comparison, best, seed),
        shown_method=comparison.rows[best].method,
    )


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


def _percent(value: float) -> str:
    return f"{100 * value:.2f}"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


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
