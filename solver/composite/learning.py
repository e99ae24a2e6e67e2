"""How a composite similarity is learned: feature maps, terms, weights, and the probability of a match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.optimize
import scipy.sparse

from solver.composite.facet_terms import (
    PREDICTED,
    RIDGES,
    Contradiction,
    FacetLearner,
    FacetPosteriors,
    PrincipalSpace,
    candidate_maps,
    choose_map,
    find_contradictions,
    least_error,
    predicts,
)
from solver.composite.pairs import (
    DIRECTIONS,
    N_AXES,
    PAIR_RIDGES,
    CanonicalDirections,
    JudgedSimilarity,
    Pairing,
    cross_covariance,
    whitened_axes,
)
from solver.composite.placement import (
    CONTENT,
    FACET,
    FEWEST_TEXTS,
    BothQueries,
    HeldOutVectors,
    RankedScores,
    choose_content_weight,
    choose_partner_share,
    content_of,
    content_width,
    has_several,
    to_unit_length,
)
from solver.composite.projector import (
    NO_CURVE,
    CompositeProjector,
    CompositeSide,
    Head,
    MatchCurve,
    distinctness,
    draw_bank,
)
from solver.composite.weights import COSINE, SIGNS, GradedGain, HeldOutScores, JudgedScores, WeightSearch
from solver.evaluation.metrics import FIRST_PAGE
from solver.evaluation.quality import Objective, check_objective, default_objective
from solver.linalg import FloatArray, Samples, Sides, check_samples, to_dense
from solver.progress import Heartbeat, WorkPlan
from solver.projector import WEAK_PROBABILITY
from solver.scaling.feature_maps import KERNELS, FeatureMapConfig, landmark_rows
from solver.scaling.scaler import SCALINGS
from solver.supervision.annotations import LABEL, Annotations, BoolArray, check_sizes, group_partners
from solver.supervision.kinds import Indices
from solver.validation import (
    COUNT,
    N_FOLDS,
    SEED,
    InvalidParameterError,
    Rule,
    SupervisionError,
    integer_from,
    parameter,
    some_of,
)


def _is_objective(value: Any) -> bool:
    try:
        return value is None or bool(check_objective(value))
    except (InvalidParameterError, AttributeError, TypeError, ValueError):
        return False


_OBJECTIVE = Rule(_is_objective, "None, a measure's name or weights of measures")


@dataclass(eq=False, repr=False, kw_only=True)
class LearningOptions:
    """Parameters of `CompositeBilinear`, which describes them."""

    scalings: tuple[str, ...] = parameter(("standard", "l2", "sqrt"), some_of(*SCALINGS))
    kernels: tuple[str, ...] = parameter(("linear", "rbf"), some_of(*KERNELS))
    n_landmarks: int = parameter(2048, COUNT)
    n_components: int = parameter(2048, COUNT)
    n_folds: int = parameter(3, N_FOLDS)
    max_samples: int = parameter(1000, integer_from(10))
    random_state: int = parameter(0, SEED)
    objective: Objective | None = parameter(None, _OBJECTIVE)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen on held-out samples, and can be taken over by a fit on similar ones."""

    maps: tuple[FeatureMapConfig, FeatureMapConfig]
    pairing: Pairing | None  # how pairs are learned from; None without pairs
    weights: Mapping[str, float]  # of each term; the largest of those that are learned is 1
    # of the second modality in the vectors of partners, as of `PARTNER_SHARES`; None without pairs
    partner_share: float | None = None
    unused: Mapping[str, str] = field(default_factory=dict)  # why facets have no term
    # as `weights`: those that do best by "ndcg", "map" and "recall"
    emphases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


_UNIT = 1000.0  # samples that the costs below are of
_PER_MAPS, _PER_SPACE, _PER_VALUE, _PER_RIDGE, _PER_TERM, _PER_CURVE = 5.0, 0.45, 0.012, 0.4, 2.0, 1.0
"""Seconds of one core, measured on a catalogue of 2000 pairs: for all maps and a space of one modality, for a
facet's value in both, for canonical directions, for a term's weight, and for the curve of matches."""


def costs_of_stages(
    annotations: Annotations, n_folds: int, max_samples: int, *, is_chosen: bool
) -> dict[str, float]:
    """Return the relative costs of the stages of a composite fit, from what there is to learn.
    `is_chosen`: maps, ridge and weights are taken over."""
    sizes = [size / _UNIT for size in annotations.shape]
    most = max_samples / _UNIT
    held_out = n_folds * min(sizes[0] / n_folds, most) * min(sizes[1] / n_folds, most)
    n_values = sum(len(facet.values) for facet in annotations.facets.values())
    n_terms = len(annotations.facets) + 1
    n_ridges = n_folds * (1 if is_chosen else len(PAIR_RIDGES)) if len(annotations.pairs) else 0
    return {
        "maps": 0.0 if is_chosen else _PER_MAPS * sum(min(size, most) ** 3 for size in sizes),
        "spaces": _PER_SPACE * sum(size**3 for size in sizes),
        "facets": _PER_VALUE * n_values * sum(sizes),
        "parts": _PER_RIDGE * n_ridges / n_folds * sizes[0] * sizes[1],
        "weights": 0.0 if is_chosen else _PER_TERM * n_terms * held_out,
        "end": _PER_CURVE * held_out,
    }


Part = tuple[Indices, Indices]  # rows of both modalities


def make_parts(annotations: Annotations, n_parts: int, rng: np.random.Generator) -> list[Part]:
    """Return a partition of the samples of both modalities; partners, and their partners, stay together.
    Parts are of about the same size where no group of partners is large."""
    n_x = annotations.shape[0]
    n_groups, group = group_partners(annotations)
    part = rng.permutation(np.arange(n_groups) % n_parts)[group]
    return [
        (np.flatnonzero(part[:n_x] == number), np.flatnonzero(part[n_x:] == number))
        for number in range(n_parts)
    ]


def draw(rows: Part, max_samples: int, pairs: Indices, rng: np.random.Generator) -> Part:
    """Return at most `max_samples` rows of each modality: of the second, partners of the first come first."""
    x_rows, z_rows = rows
    if len(x_rows) > max_samples:
        x_rows = np.sort(rng.permutation(x_rows)[:max_samples])
    if len(z_rows) > max_samples:
        is_partner = np.isin(z_rows, pairs[np.isin(pairs[:, 0], x_rows), 1])
        order = np.lexsort((rng.permutation(len(z_rows)), ~is_partner))
        z_rows = np.sort(z_rows[order[:max_samples]])
    return x_rows, z_rows


_MOST_PAIRS = 2_000_000  # similarities that a curve is fitted to: more do not change it
_LEVELS = 64  # points of the curve at most
_LEASTS = np.linspace(0.0, 0.5, 11)
"""Shares of what the median query says, to try, that a query has to say so that the curve holds for it. By
the largest, half, texts of one value had too low probabilities."""


_WEAK = (0.2, 0.1, 0.05, 0.02, 0.01, WEAK_PROBABILITY)
"""Probabilities to try, below which a first result is hardly a match. Below .2 that was right for 94 % of the
texts of two values on parts of 2030 products, with two encoders."""
_ATTAINED, _OF_SAMPLES = (1.1, 1.0), (0.5, 0.0)
"""Shares of what queries, and what samples alone, can attain, to try, that are taken off their scores."""


def fit_match_curve(rankings: Sequence[RankedScores], rng: np.random.Generator) -> MatchCurve:
    """Return the probability of a match by the margin over what is attainable, for queries of one modality;
    nothing has learned from what is ranked."""
    # The probability never decreases with the similarity (isotonic regression: Zadrozny and Elkan,
    # "Transforming Classifier Scores into Accurate Multiclass Probability Estimates", KDD 2002). The levels
    # are quantiles of all pairs and, since matches are rare, of the matches. Few pairs prove neither 0 nor
    # 1, so the targets are those of J. Platt, "Probabilistic Outputs for Support Vector Machines", 1999.
    # Of short texts, which may name little and mean just that, what counts is what is missing of what they
    # can attain. Of samples, whose posteriors say how sure they are, it may be the score.
    # Where there are enough texts of several values, samples have a curve of their own: they say more, and
    # match only what has all of it. By the curve of texts, held-out names had .45 where .35 matched.
    # Where hardly any has a match but its own partner, as of items that all differ, they prove nothing.
    samples = [_without_own(one) for one in rankings if one.is_own is not None]
    matched = [bool(row.any()) for one in samples for row in one.is_match]
    samples = samples if sum(matched) >= min(0.1 * len(matched), FEWEST_TEXTS) else []
    texts = [one for one in rankings if one.is_own is None]
    if not samples + texts:
        return NO_CURVE
    kinds = [samples, texts] if samples and has_several(texts) else [samples + texts]
    says = [np.concatenate([one.information for one in kind]) for kind in kinds]
    medians = [float(np.median(of_kind)) for of_kind in says]
    little, much = int(np.argmin(medians)), int(np.argmax(medians))
    median = float(np.median(np.concatenate(says)))
    pages = [[_first_page(one) for one in kind] for kind in kinds]
    curves = []
    for attained in _ATTAINED + (_OF_SAMPLES if samples else ()):
        fits = [_fit_isotonic(kind, attained, rng) for kind in kinds]
        levels, probabilities = fits[much]
        further: tuple[Any, ...] = ()
        if little != much:
            both = np.union1d(levels, fits[little][0])
            probabilities = np.interp(both, levels, probabilities)
            further, levels = (np.interp(both, *fits[little]), medians[little], medians[much]), both
        curves += [
            MatchCurve(levels, probabilities, median * share, attained, WEAK_PROBABILITY, *further)
            for share in reversed(_LEASTS)
        ]
    best = min(curves, key=lambda curve: _surprise(curve, [page for kind in pages for page in kind]))
    return replace(best, weak=_weak_probability(best, pages[-1]))


def _without_own(one: RankedScores) -> RankedScores:
    """Return the ranking with a query's own partner last, and as no match: new queries have none."""
    assert one.is_own is not None
    scores = np.where(one.is_own, one.scores.min(axis=1, keepdims=True), one.scores)
    return replace(one, scores=scores, is_match=one.is_match & ~one.is_own)


def _kinds_of(one: RankedScores) -> list[BoolArray]:
    """Return the queries of each kind: samples, or short texts that decide, and those that do not."""
    kinds = [np.ones(len(one.scores), np.bool_)] if one.decides is None else [one.decides, ~one.decides]
    return [rows for rows in kinds if rows.any()]


def _fit_isotonic(
    rankings: Sequence[RankedScores], attained: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return levels and the probabilities of a match there; kinds of queries count alike, and the first
    results of a query as much as all others."""
    # People read the probabilities of the first results. At the same level others match more often, since
    # these are of queries that much matches: first results of held-out pictures had .31 where .30 matched.
    kinds = [(one, rows) for one in rankings for rows in _kinds_of(one)]
    margins = [one.scores[rows] - attained * one.attainable[rows, None] for one, rows in kinds]
    scores = np.concatenate([one.ravel() for one in margins]).astype(np.float64)
    matches = np.concatenate([one.is_match[rows].ravel() for one, rows in kinds])
    weights = np.concatenate([_weigh(one).ravel() for one in margins])
    if len(scores) > _MOST_PAIRS:
        chosen = rng.choice(len(scores), _MOST_PAIRS, replace=False)
        scores, matches, weights = scores[chosen], matches[chosen], weights[chosen]
    n_matches = np.count_nonzero(matches)
    targets = np.where(matches, (n_matches + 1) / (n_matches + 2), 1 / (len(matches) - n_matches + 2))
    distinct, of_score = np.unique(scores, return_inverse=True)
    heaviness = np.bincount(of_score, weights)
    means = np.bincount(of_score, weights * targets) / heaviness
    rising = scipy.optimize.isotonic_regression(means, weights=heaviness).x
    shares = np.linspace(0.0, 1.0, _LEVELS // 3)
    groups = [scores, scores[weights >= np.quantile(weights, 0.99)], scores[matches]]
    levels = np.unique(np.concatenate([np.quantile(group, shares) for group in groups if len(group)]))
    return levels, np.maximum.accumulate(np.clip(np.interp(levels, distinct, rising), 0.0, 1.0))


def _weigh(margins: FloatArray) -> FloatArray:
    """Return the weights of results in a fit, those of all queries 1 together."""
    n_queries, n_gallery = margins.shape
    if n_gallery <= FIRST_PAGE:
        return np.full(margins.shape, 1.0 / margins.size)
    place = n_gallery - FIRST_PAGE
    is_first = margins >= np.partition(margins, place, axis=1)[:, place, None]
    weights: FloatArray = np.where(is_first, 0.5 / FIRST_PAGE, 0.5 / place) / n_queries
    return weights


def _first_page(one: RankedScores) -> RankedScores:
    """Return the first results alone, the best first."""
    page = np.argsort(-one.scores, axis=1, kind="stable")[:, :FIRST_PAGE]
    scores, is_match = (np.take_along_axis(side, page, axis=1) for side in (one.scores, one.is_match))
    return replace(one, scores=scores, is_match=is_match)


def _surprise(curve: MatchCurve, pages: Sequence[RankedScores]) -> float:
    """Return the mean log loss of a curve's probabilities for samples, or for short queries that decide, and
    for those that do not, alike."""
    loss = 0.0
    for one in pages:
        for rows in _kinds_of(one):
            says = one.attainable[rows], one.information[rows]
            probability = curve.probability(one.scores[rows], *says)
            of_truth = np.where(one.is_match[rows], probability, 1.0 - probability)
            losses = np.log(np.maximum(of_truth, _LEAST_PROBABILITY))
            loss -= float(losses.mean())
    return loss


def _weak_probability(curve: MatchCurve, pages: Sequence[RankedScores]) -> float:
    """Return the largest probability of a first result below which nine of ten queries, ten at least, have no
    match among the first; the smallest to try where there is none."""
    best = [curve.probability(one.scores[:, :1], one.attainable, one.information)[:, 0] for one in pages]
    first, has_match = np.concatenate(best), np.concatenate([one.is_match.any(axis=1) for one in pages])
    below = {weak: has_match[first < weak] for weak in _WEAK}
    return next(
        (weak for weak, of in below.items() if len(of) >= FEWEST_TEXTS and of.mean() <= 0.1), _WEAK[-1]
    )


_LEAST_PROBABILITY = 1e-3  # so that no single pair decides


PAIRS, DISTINCTNESS = "pairs", "distinctness"
CONTENTS = CONTENT + "x", CONTENT + "z"
_TOLERATED_LOSS = 0.005
"""Of the gain of held-out partners, relative, for a lower rank: less than it varies between folds."""
_FEWEST_BANKED = 64
"""Samples without which hubness is left out: of few, a sample's own partner is most of its bank."""
_N_PARTNER_TARGETS = 32
"""Leading coordinates of a sample's partner that a feature map is judged by, where there are pairs."""
_MOST_COMPARED = 300  # samples of a part, with landmarks of the others
_LONGEST_NAME = 100  # of a facet, in a reason
_FEWEST_ALIKE = 20  # samples of a value on average: those of one product are fewer


def learn(
    samples: tuple[Samples, Samples],
    annotations: Annotations,
    options: LearningOptions,
    work: WorkPlan,
    reused: Choice | None,
    make_queries: Callable[[Annotations], BothQueries],
    with_content: tuple[bool, bool],
    keep: Collection[str],
    served: Mapping[str, float],
    n_further: tuple[int, int],
    with_likeness: tuple[bool, bool],
) -> tuple[Choice, float, CompositeProjector, tuple[Contradiction, ...]]:
    """Return what was chosen (or `reused`), its quality, the projector, and wrong values that are carried.
    The weights have to suit short queries, too. SupervisionError if there is no term to learn."""
    is_chosen = reused is not None
    work.plan(costs_of_stages(annotations, options.n_folds, options.max_samples, is_chosen=is_chosen))
    learned = _without_further(samples[0], n_further[0]), _without_further(samples[1], n_further[1])
    maps = reused.maps if reused else _choose_maps(learned, annotations, options, work)
    spaces, coordinates = _fit_spaces(learned, maps, options, work)
    work.begin("facets", 2 * len(annotations.facets) * len(RIDGES))
    terms = _Terms(samples, n_further, annotations, spaces, coordinates, work)
    unused = reused.unused if reused else terms.find_unused(keep)
    terms.forget(unused)
    annotations, queries = terms.annotations, make_queries(terms.annotations)
    terms.ask(queries)
    rng = np.random.default_rng(options.random_state)
    parts = [
        draw(part, options.max_samples, annotations.pairs, rng)
        for part in make_parts(annotations, options.n_folds, rng)
    ]
    parts = [part for part in parts if min(map(len, part)) > 0]
    work.begin("parts", len(parts) * (1 if reused or not len(annotations.pairs) else len(PAIR_RIDGES)))
    pairing = None
    if len(annotations.pairs):
        pairing = (reused.pairing if reused else None) or terms.choose_pairing(parts)
    everything = [terms.hold_out(rows, pairing) for rows in parts]
    held_out = [HeldOutScores.of(part.terms, part.annotations, queries) for part in everything]
    if not held_out or not held_out[0].terms:
        raise SupervisionError(
            "nothing to learn from: no facet has two values on both sides, and neither pairs nor judged pairs"
        )
    judged = terms.judged_scores(parts, pairing)
    objective = options.objective or default_objective(annotations)
    weights, quality, emphases = _choose_weights(held_out, judged, objective, reused, work, served)
    work.begin("end", 1)
    work()
    share = None
    if len(annotations.pairs):
        share = reused.partner_share if reused else None
        if share is None:
            share = choose_partner_share([part.vectors(weights, queries) for part in everything])
    for side, name in enumerate(CONTENTS):
        if with_content[side] or with_likeness[side]:
            terms.add_content(side, everything, weights)
            if reused and name in reused.weights:
                weights[name] = reused.weights[name]
            else:

                def with_weight(weight: float, name: str = name) -> list[HeldOutVectors]:
                    return [part.vectors({**weights, name: weight}, queries) for part in everything]

                weights[name] = choose_content_weight(
                    with_weight, side, share, min(annotations.shape), with_likeness[side]
                )
            emphases = {measure: {**trial, name: weights[name]} for measure, trial in emphases.items()}
    vectors = [part.vectors(weights, queries) for part in everything]
    rankings = [ranking for part in vectors for ranking in part.rankings(share, with_values=True)]
    # Without facets only partners match, though others may suit as well: probabilities would be too low.
    curves = [
        fit_match_curve([one for one in rankings if one.side == 1 - side and len(one.scores)], rng)
        if terms.annotations.facets
        else NO_CURVE
        for side in (0, 1)
    ]
    # Short texts are unlike longer ones, and known by their words.
    likenesses = [
        0.0 if has_words else terms.find_least_likeness(side, parts, options.random_state)
        for side, has_words in enumerate(with_content)
    ]
    projector = CompositeProjector(*terms.sides(weights, pairing, share, curves, likenesses, with_likeness))
    work.finish()
    weights |= {FACET + name: 0.0 for name in unused}
    choice = Choice(maps, pairing, weights, share, unused, emphases)
    return choice, quality, projector, terms.find_contradictions()


def _without_further(samples: Samples, n_further: int) -> Samples:
    return samples[:, : samples.shape[1] - n_further] if n_further else samples


@dataclass(frozen=True, slots=True, eq=False)
class _HeldOut:
    """A part of the samples, followed by the short queries, in the terms that have not learned from it."""

    rows: Part
    annotations: Annotations
    terms: dict[str, Sides]
    is_exclusive: Mapping[str, bool]  # by facet, of all samples
    expected: dict[str, FloatArray] = field(default_factory=dict)  # by content, as of `Block`

    def vectors(self, weights: Mapping[str, float], queries: BothQueries) -> HeldOutVectors:
        """Return the vectors with these weights."""
        return HeldOutVectors.of(
            self.terms, weights, self.annotations, queries, self.is_exclusive, self.expected
        )


def _fit_spaces(
    samples: tuple[Samples, Samples],
    maps: tuple[FeatureMapConfig, FeatureMapConfig],
    options: LearningOptions,
    work: WorkPlan,
) -> tuple[tuple[PrincipalSpace, PrincipalSpace], Sides]:
    work.begin("spaces", len(samples))
    fits = []
    for side, config in zip(samples, maps, strict=True):
        work()
        fits.append(
            PrincipalSpace.fit(side, config, options.n_landmarks, options.n_components, options.random_state)
        )
    (x_space, x_rows), (z_space, z_rows) = fits
    return (x_space, z_space), (x_rows, z_rows)


def _choose_weights(
    held_out: Sequence[HeldOutScores],
    judged: Sequence[JudgedScores],
    objective: Objective,
    reused: Choice | None,
    work: WorkPlan,
    served: Mapping[str, float],
) -> tuple[dict[str, float], float, Mapping[str, Mapping[str, float]]]:
    """Return the weights of the terms, their quality, and the emphases; those that are reused as far as the
    terms exist."""
    search = WeightSearch(held_out, {DISTINCTNESS: PAIRS}, judged, objective, served)
    weights = {
        name: weight
        for name, weight in (reused.weights if reused else {}).items()
        if name in held_out[0].terms
    }
    if reused and any(weights.values()):
        return weights, search.quality(weights), reused.emphases
    work.begin("weights", search.most_steps)
    weights, quality = search.run(work)
    return weights, quality, search.emphases(weights, work)


class _Terms:
    """The terms on all samples, and on parts that they have not learned from.
    Queries are projected beside the samples of each part."""

    def __init__(
        self,
        samples: tuple[Samples, Samples],
        n_further: tuple[int, int],
        annotations: Annotations,
        spaces: tuple[PrincipalSpace, PrincipalSpace],
        coordinates: Sides,
        heartbeat: Heartbeat,
    ) -> None:
        self._samples, self.annotations = samples, annotations
        self._n_further, self._spaces, self._coordinates = n_further, spaces, coordinates
        self._heartbeat = heartbeat
        self._has_signs = annotations.signs is not None and annotations.signs.nnz > 0
        n_x, n_z = (side.shape[1] - n for side, n in zip(samples, n_further, strict=True))
        self._has_cosine = n_x == n_z
        self._part_directions: dict[tuple[bytes, float], CanonicalDirections] = {}
        self._part_factors: dict[bytes, Sides | None] = {}
        self._expected_of_all: dict[int, FloatArray] = {}  # by the modality whose content it is
        self._facets: dict[str, tuple[FacetPosteriors, FacetPosteriors]] = {}
        self._exclusive = {name: facet.is_exclusive for name, facet in annotations.facets.items()}
        learners = [
            FacetLearner(side, heartbeat, space.variances)
            for side, space in zip(coordinates, spaces, strict=True)
        ]
        for name, facet in annotations.facets.items():
            fits = [
                learner.fit(side, self._exclusive[name])
                for learner, side in zip(learners, facet.sides, strict=True)
            ]
            if fits[0] is not None and fits[1] is not None:
                self._facets[name] = fits[0], fits[1]

    def find_contradictions(self) -> tuple[Contradiction, ...]:
        """Return the values that samples carry against what their content says."""
        return find_contradictions(self.annotations.facets, self._facets, self.annotations.pairs)

    def find_unused(self, keep: Collection[str]) -> dict[str, str]:
        """Return the facets of which neither modality says more than chance, or than another facet explains,
        and why; none, if all are. Labels, and those to `keep`, are compared with chance alone."""
        # A sample that carries one thing alone may be its name, and what names say of themselves counts only
        # where all samples are so. Of two facets that explain each other the one with fewer values goes.
        counts = [
            np.isin(np.arange(size), paired).astype(np.intp)
            for size, paired in zip(self.annotations.shape, self.annotations.pairs.T, strict=True)
        ]
        for facet in self.annotations.facets.values():
            for count, side in zip(counts, facet.sides, strict=True):
                count += side.any(axis=1)
        rows = [count >= min(2, int(count.max())) for count in counts]
        explaining = [name for name in self._facets if self._may_explain(name)]
        unused: dict[str, str] = {}
        for name in sorted(self._facets, key=lambda name: len(self.annotations.facets[name].values)):
            if not self._says_more(name, None, rows):
                unused[name] = "its values are predicted no better than by chance"
            elif name != LABEL and name not in keep:
                others = (other for other in explaining if other != name and other not in unused)
                other = next((other for other in others if not self._says_more(name, other, rows)), None)
                if other is not None:
                    unused[name] = f"content says no more of it than {other[:_LONGEST_NAME]!r} does"
        return unused if len(unused) < len(self._facets) else {}

    def _may_explain(self, name: str) -> bool:
        """Return whether samples have one value each, and values that are those of many samples."""
        # A product of a few views has one colour: it decides what people search for all the same.
        facet = self.annotations.facets[name]
        are_of_many = (side.sum() >= _FEWEST_ALIKE * side.any(axis=0).sum() for side in facet.sides)
        return self._exclusive[name] and all(are_of_many)

    def _says_more(self, name: str, other: str | None, rows: Sequence[BoolArray]) -> bool:
        """Return whether a modality says more of a facet in some rows than chance, or another one, does."""
        facets = self.annotations.facets
        of_others = (None, None) if other is None else facets[other].sides
        sides = zip(self._facets[name], facets[name].sides, of_others, rows, strict=True)
        for fit, side, of_other, among in sides:
            chosen = side.any(axis=1) & among
            beside = None if of_other is None else of_other[chosen]
            is_exclusive = self._exclusive[name]
            if chosen.any() and predicts(fit.left_out[chosen], side[chosen], is_exclusive, beside):
                return True
        return False

    def forget(self, facets: Collection[str]) -> None:
        """Drop some facets, also as something that is relevant."""
        self._facets = {name: fits for name, fits in self._facets.items() if name not in facets}
        others = {name: facet for name, facet in self.annotations.facets.items() if name not in facets}
        self.annotations = replace(self.annotations, facets=others)

    def ask(self, queries: BothQueries) -> None:
        """Take the short queries, which are projected beside samples."""
        self._queries = queries
        self._query_coordinates = [
            np.empty((0, len(space.variances)))
            if side is None
            else space.coordinates(_without_further(side.samples, n))
            for space, side, n in zip(self._spaces, queries, self._n_further, strict=True)
        ]

    def choose_pairing(self, parts: list[Part]) -> Pairing:
        """Return the ridge with which held-out partners are ranked best, and as few directions as suffice."""
        gains = np.zeros((len(PAIR_RIDGES), len(DIRECTIONS)))
        for part in parts:
            gain = GradedGain(self.annotations.is_paired(*part).astype(np.int8))
            for number, directions in enumerate(self._directions_without(part, PAIR_RIDGES)):
                x, z = directions.project(*self._rows(part))
                for place, size in enumerate(DIRECTIONS):
                    scores = to_unit_length(x[:, :size]) @ to_unit_length(z[:, :size]).T
                    gains[number, place] += gain.mean(scores)
        best = int(np.argmax(gains.max(axis=1)))
        enough = gains[best] >= (1.0 - _TOLERATED_LOSS) * gains[best].max()
        return Pairing(PAIR_RIDGES[best], DIRECTIONS[int(np.argmax(enough))])

    def judged_scores(self, parts: list[Part], pairing: Pairing | None) -> list[JudgedScores]:
        """Return the scores of the judged pairs that have a sample in a part, by terms without this part."""
        if self.annotations.signs is None or not self._has_signs:
            return []
        table = scipy.sparse.coo_array(self.annotations.signs)
        scores = []
        for part in parts:
            touches = np.logical_or(*map(np.isin, table.coords, part))
            sides = [np.unique(axis[touches].astype(np.intp), return_inverse=True) for axis in table.coords]
            (x_rows, x_places), (z_rows, z_places) = sides
            terms = {
                name: np.sum(x[x_places] * z[z_places], axis=1)
                for name, (x, z) in self.project((x_rows, z_rows), (None, None), part, pairing).items()
            }
            scores.append(JudgedScores(terms, x_rows[x_places], z_rows[z_places], table.data[touches] > 0))
        return scores

    def hold_out(self, rows: Part, pairing: Pairing | None) -> _HeldOut:
        """Return a part of the samples, and the queries, in terms that have not learned from it."""
        terms = self.project(rows, self._queries, rows, pairing)
        return _HeldOut(rows, self.annotations.subset(*rows), terms, self._exclusive)

    def project(
        self, rows: Part, queries: BothQueries, part: Part, pairing: Pairing | None
    ) -> dict[str, Sides]:
        """Return the projections of samples, then of queries, by terms that have not learned from a part."""
        # The posteriors of a sample are those without itself. Those of queries are of all samples, the part's
        # too: of a catalogue of 2030 products, fits without the part led to almost the same weights, and
        # these did a little worse for other queries.
        query_coordinates = [
            side if side_queries is not None else side[:0]
            for side, side_queries in zip(self._query_coordinates, queries, strict=True)
        ]
        terms: dict[str, Sides] = {}
        for name, fits in self._facets.items():
            x, z = (
                np.vstack([fit.left_out[chosen], fit.posteriors(query_rows)])
                for fit, chosen, query_rows in zip(fits, rows, query_coordinates, strict=True)
            )
            terms[FACET + name] = x, z
        x_rows, z_rows = (
            np.vstack([chosen, query_rows])
            for chosen, query_rows in zip(self._rows(rows), query_coordinates, strict=True)
        )
        if pairing is not None:
            (whole,) = self._directions_without(part, [pairing.ridge])
            directions = whole.first(pairing.n_directions)
            x_bank, z_bank = (
                draw_bank(np.delete(side, out, axis=0) if len(out) < len(side) else side)
                for side, out in zip(self._unit_vectors(directions), part, strict=True)
            )
            x, z = map(to_unit_length, directions.project(x_rows, z_rows))
            terms[PAIRS] = x, z
            if min(map(len, self._coordinates)) >= _FEWEST_BANKED:
                terms[DISTINCTNESS] = distinctness(x, z_bank), distinctness(z, x_bank)
        if self._has_signs:
            self._heartbeat()
            factors = self._judged_factors_without(part, pairing)
            if factors is None:
                terms[SIGNS] = np.zeros((len(x_rows), 1)), np.zeros((len(z_rows), 1))
            else:
                terms[SIGNS] = x_rows @ factors[0], z_rows @ factors[1]
        if self._has_cosine:
            x, z = (
                np.vstack(
                    [
                        to_dense(_without_further(samples, n))
                        for samples in (side[chosen], *([] if named is None else [named.samples]))
                    ]
                )
                for side, chosen, named, n in zip(self._samples, rows, queries, self._n_further, strict=True)
            )
            terms[COSINE] = to_unit_length(x), to_unit_length(z)
        return terms

    def add_content(self, side: int, parts: Sequence[_HeldOut], weights: Mapping[str, float]) -> None:
        """Add to parts the samples of a modality, then its queries, in its own space; others are zero."""
        n_further, named = self._n_further[side], self._queries[side]
        content = content_of(self._samples[side], n_further)
        of_queries = content[:0] if named is None else content_of(named.samples, n_further)
        for part in parts:
            terms = [np.zeros((len(rows), content.shape[1])) for rows in next(iter(part.terms.values()))]
            terms[side] = np.vstack([content[part.rows[side]], of_queries])
            part.terms[CONTENTS[side]] = terms[0], terms[1]
            part.expected[CONTENTS[side]] = self._mean_content(side, content, weights, part.rows[side])
        self._expected_of_all[side] = self._mean_content(side, content, weights, np.empty(0, np.intp))

    def _mean_content(
        self, side: int, content: FloatArray, weights: Mapping[str, float], without: Indices
    ) -> FloatArray:
        """Return the mean content of all samples but some, for each value of facets that have a weight."""
        facets = self.annotations.facets.items()
        indicators = [facet.sides[side] for name, facet in facets if weights.get(FACET + name)]
        table = np.hstack([np.zeros((len(content), 0)), *indicators]).astype(np.float32)
        table[without] = 0.0
        means: FloatArray = (table.T @ content) / np.maximum(table.sum(axis=0), 1.0)[:, None]
        return means

    def find_least_likeness(self, side: int, parts: Sequence[Part], seed: int) -> float:
        """Return the least kernel value of the nearest landmark, for 99 of 100 samples without landmarks of
        their part; 0 for a linear map."""
        feature_map = self._spaces[side].feature_map
        samples = _without_further(self._samples[side], self._n_further[side])
        if feature_map.kernel == "linear":
            return 0.0
        drawn = landmark_rows(samples.shape[0], feature_map.landmarks.shape[0], seed)
        values = [np.empty(0)]
        for part in parts:
            order = np.linspace(0, len(part[side]) - 1, min(len(part[side]), _MOST_COMPARED)).astype(np.intp)
            rows, others = part[side][order], ~np.isin(drawn, part[side])
            if not others.any():
                continue
            nothing = feature_map.whitening[others, :0]
            rest = replace(feature_map, landmarks=feature_map.landmarks[others], whitening=nothing)
            values.append(np.empty(len(rows)))
            rest.weigh(samples[rows], nothing, values[-1])
        compared = np.concatenate(values)
        return float(np.quantile(compared, 0.01)) if len(compared) else 0.0

    def sides(
        self,
        weights: Mapping[str, float],
        pairing: Pairing | None,
        share: float | None,
        curves: Sequence[MatchCurve],
        likenesses: Sequence[float],
        with_likeness: Sequence[bool],
    ) -> tuple[CompositeSide, CompositeSide]:
        """Return how both modalities are projected, by terms that learned from all samples."""
        directions = None
        if pairing is not None and weights.get(PAIRS, 0.0) > 0.0:
            directions = self._all_directions(self.annotations.pairs, pairing).first(pairing.n_directions)
        banks = None
        if directions is not None and weights.get(DISTINCTNESS, 0.0) > 0.0:
            x, z = self._unit_vectors(directions)
            banks = draw_bank(z), draw_bank(x)
        judged = self._judged_factors(self.annotations, pairing) if weights.get(SIGNS, 0.0) > 0.0 else None
        built = []
        for number, space in enumerate(self._spaces):
            heads, learned = [], [(np.empty((len(space.variances), 0)), np.empty(0))]
            for name, fits in self._facets.items():
                if weights.get(FACET + name, 0.0) > 0.0:
                    fit, kind = fits[number], "softmax" if self._exclusive[name] else "sigmoid"
                    values, scale = self.annotations.facets[name].values, weights[FACET + name] ** 0.5
                    heads.append(Head(FACET + name, kind, len(fit.intercepts), scale, values))
                    learned.append((fit.coefficients, fit.intercepts))
            if directions is not None:
                chosen = (directions.x_coefficients, directions.z_coefficients)[number]
                heads.append(Head(PAIRS, "direction", chosen.shape[1], weights[PAIRS] ** 0.5))
                if banks is not None:
                    heads.append(Head(DISTINCTNESS, DISTINCTNESS, 0, weights[DISTINCTNESS] ** 0.5))
                learned.append((chosen, np.zeros(chosen.shape[1])))
            if judged is not None:
                heads.append(Head(SIGNS, "linear", judged[number].shape[1], weights[SIGNS] ** 0.5))
                learned.append((judged[number], np.zeros(judged[number].shape[1])))
            if weights.get(COSINE, 0.0) > 0.0:
                heads.append(Head(COSINE, "cosine", 0, weights[COSINE] ** 0.5))
            for owner, name in enumerate(CONTENTS):
                if weights.get(name, 0.0) > 0.0:
                    width = content_width(self._samples[owner].shape[1])
                    is_own, is_likeness = owner == number, with_likeness[owner]
                    heads.append(Head(name, "content", width, weights[name] ** 0.5, (), is_own, is_likeness))
            coefficients, intercepts = zip(*learned, strict=True)
            lifted = space.lift(np.hstack(coefficients), np.concatenate(intercepts))
            factors, offsets = (part.astype(np.float32) for part in lifted)
            bank = None if banks is None else banks[number]
            of_partners = 0.0 if share is None else (share, 1.0 - share)[number]
            built.append(
                CompositeSide(
                    space.feature_map,
                    factors,
                    offsets,
                    tuple(heads),
                    curves[number],
                    bank,
                    of_partners,
                    self._expected_of_all.get(1 - number) if weights.get(CONTENTS[1 - number]) else None,
                    likenesses[number],
                    self._n_further[number],
                )
            )
        return built[0], built[1]

    def _rows(self, part: Part) -> Sides:
        return self._coordinates[0][part[0]], self._coordinates[1][part[1]]

    def _directions_without(self, part: Part, ridges: Sequence[float]) -> list[CanonicalDirections]:
        """Return the directions of all pairs outside a part with each ridge; each is computed once."""
        keys = [(b"".join(rows.tobytes() for rows in part), ridge) for ridge in ridges]
        if any(key not in self._part_directions for key in keys):
            rest = self.annotations.without(*part).pairs
            pairs = rest if len(rest) else self.annotations.pairs
            cross = cross_covariance(self._coordinates, pairs)
            for key in keys:
                self._heartbeat()
                fit = CanonicalDirections.fit(cross, self._variances, len(pairs), key[1])
                self._part_directions[key] = fit
        return [self._part_directions[key] for key in keys]

    def _unit_vectors(self, directions: CanonicalDirections) -> Sides:
        x, z = map(to_unit_length, directions.project(*self._coordinates))
        return x, z

    def _judged_factors_without(self, part: Part, pairing: Pairing | None) -> Sides | None:
        """Return the factors of the judged pairs outside a part; they are computed once."""
        key = b"".join(rows.tobytes() for rows in part)
        if key not in self._part_factors:
            self._part_factors[key] = self._judged_factors(self.annotations.without(*part), pairing)
        return self._part_factors[key]

    def _judged_factors(self, annotations: Annotations, pairing: Pairing | None) -> Sides | None:
        """Return the factors of the judged pairs' similarity, for principal coordinates; None without one."""
        if annotations.signs is None:
            return None
        if pairing is not None and len(annotations.pairs):
            directions = self._all_directions(annotations.pairs, pairing)
            bases = directions.x_coefficients[:, :N_AXES], directions.z_coefficients[:, :N_AXES]
        else:
            bases = whitened_axes(self._spaces[0].variances), whitened_axes(self._spaces[1].variances)
        coordinates = self._coordinates[0] @ bases[0], self._coordinates[1] @ bases[1]
        judged = JudgedSimilarity.fit(coordinates, annotations.signs)
        return None if judged is None else (bases[0] @ judged.x_factors, bases[1] @ judged.z_factors)

    def _all_directions(self, pairs: Indices, pairing: Pairing) -> CanonicalDirections:
        cross = cross_covariance(self._coordinates, pairs)
        return CanonicalDirections.fit(cross, self._variances, len(pairs), pairing.ridge)

    @property
    def _variances(self) -> Sides:
        return self._spaces[0].variances, self._spaces[1].variances


def _choose_maps(
    samples: tuple[Samples, Samples], annotations: Annotations, options: LearningOptions, work: WorkPlan
) -> tuple[FeatureMapConfig, FeatureMapConfig]:
    """Return the feature maps from which facets, and the partners' coordinates, are predicted best."""
    rng = np.random.default_rng(options.random_state)
    everything = (np.arange(annotations.shape[0]), np.arange(annotations.shape[1]))
    rows = draw(everything, options.max_samples, annotations.pairs, rng)
    drawn_annotations = annotations.subset(*rows)
    drawn = [side[chosen] for side, chosen in zip(samples, rows, strict=True)]
    configs = [candidate_maps(side, options.scalings, options.kernels) for side in drawn]
    chosen: list[FeatureMapConfig] = []
    work.begin("maps", sum(map(len, configs)))
    for side in (0, 1):
        targets: list[tuple[Indices, FloatArray]] = []
        for facet in drawn_annotations.facets.values():
            indicators = facet.sides[side]
            known_rows = np.flatnonzero(indicators.any(axis=1))
            if len(known_rows):
                targets.append((known_rows, indicators[known_rows].astype(np.float64)))
        if len(drawn_annotations.pairs):
            other = 1 - side
            _, partners = PrincipalSpace.fit(
                drawn[other], configs[other][0], options.n_landmarks, _N_PARTNER_TARGETS, options.random_state
            )
            targets.append((drawn_annotations.pairs[:, side], partners[drawn_annotations.pairs[:, other]]))
        chosen.append(choose_map(drawn[side], configs[side], targets, work) if targets else configs[side][0])
    return chosen[0], chosen[1]


# Samples that a facet is screened by, and of a value: of hundreds of values only some are drawn, since one
# sample of each would say nothing.
_MOST_SCREENED, _FEWEST_SCREENED, _OF_ONE_VALUE = 400, 20, 8


def unpredicted_facets(
    X: npt.ArrayLike, Z: npt.ArrayLike, annotations: Annotations, *, random_state: int = 0
) -> frozenset[str]:
    """Return the facets that neither modality seems to predict, such as columns of random values.

    A ridge regression predicts the values of about 400 samples of each modality, each from all others, and
    leaves about as much of their variance as their mean does. Facets that fewer than 20 samples of a modality
    have, or one value, are none of them.

    Parameters
    ----------
    X, Z, annotations
        Samples of both modalities, and what is known of them, with the errors of `CompositeBilinear.fit`.
    random_state : int, >= 0
        Seed of the drawn samples.
    """
    samples = check_samples(X, "X"), check_samples(Z, "Z")
    check_sizes(*samples, annotations)
    rng = np.random.default_rng(random_state)
    return frozenset(
        name
        for name, facet in annotations.facets.items()
        if all(
            _is_unpredicted(side, indicators, rng)
            for side, indicators in zip(samples, facet.sides, strict=True)
        )
    )


def _is_unpredicted(samples: Samples, indicators: BoolArray, rng: np.random.Generator) -> bool:
    """Return whether some samples are enough to say that their values are predicted by chance alone."""
    n_values = indicators.shape[1]
    most, rows = max(_OF_ONE_VALUE, _MOST_SCREENED // max(n_values, 1)), np.empty(0, np.intp)
    values: list[int] = []
    for value in rng.permutation(n_values).tolist():
        of_value = rng.permutation(np.flatnonzero(indicators[:, value]))[:most]
        if len(of_value) and len(rows) < _MOST_SCREENED:
            rows, values = np.union1d(rows, of_value), [*values, value]
    if len(values) < 2 or len(rows) < _FEWEST_SCREENED:
        return False
    usual = LearningOptions()
    config = candidate_maps(samples[rows], usual.scalings, usual.kernels)[0]
    targets = indicators[rows][:, values].astype(np.float64)
    return least_error(samples[rows], config, targets) >= PREDICTED
