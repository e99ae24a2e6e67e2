"""`lrbs compare`: where its sets come from (their names, a published protocol, data of one's own), its
options, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from app.bootstrap import build_on_existing
from app.cli.backend import refuse_url
from app.cli.compare.own_data import (
    LIMITS,
    ComparedSet,
    FileCache,
    SetEncoder,
    SetLoader,
    TableColumns,
    load_collection,
    load_features,
    load_table,
)
from app.cli.compare.report import (
    machine,
    print_comparison,
    print_means,
    quality_values,
    read_seeds,
    require_report_libraries,
    size_line,
    write_plots,
    write_report,
    write_results,
)
from app.cli.console import (
    LOG,
    ImageEncoderOption,
    LabelColumnOption,
    PairColumnOption,
    TextEncoderOption,
    progress,
    read_names,
)
from app.cli.encoders import read_encoder
from app.domain.errors import InvalidFieldError
from app.domain.reports import Supervision
from app.encoders.registry import EncoderRegistry
from app.settings import Settings
from solver import InvalidParameterError
from solver.comparison import METHODS, CellOutcome, Comparison, chosen_methods, write_qrels, write_run
from solver.comparison import compare as compare_methods
from solver.datasets import PARTNER, PROTOCOLS, PublishedProtocol, load_protocol
from solver.plots import require_matplotlib

_MOST_FILES = 3
Loaders = dict[str, Callable[[], ComparedSet]]
"""What loads a set, by the set's name."""


class ProtocolName(StrEnum):
    """A published setting."""

    WIKIPEDIA = "wikipedia"
    VOC2007 = "voc2007"
    NUS_WIDE = "nus-wide"


@dataclass(frozen=True, slots=True)
class Sources:
    """What a command line names; one kind of source is to be given."""

    sets: tuple[str, ...]
    protocol: ProtocolName | None  # a published setting
    data: Path | None  # folder of the protocol's file
    features: tuple[Path, ...]  # an archive, or one of each modality and perhaps one of labels
    table: Path | None  # of one's own
    collection: str | None  # a stored one
    columns: TableColumns  # of the table
    supervision: Supervision  # what of one's own data counts

    def loaders(self, settings: Settings, cache: FileCache, seed: int) -> Loaders:
        """Return what loads each set; the names of sets are checked before the first is loaded; the seed is
        of drawn splits."""
        # Raises InvalidFieldError, which names the field, for none or several kinds of sources.
        self._check()
        encoders = EncoderRegistry(LIMITS)
        how = self.supervision, SetEncoder(encoders, cache), seed
        if self.protocol is not None and self.data is not None:
            return {self.protocol.value: partial(_load_protocol, self.protocol, self.data)}
        if self.features:
            return {self.features[0].stem: partial(load_features, self.features, self.supervision, seed)}
        if self.table is not None:
            return {self.table.stem: partial(load_table, self.table, self.columns, *how)}
        if self.collection is not None:
            return {self.collection: partial(_load_stored, settings, self.collection, *how)}
        loader = SetLoader(settings.test_data, encoders, cache)
        loader.check(self.sets)
        return {name: partial(loader.load, name) for name in self.sets}

    @property
    def are_published(self) -> bool:
        """Whether the sets may be those of a published protocol."""
        return bool(self.sets) or self.protocol is not None

    def _check(self) -> None:
        if (self.protocol is None) != (self.data is None):
            raise InvalidFieldError("--data", "give --protocol and --data together")
        kinds = (self.sets or None, self.protocol, self.features or None, self.table, self.collection)
        if sum(kind is not None for kind in kinds) != 1:
            raise InvalidFieldError(
                "sets",
                "give one or more sets, or --protocol with --data, or one of --features, --table and "
                "--collection",
            )
        if self.features and self.supervision.facets != "auto":
            raise InvalidFieldError("--facets", "the facets of an archive are its arrays facet_NAME")
        if len(self.features) > _MOST_FILES:
            raise InvalidFieldError("--features", "give an archive, or files of x, of z and of labels")
        if self.are_published and self.supervision != Supervision():
            option = "--facets" if self.supervision.facets != "auto" else "--no-labels and --no-pairs"
            raise InvalidFieldError(option, "of one's own data only: --features, --table and --collection")


def _load_protocol(protocol: ProtocolName, folder: Path) -> ComparedSet:
    data = load_protocol(protocol.value, folder)
    features = f"pictures: {data.X.shape[1]}-d; texts: {data.Z.shape[1]}-d (from the files given)"
    return ComparedSet(protocol.value, data, features)


def _load_stored(
    settings: Settings, name: str, supervision: Supervision, encoder: SetEncoder, seed: int
) -> ComparedSet:
    refuse_url()
    services = build_on_existing(settings)
    services.schema.require_current()
    return load_collection(services, name, supervision, encoder, seed)


_OF_PAIRS = " and ".join(name for name, method in METHODS.items() if method.learns_from_pairs)
_OPTIONAL = " and ".join(name for name, method in METHODS.items() if method.is_optional)

SetNames = Annotated[
    list[str] | None, typer.Argument(help="such as wikipedia_cnn; NAME@SEED draws another split")
]
ProtocolOption = Annotated[
    ProtocolName | None, typer.Option(help="a published setting, with the files of --data")
]
DataOption = Annotated[
    Path | None, typer.Option(exists=True, file_okay=False, help="folder with the protocol's file")
]
FeaturesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--features",
        "--npz",
        help="archive (.npz, .mat, .h5, .csv) of x and z; labels, split or is_test, pairs and facet_NAME "
        "where there are such; or files of x, of z (.npy, .csv, ...) and perhaps of labels, one option each",
    ),
]
CollectionOption = Annotated[
    str | None, typer.Option("--collection", "-c", help="stored items; those of one pair_id are partners")
]
FacetsOption = Annotated[
    str, typer.Option(help="comma-separated columns or metadata keys; default: those with repeated values")
]
SplitColumnOption = Annotated[
    str | None,
    typer.Option(help="'train' and 'test'; default: 'split', or a fifth of each label is drawn to test"),
]
MethodsOption = Annotated[
    str,
    typer.Option(
        help=f"comma-separated, of {', '.join(METHODS)}; default: all but {_OPTIONAL}, "
        f"and without labels only {_OF_PAIRS}"
    ),
]
SeedsOption = Annotated[
    str | None,
    typer.Option(help="several: a list such as 0,1,2, or how many from --seed on; means and deviations"),
]
CacheOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="folder of the cache; default: in LRBS_DATA_DIR")
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        file_okay=False,
        help="folder for report.html, report.md, tables (results.csv, results.tex) and points of curves "
        "(curves.csv)",
    ),
]
PlotsOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="folder for the plots, as SVG and PNG")
]
TrecOption = Annotated[
    Path | None, typer.Option(file_okay=False, help="folder for TREC runs and qrels (large)")
]
Part = tuple[ComparedSet, Comparison]
"""A set and the comparison on it."""


def compare(
    sets: SetNames = None,
    protocol: ProtocolOption = None,
    data: DataOption = None,
    features: FeaturesOption = None,
    table: Annotated[Path | None, typer.Option(help="CSV of pictures and texts")] = None,
    collection: CollectionOption = None,
    labels: Annotated[bool, typer.Option(help="learn from labels, and measure them")] = True,
    facets: FacetsOption = "",
    pairs: Annotated[bool, typer.Option(help="partners count; without labels they are learned from")] = True,
    id_column: str = "id",
    picture_column: str = "image",
    text_column: str = "text",
    label_column: LabelColumnOption = None,
    pair_column: PairColumnOption = None,
    split_column: SplitColumnOption = None,
    image_encoder: ImageEncoderOption = "hog-color",
    text_encoder: TextEncoderOption = "tfidf",
    methods: MethodsOption = "",
    seed: Annotated[int, typer.Option(min=0, help="of folds, drawn splits and resampling")] = 0,
    seeds: SeedsOption = None,
    folds: Annotated[int, typer.Option(min=2, help="of the cross-validation")] = 3,
    jobs: Annotated[int | None, typer.Option(min=1, help="processes; default: one a core")] = None,
    cache: CacheOption = None,
    report: ReportOption = None,
    plots: PlotsOption = None,
    trec: TrecOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the rows as JSON")] = False,
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
        number: _compare_sets(sources.loaders(settings, store, number), names, number, folds, jobs, store)
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
        page = write_report(report, runs, protocols, folds)
        write_results(report, runs)
        LOG.print(f"report: {page}", highlight=False)
    if as_json:
        typer.echo(json.dumps([row for number in numbers for row in _values(number, runs[number])], indent=2))
    elif len(numbers) > 1:
        print_means(runs)
    else:
        for (compared, comparison), published in zip(parts, protocols, strict=True):
            print_comparison(compared, comparison, published)


def _compare_sets(
    loaders: Loaders, names: list[str] | None, seed: int, n_folds: int, n_jobs: int | None, store: FileCache
) -> list[Part]:
    """Return each set and the comparison on it."""
    methods = "methods" if names is None else f"{len(names)} method{'s' if len(names) > 1 else ''}"
    how = f"seed {seed}, {n_folds} folds; {machine()}"
    parts: list[Part] = []
    with progress(LOG, f"Compares {methods} on {', '.join(loaders)}; {how}.") as show:
        for name, load in loaders.items():
            show(f"{name}: loading", 0, 0, "")
            compared = load()
            LOG.print(size_line(compared), highlight=False)

            def report_cell(
                done: int, total: int, outcome: CellOutcome, was_stored: bool, name: str = name
            ) -> None:
                show(name, done, total, f"{outcome.method}{', from the cache' if was_stored else ''}")

            comparison = compare_methods(
                compared.data,
                annotations=compared.annotations,
                dataset=compared.name,
                methods=names or default_methods(compared),
                n_folds=n_folds,
                random_state=seed,
                n_jobs=n_jobs,
                store=store,
                on_outcome=report_cell,
            )
            parts.append((compared, comparison))
            for failure in comparison.failures:
                LOG.print(f"{compared.name}: {failure}", highlight=False, markup=False)
    return parts


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
