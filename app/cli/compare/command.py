"""`lrbs compare`."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from app.cli.compare.cache import FileCache
from app.cli.compare.quality import CAPTION, quality_table, quality_values
from app.cli.compare.report import (
    RunDescription,
    chosen_rows,
    require_report_libraries,
    verdict,
    write_report,
)
from app.cli.compare.sets import ComparedSet
from app.cli.compare.sources import ProtocolName, Sources
from app.cli.compare.tables import TableColumns
from app.cli.console import progress
from app.domain.errors import InvalidFieldError
from app.settings import Settings
from solver import InvalidParameterError
from solver.comparison import (
    METHODS,
    CellOutcome,
    Comparison,
    ComparisonRow,
    chosen_methods,
    write_qrels,
    write_run,
)
from solver.comparison import compare as compare_methods
from solver.datasets import PROTOCOLS, PublishedProtocol

_out, _log = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)
_WIDEST = 1000
"""Characters of the widest table: far more than one of sixteen facets has."""
_OPTIONAL = " and ".join(name for name, method in METHODS.items() if method.is_optional)


def compare(
    sets: Annotated[
        list[str] | None,
        typer.Argument(help="such as wikipedia_cnn; NAME@SEED draws another split"),
    ] = None,
    protocol: Annotated[
        ProtocolName | None, typer.Option(help="a published setting, with the files of --data")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="folder with the protocol's file")
    ] = None,
    npz: Annotated[
        Path | None,
        typer.Option(
            help="archive of x, z and labels; split or is_test, pairs and facet_NAME where there are such"
        ),
    ] = None,
    table: Annotated[Path | None, typer.Option(help="CSV of pictures and texts")] = None,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="stored items; those of one pair_id are partners")
    ] = None,
    facets: Annotated[
        str,
        typer.Option(help="comma-separated columns or metadata keys; those with repeated values when absent"),
    ] = "",
    id_column: str = "id",
    picture_column: str = "image",
    text_column: str = "text",
    label_column: Annotated[str, typer.Option(help="comma-separated, the main label first")] = "label",
    pair_column: Annotated[
        str | None, typer.Option(help="rows of the same value are partners; each its own when absent")
    ] = None,
    split_column: Annotated[
        str | None,
        typer.Option(
            help="'train' and 'test'; 'split' when absent, or a fifth of each label is drawn to test"
        ),
    ] = None,
    picture_encoder: Annotated[
        str, typer.Option(help='type, or JSON such as \'{"type": "onnx", "path": "model.onnx"}\'')
    ] = "hog-color",
    text_encoder: Annotated[str, typer.Option(help="type or JSON")] = "tfidf",
    methods: Annotated[
        str, typer.Option(help=f"comma-separated, of {', '.join(METHODS)}; without {_OPTIONAL} when absent")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="of folds and resampling")] = 0,
    folds: Annotated[int, typer.Option(min=2, help="of the cross-validation")] = 3,
    jobs: Annotated[int | None, typer.Option(min=1, help="processes; one a core when absent")] = None,
    cache: Annotated[
        Path | None, typer.Option(file_okay=False, help="folder of the cache; in LRBS_DATA_DIR when absent")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(file_okay=False, help="folder for report.html and report.md")
    ] = None,
    trec: Annotated[
        Path | None, typer.Option(file_okay=False, help="folder for TREC runs and qrels (large)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the rows as JSON")] = False,
) -> None:
    """Compare methods: tuned by cross-validation in the training split, then evaluated on the test split."""
    if report is not None:
        require_report_libraries()  # now rather than after half an hour
    method_names = _methods(methods)
    settings = Settings()
    store = FileCache(cache or settings.data_dir / "comparisons")
    columns = TableColumns(
        id_column,
        picture_column,
        text_column,
        _names(label_column),
        _names(facets) or None,
        pair_column,
        split_column,
        picture_encoder,
        text_encoder,
    )
    sources = Sources(tuple(sets or ()), protocol, data, npz, table, collection, columns)
    loaders = sources.loaders(settings, store, seed)
    compared_names = f"{len(method_names)} methods on {', '.join(loaders)}"
    title = f"Compares {compared_names}; seed {seed}, {folds} folds; {machine()}."
    parts: list[tuple[ComparedSet, Comparison]] = []
    with progress(_log, title) as show:
        for name, load in loaders.items():
            show(f"{name}: loading", 0, 0, "")
            compared = load()
            _log.print(_size_line(compared), highlight=False)

            def report_cell(
                done: int, total: int, outcome: CellOutcome, was_stored: bool, name: str = name
            ) -> None:
                show(name, done, total, f"{outcome.method}{', from the cache' if was_stored else ''}")

            comparison = compare_methods(
                compared.data,
                annotations=compared.annotations,
                dataset=compared.name,
                methods=method_names,
                n_folds=folds,
                random_state=seed,
                n_jobs=jobs,
                store=store,
                on_outcome=report_cell,
            )
            parts.append((compared, comparison))
            for failure in comparison.failures:
                _log.print(f"{compared.name}: {failure}", highlight=False, markup=False)
    protocols = [
        published_protocol(compared.name) if sources.are_published else None for compared, _ in parts
    ]
    if trec is not None:
        for _, comparison in parts:
            _write_trec(trec, comparison)
    if report is not None:
        run = RunDescription(shlex.join(["lrbs", *sys.argv[1:]]), machine(), seed, folds)
        page, _ = write_report(report, parts, protocols, run)
        _log.print(f"report: {page}", highlight=False)
    if as_json:
        typer.echo(json.dumps([row for _, comparison in parts for row in _values(comparison)], indent=2))
        return
    for (compared, comparison), published in zip(parts, protocols, strict=True):
        _print(compared, comparison, published)


def machine() -> str:
    """Describe the machine on which the seconds were measured."""
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"


def published_protocol(name: str) -> PublishedProtocol | None:
    """Return the published protocol to compare a set with: the one that its name begins with."""
    return next((protocol for key, protocol in PROTOCOLS.items() if name.startswith(key)), None)


def _methods(names: str) -> list[str]:
    try:
        selected = chosen_methods([name.strip() for name in names.split(",")] if names else None)
    except InvalidParameterError as error:
        raise InvalidFieldError("--methods", str(error)) from error
    return [method.name for method in selected]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _values(comparison: Comparison) -> list[dict[str, Any]]:
    return [
        {**asdict(row), "quality": quality_values(quality)}
        for row, quality in zip(comparison.rows, comparison.qualities, strict=True)
    ]


def _write_trec(folder: Path, comparison: Comparison) -> None:
    """Write relevance judgements and, for each row, the rankings of both directions."""
    folder.mkdir(parents=True, exist_ok=True)
    data, labels = comparison.data, comparison.test_labels
    rows = (~data.is_train).nonzero()[0].tolist()
    x_ids, z_ids = ([f"{side}{row}" for row in rows] for side in ("x", "z"))
    write_qrels(folder / f"{comparison.dataset}.x.qrels", labels, labels, x_ids, z_ids)
    write_qrels(folder / f"{comparison.dataset}.z.qrels", labels, labels, z_ids, x_ids)
    for outcome in comparison.outcomes:
        name = f"{outcome.method}{'-pca' if outcome.pca else ''}"
        for side, queries, gallery, ids in (
            ("x", outcome.x_test, outcome.z_test, (x_ids, z_ids)),
            ("z", outcome.z_test, outcome.x_test, (z_ids, x_ids)),
        ):
            write_run(
                folder / f"{comparison.dataset}.{name}.{side}.run",
                queries,
                gallery,
                query_labels=labels,
                gallery_labels=labels,
                query_ids=ids[0],
                gallery_ids=ids[1],
                tag=name,
            )


def _size_line(compared: ComparedSet) -> str:
    data = compared.data
    n_train = int(data.is_train.sum())
    return (
        f"{compared.name}: {n_train} rows to train, {len(data.labels) - n_train} to test, "
        f"{len(set(data.labels.tolist()))} classes; {compared.features}"
    )


def _print(compared: ComparedSet, comparison: Comparison, protocol: PublishedProtocol | None) -> None:
    title = f"{comparison.dataset}: test MAP in %, chance {comparison.chance:.1%}"
    table = Table(title=title, box=box.SIMPLE, title_justify="left", padding=(0, 1, 0, 0))
    first, second = compared.modalities
    for name in ("method", "PCA", first, second, "average", "95 %", "p", "fit, s"):
        table.add_column(name, justify="left" if name in ("method", "PCA") else "right", no_wrap=True)
    for row in sorted(comparison.rows, key=lambda row: (row.pca, -row.average)):
        table.add_row(*_cells(row))
    _out.print(table)
    for pca in (False, True):
        rows = [row for row in comparison.rows if row.pca == pca]
        if rows:
            _out.print(f"{'With' if pca else 'Without'} PCA: {verdict(rows)}", highlight=False)
    _print_quality(comparison)
    if protocol is not None:
        numbers = ", ".join(f"{name} {value:.2%}" for name, value in protocol.published.items())
        differences = "; ".join(protocol.differences(compared.data)) or "same dimensions and split sizes"
        _out.print(f"Published, average: {numbers}. {differences}.", highlight=False, markup=False)


def _print_quality(comparison: Comparison) -> None:
    header, lines = quality_table(comparison, chosen_rows(comparison))
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in header:
        table.add_column(name, justify="left" if name in ("method", "PCA") else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    # However many facets there are, a column that is cut off says nothing.
    wide = Console(soft_wrap=True, width=_WIDEST)
    wide.width = max(_out.width, wide.measure(table).maximum)
    wide.print(table)
    _out.print(CAPTION, highlight=False, markup=False)


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
