"""The report of a comparison: one self-contained HTML file and one Markdown file; and what is printed."""

from __future__ import annotations

import base64
import functools
import importlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.compare.own_data import ComparedSet
from app.cli.compare.results import (
    CAPTION,
    ResultLine,
    chosen_rows,
    curve_plot,
    interval_plot,
    quality_table,
    spectrum_plot,
)
from app.cli.console import OUT
from app.domain.names import join_words
from app.encoders.content import PixelBudget, opened_picture
from app.settings import Settings
from solver import SemanticBilinear, rank_gallery
from solver.comparison import Comparison, ComparisonRow
from solver.datasets import PublishedProtocol

_N_QUERIES, _N_HITS = 4, 6
"""A screen of examples for each direction."""
_SIDE = 112  # pixels of a thumbnail's longer side
_LEVEL, _SMALL = 0.05, 0.001
"""Significance level of the verdict; smaller p values than the second are shown as "< 0.001"."""
_WIDEST = 1000  # characters of the widest table: far more than one of sixteen facets has


@dataclass(frozen=True, slots=True)
class SampleView:
    """One query or hit, with a text or a picture."""

    label: str
    is_relevant: bool  # it shares the query's class; True for the query itself
    text: str = ""
    picture: str = ""  # as a data URI


@dataclass(frozen=True, slots=True)
class RetrievalExample:
    """A query with its first hits."""

    query: SampleView
    hits: list[SampleView]


def retrieval_examples(
    compared: ComparedSet, comparison: Comparison, number: int, seed: int
) -> list[list[RetrievalExample]]:
    """Return queries drawn at random with their first hits by outcome `number`: picture queries, then text
    queries. Without the set's original pictures and texts there are none."""
    if not compared.rows:
        return []
    rows = [row for row, is_train in zip(compared.rows, compared.data.is_train, strict=True) if not is_train]
    labels = comparison.test_labels.tolist()
    outcome = comparison.outcomes[number]
    drawn = np.random.default_rng(seed).permutation(len(rows))[:_N_QUERIES].tolist()

    def view(row: int, as_picture: bool, query: int) -> SampleView:
        is_relevant = labels[row] == labels[query]
        if as_picture:
            return SampleView(labels[row], is_relevant, picture=_thumbnail(rows[row].picture.read_bytes()))
        return SampleView(labels[row], is_relevant, text=rows[row].text)

    directions = []
    for with_picture, source, target in (
        (True, outcome.x_test, outcome.z_test),
        (False, outcome.z_test, outcome.x_test),
    ):
        order = rank_gallery(source[drawn] @ target.T)[:, :_N_HITS].tolist()
        directions.append(
            [
                RetrievalExample(
                    view(query, with_picture, query), [view(hit, not with_picture, query) for hit in hits]
                )
                for query, hits in zip(drawn, order, strict=True)
            ]
        )
    return directions


def _thumbnail(content: bytes) -> str:
    limit = Settings().max_picture_pixels
    stream = io.BytesIO()
    with opened_picture("picture", content, limit, PixelBudget(limit)) as picture:
        picture.thumbnail((_SIDE, _SIDE))
        picture.save(stream, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(stream.getvalue()).decode()}"


@dataclass(frozen=True, slots=True)
class RunDescription:
    """Description of the run in a report."""

    command: str
    machine: str  # on which the seconds were measured
    seeds: tuple[int, ...]  # of folds, drawn splits and resampling; the sections are of the first
    n_folds: int


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


def print_means(lines: Sequence[ResultLine], sets: Sequence[ComparedSet], seeds: Sequence[int]) -> None:
    """Print a table of each set: means and standard deviations over seeds."""
    numbers = ", ".join(map(str, seeds))
    for compared in sets:
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
