"""Evaluation of a model before it serves: held-out figures, and comparison with the active version."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import solver
from app.domain import reports
from app.domain.entities import Features, Matrix, Vector
from app.domain.names import join_words
from app.encoders.base import BaseEncoder
from app.services.models.originals import features_for
from app.services.models.placement import share_space
from app.services.training.data import LabelledItems, Names, short_queries

_DIGITS = 6  # of stored curves: far more than a plot shows
_N_EXAMPLES, _N_HITS = 3, 5
"""Queries at either end, and results of each: what fits beside each other on a page."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutRankings:
    """Queries of one direction and the gallery they are ranked against; only items that can be relevant."""

    queries: Matrix
    query_names: Names  # items of the same name are relevant to each other
    query_ids: Names
    gallery: Matrix
    gallery_names: Names
    gallery_ids: Names

    @classmethod
    def of(
        cls, projected: tuple[Matrix, Matrix], names: tuple[Names, Names], items: LabelledItems
    ) -> HeldOutRankings:
        """Return the rankings of queries of the first modality, by names of which empty ones are none."""
        sides: list[Any] = []
        for vectors, of_side, ids in zip(projected, names, (items.x_ids, items.z_ids), strict=True):
            rows = np.flatnonzero(solver.can_be_ranked(vectors) & (of_side != ""))
            sides += vectors[rows], of_side[rows], ids[rows]
        return cls(*sides)

    def both(self) -> tuple[HeldOutRankings, HeldOutRankings]:
        """Return them, and those of the other direction."""
        queries = self.queries, self.query_names, self.query_ids
        return self, HeldOutRankings(self.gallery, self.gallery_names, self.gallery_ids, *queries)

    def curve(self) -> reports.Curve | None:
        """Return the curves of the queries that have something relevant; None if none has."""
        try:
            curves = solver.retrieval_curves(self.queries, self.gallery, self.query_names, self.gallery_names)
        except solver.InvalidInputError:
            return None
        return reports.Curve(
            tuple(curves.recall.round(2).tolist()),
            tuple(curves.precision_at_recall.round(_DIGITS).tolist()),
            tuple(curves.scopes.tolist()),
            tuple(curves.precision_at_scope.round(_DIGITS).tolist()),
        )

    def chance(self) -> float | None:
        """Return the MAP of a random ranking; None if no query has anything relevant."""
        chance = solver.chance_average_precision(self.query_names, self.gallery_names)
        return None if math.isnan(chance) else chance

    def reliability(self, projector: solver.Projector) -> reports.ReliabilityBins | None:
        """Return the reliability of a projector's probabilities; None if there are no pairs."""
        if not len(self.queries) or not len(self.gallery):
            return None
        balanced = getattr(projector, "loss", None) == "logistic"
        blocks = solver.score_blocks(self.queries, self.gallery, self.query_names, self.gallery_names)
        bins = solver.measure_reliability_of_blocks(
            ((projector.probability(scores), relevant) for relevant, scores in blocks), balanced=balanced
        )
        return _bins(bins, balanced=balanced)

    def examples(self) -> tuple[tuple[reports.QueryExample, ...], tuple[reports.QueryExample, ...]]:
        """Return the worst and the best queries; none is among both."""
        values = np.array(
            [
                solver.average_precision(row, row_scores)
                for relevant, scores in solver.score_blocks(
                    self.queries, self.gallery, self.query_names, self.gallery_names
                )
                for row, row_scores in zip(relevant, scores, strict=True)
            ]
        )
        order = np.argsort(values, kind="stable")  # those without anything relevant are last
        order = order[: len(order) - int(np.isnan(values).sum())]
        n_worst = min(_N_EXAMPLES, math.ceil(len(order) / 2))
        n_best = min(_N_EXAMPLES, len(order) - n_worst)
        best = order[len(order) - n_best :][::-1]
        return self._examples(order[:n_worst].tolist(), values), self._examples(best.tolist(), values)

    def _examples(self, rows: Sequence[int], values: Matrix) -> tuple[reports.QueryExample, ...]:
        return tuple(self._example(row, float(values[row])) for row in rows)

    def _example(self, row: int, value: float) -> reports.QueryExample:
        is_relevant = self.gallery_names == self.query_names[row]
        first = solver.rank_gallery(self.gallery @ self.queries[row])[:_N_HITS]
        hits = tuple(
            reports.ExampleHit(str(self.gallery_ids[hit]), bool(is_relevant[hit])) for hit in first.tolist()
        )
        return reports.QueryExample(
            str(self.query_ids[row]), round(value, _DIGITS), int(is_relevant.sum()), hits
        )


def relevance_names(items: LabelledItems) -> tuple[Names, Names] | None:
    """Return what items that are relevant have in common: the first label, or else the pair, if any."""
    if items.has_labels:
        return items.x_labels, items.z_labels
    return items.groups


def measure(projector: solver.Projector, held_out: LabelledItems) -> solver.RetrievalQuality:
    """Return the quality of a projector's rankings of held-out items, of those that can be ranked; raises
    SupervisionError without any knowledge of them."""
    return measure_projected(project(projector, held_out), held_out)


def measure_projected(projected: tuple[Matrix, Matrix], held_out: LabelledItems) -> solver.RetrievalQuality:
    """Return how well projected items that were held out find each other, of those that can be ranked."""
    x_rows, z_rows = (np.flatnonzero(solver.can_be_ranked(side)) for side in projected)
    ranked = held_out.take(x_rows, z_rows)
    annotations = ranked.annotations()
    label = ranking_label(held_out, annotations)
    return solver.measure_quality(projected[0][x_rows], projected[1][z_rows], annotations, label=label)


def ranking_label(items: LabelledItems, annotations: solver.Annotations) -> str | None:
    """Return the label by which the items rank; None where they have none in common."""
    return items.main_label if items.main_label in annotations.facets else None


def held_out_quality(
    projectors: Mapping[str, solver.Projector],
    method: str,
    held_out: LabelledItems,
    names: tuple[str, str],
    data: LabelledItems,
) -> reports.HeldOutQuality:
    """Return the quality of both directions over items that can be ranked, some of `data`; of the other
    methods there are curves. Chance, curves and reliability are of the first labels."""
    projected = project(projectors[method], held_out)
    quality = measure_projected(projected, held_out)
    counts = [int(solver.can_be_ranked(side).sum()) for side in projected]
    if min(counts) < reports.FEWEST_HELD_OUT:
        return reports.HeldOutQuality(dict(zip(names, counts, strict=True)))
    directions = {
        f"{names[0]}-to-{names[1]}": _direction_quality(quality.x_to_z, held_out.main_label),
        f"{names[1]}-to-{names[0]}": _direction_quality(quality.z_to_x, held_out.main_label),
    }
    items, common = dict(zip(names, counts, strict=True)), relevance_names(held_out)
    if common is None:
        return reports.HeldOutQuality(items, directions)
    forward = HeldOutRankings.of(projected, common, held_out)
    rivals = {
        name: HeldOutRankings.of(project(projector, held_out), common, held_out)
        for name, projector in projectors.items()
        if name != method
    }
    for number, (direction, ranked) in enumerate(zip(list(directions), forward.both(), strict=True)):
        further: dict[str, Any] = dict(zip(("worst", "best"), ranked.examples(), strict=True))
        if held_out.has_labels:
            curves = {name: rival.both()[number].curve() for name, rival in rivals.items()}
            further |= {"chance": ranked.chance(), "curve": ranked.curve()}
            further["rivals"] = {name: curve for name, curve in curves.items() if curve is not None}
        directions[direction] = replace(directions[direction], **further)
    projector, reliability = projectors[method], None
    if isinstance(projector, solver.CompositeProjector):
        placed, reliability = _measure_placed(projector, projected, held_out)
        for (gallery, is_text), figures in placed.items():
            name = list(directions)[1 - gallery]
            place: dict[str, Any] = {"placed_for_texts" if is_text else "placed": figures}
            directions[name] = replace(directions[name], **place)
        if held_out.has_more_than_labels:
            served = _measure_served(projector, held_out, data)
            for name, among_all in zip(list(directions), served, strict=True):
                directions[name] = replace(directions[name], served=among_all)
    elif held_out.has_labels:
        reliability = forward.reliability(projector)
    return reports.HeldOutQuality(items, directions, reliability)


def _measure_placed(
    projector: solver.CompositeProjector, projected: tuple[Matrix, Matrix], held_out: LabelledItems
) -> tuple[dict[tuple[int, bool], reports.PlacedQuality], reports.ReliabilityBins | None]:
    """Return how well each gallery (0 is the first modality's) is ranked by items, and by short texts, and
    how reliable the probabilities are as people find items; None where there are none."""
    x_rows, z_rows = (np.flatnonzero(solver.can_be_ranked(side)) for side in projected)
    annotations = held_out.take(x_rows, z_rows).annotations()
    samples = projected[0][x_rows], projected[1][z_rows]
    used = {name: facet for name, facet in annotations.facets.items() if name in projector.facets}
    queries = short_queries(held_out, replace(annotations, facets=used))
    vectors = projector.held_out(samples, annotations, queries)
    share = projector.x.partner_share if projector.uses_partners else None
    by_content, by_partners, by_all = (
        vectors.rankings(share if with_partners else None, with_values=with_values)
        for with_partners, with_values in ((False, False), (True, False), (True, True))
    )
    untrained: Iterable[float | None] = itertools.repeat(None)
    if projector.uses_partners:
        gains = gains_untrained(held_out.take(x_rows, z_rows), annotations, queries)
        untrained = [round(float(of_each.mean()), _DIGITS) if len(of_each) else 0.0 for of_each in gains]
    placed = {
        (content.side, content.is_own is None): reports.PlacedQuality(
            round(content.gain(), _DIGITS),
            round(partners.gain(), _DIGITS),
            round(complete.gain(), _DIGITS),
            before,
        )
        for content, partners, complete, before in zip(
            by_content, by_partners, by_all, untrained, strict=False
        )
        if len(content.gains())
    }
    if not any(map(projector.knows_matches, "xz")):
        return placed, None
    bins = solver.measure_reliability_of_blocks(projector.estimates(by_all))
    return placed, _bins(bins, balanced=False)


def _measure_served(
    projector: solver.Projector, held_out: LabelledItems, data: LabelledItems
) -> Iterator[reports.ServedQuality]:
    """Yield what held-out queries of each modality find, by content, among all items of the other one."""
    # Of 50 to 400 products, nDCG@10 was within .04 of that of as many unseen ones, and among the held-out
    # ones alone .13 to .24 too high; where nothing that is learned from is right it was .24 to .38 too low.
    projected, annotations = project(projector, data), data.annotations()
    ranked = [np.flatnonzero(solver.can_be_ranked(side)) for side in projected]
    own = np.isin(data.x_ids, held_out.x_ids), np.isin(data.z_ids, held_out.z_ids)
    for side, of_both in enumerate((annotations, annotations.transpose())):
        rows, columns = ranked[side][own[side][ranked[side]]], ranked[1 - side]
        sides = projected[side][rows], projected[1 - side][columns]
        quality = solver.measure_quality(*sides, of_both.subset(rows, columns)).x_to_z
        yield reports.ServedQuality(
            len(columns), finite_or_none(quality.ndcg), finite_or_none(quality.recall_at_10)
        )


_LEAST_GAIN = 0.01  # of nDCG@10


def describe_progress(
    quality: reports.HeldOutQuality, gain: float | None, n_items: Mapping[str, int]
) -> str | None:
    """Return what training has brought so far, and the gain to be expected of as many items again."""
    compared = [
        (placed.untrained, placed.complete)
        for one in quality.directions.values()
        for placed in (one.placed, one.placed_for_texts)
        if placed is not None and placed.untrained is not None
    ]
    sentences = []
    if compared:
        before, after = np.mean(compared, axis=0)
        verb = "has brought" if after >= before else "has taken"
        sentences.append(f"training {verb} nDCG@10 from {before:.2f} to {after:.2f} as people find items")
    if gain is not None:
        more = join_words((f"{count} more of {name}" for name, count in n_items.items()), "and")
        worth = f"about {gain:+.2f}" if gain >= _LEAST_GAIN else "little"
        sentences.append(f"{more} would bring {worth} by content alone, among all items")
    return "; ".join(sentences) or None


def gains_untrained(
    held_out: LabelledItems,
    annotations: solver.Annotations,
    queries: tuple[solver.Queries | None, solver.Queries | None],
) -> list[Vector]:
    """Return the graded nDCG@10 of each query before any training, for each ranking as people find items."""
    partners = held_out.X[annotations.pairs[:, 0]], held_out.Z[annotations.pairs[:, 1]]
    shares_space = share_space(*partners, held_out.encoders or ()) is not False
    untrained = solver.untrained_projector(
        held_out.X, held_out.Z, shares_space=shares_space, n_further=held_out.n_further
    )
    vectors = untrained.held_out(project(untrained, held_out), annotations, queries)
    rankings = vectors.rankings(untrained.x.partner_share, with_values=True)
    return [ranking.gains() for ranking in rankings]


def is_better(
    first: solver.Projector, second: solver.Projector, held_out: LabelledItems, objective: reports.Objective
) -> bool:
    """Return whether the first ranks held-out items better than the second, beyond chance; where they have
    nothing in common to rank it does not."""
    from solver import objective_interval

    sides = [project(projector, held_out) for projector in (first, second)]
    rows = [
        np.flatnonzero(solver.can_be_ranked(one) & solver.can_be_ranked(other))
        for one, other in zip(*sides, strict=True)
    ]
    ranked = held_out.take(*rows)
    one, other = ((x[rows[0]], z[rows[1]]) for x, z in sides)
    try:
        annotations = ranked.annotations()
        label = ranking_label(ranked, annotations)
        return objective_interval(one, other, annotations, objective, label=label)[0] > 0.0
    except (solver.InvalidInputError, solver.SupervisionError):
        return False


def _bins(reliability: solver.Reliability, *, balanced: bool) -> reports.ReliabilityBins:
    return reports.ReliabilityBins(
        tuple(reliability.probabilities.round(_DIGITS).tolist()),
        tuple(reliability.shares.round(_DIGITS).tolist()),
        tuple(reliability.counts.tolist()),
        balanced,
    )


def project(projector: solver.Projector, items: LabelledItems) -> tuple[Matrix, Matrix]:
    """Return the projections of both sides of items."""
    return project_features(projector, (items.X, items.Z), items.encoders)


def project_features(
    projector: solver.Projector, features: Sequence[Features], encoders: Iterable[BaseEncoder] | None
) -> tuple[Matrix, Matrix]:
    """Return the projections of features of both sides, without what their encoders have not learned."""
    if encoders is not None:
        taken = zip(features, encoders, projector.n_features, strict=True)
        features = [features_for(*side) for side in taken]
    return projector.project_x(features[0]), projector.project_z(features[1])


def _direction_quality(quality: solver.RankingQuality, label: str | None) -> reports.DirectionQuality:
    return reports.DirectionQuality(
        map=None if label is None else finite_or_none(quality.facet_map.get(label, math.nan)),
        ndcg_at_10=finite_or_none(quality.ndcg),
        recall_at_1=finite_or_none(quality.recall_at_1),
        recall_at_10=finite_or_none(quality.recall_at_10),
        median_rank=finite_or_none(quality.median_rank),
        precision_at_10={
            name: value for name, value in quality.facet_precision.items() if not math.isnan(value)
        },
        distinct_lists=quality.n_lists,
        n_queries=quality.n_queries,
    )


def finite_or_none(value: float) -> float | None:
    """Return None where there was nothing to measure."""
    return None if math.isnan(value) else value
