"""What rankings of held-out items look like: curves, reliability, and the worst and best queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.domain.entities import Matrix
from app.domain.reports import Curve, ExampleHit, QueryExample, ReliabilityBins
from app.services.training.holdout import Names
from app.services.training.items import LabelledItems
from solver import (
    InvalidInputError,
    Projector,
    average_precision,
    can_be_ranked,
    chance_average_precision,
    measure_reliability_of_blocks,
    rank_gallery,
    retrieval_curves,
    score_blocks,
)

_DIGITS = 6  # of stored curves: far more than a plot shows
_N_EXAMPLES, _N_HITS = 3, 5
"""Queries at either end, and results of each: what fits beside each other on a page."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutRankings:
    """Queries of one direction and the gallery they are ranked against; only items that can be relevant."""

    queries: Matrix
    gallery: Matrix
    query_names: Names  # items of the same name are relevant to each other
    gallery_names: Names
    query_ids: Names
    gallery_ids: Names

    @classmethod
    def of(
        cls, projected: tuple[Matrix, Matrix], names: tuple[Names, Names], items: LabelledItems
    ) -> HeldOutRankings:
        """Return the rankings of queries of the first modality, by names of which empty ones are none."""
        rows = [
            np.flatnonzero(can_be_ranked(side) & (names_of_side != ""))
            for side, names_of_side in zip(projected, names, strict=True)
        ]
        sides = [
            (projected[number][rows[number]], names[number][rows[number]], ids[rows[number]])
            for number, ids in enumerate((items.x_ids, items.z_ids))
        ]
        (queries, query_names, query_ids), (gallery, gallery_names, gallery_ids) = sides
        return cls(queries, gallery, query_names, gallery_names, query_ids, gallery_ids)

    def reverse(self) -> HeldOutRankings:
        """Return those of the other direction."""
        return HeldOutRankings(
            self.gallery,
            self.queries,
            self.gallery_names,
            self.query_names,
            self.gallery_ids,
            self.query_ids,
        )

    def curve(self) -> Curve | None:
        """Return the curves of the queries that have something relevant; None if none has."""
        try:
            curves = retrieval_curves(self.queries, self.gallery, self.query_names, self.gallery_names)
        except InvalidInputError:
            return None
        return Curve(
            tuple(curves.recall.round(2).tolist()),
            tuple(curves.precision_at_recall.round(_DIGITS).tolist()),
            tuple(curves.scopes.tolist()),
            tuple(curves.precision_at_scope.round(_DIGITS).tolist()),
        )

    def chance(self) -> float | None:
        """Return the MAP of a random ranking; None if no query has anything relevant."""
        chance = chance_average_precision(self.query_names, self.gallery_names)
        return None if math.isnan(chance) else chance

    def reliability(self, projector: Projector) -> ReliabilityBins | None:
        """Return the reliability of a projector's probabilities; None if there are no pairs."""
        if not len(self.queries) or not len(self.gallery):
            return None
        balanced = getattr(projector, "loss", None) == "logistic"
        blocks = score_blocks(self.queries, self.gallery, self.query_names, self.gallery_names)
        bins = measure_reliability_of_blocks(
            ((projector.probability(scores), relevant) for relevant, scores in blocks), balanced=balanced
        )
        return ReliabilityBins(
            tuple(bins.probabilities.round(_DIGITS).tolist()),
            tuple(bins.shares.round(_DIGITS).tolist()),
            tuple(bins.counts.tolist()),
            balanced,
        )

    def examples(self) -> tuple[tuple[QueryExample, ...], tuple[QueryExample, ...]]:
        """Return the worst and the best queries; none is among both."""
        values = np.array(
            [
                average_precision(row, row_scores)
                for relevant, scores in score_blocks(
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

    def _examples(self, rows: Sequence[int], values: Matrix) -> tuple[QueryExample, ...]:
        return tuple(self._example(row, float(values[row])) for row in rows)

    def _example(self, row: int, value: float) -> QueryExample:
        is_relevant = self.gallery_names == self.query_names[row]
        first = rank_gallery(self.gallery @ self.queries[row])[:_N_HITS]
        hits = tuple(ExampleHit(str(self.gallery_ids[hit]), bool(is_relevant[hit])) for hit in first.tolist())
        return QueryExample(str(self.query_ids[row]), round(value, _DIGITS), int(is_relevant.sum()), hits)


def relevance_names(items: LabelledItems) -> tuple[Names, Names] | None:
    """Return what items that are relevant have in common: the first label, or else the pair, if any."""
    if items.has_labels:
        return items.x_labels, items.z_labels
    return items.groups
