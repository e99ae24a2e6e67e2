"""Evaluation of a model before it serves: held-out figures, comparison with the active version, the index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from app.domain.entities import Item, Matrix
from app.domain.entities.training_report import Curve, DirectionQuality, Gate, HeldOutQuality
from app.domain.ports import GalleryIndex
from app.services.models.features import item_features
from app.services.models.model_bundles import HeldOutModel, LoadedModel
from app.services.training.holdout import LabelledItems
from solver import (
    BoolArray,
    Projector,
    bidirectional_map,
    can_be_ranked,
    chance_average_precision,
    mean_average_precision,
    precision_recall_curve,
    project_what_can_be_ranked,
    score_blocks,
)

_RECALL_LEVELS = np.linspace(0.0, 1.0, 21)
_MIN_COMPARED = 8
"""Held-out items of each modality below which a comparison would be too noisy to be meaningful."""
_DEPTH, _MAX_QUERIES = 10, 200
"""Recall is that of a first page of results; 200 queries of 10 hits each give it to about one percent."""
_ROUNDING = 1e-5
"""Relative difference of two float32 scores that may be rounding: an index sums in another order."""


@dataclass(frozen=True, slots=True)
class PromotionGates:
    """What a new version must reach to become active.

    Parameters
    ----------
    tolerance : float
        How much lower than the active version's its held-out MAP may be.
    index_recall : float
        Recall@10 of its index against the exact ranking.
    """

    tolerance: float
    index_recall: float


def held_out_quality(projector: Projector, held_out: LabelledItems, names: tuple[str, str]) -> HeldOutQuality:
    """Return MAP, chance, and precision-recall curve of both directions, over items that can be ranked.

    Parameters
    ----------
    projector : Projector
        Fitted without the held-out items.
    held_out : LabelledItems
        Those items.
    names : tuple of str
        Both modalities.
    """
    first, second = f"{names[0]}-to-{names[1]}", f"{names[1]}-to-{names[0]}"
    x, z, x_labels, z_labels = sides = project_what_can_be_ranked(projector, held_out)
    turned = (z, x, z_labels, x_labels)
    directions = {first: _direction_quality(*sides), second: _direction_quality(*turned)}
    return HeldOutQuality({names[0]: len(x), names[1]: len(z)}, directions)


def _direction_quality(
    queries: Matrix, gallery: Matrix, query_labels: npt.NDArray[Any], gallery_labels: npt.NDArray[Any]
) -> DirectionQuality:
    return DirectionQuality(
        mean_average_precision(queries, gallery, query_labels, gallery_labels),
        chance_average_precision(query_labels, gallery_labels),
        _curve(queries, gallery, query_labels, gallery_labels),
    )


def _curve(
    queries: Matrix, gallery: Matrix, query_labels: npt.NDArray[Any], gallery_labels: npt.NDArray[Any]
) -> Curve:
    parts = []
    for relevant, scores in score_blocks(queries, gallery, query_labels, gallery_labels):
        has_any = np.asarray(relevant).any(axis=-1)
        precision, _ = precision_recall_curve(relevant[has_any], scores[has_any], _RECALL_LEVELS)
        parts.append(precision)
    mean = np.concatenate(parts).mean(axis=0)
    return Curve(tuple(_RECALL_LEVELS.round(2).tolist()), tuple(mean.round(6).tolist()))


def compare_with_active(
    new: HeldOutModel | None,
    held_out: LabelledItems | None,
    active: tuple[LoadedModel, HeldOutModel | None],
    items: Mapping[str, Item],
    tolerance: float,
) -> Gate:
    """Compare a new version with the active one on items that neither was trained on.

    For this each version has a second projector, fitted without its held-out items; the projectors that
    serve are fitted on all items.

    Parameters
    ----------
    new : HeldOutModel or None
        The new version's; None when too few items could be held out.
    held_out : LabelledItems or None
        Items held out of its training, with the features from its own encoders.
    active : tuple
        The active version, and its second projector if it has one.
    items : mapping of str to Item
        All items by id.
    tolerance : float
        How much lower the new one's MAP may be.
    """
    model, judged = active
    if new is None or held_out is None or judged is None:
        return Gate(model.version, "one of the two versions has no held-out items")
    common = held_out.without(judged.training_ids)
    if common is None or min(len(common.x_ids), len(common.z_ids)) < _MIN_COMPARED:
        return Gate(model.version, f"fewer than {_MIN_COMPARED} items of a modality are new to both")
    ids = (common.x_ids.tolist(), common.z_ids.tolist())
    features = [
        item_features([items[item_id] for item_id in side], model.encoders[name])
        for side, name in zip(ids, model.modality_names, strict=True)
    ]
    projected = (
        (new.projector.project_x(common.X), new.projector.project_z(common.Z)),
        (judged.projector.project_x(features[0]), judged.projector.project_z(features[1])),
    )
    x_rows, z_rows = (
        can_be_ranked(by_new) & can_be_ranked(by_active) for by_new, by_active in zip(*projected, strict=True)
    )
    counts = dict(zip(model.modality_names, (int(x_rows.sum()), int(z_rows.sum())), strict=True))
    if min(counts.values()) < _MIN_COMPARED:
        return Gate(model.version, "too few of the items that are new to both can be ranked by both")
    new_map, active_map = (_mean_map(sides, (x_rows, z_rows), common) for sides in projected)
    if not (math.isfinite(new_map) and math.isfinite(active_map)):
        return Gate(model.version, "the items that are new to both have no class in common")
    return Gate(model.version, None, counts, new_map, active_map, tolerance)


def _mean_map(
    projected: tuple[Matrix, Matrix], rows: tuple[BoolArray, BoolArray], held_out: LabelledItems
) -> float:
    """Return MAP over some items, averaged over both directions; NaN when they share no class."""
    x, z = (side[mask] for side, mask in zip(projected, rows, strict=True))
    x_labels, z_labels = held_out.x_labels[rows[0]], held_out.z_labels[rows[1]]
    return bidirectional_map(x, z, x_labels, z_labels).mean


def index_recall(index: GalleryIndex, queries: Matrix) -> float:
    """Return the mean recall@10 of an index against the exact ranking of its own rows.

    A row as good as the tenth counts like the tenth. An index of no rows, or asked nothing, is exact.

    Parameters
    ----------
    index : GalleryIndex
        The index to be published.
    queries : ndarray of shape (n_queries, rank)
        Projections of the other modality; an evenly spaced sample of them is searched.
    """
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
