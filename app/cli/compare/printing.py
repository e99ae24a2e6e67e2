"""What `lrbs compare` prints of a set: its size, the table of methods, and what users look for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.compare.figures import chosen_rows
from app.cli.compare.quality import CAPTION, quality_table
from app.cli.compare.report import verdict
from app.cli.compare.results import ResultLine
from app.cli.compare.sets import ComparedSet
from app.cli.console import OUT
from solver.comparison import Comparison, ComparisonRow
from solver.datasets import PublishedProtocol

_WIDEST = 1000  # characters of the widest table: far more than one of sixteen facets has


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
    table = Table(title=title, box=box.SIMPLE, title_justify="left", padding=(0, 1, 0, 0))
    first, second = compared.modalities
    for name in ("method", "PCA", first, second, "average", "95 %", "p", "fit, s"):
        table.add_column(name, justify="left" if name in ("method", "PCA") else "right", no_wrap=True)
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
    for compared in sets:
        of_set = [line for line in lines if line.dataset == compared.name]
        title = f"{compared.name}: test MAP in %, mean ± standard deviation over the seeds {_words(seeds)}"
        table = Table(title=title, box=box.SIMPLE, title_justify="left", padding=(0, 1, 0, 0))
        for name in ("method", "PCA", *compared.modalities, "average", "seeds"):
            table.add_column(name, justify="left" if name in ("method", "PCA") else "right", no_wrap=True)
        for line in sorted(of_set, key=lambda line: (line.pca, -line.mean("average"))):
            shown = [line.show(measure) for measure in ("image_query", "text_query", "average")]
            pca = "99 %" if line.pca else "none"
            table.add_row(line.method, pca, *shown, str(len(line.values["average"])))
        OUT.print(table)


def _words(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _print_quality(comparison: Comparison) -> None:
    header, lines = quality_table(comparison, chosen_rows(comparison))
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in header:
        table.add_column(name, justify="left" if name in ("method", "PCA") else "right", no_wrap=True)
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
