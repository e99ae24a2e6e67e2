"""`encoders`: what encoders find on one's own pictures and texts, and how fast they are."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from app.cli.compare.own_data import LIMITS, TableColumns, contents_of, make_encoder, read_rows
from app.cli.compare.report import quality_values
from app.cli.console import (
    ENCODER_HELP,
    LOG,
    OUT,
    JsonFlag,
    LabelColumnOption,
    PairColumnOption,
    read_names,
)
from app.cli.encoders import read_encoder
from app.domain.entities import Content, Matrix
from app.domain.reports import Supervision
from app.encoders.registry import EncoderRegistry
from app.services.storage.pacing import in_batches
from solver import RetrievalQuality, is_sparse
from solver.benchmark import machine
from solver.comparison import compare
from solver.datasets import PairedFeatures

_BATCH = 200  # contents that are encoded together, as `lrbs ingest` stores them


@dataclass(frozen=True, slots=True)
class EncoderFigures:
    """What was measured of one encoder."""

    encoder: str
    side: str  # "image" or "text"
    dim: int  # number of features
    contents_per_second: float  # opened and encoded in batches; what is learned before is not counted
    fit_seconds: float  # zero where nothing is learned
    quality: RetrievalQuality  # on the test split, beside the first encoder of the other side


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    name: str
    side: str
    features: Matrix
    per_second: float
    fit_seconds: float


def encoders_command(
    table: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV of pictures and texts")],
    image_encoder: Annotated[
        list[str] | None, typer.Option(help=f"of the pictures, again for each; {ENCODER_HELP}")
    ] = None,
    text_encoder: Annotated[list[str] | None, typer.Option(help="of the texts, again for each")] = None,
    method: Annotated[str, typer.Option(help="a method of lrbs compare")] = "SemanticBilinear",
    label_column: LabelColumnOption = None,
    pair_column: PairColumnOption = None,
    seed: Annotated[int, typer.Option(min=0, help="of folds, and of a split if the table has none")] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Quality and speed of encoders: each beside the first one of the other side, on the test split."""
    sides = {"image": image_encoder or ["hog-color"], "text": text_encoder or ["tfidf"]}
    options = {
        side: {name: read_encoder(f"--{side}-encoder", name) for name in names}
        for side, names in sides.items()
    }
    first = {side: next(iter(named.values())) for side, named in options.items()}
    labels = None if label_column is None else read_names(label_column)
    columns = TableColumns("id", "image", "text", labels, pair_column, None, first["image"], first["text"])
    with LOG.status("encoding"):
        figures = measure_encoders(table, columns, options, method, seed)
    if as_json:
        rows = [{**asdict(row), "quality": quality_values(row.quality)} for row in figures]
        typer.echo(json.dumps({"machine": machine(), "method": method, "results": rows}, indent=1))
        return
    OUT.print(_table(figures))
    OUT.print(f"{method}; test split, both directions averaged, in % but for the rank", highlight=False)
    OUT.print(", ".join(f"{name} {value}" for name, value in machine().items()))


def measure_encoders(
    file: Path,
    columns: TableColumns,
    options: Mapping[str, Mapping[str, Mapping[str, Any]]],
    method: str,
    seed: int,
) -> list[EncoderFigures]:
    """Return what was measured of each encoder, whose options are by "image" or "text" and by name, at least
    one each."""
    # The method is tuned by cross-validation in the training split; the seed is of folds, and of a drawn
    # split.
    rows, learned = read_rows(file, columns, Supervision(), seed)
    encoders = EncoderRegistry(LIMITS)
    contents = dict(zip(("image", "text"), contents_of(rows, columns.image_encoder), strict=True))
    encoded = {
        side: [
            _encode(encoders, name, side, one, contents[side], learned.is_train)
            for name, one in options[side].items()
        ]
        for side in ("image", "text")
    }
    ids = tuple(row.id for row in rows)

    @functools.cache
    def quality(x: _Encoded, z: _Encoded) -> RetrievalQuality:
        data = PairedFeatures(x.features, z.features, learned.classes.names, learned.is_train, ids, ids)
        return compare(
            data, annotations=learned.annotations, methods=[method], pca=[False], random_state=seed
        ).qualities[0]

    x_first, z_first = encoded["image"][0], encoded["text"][0]
    return [
        EncoderFigures(
            one.name, one.side, one.features.shape[1], one.per_second, one.fit_seconds, quality(x, z)
        )
        for one, x, z in (
            *((one, one, z_first) for one in encoded["image"]),
            *((one, x_first, one) for one in encoded["text"]),
        )
    ]


def _encode(
    encoders: EncoderRegistry,
    name: str,
    side: str,
    options: Mapping[str, Any],
    contents: Sequence[Content],
    is_train: Any,
) -> _Encoded:
    _, made = make_encoder(encoders, options, f"--{side}-encoder", contents[0])
    began = time.perf_counter()
    if made.is_fitted_with_model:
        made.fit([content.text for content, is_fitted in zip(contents, is_train, strict=True) if is_fitted])
    fit_seconds = time.perf_counter() - began if made.is_fitted_with_model else 0.0
    made.encode_to_store(contents[:1])  # what is loaded or imported with the first content is not counted
    began = time.perf_counter()
    batches = [_dense(made.encode_to_store(batch)) for batch in in_batches(contents, _BATCH)]
    seconds = time.perf_counter() - began
    stored = np.concatenate(batches)
    if made.learns_from_stored:
        made.fit_to_stored(stored[is_train])
    return _Encoded(name, side, _dense(made.from_stored(stored)), len(contents) / seconds, fit_seconds)


def _dense(features: Any) -> Matrix:
    matrix: Matrix = features.toarray() if is_sparse(features) else features
    return matrix


def _table(figures: Sequence[EncoderFigures]) -> Table:
    table = Table(
        "side", "encoder", "features", "a second", "fit, s", "MAP", "nDCG@10", "R@1", "R@10", "rank"
    )
    for row in figures:
        mean = row.quality.mean
        shares = [mean.map, mean.ndcg, mean.recall_at_1, mean.recall_at_10]
        table.add_row(
            row.side,
            row.encoder,
            str(row.dim),
            f"{row.contents_per_second:.0f}",
            f"{row.fit_seconds:.1f}",
            *(f"{100 * share:.1f}" for share in shares),
            f"{mean.median_rank:g}",
        )
    return table
