"""`placement`: how well unseen items are found by content, with partners, and with all that they carry."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from app.cli.backend import ready_services
from app.cli.console import OUT
from app.domain.entities import Content
from app.domain.reports import Supervision
from app.services.models.model_bundles import LoadedModel
from app.services.models.originals import encode_names
from app.services.training.data import LabelledItems, training_data
from solver import Annotations, CompositeProjector, Queries
from solver.benchmark import machine
from solver.comparison import bootstrap_interval
from solver.composite.placement import BothQueries, HeldOutVectors, RankedScores
from solver.evaluation.metrics import FIRST_PAGE, average_precisions_of_hits, rank_gallery
from solver.linalg import FloatArray
from solver.supervision.annotations import LABEL

_SHUFFLED = 0.1
_WAYS = {"content": (False, False), "partners": (True, False), "all": (True, True), "shuffled": (True, True)}
"""Whether partners count, and what items carry; of the last a tenth of it is that of other items."""


def placement_command(
    collection: Annotated[str, typer.Argument(help="with an active version")],
    typed: Annotated[
        str, typer.Option("--typed", help="two columns whose values are typed together: colour,kind")
    ] = "",
    seed: Annotated[int, typer.Option("--seed", help="of what is shuffled, and of intervals")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Rank the items that are not for training, which no version has seen, in galleries of their own."""
    model, held_out = _load(collection)
    projector = model.projector
    if not isinstance(projector, CompositeProjector):
        raise typer.BadParameter("its version places items by content alone", param_hint="COLLECTION")
    annotations = held_out.annotations()
    queries = _queries(held_out, annotations, [name for name in typed.split(",") if name])
    projected = projector.project_x(held_out.X), projector.project_z(held_out.Z)
    vectors = projector.held_out(projected, annotations, queries)
    share = projector.x.partner_share if projector.uses_partners else None
    measured: dict[str, dict[str, FloatArray]] = {}
    for way, (with_partners, with_values) in _WAYS.items():
        placed = _shuffle(vectors, seed) if way == "shuffled" else vectors
        rankings = placed.rankings(share if with_partners else None, with_values=with_values)
        measured[way] = dict(
            entry for one in rankings for entry in _measure(one, model, annotations, queries)
        )
    sizes = {"items": [len(held_out.x_ids), len(held_out.z_ids)], "seed": seed, "machine": machine()}
    _print(_rows(measured), sizes, as_json)


def _load(name: str) -> tuple[LoadedModel, LabelledItems]:
    """Return the active version, and the items that are not for training."""
    services = ready_services(False)
    with services.database.read() as work:
        stored = work.collections.get(name)
        version = work.models.get(stored, stored.active_version or 0)
        model = services.builder._bundles.load(stored, version)
        changed = [change.item for change in work.items.changes_since(stored, 0) if change.item]
        unseen = [replace(item, train=True) for item in changed if not item.train]
        items = [
            item
            for side in model.modality_names
            for item in model.with_features(
                work, stored, side, [one for one in unseen if one.modality == side]
            )
        ]
    return model, training_data(stored, items, lambda _: model.encoders, Supervision())[0]


def _queries(held_out: LabelledItems, annotations: Annotations, columns: Sequence[str]) -> BothQueries:
    """Return texts that name a value, and those that name two that an item has of both columns."""
    named: list[tuple[tuple[str, str], ...]] = [
        ((facet, value),) for facet, of in annotations.facets.items() for value in of.values
    ]
    if columns:
        of_items = zip(*(itertools.chain(*held_out.facets[name]) for name in columns), strict=True)
        both = {values for one in of_items for values in itertools.product(*one)}
        named += [tuple(zip(columns, values, strict=True)) for values in sorted(both)]
    contents = [Content(text=" ".join(value for _, value in one)) for one in named]
    sides: list[Queries | None] = []
    for encoder in held_out.encoders or ():
        features = encode_names(encoder, contents) if encoder.content_form == "text" else None
        values = {
            facet: [[value for name, value in one if name == facet] for one in named]
            for facet in annotations.facets
        }
        sides.append(None if features is None else Queries.of(features, values, annotations.facets))
    return sides[0], sides[1]


def _shuffle(vectors: HeldOutVectors, seed: int) -> HeldOutVectors:
    """Return vectors of items of which a tenth carry what others of this tenth have."""
    rng = np.random.default_rng(seed)
    carried = []
    for side, samples in zip(vectors.carried, vectors.samples, strict=True):
        of_side = {}
        for name, indicators in side.items():
            rows = rng.permutation(len(samples))[: round(_SHUFFLED * len(samples))]
            of_side[name] = indicators.copy()
            of_side[name][rows] = indicators[np.roll(rows, 1)]
        carried.append(of_side)
    return replace(vectors, carried=(carried[0], carried[1]))


def _measure(
    one: RankedScores, model: LoadedModel, annotations: Annotations, queries: BothQueries
) -> Iterator[tuple[str, FloatArray]]:
    """Yield figures of each query by name; an item's own partner is taken out of its ranking."""
    names = model.modality_names
    direction = f"{names[1 - one.side]} to {names[one.side]}"
    if one.is_own is not None:
        yield f"{direction}: nDCG@10", one.gains()
        scores = np.where(one.is_own, -np.inf, one.scores)
        if LABEL in annotations.facets:
            label = annotations.facets[LABEL]
            is_shared = label.is_shared(*map(np.arange, annotations.shape))
            is_shared = (is_shared.T if one.side == 0 else is_shared) & ~one.is_own
            hits = np.take_along_axis(is_shared, rank_gallery(scores), axis=1)
            yield f"{direction}: MAP by label", average_precisions_of_hits(hits)
        return
    short = queries[1 - one.side]
    if short is None or not (short.n_named == 2).any():
        return
    rows = (short.n_named == 2) & one.is_match.any(axis=1)
    page = rank_gallery(one.scores[rows])[:, :FIRST_PAGE]
    hits = np.take_along_axis(one.is_match[rows], page, axis=1)
    yield (
        f"{direction}: typed, found of attainable",
        np.column_stack([hits.sum(axis=1), np.minimum(one.is_match[rows].sum(axis=1), FIRST_PAGE)]),
    )
    yield f"{direction}: typed, first is right", hits[:, 0].astype(np.float64)


def _rows(measured: Mapping[str, Mapping[str, FloatArray]]) -> list[dict[str, Any]]:
    """Return each figure of each way, and the 95 % interval of its paired difference from that by content."""
    rows = []
    for figure, by_content in measured["content"].items():
        row: dict[str, Any] = {"figure": figure, "queries": len(by_content)}
        for way, figures in measured.items():
            values, before = figures[figure], by_content
            if values.ndim == 2:  # shares of one sum: each query's part of it
                scale = len(values) / values[:, 1].sum()
                values, before = scale * values[:, 0], scale * before[:, 0]
            row[way] = round(float(np.nanmean(values)), 3)
            if way != "content":
                interval = bootstrap_interval((values - before)[~np.isnan(before)])
                row[f"{way}, interval"] = [round(bound, 3) for bound in interval]
        rows.append(row)
    return rows


def _print(rows: list[dict[str, Any]], sizes: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**sizes, "results": rows}, indent=1))
        return
    table = Table("figure", *_WAYS)
    for row in rows:
        cells = [f"{row[way]:.3f}" for way in _WAYS]
        for place, way in list(enumerate(_WAYS))[1:]:
            low, high = row[f"{way}, interval"]
            cells[place] += f" [{low:+.3f}, {high:+.3f}]"
        table.add_row(f"{row['figure']} ({row['queries']})", *cells)
    OUT.print(table)
    typer.echo(f"{sizes['items']} unseen items, seed {sizes['seed']}, {sizes['machine']}")
