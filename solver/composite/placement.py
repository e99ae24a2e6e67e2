"""Gallery vectors: what a sample's content says of it, what its partners' say, and the values it carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse

from solver.composite.weights import GradedGain
from solver.linalg import FloatArray, Samples, Sides, is_sparse, to_dense
from solver.supervision.annotations import Annotations, BoolArray, Queries, join_posteriors

_MOST_DIMENSIONS = 512
"""Names of products, of 4000 features, were ranked almost as well with 512 dimensions; 512 principal axes did
no better, and those of few texts much worse."""
_MOST_EXACT = 384  # learned features that have a dimension each, if others follow, which share the rest
_PER_FEATURE = 8  # dimensions that a feature adds to
_MOST_DENSE = 8192  # features whose projection may be kept dense, 16 MiB: a text reads a few rows of it


def content_width(n_features: int) -> int:
    """Return how many dimensions samples have there."""
    return min(n_features, _MOST_DIMENSIONS)


def content_of(samples: Samples, n_further: int = 0) -> FloatArray:
    """Return the (n_samples, width) rows, of length one, whose inner products are about the cosines; exactly
    of few features, but for the last `n_further`."""
    n_features = samples.shape[1]
    if n_features <= _MOST_DIMENSIONS:
        return to_unit_length(to_dense(samples))
    n_exact = n_features - n_further
    n_exact = n_exact if n_further and n_exact <= _MOST_EXACT else 0
    rest = samples[:, n_exact:] if n_exact else samples
    is_dense = is_sparse(rest) and n_features <= _MOST_DENSE
    reduced = to_dense(rest @ _sketch(n_features - n_exact, _MOST_DIMENSIONS - n_exact, is_dense))
    return to_unit_length(np.hstack([to_dense(samples[:, :n_exact]), reduced]) if n_exact else reduced)


def to_unit_length(rows: FloatArray) -> FloatArray:
    """Return rows of length one; those that are almost zero stay as they are."""
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))  # as of NumPy's norm, which takes longer
    return rows / np.where(lengths > _TINY, lengths, 1.0)


@lru_cache(maxsize=8)
def _sketch(n_features: int, n_dimensions: int, is_dense: bool) -> Samples:
    """Return a sparse projection, the same in every process and release; as a dense array if asked for."""
    # Of each feature one sign in each of eight blocks of dimensions: Kane and Nelson, "Sparser
    # Johnson-Lindenstrauss Transforms", J. ACM 61, 2014. It learns from nothing, so that samples that come
    # later are as near to each other as those that were there.
    width = n_dimensions // _PER_FEATURE
    bits = _mix(np.arange(n_features * _PER_FEATURE, dtype=np.uint64))
    columns = np.tile(np.arange(_PER_FEATURE) * width, n_features) + (bits % np.uint64(width)).astype(np.intp)
    signs = np.where(bits >> np.uint64(63), 1.0, -1.0).astype(np.float32) / np.float32(_PER_FEATURE**0.5)
    starts = np.arange(0, len(bits) + 1, _PER_FEATURE)
    sketch = scipy.sparse.csr_array((signs, columns, starts), shape=(n_features, n_dimensions))
    return sketch.toarray() if is_dense else sketch


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return pseudo-random bits of each number: the finaliser of SplitMix64 (Steele et al., OOPSLA 2014)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


FACET, CONTENT = "facet:", "content:"  # begin the names of terms
_TINY = 1e-12  # shorter vectors have no direction and are left as they are
_ROWS_AT_ONCE = 4096


class Block(NamedTuple):
    """A term's part of a projection."""

    facet: str | None  # whose posteriors it has; None for other terms
    is_exclusive: bool  # whether one value of the facet is true
    scale: float  # root of the term's weight
    width: int
    is_content: bool = False  # whether samples of one modality have zeros
    # (n_values, width), what samples of a value have, for all facets' values in the order of the blocks
    expected: FloatArray | None = None
    is_likeness: bool = False  # of content: whether it is that of few samples that have no words


def place(
    projected: FloatArray,
    partners: FloatArray,
    words: FloatArray,
    carried: Mapping[str, BoolArray],
    blocks: Sequence[Block],
    share: float,
) -> FloatArray:
    """Return the vectors of samples in a gallery, float32, from the (n_samples, rank) projections of content;
    `partners` and `words` are as of `Projector.place`, and `share` is that of the partners."""
    placed = np.array(projected, np.float32)
    has_partners = np.isfinite(partners).all(axis=1)
    placed[has_partners] = (1.0 - share) * placed[has_partners] + share * partners[has_partners]
    start, posteriors = 0, [placed[:, :0]]
    for block in blocks:
        columns = slice(start, start + block.width)
        start += block.width
        if block.facet is not None:
            if block.facet in carried:
                _join(placed, columns, block, carried[block.facet])
            posteriors.append(placed[:, columns] / block.scale)
        elif block.is_content:
            expected = None if block.expected is None else np.hstack(posteriors) @ block.expected
            content = _content(projected[:, columns], partners[:, columns], words[:, columns], expected)
            placed[:, columns] = block.scale * content
    return placed


def _join(placed: FloatArray, columns: slice, block: Block, indicators: BoolArray) -> None:
    """Join the posteriors of a facet, in place, with the values that samples carry."""
    rows = np.flatnonzero(indicators.any(axis=1))
    for batch in np.array_split(rows, range(_ROWS_AT_ONCE, len(rows), _ROWS_AT_ONCE)):
        posteriors = placed[batch, columns].astype(np.float64) / block.scale
        joined = join_posteriors(posteriors, indicators[batch], block.is_exclusive)
        placed[batch, columns] = block.scale * joined


def _content(
    own: FloatArray, partners: FloatArray, words: FloatArray, expected: FloatArray | None
) -> FloatArray:
    """Return the content of samples, of length one: their own, or else half that of their partners and half
    the names of what they carry, since partners seldom say all that is true, or what is to be expected."""
    # By short texts, 50 to 1400 products ranked 500 others better with names than with texts of values.
    total = to_unit_length(np.where(np.isfinite(words), words, 0.0))
    if expected is not None:
        total = np.where(total.any(axis=1, keepdims=True), total, to_unit_length(expected))
    total += to_unit_length(np.where(np.isfinite(partners), partners, 0.0))
    return to_unit_length(np.where(own.any(axis=1, keepdims=True), own, total))


_SHARE_OF_EXPECTED = 0.75


def attainable(queries: FloatArray, blocks: Sequence[Block]) -> FloatArray:
    """Return what each of the (n_queries, rank) queries would score with a sample that has the most likely
    value of each facet, and the content to be expected of these values; 0 without facets."""
    # A match scores about that much more than others, whether a query says much or little: "women" as well as
    # "red handbag for women". On parts of 2030 products that no term had learned from, the error of the
    # probabilities of the first ten results of short texts was .02 by differences, .09 by shares of what is
    # attainable, and .11 by scores alone. Words of values stand in many texts, those of brands in few: where
    # content counts most, what texts of one value match scored as much as half of what others name. With
    # 50 and 200 products, by two encoders, half and three quarters of it had the least log loss.
    total, start, likely = np.zeros(len(queries)), 0, [queries[:, :0]]
    for block in blocks:
        own = queries[:, start : start + block.width]
        if block.facet is not None:
            posteriors = own.astype(np.float64) / block.scale
            best = posteriors.max(axis=1)
            if not block.is_exclusive:  # more than one value may be meant
                best = np.maximum(best, np.where(posteriors > 0.5, posteriors, 0.0).sum(axis=1))
            total += block.scale**2 * best
            likely.append(own / block.scale)
        elif block.expected is not None:
            expected = np.concatenate(likely, axis=1) @ block.expected
            lengths = np.sqrt(np.einsum("ij,ij->i", expected, expected)) + _TINY
            total += _SHARE_OF_EXPECTED * block.scale * np.einsum("ij,ij->i", own, expected) / lengths
        start += block.width
    return total


def information(queries: FloatArray, blocks: Sequence[Block]) -> FloatArray:
    """Return how much each of the (n_queries, rank) queries says of facets, in nats: how far the entropy of
    its posteriors is from the largest one."""
    total, start = np.zeros(len(queries)), 0
    for block in blocks:
        if block.facet is not None:
            posteriors = queries[:, start : start + block.width].astype(np.float64) / block.scale
            total += _entropy_gap(posteriors, block)
        start += block.width
    return total


def certainty(posteriors: FloatArray, block: Block) -> FloatArray:
    """Return what each row of posteriors says of a facet, as a share of all there is to say."""
    largest = np.log(block.width) if block.is_exclusive else block.width * np.log(2.0)
    share: FloatArray = _entropy_gap(posteriors.astype(np.float64), block) / max(largest, _TINY)
    return np.clip(share, 0.0, 1.0)


def _entropy_gap(posteriors: FloatArray, block: Block) -> FloatArray:
    likely = np.minimum(np.maximum(posteriors, _TINY), 1.0 - _TINY)  # clip() takes longer
    gap: FloatArray = (likely * np.log(likely)).sum(axis=1)
    if block.is_exclusive:
        gap += np.log(block.width)
    else:
        others = 1.0 - likely
        gap += block.width * np.log(2.0)
        gap += (others * np.log(others)).sum(axis=1)
    return gap


Carried = Mapping[str, BoolArray]
"""Which values of a facet, of the model's, each sample carries, (n_samples, n_values)."""
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
    # which samples have the query as their only partner, and nothing else than content without it; None for
    # short queries
    is_own: BoolArray | None = None
    # of short queries, which decide about weights; None if all do
    decides: BoolArray | None = None

    def gain(self) -> float:
        """Return the graded nDCG of the first ten results, a query's own partners left out; 0 without any."""
        gains = self.gains()
        return float(gains.mean()) if len(gains) else 0.0

    def gains(self) -> FloatArray:
        """Return that of each query that decides and has something to find."""
        scores = self.scores if self.is_own is None else np.where(self.is_own, -np.inf, self.scores)
        rows = slice(None) if self.decides is None else self.decides
        return GradedGain(self.grades[rows]).of_each(scores[rows])


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutVectors:
    """Vectors of one part of the samples, and of short queries, by terms that have not learned from it."""

    samples: Sides
    queries: Sides
    blocks: tuple[Sequence[Block], Sequence[Block]]  # of both modalities
    annotations: Annotations  # of the part
    named: BothQueries  # what the queries are
    carried: tuple[Carried, Carried]
    words: Sides  # (n_samples, rank), the mean projection of the names of what samples carry, or NaN

    @classmethod
    def of(
        cls,
        terms: Mapping[str, Sides],
        weights: Mapping[str, float],
        annotations: Annotations,
        named: BothQueries,
        is_exclusive: Mapping[str, bool],
        expected: Mapping[str, FloatArray],
    ) -> HeldOutVectors:
        """Return the vectors of terms, in which the queries follow the samples, with the weight of each.
        `is_exclusive` is of each facet, `expected` of each content, as of `Block`."""
        used = [name for name in terms if weights.get(name, 0.0) > 0.0]
        x, z = (np.hstack([weights[name] ** 0.5 * terms[name][side] for name in used]) for side in (0, 1))
        n_x, n_z = annotations.shape
        x_blocks, z_blocks = (
            [
                Block(
                    facet,
                    is_exclusive.get(facet or "", False),
                    weights[name] ** 0.5,
                    terms[name][0].shape[1],
                    name.startswith(CONTENT),
                    None if name == CONTENT + own else expected.get(name),  # as of a side that serves
                )
                for name in used
                for facet in [name.removeprefix(FACET) if name.startswith(FACET) else None]
            ]
            for own in "xz"
        )
        facets = annotations.facets.items()
        carried = (
            {name: facet.x_indicators for name, facet in facets},
            {name: facet.z_indicators for name, facet in facets},
        )
        queries = x[n_x:], z[n_z:]
        words = project_words(annotations, named, queries)
        return cls((x[:n_x], z[:n_z]), queries, (x_blocks, z_blocks), annotations, named, carried, words)

    def rankings(
        self, share: float | None, *, with_values: bool, sides: Sequence[int] = (0, 1)
    ) -> list[RankedScores]:
        """Return the scores of both galleries by samples, and by short queries, of the other modality.
        Partners count if there is a `share`, as of `PARTNER_SHARES`, and carried values if `with_values`."""
        rankings = []
        for side in sides:
            of_both = self.annotations if side == 0 else self.annotations.transpose()
            rows = np.arange(of_both.shape[0]), np.arange(of_both.shape[1])
            content, others = self.samples[side], self.samples[1 - side]
            is_paired = of_both.is_paired(*rows)
            carried = self.carried[side] if with_values else {}
            if share is None:
                means, of_partners = np.full_like(content, np.nan), 0.0
            else:
                means, of_partners = mean_of_partners(is_paired, others), (1.0 - share) if side else share
            words = self.words[side] if with_values else np.full_like(content, np.nan)
            placed = place(content, means, words, carried, self.blocks[side], of_partners)
            scores = placed @ others.T
            pairs = np.nonzero(is_paired)  # a query's own part in its partner's vector is taken out
            n_others = is_paired.sum(axis=1)[pairs[0], None] - 1
            with np.errstate(invalid="ignore", divide="ignore"):
                means = means[pairs[0]] + (means[pairs[0]] - others[pairs[1]]) / n_others
            means[n_others[:, 0] == 0] = np.nan
            of_pairs = {name: indicators[pairs[0]] for name, indicators in carried.items()}
            without = place(
                content[pairs[0]], means, words[pairs[0]], of_pairs, self.blocks[side], of_partners
            )
            scores[pairs] = np.sum(without * others[pairs[1]], axis=1)
            is_own = is_paired & (is_paired.sum(axis=1, keepdims=True) == 1)
            grades = np.where(is_own, np.int8(0), of_both.grades(*rows))
            is_match = of_both.matches(*rows)
            says = self._describe(side, others)
            rankings.append(RankedScores(side, scores.T, *says, grades.T, is_match.T, is_own.T))
            queries = self.named[1 - side]
            if queries is not None:
                grades = queries.grades({name: one.x_indicators for name, one in of_both.facets.items()})
                is_match = (grades == queries.n_named[:, None]) & (grades > 0)
                short = self.queries[1 - side]
                says = self._describe(side, short)
                scores, decides = short @ placed.T, queries.decides
                rankings.append(RankedScores(side, scores, *says, grades, is_match, decides=decides))
        return rankings

    def _describe(self, side: int, queries: FloatArray) -> tuple[FloatArray, FloatArray]:
        return attainable(queries, self.blocks[side]), information(queries, self.blocks[side])


def project_words(annotations: Annotations, named: BothQueries, queries: Sides) -> Sides:
    """Return the mean of the queries that name a single value, over the values that each sample carries, for
    both modalities; NaN without any. Queries of the other modality come first."""
    sides = []
    for side, of_both in enumerate((annotations, annotations.transpose())):
        words = np.full((of_both.shape[0], queries[0].shape[1]), np.nan, np.float32)
        for modality in (side, 1 - side):
            if (texts := named[modality]) is None:
                continue
            alone = np.flatnonzero(texts.n_named == 1)
            shares = np.zeros((len(words), len(alone)), np.float32)
            for name, names in texts.indicators.items():
                if name in of_both.facets:
                    shares += of_both.facets[name].x_indicators.astype(np.float32) @ names[alone].T
            has_words = shares.any(axis=1)
            sums = shares[has_words] @ queries[modality][alone]
            words[has_words] = sums / shares[has_words].sum(axis=1, keepdims=True)
        sides.append(words)
    return sides[0], sides[1]


FEWEST_TEXTS = 10  # that say alone what a match is worth


def has_several(texts: Sequence[RankedScores]) -> bool:
    """Return whether enough of the short queries are of several values."""
    # Names alone are always sure: by those of ten labels sentences had .65 where .93 matched.
    several = [one.decides for one in texts if one.decides is not None and not one.decides.all()]
    return bool(max(map(np.sum, several), default=0) >= FEWEST_TEXTS)


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


CONTENT_WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2)
"""To try, where the largest of the others is 1."""
_USUAL_WEIGHT = 0.4  # where nothing distinguishes them
_LOSS = 0.0025
"""Of the gain, relative, for more weight of content: rare words, and those that nothing was learned of,
are in no measure."""
_PRIOR, _LOSS_OF_FEW = 1280.0, 0.01
"""Samples from which what is learned counts as much as content, which learns from none, and the loss up to
the weight that follows: this by the number of samples. A larger loss has to be beyond chance there."""
# Share of that weight which texts have at least: held-out ones are ranked in galleries of a few. With the
# sentence encoder, texts of two values found .97 of 500 others after 50 products, and .90 without.
_OF_TEXTS = 0.25


def choose_content_weight(
    vectors: Callable[[float], Sequence[HeldOutVectors]],
    side: int,
    share: float | None,
    n_samples: int,
    is_likeness: bool,
) -> float:
    """Return the weight of the content of `side`, as of `weigh_content`, in the other modality's gallery;
    `vectors` are those of all parts."""
    # Kinds of query are samples and short texts, by content alone and by all that samples carry. Scores are
    # linear in the weight: two of them say all.
    kinds: dict[tuple[bool, bool], list[tuple[RankedScores, FloatArray]]] = {}
    for without, with_content in zip(vectors(0.0), vectors(1.0), strict=True):
        for with_values in (False, True):
            rankings = (
                part.rankings(share, with_values=with_values, sides=[1 - side])
                for part in (without, with_content)
            )
            for base, one in zip(*rankings, strict=True):
                kind = kinds.setdefault((with_values, base.is_own is None), [])
                kind.append((base, one.scores - base.scores))
    gains = [np.array([_gains_with(weight, kind) for weight in CONTENT_WEIGHTS]) for kind in kinds.values()]
    return weigh_content(gains, n_samples, is_likeness)


def weigh_content(gains: Sequence[FloatArray], n_samples: int, is_likeness: bool) -> float:
    """Return the largest of `CONTENT_WEIGHTS` with which no kind of query loses much, from the gains of each
    kind, (n_weights, n_queries); after a fit of few samples a larger one."""
    # Held-out samples are of few values, too, and short texts of values that no sample carries are in none.
    # Of few pictures, the held-out ones are ranked in galleries of a few. By the usual weight 20 products'
    # ranked names of 500 others about as well as before any training, and better from 50 on.
    weights = np.array(CONTENT_WEIGHTS)
    is_usual = weights <= _PRIOR / n_samples
    usual = float(weights[is_usual][-1])
    gains = [of_queries for of_queries in gains if of_queries.any()]
    if not gains:
        return max(_USUAL_WEIGHT, usual)
    best = int(np.argmax(sum(of_queries.mean(axis=1) for of_queries in gains)))
    is_enough = np.ones(len(weights), np.bool_)
    for of_queries in gains:
        lost = of_queries[best] - of_queries
        chance = lost.std(axis=1) / lost.shape[1] ** 0.5
        most = np.where(
            is_usual, _LOSS_OF_FEW * of_queries[best].mean() + chance, _LOSS * of_queries[best].mean()
        )
        is_enough &= lost.mean(axis=1) <= most
    chosen = float(weights[is_enough][-1])
    return max(chosen, usual if is_likeness else _OF_TEXTS * usual)


def _gains_with(weight: float, kind: Sequence[tuple[RankedScores, FloatArray]]) -> FloatArray:
    return np.concatenate(
        [replace(one, scores=one.scores + np.float32(weight) * growth).gains() for one, growth in kind]
    )
