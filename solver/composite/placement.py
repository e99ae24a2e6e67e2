"""Gallery vectors: what a sample's content says of it, what its partners' say, and the values it carries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from solver.composite.weights import GradedGain
from solver.linalg.matrices import FloatArray
from solver.supervision.annotations import Annotations, BoolArray, Queries

WRONG = 0.05
"""Share of carried values that are taken to be wrong. With partners, .02 to .1 ranked 501 products
alike; with a tenth of the values shuffled, .1 found a hundredth more than this."""
UNSAID = 0.2  # share of a sample's values, where it may have several, that it is taken not to carry
FACET = "facet:"  # begins the names of facets' terms
_TINY = 1e-12  # posteriors below are no evidence
_ROWS_AT_ONCE = 4096


class Block(NamedTuple):
    """A term's part of a projection."""

    facet: str | None  # whose posteriors it has; None for other terms
    is_exclusive: bool  # whether one value of the facet is true
    scale: float  # root of the term's weight
    width: int


def place(
    projected: FloatArray,
    partners: FloatArray,
    carried: Mapping[str, BoolArray],
    blocks: Sequence[Block],
    share: float,
) -> FloatArray:
    """Return the vectors of samples in a gallery, float32, from the (n_samples, rank) projections of content;
    `partners` has the mean projection of each sample's partners, NaN without any, and `share` their share."""
    # Posteriors are evidence, and so is a carried value, which may be wrong: both are joined by Bayes' rule.
    # A value that the content firmly contradicts does not bury the sample among those that have it.
    placed = np.array(projected, np.float32)
    has_partners = np.isfinite(partners).all(axis=1)
    placed[has_partners] = (1.0 - share) * placed[has_partners] + share * partners[has_partners]
    start = 0
    for block in blocks:
        columns = slice(start, start + block.width)
        start += block.width
        if block.facet is None or block.facet not in carried:
            continue
        indicators = carried[block.facet]
        rows = np.flatnonzero(indicators.any(axis=1))
        for batch in np.array_split(rows, range(_ROWS_AT_ONCE, len(rows), _ROWS_AT_ONCE)):
            posteriors = np.clip(placed[batch, columns].astype(np.float64) / block.scale, _TINY, 1.0)
            join = _join_one if block.is_exclusive else _join_several
            placed[batch, columns] = block.scale * join(posteriors, indicators[batch])
    return placed


def attainable(queries: FloatArray, blocks: Sequence[Block]) -> FloatArray:
    """Return what each of the (n_queries, rank) queries would score by facets with a sample that has the most
    likely value of each; 0 without facets."""
    # A match scores about that much more than others, whether a query says much or little: "women" as well as
    # "red handbag for women". On 501 products that no fit had seen, the error of the probabilities of
    # the first ten results fell from .16 to .07 for texts of a colour and a type, by differences. Shares of
    # what is attainable were as good, and sure of any result for words that say nothing.
    total, start = np.zeros(len(queries)), 0
    for block in blocks:
        if block.facet is not None:
            posteriors = queries[:, start : start + block.width].astype(np.float64) / block.scale
            best = posteriors.max(axis=1)
            if not block.is_exclusive:  # more than one value may be meant
                best = np.maximum(best, np.where(posteriors > 0.5, posteriors, 0.0).sum(axis=1))
            total += block.scale**2 * best
        start += block.width
    return total


def information(queries: FloatArray, blocks: Sequence[Block]) -> FloatArray:
    """Return how much each of the (n_queries, rank) queries says of facets, in nats: how far the entropy of
    its posteriors is from the largest one."""
    total, start = np.zeros(len(queries)), 0
    for block in blocks:
        if block.facet is not None:
            posteriors = queries[:, start : start + block.width].astype(np.float64) / block.scale
            posteriors = np.clip(posteriors, _TINY, 1.0 - _TINY)
            negative_entropy = (posteriors * np.log(posteriors)).sum(axis=1)
            if block.is_exclusive:
                total += np.log(block.width) + negative_entropy
            else:
                others = 1.0 - posteriors
                total += block.width * np.log(2.0) + negative_entropy
                total += (others * np.log(others)).sum(axis=1)
        start += block.width
    return total


def _join_one(posteriors: FloatArray, carried: BoolArray) -> FloatArray:
    """Return posteriors of which one value is true, given those that are carried, one at least."""
    n_carried = carried.sum(axis=1, keepdims=True)
    n_others = np.maximum(carried.shape[1] - n_carried, 1)
    joined = posteriors * np.where(carried, (1.0 - WRONG) / n_carried, WRONG / n_others)
    result: FloatArray = joined / joined.sum(axis=1, keepdims=True)
    return result


def _join_several(posteriors: FloatArray, carried: BoolArray) -> FloatArray:
    """Return posteriors of which each may be true, given those that are carried, one at least."""
    if_true, if_false = np.where(carried, 1.0 - UNSAID, UNSAID), np.where(carried, WRONG, 1.0 - WRONG)
    joined = posteriors * if_true
    result: FloatArray = joined / (joined + (1.0 - posteriors) * if_false)
    return result


Carried = Mapping[str, BoolArray]
"""Which values of a facet, of the model's, each sample carries, (n_samples, n_values)."""
Sides = tuple[FloatArray, FloatArray]
"""An array for each modality."""
BothQueries = tuple[Queries | None, Queries | None]
"""Short queries of each modality."""
PARTNER_SHARES = (0.25, 0.5, 0.75)
"""Of the second modality in a vector that stands for both of two partners, to try."""


@dataclass(frozen=True, slots=True, eq=False)
class RankedScores:
    """Scores of a gallery by queries, (n_queries, n_gallery)."""

    side: int  # whose gallery: 0 is the first modality's
    scores: FloatArray
    attainable: FloatArray  # (n_queries,), as of the function
    information: FloatArray  # (n_queries,), as of the function
    grades: npt.NDArray[np.int8]  # how relevant each sample is; a query's own partners are not
    is_match: BoolArray  # as of `Annotations.matches`; of a short query, what has all that it names
    # which samples are the query's partners, whose vectors contain it; None for short queries
    is_own: BoolArray | None = None

    @property
    def margins(self) -> FloatArray:
        """How much more is scored than what is attainable by facets."""
        return self.scores - self.attainable[:, None]

    def gain(self) -> float:
        """Return the graded nDCG of the first ten results, a query's own partners left out; 0 without any."""
        scores = self.scores if self.is_own is None else np.where(self.is_own, -np.inf, self.scores)
        return GradedGain(self.grades).mean(scores)


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutVectors:
    """Vectors of one part of the samples, and of short queries, by terms that have not learned from it."""

    samples: Sides
    queries: Sides
    blocks: Sequence[Block]
    annotations: Annotations  # of the part
    named: BothQueries  # what the queries are
    carried: tuple[Carried, Carried]

    @classmethod
    def of(
        cls,
        terms: Mapping[str, Sides],
        weights: Mapping[str, float],
        annotations: Annotations,
        named: BothQueries,
        is_exclusive: Mapping[str, bool],
    ) -> HeldOutVectors:
        """Return the vectors of terms, in which the queries follow the samples, with the weight of each.
        `is_exclusive` says of each facet whether one value is true."""
        used = [name for name in terms if weights.get(name, 0.0) > 0.0]
        x, z = (np.hstack([weights[name] ** 0.5 * terms[name][side] for name in used]) for side in (0, 1))
        n_x, n_z = annotations.shape
        blocks = [
            Block(facet, is_exclusive.get(facet or "", False), weights[name] ** 0.5, terms[name][0].shape[1])
            for name in used
            for facet in [name.removeprefix(FACET) if name.startswith(FACET) else None]
        ]
        facets = annotations.facets.items()
        carried = (
            {name: facet.x_indicators for name, facet in facets},
            {name: facet.z_indicators for name, facet in facets},
        )
        return cls((x[:n_x], z[:n_z]), (x[n_x:], z[n_z:]), blocks, annotations, named, carried)

    def rankings(self, share: float | None, *, with_values: bool) -> list[RankedScores]:
        """Return the scores of both galleries by samples, and by short queries, of the other modality.
        Partners count if there is a `share`, as of `PARTNER_SHARES`, and carried values if `with_values`."""
        rankings = []
        for side, of_both in ((0, self.annotations), (1, self.annotations.transpose())):
            rows = np.arange(of_both.shape[0]), np.arange(of_both.shape[1])
            content, others = self.samples[side], self.samples[1 - side]
            is_own = of_both.is_paired(*rows)
            carried = self.carried[side] if with_values else {}
            alone = placed = place(content, np.full_like(content, np.nan), carried, self.blocks, 0.0)
            if share is not None:
                of_partners = (1.0 - share) if side else share
                placed = place(content, mean_of_partners(is_own, others), carried, self.blocks, of_partners)
            scores = placed @ others.T
            own = np.nonzero(is_own)
            scores[own] = np.sum(alone[own[0]] * others[own[1]], axis=1)
            grades = np.where(is_own, np.int8(0), of_both.grades(*rows))
            is_match = of_both.matches(*rows)
            says = self._describe(others)
            rankings.append(RankedScores(side, scores.T, *says, grades.T, is_match.T, is_own.T))
            queries = self.named[1 - side]
            if queries is not None:
                grades = queries.grades({name: one.x_indicators for name, one in of_both.facets.items()})
                n_named = sum(indicators.sum(axis=1) for indicators in queries.indicators.values())
                is_match = (grades == np.asarray(n_named)[:, None]) & (grades > 0)
                short = self.queries[1 - side]
                says = self._describe(short)
                rankings.append(RankedScores(side, short @ placed.T, *says, grades, is_match))
        return rankings

    def _describe(self, queries: FloatArray) -> tuple[FloatArray, FloatArray]:
        return attainable(queries, self.blocks), information(queries, self.blocks)


def as_people_ask(rankings: Sequence[RankedScores], side: int) -> list[RankedScores]:
    """Return the rankings by queries of one modality: by short ones if there are any, since these are what
    people type, or else by samples."""
    own = [one for one in rankings if one.side == 1 - side]
    return [one for one in own if one.is_own is None] or own


def mean_of_partners(is_paired: BoolArray, partners: FloatArray) -> FloatArray:
    """Return the mean of each sample's partners; NaN without any."""
    counts = is_paired.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        means: FloatArray = (is_paired.astype(np.float32) @ partners) / counts
    return means


def choose_partner_share(parts: Sequence[HeldOutVectors]) -> float:
    """Return the share with which other samples than the query's own partners are ranked best, by content
    alone: what samples carry would hide the difference. Half where nothing distinguishes them."""
    gains = {
        share: np.mean([one.gain() for part in parts for one in part.rankings(share, with_values=False)])
        for share in PARTNER_SHARES
    }
    return max(PARTNER_SHARES, key=lambda share: (gains[share], share == 0.5))
