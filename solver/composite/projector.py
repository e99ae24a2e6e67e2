"""A trained `CompositeBilinear` at query time, and what ranks samples before anything was learned."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit
from typing_extensions import override

from solver.composite.placement import (
    CONTENT,
    FACET,
    Block,
    BothQueries,
    HeldOutVectors,
    RankedScores,
    attainable,
    certainty,
    content_of,
    content_width,
    information,
    place,
    project_words,
    to_unit_length,
)
from solver.linalg import (
    Centered,
    FloatArray,
    Samples,
    Sides,
    check_array,
    first_columns,
    is_sparse,
    to_dense,
)
from solver.projector import WEAK_PROBABILITY, Projector, SpacePart, project_in_range
from solver.scaling.feature_maps import (
    DESCRIBED,
    MAX_MAGNITUDE,
    FeatureMap,
    check_fields,
    describe_feature_map,
    feature_map_arrays,
    feature_map_parts,
    read_feature_map,
)
from solver.scaling.scaler import Scaler
from solver.supervision.annotations import Annotations, BoolArray, indicators_of
from solver.validation import InvalidInputError

_SHARPNESS = 7.0  # of the mean over the bank: the best of 5 to 40 for the partners of held-out products
_MOST_BANKED = 2048  # samples of a bank at most: a query is compared with each of them


def draw_bank(unit: FloatArray) -> FloatArray:
    """Return an even sample of rows, projections of length one of what queries, as a float32 bank."""
    n_samples = len(unit)
    rows = np.unique(np.linspace(0, n_samples - 1, min(n_samples, _MOST_BANKED)).astype(np.intp))
    return np.ascontiguousarray(unit[rows], np.float32)


def distinctness(unit: FloatArray, bank: FloatArray) -> FloatArray:
    """Return one minus the hubness of samples, of shape (n_samples, 1); all projections have length one."""
    # The hubness is the logarithm of the mean, over a bank of queries, of the exponential of the similarity:
    # what an inverted softmax (Smith et al., "Offline Bilingual Word Vectors, Orthogonal Transformations and
    # the Inverted Softmax", ICLR 2017) subtracts from it. The product of two samples' values falls with the
    # hubness of either.
    similarities = _SHARPNESS * (unit @ bank.T)
    sums = np.exp(similarities).sum(axis=1, keepdims=True)
    hubness = np.log(sums / len(bank)) / _SHARPNESS  # at most e to the 7
    result: FloatArray = 1.0 - hubness
    return result


def _softmax(rows: FloatArray) -> FloatArray:
    """Return shares of the exponentials of each row: SciPy's, which takes three times as long for a query."""
    exponentials = np.exp(rows - rows.max(axis=1, keepdims=True))
    shares: FloatArray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return shares


_LEAST_SHARE = 1e-30  # against division by nothing
HEAD_KINDS = ("softmax", "sigmoid", "direction", "linear", "cosine", "distinctness", "content")
_WITHOUT_SCORES = ("cosine", "distinctness")
_HEAD_FIELDS = {"term": str, "kind": str, "n_scores": int, "scale": float}
_PARTS, _CURVE, _OF_LITTLE = ("coefficients", "intercepts"), ("levels", "probabilities"), "of_little"
# Fields that models of earlier releases lack, by name in the description: of heads, of sides, of curves.
_VALUES, _OWN, _ALIKE = "values", "is_own", "is_likeness"
_SIDE_FIELDS = ("partner_share", "least_likeness", "n_further")
_CURVE_FIELDS = {"least_information": "least", "attained": "attained", "weak": "weak"}
_LITTLE_FIELDS = {"little": "little", "much": "much"}


@dataclass(frozen=True, slots=True)
class Head:
    """One term's part of a projection."""

    term: str
    kind: str  # softmax, sigmoid, direction (length one), linear, cosine, distinctness or content
    n_scores: int  # 0 for "cosine" (the raw sample) and "distinctness" (made of "direction")
    scale: float  # root of the term's weight
    values: tuple[str, ...] = ()  # of a facet, one for each score; none in models of earlier releases
    is_own: bool = (
        False  # of "content": whether it is of this modality, and not of the other, which has zeros
    )
    is_likeness: bool = False  # of "content": whether it is that of few samples that have no words

    def __post_init__(self) -> None:
        if self.kind not in HEAD_KINDS:
            raise InvalidInputError(f"{self.term}: kind must be one of {HEAD_KINDS}, got {self.kind!r:.100}")
        if not 0.0 < self.scale < MAX_MAGNITUDE:
            raise InvalidInputError(f"{self.term}: scale must be positive and finite, got {self.scale}")
        if self.n_scores < 0 or (self.n_scores == 0) != (self.kind in _WITHOUT_SCORES):
            raise InvalidInputError(f"{self.term}: {self.n_scores} scores do not suit the kind {self.kind!r}")
        if self.values and self.kind not in ("softmax", "sigmoid"):
            raise InvalidInputError(f"{self.term}: values do not suit the kind {self.kind!r}")
        if self.values and len(set(self.values)) != self.n_scores:
            raise InvalidInputError(f"{self.term}: {len(self.values)} values for {self.n_scores} scores")

    @property
    def facet(self) -> str | None:
        """Name of the facet whose posteriors it has, if their values are known."""
        return self.term.removeprefix(FACET) if self.values else None

    @property
    def n_learned(self) -> int:
        """Number of scores that are linear in the mapped samples."""
        return 0 if self.kind == "content" else self.n_scores

    def apply(self, scores: FloatArray, samples: Samples, n_further: int = 0) -> FloatArray:
        """Return this part of projections of samples with these scores, those of a direction of length one;
        `n_further` as of `content_of`."""
        if self.kind == "cosine":
            return self.scale * to_unit_length(to_dense(samples))
        if self.kind == "content":
            if not self.is_own:
                return np.zeros((len(scores), self.n_scores))
            return self.scale * content_of(samples, n_further)
        part = scores
        if self.kind == "softmax":
            part = _softmax(scores)
        elif self.kind == "sigmoid":
            part = expit(scores)
        return self.scale * part


@dataclass(frozen=True, slots=True, eq=False)
class MatchCurve:
    """The probability of a match at levels, similarities less a share of what is attainable; others are
    interpolated."""

    levels: FloatArray  # (n_levels,), in ascending order
    probabilities: FloatArray  # (n_levels,), from 0 to 1 and never decreasing
    least: float = 0.0  # information of queries that it holds for, in nats
    attained: float = 1.0  # the share of what is attainable
    weak: float = WEAK_PROBABILITY  # of a best result, below which none stands out
    of_little: FloatArray | None = None  # as `probabilities`, for queries that say no more than `little`
    little: float = 0.0  # information from which on `probabilities` count the more, alone from `much` on
    much: float = 0.0

    def __post_init__(self) -> None:
        check_array("levels", self.levels, (None,))
        of_little = self.probabilities if self.of_little is None else self.of_little
        for name, values in (("probabilities", self.probabilities), ("of_little", of_little)):
            check_array(name, values, (len(self.levels),))
        is_sorted = (np.diff(self.levels) > 0).all() and (np.diff(self.probabilities) >= 0).all()
        is_sorted &= (np.diff(of_little) >= 0).all() and 0 <= of_little[:1].sum() <= of_little[-1:].sum() <= 1
        if (
            not len(self.levels)
            or not is_sorted
            or not 0 <= self.probabilities[0] <= self.probabilities[-1] <= 1
        ):
            raise InvalidInputError("levels must ascend, and probabilities from 0 to 1 must not descend")
        if not (0.0 <= self.least < np.inf and 0.0 <= self.little <= self.much < np.inf):
            raise InvalidInputError(
                f"least, little and much must be finite and at least 0, in order, "
                f"got {self.least}, {self.little} and {self.much}"
            )
        if not (0.0 <= self.attained <= 2.0 and 0.0 <= self.weak <= 1.0):
            raise InvalidInputError("attained must be from 0 to 2, weak from 0 to 1")

    def probability(
        self, similarities: FloatArray, attainable: FloatArray, information: FloatArray
    ) -> FloatArray:
        """Return the (n_queries, n_gallery) probabilities of a match, for queries that can attain and say as
        much."""
        # With each nat that a query says less than those the curve was learned from, it may mean e times as
        # many things.
        share = np.exp(np.minimum(information - self.least, 0.0))
        levels = similarities - self.attained * attainable[:, None]
        probability: FloatArray = np.interp(levels, self.levels, self.probabilities)
        if self.of_little is not None:
            above = (information - self.little) / max(self.much - self.little, _LEAST_SHARE)
            much = np.clip(above, 0.0, 1.0)[:, None]
            probability = much * probability + (1.0 - much) * np.interp(levels, self.levels, self.of_little)
        return probability * share[:, None]


NO_CURVE = MatchCurve(np.zeros(1), np.zeros(1))  # where nothing says what a match scores


@dataclass(frozen=True, eq=False)  # without slots, for what is cached
class CompositeSide:
    """How samples of one modality are projected: a feature map, linear scores of it, and heads."""

    feature_map: FeatureMap
    coefficients: FloatArray  # (n_mapped, n_scores), one head after the other
    intercepts: FloatArray  # (n_scores,), added to the scores
    heads: tuple[Head, ...]
    curve: MatchCurve  # of this modality's samples as queries
    bank: FloatArray | None = None  # (n_bank, n_directions), of the other modality, for "distinctness"
    partner_share: float = 0.0  # of a sample's partners in its vector in a gallery
    expected: FloatArray | None = None  # of the other modality's content, as of `Block`
    least_likeness: float = 0.0  # kernel value of the nearest landmark, of queries like what was learned from
    n_further: int = 0  # features that follow those that were learned from, and are content alone
    # (n_landmarks, n_scores), from kernel values to scores, where queries come one by one
    _dual: FloatArray | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        n_scores = sum(head.n_learned for head in self.heads)
        check_array("coefficients", self.coefficients, (self.feature_map.n_mapped, n_scores))
        check_array("intercepts", self.intercepts, (n_scores,))
        if not self.heads:
            raise InvalidInputError("heads must not be empty")
        if not 0.0 <= self.partner_share <= 1.0:
            raise InvalidInputError(f"partner_share must be from 0 to 1, got {self.partner_share}")
        for head in self.heads:
            if head.is_own and head.n_scores != content_width(self.n_features):
                raise InvalidInputError(f"{head.term}: {head.n_scores} scores do not suit the features")
            if head.kind == "content" and not head.is_own:
                n_values = sum(len(other.values) for other in self.heads[: self.heads.index(head)])
                check_array(
                    "expected",
                    np.empty(0) if self.expected is None else self.expected,
                    (n_values, head.n_scores),
                )
        widths = [head.n_scores for head in self.heads if head.kind == "direction"]
        if any(head.kind == "distinctness" for head in self.heads):
            check_array("bank", np.empty(0) if self.bank is None else self.bank, (None, sum(widths)))
            if len(widths) != 1:
                raise InvalidInputError("a head 'distinctness' needs one of the kind 'direction'")
        if np.abs(self.coefficients).max(initial=0.0) > MAX_MAGNITUDE:
            raise InvalidInputError(f"coefficients must not exceed {MAX_MAGNITUDE:g}: scores would overflow")
        feature_map = self.feature_map
        if feature_map.serves and feature_map.kernel != "linear" and n_scores <= feature_map.n_mapped:
            # To read the whitening, which has landmarks squared, took most of a query's time.
            dual = feature_map.whitening.astype(np.float64) @ self.coefficients.astype(np.float64)
            object.__setattr__(self, "_dual", dual.astype(np.float32))

    @property
    def n_features(self) -> int:
        """Number of features of samples."""
        return self.feature_map.n_features + self.n_further

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Dimensions of each head's part."""
        widths = {"cosine": self.feature_map.n_features, "distinctness": 1}
        return tuple(widths.get(head.kind, head.n_scores) for head in self.heads)

    @cached_property
    def rank(self) -> int:
        """Dimensions of all parts."""
        return sum(self.widths)

    @cached_property
    def parts(self) -> tuple[SpacePart, ...]:
        """Parts of a projection, as of `Projector`."""
        return tuple(
            SpacePart(head.term, width, head.values, head.scale)
            for head, width in zip(self.heads, self.widths, strict=True)
        )

    def project(self, samples: npt.ArrayLike) -> FloatArray:
        """Return the (n_samples, rank) projections, float32; those of too large samples are not finite."""
        return project_in_range(self._project, samples, self.rank, self.n_features)

    def project_query(self, sample: npt.ArrayLike) -> tuple[FloatArray, bool]:
        """Return a projection, and whether it is like what was learned from, as of `Projector`."""
        if self._dual is None or not self.least_likeness:
            return self.project(sample), True
        nearest = np.ones(1)
        project = partial(self._project, nearest=nearest)
        projected = project_in_range(project, sample, self.rank, self.n_features)
        return projected, bool(nearest[0] >= self.least_likeness)

    def project_words(self, samples: npt.ArrayLike) -> FloatArray:
        """Return projections of which all is zero but the samples' own content, as of `Projector`."""
        return project_in_range(self._words, samples, self.rank, self.n_features)

    def _words(self, samples: Samples) -> FloatArray:
        nothing = np.zeros((samples.shape[0], 0))
        parts = [
            head.apply(nothing, samples, self.n_further)
            if head.is_own
            else np.zeros((samples.shape[0], width))
            for head, width in zip(self.heads, self.widths, strict=True)
        ]
        return np.hstack(parts).astype(np.float32)

    def place(
        self,
        projected: FloatArray,
        partners: FloatArray,
        values: Mapping[str, Sequence[Collection[str]]],
        words: FloatArray | None = None,
    ) -> FloatArray:
        """Return vectors for a gallery, as of `Projector.place`."""
        carried = {
            head.facet: indicators_of(values[head.facet], head.values)
            for head in self.heads
            if head.facet is not None and head.facet in values
        }
        if words is None:
            words = np.full_like(projected, np.nan)
        return place(projected, partners, words, carried, self.blocks, self.partner_share)

    @cached_property
    def blocks(self) -> list[Block]:
        """Parts of a projection."""
        expected = None if self.expected is None else self.expected.astype(np.float32)
        return [
            Block(
                head.facet,
                head.kind == "softmax",
                head.scale,
                width,
                head.kind == "content",
                expected if head.kind == "content" and not head.is_own else None,
                head.is_likeness,
            )
            for head, width in zip(self.heads, self.widths, strict=True)
        ]

    def align(self, facet: str, values: Sequence[str], indicators: BoolArray) -> BoolArray:
        """Return indicators of some values of a facet as those of its head's values, the others left out."""
        own = next(head.values for head in self.heads if head.facet == facet)
        columns = {value: column for column, value in enumerate(own)}
        aligned: BoolArray = np.zeros((len(indicators), len(own)), np.bool_)
        for column, value in enumerate(values):
            if value in columns:
                aligned[:, columns[value]] = indicators[:, column]
        return aligned

    @cached_property
    def _scores_of_shift(self) -> FloatArray:
        """What the shift of sparse samples takes from every score."""
        return self.feature_map.scaler.shift @ self.coefficients

    def _project(self, samples: Samples, nearest: FloatArray | None = None) -> FloatArray:
        if self._dual is not None:
            scores = self.feature_map.weigh(self._take_learned(samples), self._dual, nearest)
        elif self.feature_map.kernel == "linear" and is_sparse(samples) and samples.shape[0] == 1:
            # Of a query only the rows of its features are read; SciPy takes several times as long to begin.
            is_learned = (samples.indices < self.feature_map.n_features).all()
            learned = samples if is_learned else self._take_learned(samples)
            scaled = self.feature_map.scaler.scale_entries(learned)
            scores = (scaled @ self.coefficients[learned.indices])[None] - self._scores_of_shift
        else:
            mapped = self.feature_map.transform(self._take_learned(samples))
            if isinstance(mapped, Centered):
                scores = np.asarray(mapped.sparse @ self.coefficients) - self._scores_of_shift
            else:
                scores = np.asarray(mapped @ self.coefficients)
        parts = list(self._parts(scores + self.intercepts, samples))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _take_learned(self, samples: Samples) -> Samples:
        """Return the features that were learned from."""
        return first_columns(samples, self.feature_map.n_features) if self.n_further else samples

    def _parts(self, scores: FloatArray, samples: Samples) -> Iterator[FloatArray]:
        start = 0
        directions = scores[:, :0]
        for head in self.heads:
            own = scores[:, start : start + head.n_learned]
            start += head.n_learned
            if head.kind == "direction":
                own = directions = to_unit_length(own)
            if head.kind == "distinctness" and self.bank is not None:
                yield head.scale * distinctness(directions, self.bank)
            else:
                of_head = self._take_learned(samples) if head.kind == "cosine" else samples
                yield head.apply(own, of_head, self.n_further)


@dataclass(frozen=True, slots=True, eq=False)
class CompositeProjector(Projector):
    """Projects raw features of both modalities into a space whose inner product sums the terms.

    Parameters
    ----------
    x, z : CompositeSide
        Both modalities; their heads are of the same terms and widths.

    Raises
    ------
    InvalidInputError
        If a part does not match the others; the message names it.
    """

    x: CompositeSide
    z: CompositeSide

    def __post_init__(self) -> None:
        terms = [
            [(head.term, head.kind, head.scale, head.values) for head in side.heads]
            for side in (self.x, self.z)
        ]
        if terms[0] != terms[1] or self.x.widths != self.z.widths:
            raise InvalidInputError(
                "x and z must have the same terms, with the same kinds, widths, scales and values"
            )
        for own, other in zip(self.x.heads, self.z.heads, strict=True):
            if (own.kind == "content") != (own.is_own + other.is_own == 1):
                raise InvalidInputError(f"{own.term}: content must be of one modality")

    @property
    @override
    def rank(self) -> int:
        return self.x.rank

    @property
    @override
    def n_features(self) -> tuple[int, int]:
        return self.x.n_features, self.z.n_features

    @override
    def _project(self, samples: npt.ArrayLike, side: str) -> FloatArray:
        return (self.x if side == "x" else self.z).project(samples)

    @override
    def project_query(self, sample: npt.ArrayLike, side: str = "x") -> tuple[FloatArray, bool]:
        return (self.x if side == "x" else self.z).project_query(sample)

    @override
    def project_words(self, samples: npt.ArrayLike, side: str = "x") -> FloatArray:
        return (self.x if side == "x" else self.z).project_words(samples)

    @property
    @override
    def facets(self) -> tuple[str, ...]:
        return tuple(head.facet for head in self.x.heads if head.facet is not None)

    @property
    @override
    def uses_partners(self) -> bool:
        return self.x.partner_share > 0.0 or self.z.partner_share > 0.0

    @property
    @override
    def uses_words(self) -> bool:
        return any(head.kind == "content" for head in self.x.heads)

    @property
    @override
    def parts(self) -> tuple[SpacePart, ...]:
        return self.x.parts

    @override
    def compose(self, projected: FloatArray, weights: FloatArray, is_across: BoolArray) -> FloatArray:
        # Of a facet the query decides that is most certain of it, and of little else: "blue" replaces the
        # colour of a picture, and says nothing of its kind, and an item is certain of everything that it
        # carries. Words, which pictures lack, are in part those to be expected of the facets. Of powers from
        # 2 to 8, by pictures held out of fits on training products alone, with names of other colours.
        ends = np.cumsum(self.x.widths)[:-1]
        pieces = list(zip(self.x.blocks, self.z.blocks, np.split(projected, ends, axis=1), strict=True))
        sure = {
            own.facet: certainty(rows / own.scale, own) * rows.any(axis=1)
            for own, _, rows in pieces
            if own.facet is not None
        }
        total = np.maximum(sum(sure.values()), _LEAST_SHARE)
        across = weights * is_across if is_across.any() else weights
        parts: list[FloatArray] = []
        posteriors: list[FloatArray] = [projected[0, :0]]
        for own, other, rows in pieces:
            if own.is_likeness and len(weights) > 1:  # it would find what looks like a part
                parts.append(np.zeros(own.width))
                continue
            if own.facet is not None:
                shares = weights * (sure[own.facet] / total) ** 4
            else:
                shares = weights if own.is_content else across
            part = shares @ rows / max(float(np.abs(shares).sum()), _LEAST_SHARE)
            expected = other.expected if own.expected is None else own.expected
            if own.facet is not None:
                posteriors.append(part / own.scale)
            elif expected is not None:
                without = np.abs(weights[~rows.any(axis=1)]).sum() / max(np.abs(weights).sum(), _LEAST_SHARE)
                part = (
                    part + without * own.scale * to_unit_length((np.hstack(posteriors) @ expected)[None])[0]
                )
            parts.append(part)
        return np.hstack(parts).astype(np.float32)

    @override
    def place(
        self,
        projected: FloatArray,
        partners: FloatArray,
        values: Mapping[str, Sequence[Collection[str]]],
        words: FloatArray | None = None,
        side: str = "x",
    ) -> FloatArray:
        return (self.x if side == "x" else self.z).place(projected, partners, values, words)

    def held_out(
        self, samples: Sides, annotations: Annotations, queries: BothQueries = (None, None)
    ) -> HeldOutVectors:
        """Return the vectors of samples that it has not learned from, with projections of their content.

        Parameters
        ----------
        samples : tuple of two ndarrays of shape (n_samples, rank)
            Projections of both modalities, finite.
        annotations : Annotations
            What is known of the samples.
        queries : tuple of Queries or None
            Short queries of both modalities.
        """
        rank = (0, self.rank)
        x_queries, z_queries = (
            np.empty(rank, np.float32) if named is None else side.project(named.samples)
            for side, named in zip((self.x, self.z), queries, strict=True)
        )
        x_carried, z_carried = (
            {
                name: self.x.align(name, facet.values, facet.sides[number])
                for name, facet in annotations.facets.items()
                if name in self.facets
            }
            for number in (0, 1)
        )
        carried = x_carried, z_carried
        blocks = self.x.blocks, self.z.blocks
        short = x_queries, z_queries
        words = project_words(annotations, queries, short)
        return HeldOutVectors(samples, short, blocks, annotations, queries, carried, words)

    def estimates(self, rankings: Sequence[RankedScores]) -> Iterator[tuple[FloatArray, BoolArray]]:
        """Yield the probabilities of a match in rankings of `held_out`, and what matches."""
        for one in rankings:
            name, side = (("x", self.x), ("z", self.z))[1 - one.side]
            if len(one.scores) and self.knows_matches(name):
                yield side.curve.probability(one.scores, one.attainable, one.information), one.is_match

    @override
    def knows_matches(self, side: str = "x") -> bool:
        return bool((self.x if side == "x" else self.z).curve.probabilities[-1] > 0.0)

    @override
    def weak_probability(self, side: str = "x") -> float:
        return (self.x if side == "x" else self.z).curve.weak

    @override
    def probability(
        self, similarities: FloatArray, queries: FloatArray | None = None, side: str = "x"
    ) -> FloatArray:
        if queries is None:
            raise InvalidInputError("queries must be given: how much one says decides what a match scores")
        own, gallery = (self.x, self.z) if side == "x" else (self.z, self.x)
        blocks = gallery.blocks
        return own.curve.probability(similarities, attainable(queries, blocks), information(queries, blocks))

    @override
    def arrays(self) -> dict[str, FloatArray]:
        arrays: dict[str, FloatArray] = {}
        for name, side in (("x", self.x), ("z", self.z)):
            arrays |= {f"{name}_{part}": getattr(side.curve, part) for part in _CURVE}
            arrays |= {f"{name}_coefficients": side.coefficients, f"{name}_intercepts": side.intercepts}
            arrays |= {} if side.curve.of_little is None else {f"{name}_{_OF_LITTLE}": side.curve.of_little}
            arrays |= {} if side.bank is None else {f"{name}_bank": side.bank}
            arrays |= {} if side.expected is None else {f"{name}_expected": side.expected}
            arrays |= {f"{name}_{part}": array for part, array in feature_map_parts(side.feature_map).items()}
        return arrays

    def describe(self) -> dict[str, Any]:
        """Return everything that is not an array, as JSON values."""
        return {name: _describe(side) for name, side in (("x", self.x), ("z", self.z))}

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, FloatArray], description: Mapping[str, Any]
    ) -> CompositeProjector:
        """Rebuild a projector from `arrays` and `describe`.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            As returned by `arrays`.
        description : mapping
            As returned by `describe`, or read from an untrusted file.

        Raises
        ------
        InvalidInputError
            If something is missing, unexpected or does not match; the message names it.
        """
        sides = {name: _check_side(name, description.get(name)) for name in "xz"}
        if arrays.keys() >= set(_CURVE):  # of earlier releases, with one curve for both modalities
            shared = {f"{name}_{part}": arrays[part] for name in "xz" for part in _CURVE}
            arrays = {name: array for name, array in arrays.items() if name not in _CURVE} | shared
        expected = {
            f"{name}_{part}"
            for name, side in sides.items()
            for part in (*_PARTS, *_CURVE, *feature_map_arrays(side["map"]), *_further_arrays(side))
        }
        if set(arrays) != expected:
            raise InvalidInputError(f"expected the arrays {sorted(expected)}, got {sorted(arrays)}")
        x, z = (_read_side(name, side, arrays) for name, side in sides.items())
        return cls(x, z)


def _further_arrays(side: Mapping[str, Any]) -> list[str]:
    """Return the names of the arrays that some heads of a checked description need."""
    needs = {
        _OF_LITTLE: side.get("much", 0.0) > 0.0,
        "bank": any(head["kind"] == "distinctness" for head in side["heads"]),
        "expected": any(head["kind"] == "content" and not head.get(_OWN) for head in side["heads"]),
    }
    return [name for name, is_needed in needs.items() if is_needed]


def _describe(side: CompositeSide) -> dict[str, Any]:
    heads = [{key: getattr(head, key) for key in _HEAD_FIELDS} for head in side.heads]
    for entry, head in zip(heads, side.heads, strict=True):
        entry |= {_VALUES: list(head.values)} if head.values else {}
        entry |= {_OWN: True} if head.is_own else {}
        entry |= {_ALIKE: True} if head.is_likeness else {}
    fields = _CURVE_FIELDS if side.curve.of_little is None else _CURVE_FIELDS | _LITTLE_FIELDS
    own = {key: getattr(side, key) for key in _SIDE_FIELDS}
    own |= {key: getattr(side.curve, name) for key, name in fields.items()}
    return {"map": describe_feature_map(side.feature_map), "heads": heads, **own}


def _check_side(name: str, side: Any) -> Mapping[str, Any]:
    """Return the description of a modality after checking the types of its fields."""
    if not isinstance(side, dict) or type(side.get("map")) is not dict or type(side.get("heads")) is not list:
        raise InvalidInputError(f"{name} must have a map and heads, got {side!r:.100}")
    check_fields(f"{name}.map", side["map"], DESCRIBED)
    for number, head in enumerate(side["heads"]):
        check_fields(f"{name}.heads.{number}", head, _HEAD_FIELDS)
        values = head.get(_VALUES, [])
        if type(values) is not list or not all(type(value) is str for value in values):
            raise InvalidInputError(f"{name}.heads.{number}.{_VALUES} must be a list of texts")
        for key in (_OWN, _ALIKE):
            if type(head.get(key, False)) is not bool:
                raise InvalidInputError(f"{name}.heads.{number}.{key} must be true or false")
    for key in (*_SIDE_FIELDS[:2], *_CURVE_FIELDS, *_LITTLE_FIELDS):
        if type(side.get(key, 0.0)) is not float:
            raise InvalidInputError(f"{name}.{key} must be of type float")
    if type(side.get("n_further", 0)) is not int or side.get("n_further", 0) < 0:
        raise InvalidInputError(f"{name}.n_further must be a number of features")
    return side


def _read_side(name: str, side: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> CompositeSide:
    heads = tuple(
        Head(
            **{key: head[key] for key in _HEAD_FIELDS},
            values=tuple(head.get(_VALUES, ())),
            is_own=head.get(_OWN, False),
            is_likeness=head.get(_ALIKE, False),
        )
        for head in side["heads"]
    )
    try:
        return CompositeSide(
            read_feature_map(name, side["map"], arrays),
            arrays[f"{name}_coefficients"],
            arrays[f"{name}_intercepts"],
            heads,
            MatchCurve(
                arrays[f"{name}_levels"],
                arrays[f"{name}_probabilities"],
                of_little=arrays.get(f"{name}_{_OF_LITTLE}"),
                **{own: side[key] for key, own in (_CURVE_FIELDS | _LITTLE_FIELDS).items() if key in side},
            ),
            arrays.get(f"{name}_bank"),
            expected=arrays.get(f"{name}_expected"),
            **{key: side[key] for key in _SIDE_FIELDS if key in side},
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error


def untrained_projector(
    X: Samples, Z: Samples, *, shares_space: bool = False, n_further: tuple[int, int] = (0, 0)
) -> CompositeProjector:
    """Return a projector that has learned nothing.

    Samples of one modality are compared by the cosines of their features, words or likeness, and with
    samples of the other by those of its partners, see `Projector.place`. Its probabilities are 0: nothing
    says what a match scores.

    Parameters
    ----------
    X, Z : ndarray or CSR array of shape (n_samples, n_features)
        Some samples of both modalities, for the number of features.
    shares_space : bool
        Whether both modalities have features of one pretrained space, whose cosine counts between them.
    n_further : tuple of int
        As of `CompositeBilinear.fit`.
    """
    sides = []
    for number, samples in enumerate((X, Z)):
        heads = [
            Head(f"{CONTENT}{name}", "content", content_width(owner.shape[1]), 1.0, is_own=number == place)
            for place, (name, owner) in enumerate((("x", X), ("z", Z)))
        ]
        if shares_space:
            heads.append(Head("cosine", "cosine", 0, 1.0))
        zeros = np.zeros(samples.shape[1] - n_further[number], np.float32)
        none = np.zeros((0, len(zeros)), np.float32)
        feature_map = FeatureMap(Scaler.restore("none", zeros, zeros + 1.0), "linear", 0.0, none, none)
        coefficients = np.zeros((feature_map.n_mapped, 0), np.float32)
        expected = np.zeros((0, content_width((Z, X)[number].shape[1])), np.float32)
        sides.append(
            CompositeSide(
                feature_map,
                coefficients,
                np.zeros(0, np.float32),
                tuple(heads),
                NO_CURVE,
                None,
                0.5,
                expected,
                n_further=n_further[number],
            )
        )
    return CompositeProjector(*sides)
