"""The gate: a new version beside the active one, or what ranks before any training; why it is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

import solver
from app.domain import reports
from app.domain.entities import Item, Matrix
from app.services.models.model_bundles import UNTRAINED, HeldOutModel, LoadedModel
from app.services.models.originals import item_features
from app.services.training.data import LabelledItems, short_queries
from app.services.training.evaluation import (
    finite_or_none,
    gains_untrained,
    measure_projected,
    project,
    project_features,
    ranking_label,
)

_NO_COMMON_CLASS = "the items that are new to both have no class in common"


def refusal_of(gate: reports.Gate, index: reports.IndexRecall) -> str | None:
    """Return why a new version should not serve; None if it may."""
    for name, recall in index.recall_at_10.items():
        if recall < index.needed:
            return f"the index of {name!r} has a recall@10 of {recall:.4f}, {index.needed:g} is needed"
    for name, (value, floor) in gate.fallen.items():
        return (
            f"its held-out {name} of {value:.4f} is below the objective's floor of {floor:.4f}, "
            f"a share of what version {gate.compared_with} has on the same items"
        )
    if (
        gate.new_value is None
        or gate.active_value is None
        or gate.new_value >= gate.active_value - gate.tolerance
        or (gate.interval is not None and gate.interval[1] >= 0.0)
    ):
        return None
    certainty = "" if gate.interval is None else f", and it is lower beyond chance: {gate.certainty}"
    return (
        f"its held-out {reports.measure_of(gate.objective)} of {gate.new_value:.4f} is more than "
        f"{gate.tolerance:g} below the {gate.active_value:.4f} of version {gate.compared_with} on the same "
        f"items{certainty}"
    )


def compare_with_untrained(
    new: HeldOutModel | None, held_out: LabelledItems | None, names: tuple[str, str], tolerance: float
) -> reports.Gate | None:
    """Compare a new version with what ranks items before any training, both as people find items; None
    where either has nothing to rank by, or too few items were held out."""
    # With scipy.stats, which only a training needs.
    from solver.comparison import bootstrap_interval, sums_of_partners

    if new is None or held_out is None:
        return None
    projector = new.projector
    if not isinstance(projector, solver.CompositeProjector) or not projector.uses_partners:
        return None
    projected = project(projector, held_out)
    rows = [np.flatnonzero(solver.can_be_ranked(side)) for side in projected]
    if min(map(len, rows)) < reports.FEWEST_HELD_OUT:
        return None
    ranked = held_out.take(*rows)
    annotations = ranked.annotations()
    queries = short_queries(held_out, annotations)
    samples = projected[0][rows[0]], projected[1][rows[1]]
    share = projector.x.partner_share
    after = projector.held_out(samples, annotations, queries).rankings(share, with_values=True)
    before = gains_untrained(ranked, annotations, queries)
    gains = [(one, one.gains(), old) for one, old in zip(after, before, strict=True) if len(old)]
    if not any(old.any() for _, _, old in gains):
        return None
    new_value = float(np.mean([higher.mean() for _, higher, _ in gains]))
    old_value = float(np.mean([lower.mean() for _, _, lower in gains]))
    # Each ranking counts alike, whatever the number of its queries.
    of_items, of_texts = (np.zeros(len(rows[0])), np.zeros(len(rows[1]))), []
    for one, higher, lower in gains:
        shares = (higher - lower) / (len(lower) * len(gains))
        if one.is_own is None:
            of_texts.append(shares)
        else:
            of_items[1 - one.side][(one.grades > 0).any(axis=1)] = shares
    sums = np.concatenate([sums_of_partners(of_items, annotations), *of_texts])
    interval = bootstrap_interval(len(sums) * sums)
    counts = dict(zip(names, map(len, rows), strict=True))
    return reports.Gate(
        UNTRAINED, None, counts, None, None, tolerance, "ndcg", new_value, old_value, interval
    )


def compare_with_active(
    new: HeldOutModel | None,
    held_out: LabelledItems | None,
    active: tuple[LoadedModel, HeldOutModel | None],
    items: Mapping[str, Item],
    objective: reports.Objective,
    tolerance: float,
) -> reports.Gate:
    """Compare a new version with the active one on items that neither was trained on, by second projectors
    that were fitted without held-out items (None: too few)."""
    # Items have features of the active version's encoders. The projectors that serve are fitted on all items.
    # Some of `items` may be gone since the new one began to learn, or be refused by the active version's
    # encoders; `held_out` has features from the new one's own.
    model, judged = active
    if new is None or held_out is None or judged is None:
        return reports.Gate(model.version, "one of the two versions has no held-out items")
    common = held_out.without({*judged.training_ids, *_not_rankable(held_out, model, items)})
    if common is None or min(len(common.x_ids), len(common.z_ids)) < reports.FEWEST_HELD_OUT:
        return reports.Gate(
            model.version, f"fewer than {reports.FEWEST_HELD_OUT} items of a modality are new to both"
        )
    ids = (common.x_ids.tolist(), common.z_ids.tolist())
    features = [
        item_features([items[item_id] for item_id in side], model.encoders[name])
        for side, name in zip(ids, model.modality_names, strict=True)
    ]
    by_new = project(new.projector, common)
    encoders = (model.encoders[name] for name in model.modality_names)
    by_active = project_features(judged.projector, features, encoders)
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
    objective: reports.Objective,
    tolerance: float,
) -> reports.Gate:
    """Compare the projections of the same items, first by the new version, then by the active one."""
    from solver import objective_interval  # with scipy.stats, which only a training needs

    x_rows, z_rows = (
        np.flatnonzero(solver.can_be_ranked(first) & solver.can_be_ranked(second))
        for first, second in zip(*projected, strict=True)
    )
    counts = dict(zip(active.modality_names, (len(x_rows), len(z_rows)), strict=True))
    if min(counts.values()) < reports.FEWEST_HELD_OUT:
        return reports.Gate(active.version, "too few of the items that are new to both can be ranked by both")
    ranked = common.take(x_rows, z_rows)
    try:
        qualities = [measure_projected((x[x_rows], z[z_rows]), ranked) for x, z in projected]
    except solver.SupervisionError:
        return reports.Gate(active.version, _NO_COMMON_CLASS)
    new_value, active_value = (solver.objective_value(quality, objective) for quality in qualities)
    if not (math.isfinite(new_value) and math.isfinite(active_value)):
        return reports.Gate(active.version, _NO_COMMON_CLASS)
    # By label, averaged over both directions.
    has_label = ranked.main_label is not None
    new_map, active_map = (finite_or_none(quality.mean.map) if has_label else None for quality in qualities)
    new, old = ((x[x_rows], z[z_rows]) for x, z in projected)
    annotations = ranked.annotations()
    interval = objective_interval(new, old, annotations, objective, label=ranking_label(ranked, annotations))
    fallen = fallen_measures(qualities[0], qualities[1], objective, tolerance)
    values = new_value, active_value, interval, fallen
    return reports.Gate(active.version, None, counts, new_map, active_map, tolerance, objective, *values)


def fallen_measures(
    new: solver.RetrievalQuality,
    active: solver.RetrievalQuality,
    objective: reports.Objective,
    tolerance: float,
) -> dict[str, tuple[float, float]]:
    """Return which measures of a new version are below the objective's floors, with these."""
    measures = {"recall_1": "recall_at_1", "recall_10": "recall_at_10"}
    fallen = {}
    for name, share in solver.floors_of(objective).items():
        value, served = (float(getattr(one.mean, measures.get(name, name))) for one in (new, active))
        if value < share * served - tolerance:  # not where one of them is not a number
            fallen[name] = value, share * served
    return fallen
