"""`lrbs compare`."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from app.cli.compare.cache import FileCache
from app.cli.compare.figures import write_plots
from app.cli.compare.options import (
    CacheOption,
    CollectionOption,
    DataOption,
    FacetsOption,
    FeaturesOption,
    FoldsOption,
    ImageEncoderOption,
    JobsOption,
    JsonOption,
    LabelsOption,
    MethodsOption,
    PairsOption,
    PlotsOption,
    ProtocolOption,
    ReportOption,
    SeedOption,
    SeedsOption,
    SetNames,
    SplitColumnOption,
    TableOption,
    TextEncoderOption,
    TrecOption,
)
from app.cli.compare.printing import print_comparison, print_means, size_line
from app.cli.compare.quality import quality_values
from app.cli.compare.report import RunDescription, require_report_libraries, write_report
from app.cli.compare.results import read_seeds, result_lines, write_results
from app.cli.compare.sets import ComparedSet
from app.cli.compare.sources import Loaders, Sources
from app.cli.compare.tables import TableColumns
from app.cli.console import LOG, LabelColumnOption, PairColumnOption, Show, progress, read_names
from app.cli.encoder_options import read_encoder
from app.domain.errors import InvalidFieldError
from app.domain.reports import Supervision
from app.settings import Settings
from solver import InvalidParameterError
from solver.comparison import CellOutcome, Comparison, chosen_methods, write_qrels, write_run
from solver.comparison import compare as compare_methods
from solver.datasets import PARTNER, PROTOCOLS, PublishedProtocol
from solver.plots import require_matplotlib

Part = tuple[ComparedSet, Comparison]
"""A set and the comparison on it."""


def compare(
    sets: SetNames = None,
    protocol: ProtocolOption = None,
    data: DataOption = None,
    features: FeaturesOption = None,
    table: TableOption = None,
    collection: CollectionOption = None,
    labels: LabelsOption = True,
    facets: FacetsOption = "",
    pairs: PairsOption = True,
    id_column: str = "id",
    picture_column: str = "image",
    text_column: str = "text",
    label_column: LabelColumnOption = None,
    pair_column: PairColumnOption = None,
    split_column: SplitColumnOption = None,
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    methods: MethodsOption = "",
    seed: SeedOption = 0,
    seeds: SeedsOption = None,
    folds: FoldsOption = 3,
    jobs: JobsOption = None,
    cache: CacheOption = None,
    report: ReportOption = None,
    plots: PlotsOption = None,
    trec: TrecOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare methods: tuned by cross-validation in the training split, then evaluated on the test split."""
    if report is not None:
        require_report_libraries()  # now rather than after half an hour
    if plots is not None:
        require_matplotlib()
    names, settings, numbers = _methods(methods), Settings(), read_seeds(seeds, seed)
    store = FileCache(cache or settings.data_dir / "comparisons")
    columns = TableColumns(
        id_column,
        picture_column,
        text_column,
        None if label_column is None else read_names(label_column),
        pair_column,
        split_column,
        read_encoder("--image-encoder", image_encoder),
        read_encoder("--text-encoder", text_encoder),
    )
    supervision = Supervision(labels, read_names(facets) or "auto", pairs)
    sources = Sources(
        tuple(sets or ()), protocol, data, tuple(features or ()), table, collection, columns, supervision
    )
    runs = {
        number: _compare_sets(
            sources.loaders(settings, store, number), _Run(names, number, folds, jobs, store)
        )
        for number in numbers
    }
    parts = runs[numbers[0]]
    protocols = [published_protocol(part[0].name) if sources.are_published else None for part in parts]
    if trec is not None:
        for _, comparison in parts:
            _write_trec(trec, comparison)
    if plots is not None:
        for part in parts:
            write_plots(plots, *part)
    if report is not None:
        run = RunDescription(shlex.join(["lrbs", *sys.argv[1:]]), machine(), numbers, folds)
        page, _ = write_report(report, parts, protocols, run, result_lines(runs))
        write_results(report, runs)
        LOG.print(f"report: {page}", highlight=False)
    if as_json:
        typer.echo(json.dumps([row for number in numbers for row in _values(number, runs[number])], indent=2))
    elif len(numbers) > 1:
        print_means(result_lines(runs), [part[0] for part in parts], numbers)
    else:
        for (compared, comparison), published in zip(parts, protocols, strict=True):
            print_comparison(compared, comparison, published)


@dataclass(frozen=True, slots=True)
class _Run:
    """How methods are compared on each set."""

    methods: list[str] | None
    seed: int
    n_folds: int
    n_jobs: int | None
    store: FileCache


def _compare_sets(loaders: Loaders, run: _Run) -> list[Part]:
    count = "" if run.methods is None else f"{len(run.methods)} "
    title = (
        f"Compares {count}methods on {', '.join(loaders)}; seed {run.seed}, {run.n_folds} folds; {machine()}."
    )
    parts: list[Part] = []
    with progress(LOG, title) as show:
        for name, load in loaders.items():
            show(f"{name}: loading", 0, 0, "")
            compared = load()
            LOG.print(size_line(compared), highlight=False)
            comparison = _compare_set(name, compared, run, show)
            parts.append((compared, comparison))
            for failure in comparison.failures:
                LOG.print(f"{compared.name}: {failure}", highlight=False, markup=False)
    return parts


def _compare_set(name: str, compared: ComparedSet, run: _Run, show: Show) -> Comparison:
    def report_cell(done: int, total: int, outcome: CellOutcome, was_stored: bool) -> None:
        show(name, done, total, f"{outcome.method}{', from the cache' if was_stored else ''}")

    return compare_methods(
        compared.data,
        annotations=compared.annotations,
        dataset=compared.name,
        methods=run.methods or default_methods(compared),
        n_folds=run.n_folds,
        random_state=run.seed,
        n_jobs=run.n_jobs,
        store=run.store,
        on_outcome=report_cell,
    )


def machine() -> str:
    """Describe the machine on which the seconds were measured."""
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"


def published_protocol(name: str) -> PublishedProtocol | None:
    """Return the published protocol to compare a set with: the one that its name begins with."""
    return next((protocol for key, protocol in PROTOCOLS.items() if name.startswith(key)), None)


def default_methods(compared: ComparedSet) -> list[str]:
    """Return the methods that suit what a set is learned from: of pairs, those that learn from pairs."""
    methods = chosen_methods(None)
    if compared.class_name == PARTNER:
        methods = tuple(method for method in methods if method.learns_from_pairs)
    return [method.name for method in methods]


def _methods(names: str) -> list[str] | None:
    if not names:
        return None
    try:
        selected = chosen_methods([name.strip() for name in names.split(",")])
    except InvalidParameterError as error:
        raise InvalidFieldError("--methods", str(error)) from error
    return [method.name for method in selected]


def _values(seed: int, parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [
        {**asdict(row), "seed": seed, "quality": quality_values(quality)}
        for _, comparison in parts
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
