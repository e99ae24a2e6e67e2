"""How a composite similarity is learned: feature maps, terms, weights, and the probability of a match."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from solver.composite.facet_terms import FacetLearner, FacetPosteriors
from solver.composite.folds import Part, draw, make_parts
from solver.composite.judgements import JudgedSimilarity, whitened_axes
from solver.composite.matching import fit_match_curve
from solver.composite.pairs import PAIR_RIDGES, CanonicalDirections
from solver.composite.projector import CompositeProjector, CompositeSide, Head, to_unit_length
from solver.composite.screening import candidate_maps, choose_map
from solver.composite.space import PrincipalSpace
from solver.composite.weights import GradedGain, HeldOutScores, WeightSearch
from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.semantic.feature_maps import FeatureMapConfig
from solver.supervision.annotations import Annotations
from solver.supervision.base import Indices
from solver.validation.errors import SupervisionError

COSINE, PAIRS, SIGNS = "cosine", "pairs", "signs"
_FACET = "facet:"
_N_PARTNER_TARGETS = 32
"""Leading coordinates of a sample's partner that a feature map is judged by, where there are pairs."""

Heartbeat = Callable[[], None]
Sides = tuple[FloatArray, FloatArray]
"""An array for each modality."""


@dataclass(frozen=True, slots=True)
class LearningOptions:
    """Parameters of `CompositeBilinear`, in its order."""

    scalings: tuple[str, ...]
    kernels: tuple[str, ...]
    n_landmarks: int
    n_components: int
    n_folds: int
    max_samples: int
    seed: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What is chosen on held-out samples, and can be taken over by a fit on similar ones.

    Parameters
    ----------
    maps : tuple of FeatureMapConfig
        Feature maps of both modalities.
    pair_ridge : float or None
        Ridge of the canonical directions; None without pairs.
    weights : mapping of str to float
        Weight of each term; the largest is 1.
    """

    maps: tuple[FeatureMapConfig, FeatureMapConfig]
    pair_ridge: float | None
    weights: Mapping[str, float]


def learn(
    samples: tuple[Samples, Samples],
    annotations: Annotations,
    options: LearningOptions,
    heartbeat: Heartbeat,
    reused: Choice | None,
) -> tuple[Choice, float, CompositeProjector]:
    """Return what was chosen, the quality on held-out samples, and the projector.

    Parameters
    ----------
    samples : tuple of ndarray or CSR array
        Raw features of both modalities.
    annotations : Annotations
        What is known of them.
    options : LearningOptions
        How to learn.
    heartbeat : callable
        Called at each step.
    reused : Choice or None
        Taken over instead of choosing.

    Raises
    ------
    SupervisionError
        If there is no term to learn.
    """
    maps = reused.maps if reused else _choose_maps(samples, annotations, options, heartbeat)
    spaces, coordinates = [], []
    for side, config in zip(samples, maps, strict=True):
        heartbeat()
        space, rows = PrincipalSpace.fit(
            side, config, options.n_landmarks, options.n_components, options.seed
        )
        spaces.append(space)
        coordinates.append(rows)
    terms = _Terms(samples, annotations, (spaces[0], spaces[1]), (coordinates[0], coordinates[1]), heartbeat)
    rng = np.random.default_rng(options.seed)
    parts = [
        draw(part, options.max_samples, annotations.pairs, rng)
        for part in make_parts(annotations, options.n_folds, rng)
    ]
    parts = [part for part in parts if min(map(len, part)) > 0]
    pair_ridge = None
    if len(annotations.pairs):
        pair_ridge = reused.pair_ridge if reused else None
        pair_ridge = pair_ridge or terms.choose_pair_ridge(parts)
    held_out = [
        HeldOutScores.of(terms.project_part(part, pair_ridge), annotations.subset(*part)) for part in parts
    ]
    if not held_out or not held_out[0].terms:
        raise SupervisionError(
            "nothing to learn from: no facet has two values on both sides, and neither pairs nor judged pairs"
        )
    search = WeightSearch(held_out)
    weights = {
        name: weight
        for name, weight in (reused.weights if reused else {}).items()
        if name in held_out[0].terms
    }
    if weights and any(weights.values()):
        quality = search.quality(weights)
    else:
        weights, quality = search.run(heartbeat)
    curve = fit_match_curve(
        [block.total(weights) for block in held_out],
        [block.is_match for block in held_out],
        rng,
    )
    projector = CompositeProjector(*terms.sides(weights, pair_ridge), *curve)
    return Choice(maps, pair_ridge, weights), quality, projector


class _Terms:
    """The terms on all samples, and on parts that they have not learned from.

    Parameters
    ----------
    samples, annotations, heartbeat
        As of `learn`.
    spaces : tuple of PrincipalSpace
        Of both modalities.
    coordinates : tuple of ndarray
        All samples in them.
    """

    def __init__(
        self,
        samples: tuple[Samples, Samples],
        annotations: Annotations,
        spaces: tuple[PrincipalSpace, PrincipalSpace],
        coordinates: Sides,
        heartbeat: Heartbeat,
    ) -> None:
        self._samples, self._annotations = samples, annotations
        self._spaces, self._coordinates = spaces, coordinates
        self._heartbeat = heartbeat
        self._has_signs = annotations.signs is not None and annotations.signs.nnz > 0
        self._has_cosine = samples[0].shape[1] == samples[1].shape[1]
        self._facets: dict[str, tuple[FacetPosteriors, FacetPosteriors]] = {}
        self._exclusive = {name: facet.is_exclusive for name, facet in annotations.facets.items()}
        learners = [FacetLearner(side, heartbeat) for side in coordinates]
        for name, facet in annotations.facets.items():
            fits = [
                learner.fit(side, self._exclusive[name])
                for learner, side in zip(learners, (facet.x_indicators, facet.z_indicators), strict=True)
            ]
            if fits[0] is not None and fits[1] is not None:
                self._facets[name] = fits[0], fits[1]

    def choose_pair_ridge(self, parts: list[Part]) -> float:
        """Return the ridge with which held-out partners are ranked best."""
        gains: list[float] = []
        blocks = [self._annotations.is_paired(*part) for part in parts]
        for ridge in PAIR_RIDGES:
            part_gains: list[float] = []
            for part, block in zip(parts, blocks, strict=True):
                x, z = self._project_by_directions(part, ridge)
                part_gains.append(GradedGain(block.astype(np.int8)).mean(x @ z.T))
            gains.append(float(np.mean(part_gains)))
        return PAIR_RIDGES[int(np.argmax(gains))]

    def project_part(self, part: Part, pair_ridge: float | None) -> dict[str, Sides]:
        """Return the projections of a part by each term, which has not learned from it."""
        rows = dict(zip((0, 1), part, strict=True))
        terms: dict[str, Sides] = {
            _FACET + name: (x.left_out[rows[0]], z.left_out[rows[1]]) for name, (x, z) in self._facets.items()
        }
        if pair_ridge is not None:
            terms[PAIRS] = self._project_by_directions(part, pair_ridge)
        if self._has_signs:
            terms[SIGNS] = self._project_by_judgements(part, pair_ridge)
        if self._has_cosine:
            x, z = (_raw(side, chosen) for side, chosen in zip(self._samples, part, strict=True))
            terms[COSINE] = to_unit_length(x), to_unit_length(z)
        return terms

    def sides(
        self, weights: Mapping[str, float], pair_ridge: float | None
    ) -> tuple[CompositeSide, CompositeSide]:
        """Return how both modalities are projected, by terms that learned from all samples."""
        directions = None
        if pair_ridge is not None and weights.get(PAIRS, 0.0) > 0.0:
            directions = self._directions(self._annotations.pairs, pair_ridge)
        judged = (
            self._judged_factors(self._annotations, pair_ridge) if weights.get(SIGNS, 0.0) > 0.0 else None
        )
        built = []
        for number, space in enumerate(self._spaces):
            heads, coefficients, intercepts = [], [np.empty((len(space.variances), 0))], [np.empty(0)]
            for name, fits in self._facets.items():
                if weights[_FACET + name] > 0.0:
                    fit, kind = fits[number], "softmax" if self._exclusive[name] else "sigmoid"
                    heads.append(
                        Head(_FACET + name, kind, len(fit.intercepts), weights[_FACET + name] ** 0.5)
                    )
                    coefficients.append(fit.coefficients)
                    intercepts.append(fit.intercepts)
            if directions is not None:
                chosen = (directions.x_coefficients, directions.z_coefficients)[number]
                heads.append(Head(PAIRS, "direction", chosen.shape[1], weights[PAIRS] ** 0.5))
                coefficients.append(chosen)
                intercepts.append(np.zeros(chosen.shape[1]))
            if judged is not None:
                heads.append(Head(SIGNS, "linear", judged[number].shape[1], weights[SIGNS] ** 0.5))
                coefficients.append(judged[number])
                intercepts.append(np.zeros(judged[number].shape[1]))
            if weights.get(COSINE, 0.0) > 0.0:
                heads.append(Head(COSINE, "cosine", 0, weights[COSINE] ** 0.5))
            lifted = space.lift(np.hstack(coefficients), np.concatenate(intercepts))
            factors, offsets = (part.astype(np.float32) for part in lifted)
            built.append(CompositeSide(space.feature_map, factors, offsets, tuple(heads)))
        return built[0], built[1]

    def _project_by_directions(self, part: Part, ridge: float) -> Sides:
        self._heartbeat()
        rest = self._annotations.without(*part).pairs
        directions = self._directions(rest if len(rest) else self._annotations.pairs, ridge)
        return (
            to_unit_length(self._coordinates[0][part[0]] @ directions.x_coefficients),
            to_unit_length(self._coordinates[1][part[1]] @ directions.z_coefficients),
        )

    def _project_by_judgements(self, part: Part, pair_ridge: float | None) -> Sides:
        self._heartbeat()
        factors = self._judged_factors(self._annotations.without(*part), pair_ridge)
        if factors is None:
            return np.zeros((len(part[0]), 1)), np.zeros((len(part[1]), 1))
        return self._coordinates[0][part[0]] @ factors[0], self._coordinates[1][part[1]] @ factors[1]

    def _judged_factors(self, annotations: Annotations, pair_ridge: float | None) -> Sides | None:
        """Return the factors of the judged pairs' similarity, for principal coordinates; None without one."""
        if pair_ridge is not None and len(annotations.pairs):
            directions = self._directions(annotations.pairs, pair_ridge)
            bases = directions.x_coefficients, directions.z_coefficients
        else:
            bases = whitened_axes(self._spaces[0].variances), whitened_axes(self._spaces[1].variances)
        coordinates = self._coordinates[0] @ bases[0], self._coordinates[1] @ bases[1]
        assert annotations.signs is not None
        judged = JudgedSimilarity.fit(coordinates, annotations.signs)
        return None if judged is None else (bases[0] @ judged.x_factors, bases[1] @ judged.z_factors)

    def _directions(self, pairs: Indices, ridge: float) -> CanonicalDirections:
        variances = (self._spaces[0].variances, self._spaces[1].variances)
        return CanonicalDirections.fit(self._coordinates, variances, pairs, ridge)


def _choose_maps(
    samples: tuple[Samples, Samples], annotations: Annotations, options: LearningOptions, heartbeat: Heartbeat
) -> tuple[FeatureMapConfig, FeatureMapConfig]:
    """Return the feature maps from which facets, and the partners' coordinates, are predicted best."""
    rng = np.random.default_rng(options.seed)
    everything = (np.arange(annotations.shape[0]), np.arange(annotations.shape[1]))
    rows = draw(everything, options.max_samples, annotations.pairs, rng)
    drawn_annotations = annotations.subset(*rows)
    drawn = [side[chosen] for side, chosen in zip(samples, rows, strict=True)]
    configs = [candidate_maps(side, options.scalings, options.kernels) for side in drawn]
    chosen: list[FeatureMapConfig] = []
    for side in (0, 1):
        targets: list[tuple[Indices, FloatArray]] = []
        for facet in drawn_annotations.facets.values():
            indicators = (facet.x_indicators, facet.z_indicators)[side]
            known_rows = np.flatnonzero(indicators.any(axis=1))
            if len(known_rows):
                targets.append((known_rows, indicators[known_rows].astype(np.float64)))
        if len(drawn_annotations.pairs):
            other = 1 - side
            _, partners = PrincipalSpace.fit(
                drawn[other], configs[other][0], options.n_landmarks, _N_PARTNER_TARGETS, options.seed
            )
            targets.append((drawn_annotations.pairs[:, side], partners[drawn_annotations.pairs[:, other]]))
        chosen.append(
            choose_map(drawn[side], configs[side], targets, options.n_landmarks, options.seed, heartbeat)
            if targets
            else configs[side][0]
        )
    return chosen[0], chosen[1]


def _raw(samples: Samples, rows: Indices) -> FloatArray:
    chosen = samples[rows]
    dense: FloatArray = chosen.toarray() if is_sparse(chosen) else np.asarray(chosen)
    return dense
