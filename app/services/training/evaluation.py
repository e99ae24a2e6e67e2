"""Evaluation of a model before it serves: held-out figures, comparison with the active version, the index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from app.domain.entities import Item, Matrix
from app.domain.ports import GalleryIndex
from app.domain.reports import (
    DirectionQuality,
    Gate,
    HeldOutQuality,
    Objective,
)
from app.services.models.model_bundles import HeldOutModel, LoadedModel
from app.services.models.originals import item_features
from app.services.training.held_out_rankings import HeldOutRankings, relevance_names
from app.services.training.items import LabelledItems
from solver import (
    Annotations,
    Projector,
    RankingQuality,
    RetrievalQuality,
    SupervisionError,
    can_be_ranked,
    measure_quality,
    objective_value,
)

_MIN_COMPARED = 8
"""Held-out items of each modality below which a comparison would be too noisy to be meaningful."""
_NO_COMMON_CLASS = "the items that are new to both have no class in common"
_DEPTH, _MAX_QUERIES = 10, 200
"""Recall is that of a first page of results; 200 queries of 10 hits each give it to about one percent."""
_ROUNDING = 1e-5
"""Relative difference of two float32 scores that may be rounding: an index sums in another order."""


def measure(projector: Projector, held_out: LabelledItems) -> RetrievalQuality:
    """Return the quality of a projector's rankings of held-out items, of those that can be ranked; raises
    SupervisionError without any knowledge of them."""
    return _measure_projected(_project(projector, held_out), held_out)


def _measure_projected(projected: tuple[Matrix, Matrix], held_out: LabelledItems) -> RetrievalQuality:
    x_rows, z_rows = (np.flatnonzero(can_be_ranked(side)) for side in projected)
    ranked = held_out.take(x_rows, z_rows)
    annotations = ranked.annotations()
    label = _label(held_out, annotations)
    return measure_quality(projected[0][x_rows], projected[1][z_rows], annotations, label=label)


def _label(items: LabelledItems, annotations: Annotations) -> str | None:
    return items.main_label if items.main_label in annotations.facets else None


def held_out_quality(
    projectors: Mapping[str, Projector], method: str, held_out: LabelledItems, names: tuple[str, str]
) -> HeldOutQuality:
    """Return the quality of both directions over items that can be ranked; of the other methods there are
    curves. Chance, curves and reliability are of the first labels."""
    projected = _project(projectors[method], held_out)
    quality = _measure_projected(projected, held_out)
    counts = [int(can_be_ranked(side).sum()) for side in projected]
    directions = dict(
        zip(
            (f"{names[0]}-to-{names[1]}", f"{names[1]}-to-{names[0]}"),
            (_direction_quality(side, held_out.main_label) for side in (quality.x_to_z, quality.z_to_x)),
            strict=True,
        )
    )
    items, common = dict(zip(names, counts, strict=True)), relevance_names(held_out)
    if common is None:
        return HeldOutQuality(items, directions)
    forward = HeldOutRankings.of(projected, common, held_out)
    rivals = {
        name: HeldOutRankings.of(_project(projector, held_out), common, held_out)
        for name, projector in projectors.items()
        if name != method
    }
    for direction, turn in zip(directions, (_as_it_is, HeldOutRankings.reverse), strict=True):
        ranked = turn(forward)
        worst, best = ranked.examples()
        directions[direction] = replace(directions[direction], worst=worst, best=best)
        if held_out.has_labels:
            curves = {name: turn(rival).curve() for name, rival in rivals.items()}
            directions[direction] = replace(
                directions[direction],
                chance=ranked.chance(),
                curve=ranked.curve(),
                rivals={name: curve for name, curve in curves.items() if curve is not None},
            )
    reliability = forward.reliability(projectors[method]) if held_out.has_labels else None
    return HeldOutQuality(items, directions, reliability)


def _project(projector: Projector, items: LabelledItems) -> tuple[Matrix, Matrix]:
    return projector.project_x(items.X), projector.project_z(items.Z)


def _as_it_is(rankings: HeldOutRankings) -> HeldOutRankings:
    return rankings


def _direction_quality(quality: RankingQuality, label: str | None) -> DirectionQuality:
    return DirectionQuality(
        map=None if label is None else _number(quality.facet_map.get(label, math.nan)),
        ndcg_at_10=_number(quality.ndcg),
        recall_at_1=_number(quality.recall_at_1),
        recall_at_10=_number(quality.recall_at_10),
        median_rank=_number(quality.median_rank),
        precision_at_10={
            name: value for name, value in quality.facet_precision.items() if not math.isnan(value)
        },
        distinct_lists=quality.n_lists,
        n_queries=quality.n_queries,
    )


def _number(value: float) -> float | None:
    """Return None where there was nothing to measure."""
    return None if math.isnan(value) else value


def compare_with_active(
    new: HeldOutModel | None,
    held_out: LabelledItems | None,
    active: tuple[LoadedModel, HeldOutModel | None],
    items: Mapping[str, Item],
    objective: Objective,
    tolerance: float,
) -> Gate:
    """Compare a new version with the active one on items that neither was trained on, by second projectors
    that were fitted without held-out items (None: too few)."""
    # Items have features of the active version's encoders. The projectors that serve are fitted on all items.
    # Some of `items` may be gone since the new one began to learn, or be refused by the active version's
    # encoders; `held_out` has features from the new one's own.
    model, judged = active
    if new is None or held_out is None or judged is None:
        return Gate(model.version, "one of the two versions has no held-out items")
    common = held_out.without({*judged.training_ids, *_not_rankable(held_out, model, items)})
    if common is None or min(len(common.x_ids), len(common.z_ids)) < _MIN_COMPARED:
        return Gate(model.version, f"fewer than {_MIN_COMPARED} items of a modality are new to both")
    ids = (common.x_ids.tolist(), common.z_ids.tolist())
    features = [
        item_features([items[item_id] for item_id in side], model.encoders[name])
        for side, name in zip(ids, model.modality_names, strict=True)
    ]
    by_new = _project(new.projector, common)
    by_active = judged.projector.project_x(features[0]), judged.projector.project_z(features[1])
    return _compare_projected((by_new, by_active), common, model, objective, tolerance)


def _not_rankable(held_out: LabelledItems, active: LoadedModel, items: Mapping[str, Item]) -> set[str]:
    """Return which held-out items the active version cannot rank."""
    ids = set()
    for side, name in zip((held_out.x_ids, held_out.z_ids), active.modality_names, strict=True):
        is_encoded = active.encoders[name].is_fitted_with_model
        for item_id in side.tolist():
            item = items.get(item_id)
            if item is None or item.modality != name or not (is_encoded or item.features is not None):
                ids.add(item_id)
    return ids


def _compare_projected(
    projected: tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]],
    common: LabelledItems,
    active: LoadedModel,
    objective: Objective,
    tolerance: float,
) -> Gate:
    """Compare the projections of the same items, first by the new version, then by the active one."""
    from solver import objective_interval  # with scipy.stats, which only a training needs

    x_rows, z_rows = (
        np.flatnonzero(can_be_ranked(first) & can_be_ranked(second))
        for first, second in zip(*projected, strict=True)
    )
    counts = dict(zip(active.modality_names, (len(x_rows), len(z_rows)), strict=True))
    if min(counts.values()) < _MIN_COMPARED:
        return Gate(active.version, "too few of the items that are new to both can be ranked by both")
    ranked = common.take(x_rows, z_rows)
    try:
        qualities = [_measure_projected((x[x_rows], z[z_rows]), ranked) for x, z in projected]
    except SupervisionError:
        return Gate(active.version, _NO_COMMON_CLASS)
    new_value, active_value = (objective_value(quality, objective) for quality in qualities)
    if not (math.isfinite(new_value) and math.isfinite(active_value)):
        return Gate(active.version, _NO_COMMON_CLASS)
    new_map, active_map = (_label_map(quality, ranked) for quality in qualities)
    new, old = ((x[x_rows], z[z_rows]) for x, z in projected)
    annotations = ranked.annotations()
    interval = objective_interval(new, old, annotations, objective, label=_label(ranked, annotations))
    return Gate(
        active.version,
        None,
        counts,
        new_map,
        active_map,
        tolerance,
        objective,
        new_value,
        active_value,
        interval,
    )


def _label_map(quality: RetrievalQuality, items: LabelledItems) -> float | None:
    """Return MAP by label, averaged over both directions."""
    return _number(quality.mean.map) if items.main_label is not None else None


def index_recall(index: GalleryIndex, queries: Matrix) -> float:
    """Return the mean recall@10 of an index for an even sample of projected queries, against the exact
    ranking of its rows."""
    # A row as good as the tenth counts like the tenth; an index of no rows, or asked nothing, is exact.
    depth = min(_DEPTH, index.size)
    if depth == 0 or len(queries) == 0:
        return 1.0
    sample = queries[np.linspace(0, len(queries) - 1, min(len(queries), _MAX_QUERIES)).astype(np.intp)]
    n_hits = 0
    for query in sample:
        rows, _ = index.search(query, depth, None)
        scores = index.vectors @ query
        tenth = np.partition(scores, -depth)[-depth]
        margin = _ROUNDING * max(float(np.abs(scores).max()), 1e-30)
        n_hits += int((scores[rows[:depth]] >= tenth - margin).sum())
    return n_hits / (depth * len(sample))
