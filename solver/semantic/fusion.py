"""A share of posteriors that are read out of a bilinear similarity, mixed into those of classifiers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.bilinear.estimator import LowRankBilinear
from solver.errors import ConvergenceWarning, SupervisionError
from solver.linalg.matrices import FloatArray, Samples
from solver.linalg.row_space import RowSpaceBasis, compact
from solver.logistic import Targets
from solver.semantic.ensemble import Member, Posteriors, deal_folds, draw, usable_folds
from solver.semantic.feature_maps import FeatureMap
from solver.semantic.neighbours import NeighbourClassifier
from solver.supervision.base import Indices, Supervision

_ALPHA_FRACTION, _TOLERANCE, _MOST_ITERATIONS = 0.03, 0.1, 3
_N_FOLDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One modality.

    Parameters
    ----------
    samples : ndarray or CSR array of shape (n_samples, n_features)
        Raw features.
    targets : Targets
        Their classes.
    posteriors : Posteriors
        Of its classifiers.
    """

    samples: Samples
    targets: Targets
    posteriors: Posteriors


@dataclass(frozen=True, slots=True)
class FusionOptions:
    """How similarities are read out.

    Parameters
    ----------
    share : float in [0, 1)
        Of the read-out in the posteriors; none is fitted for 0.
    scale : float, > 0
        How sharply similarities are told apart.
    max_samples : int
        Samples of each modality to learn from, which are also the anchors.
    seed : int
        Of the draw and of the folds.
    n_jobs : int
        Threads.
    """

    share: float
    scale: float
    max_samples: int
    seed: int
    n_jobs: int


def fuse(
    x: Side, z: Side, supervision: Supervision, options: FusionOptions, heartbeat: Callable[[], None]
) -> tuple[Posteriors, Posteriors]:
    """Return the posteriors of both modalities with a share of what a similarity says.

    Parameters
    ----------
    x, z : Side
        Both modalities.
    supervision : Supervision
        Their classes.
    options : FusionOptions
        How large the share is.
    heartbeat : callable
        Called now and then; what it raises ends the fit.

    Returns
    -------
    x_posteriors, z_posteriors : Posteriors
        With one member more; as they were where the share is 0, or where nothing similar is left to learn
        from when a fold is held out.

    Notes
    -----
    The similarity is a `LowRankBilinear` with the softmax loss, stopped after a few steps, on the feature
    map of each side that weighs most among the classifiers. Out of fold both the matrix and the anchors
    come from the other folds. Rows of both sides that belong together, x[i] and z[i], are in the same fold
    as long as all classes agree row by row; where they belong together in another order the out-of-fold
    posteriors know their partners.
    """
    if options.share == 0.0:
        return x.posteriors, z.posteriors
    sides = x, z
    mapped = [_heaviest_map(side.posteriors).transform(side.samples) for side in sides]
    # Both sides are dealt by the same numbers: of pairs, whose classes are equal, both rows are held out.
    chances = [np.random.default_rng(options.seed) for _ in sides]
    drawn = [draw(side.targets, options.max_samples, rng) for side, rng in zip(sides, chances, strict=True)]
    targets = [side.targets.rows(rows) for side, rows in zip(sides, drawn, strict=True)]
    n_folds = min(usable_folds(each, _N_FOLDS) for each in targets)
    folds = [
        [rows[fold] for fold in deal_folds(each, n_folds, rng)]
        for each, rows, rng in zip(targets, drawn, chances, strict=True)
    ]

    whole = _fit(drawn, mapped, sides, supervision, options, heartbeat)
    if whole is None:
        return x.posteriors, z.posteriors
    predicted = []
    for head, each, rows, side in zip(whole, mapped, drawn, sides, strict=True):
        found = np.zeros(side.targets.indicators.shape)
        not_drawn = np.setdiff1d(np.arange(each.shape[0]), rows)  # they have had no part in it
        found[not_drawn] = head.predict(each[not_drawn])
        predicted.append(found)
    for held in zip(*folds, strict=True):
        others = [np.setdiff1d(rows, fold) for rows, fold in zip(drawn, held, strict=True)]
        heads = _fit(others, mapped, sides, supervision, options, heartbeat)
        if heads is None:
            return x.posteriors, z.posteriors
        for found, head, each, fold in zip(predicted, heads, mapped, held, strict=True):
            found[fold] = head.predict(each[fold])
    x_fused, z_fused = (
        _mixed(side, head, found, options.share)
        for side, head, found in zip(sides, whole, predicted, strict=True)
    )
    return x_fused, z_fused


def _fit(
    rows: Sequence[Indices],
    mapped: Sequence[Samples],
    sides: tuple[Side, Side],
    supervision: Supervision,
    options: FusionOptions,
    heartbeat: Callable[[], None],
) -> tuple[NeighbourClassifier, NeighbourClassifier] | None:
    """Learn a similarity from some rows of both modalities, to read either out by the other.

    Returns None where no pair of them is similar, or where no feature tells similar pairs from others.
    """
    (A, a_basis), (B, b_basis) = (compact(each[some]) for each, some in zip(mapped, rows, strict=True))
    try:
        part = supervision.subset(rows[0], rows[1])
    except SupervisionError:
        return None
    bilinear = LowRankBilinear(
        alpha_fraction=_ALPHA_FRACTION,
        loss="softmax",
        tol=_TOLERANCE,
        max_iter=_MOST_ITERATIONS,
        n_threads=options.n_jobs,
    )
    with warnings.catch_warnings():
        # It is judged by what it predicts, like the classifiers.
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            bilinear.fit(A, B, part, callback=lambda _: heartbeat())
        except SupervisionError:
            return None

    def read_out(
        factors: FloatArray,
        basis: RowSpaceBasis | None,
        intercept: FloatArray,
        anchors: FloatArray,
        other: int,
    ) -> NeighbourClassifier:
        if basis is not None:
            factors = basis.lift(factors.astype(np.float64)).astype(factors.dtype)
        targets = sides[other].targets.rows(rows[other])
        indicators = targets.indicators.astype(np.float32)
        return NeighbourClassifier(
            factors, intercept, anchors, indicators, options.scale, targets.is_exclusive
        )

    return (
        read_out(bilinear.x_factors_, a_basis, bilinear.x_intercept_, bilinear.project_z(B), 1),
        read_out(bilinear.z_factors_, b_basis, bilinear.z_intercept_, bilinear.project_x(A), 0),
    )


def _heaviest_map(posteriors: Posteriors) -> FeatureMap:
    maps = {id(member.features): member.features for member in posteriors.members}
    weights = dict.fromkeys(maps, 0.0)
    for member in posteriors.members:
        weights[id(member.features)] += member.weight
    return maps[max(weights, key=lambda key: weights[key])]


def _mixed(side: Side, head: NeighbourClassifier, predicted: FloatArray, share: float) -> Posteriors:
    before = side.posteriors
    out_of_fold = (1.0 - share) * before.out_of_fold + share * predicted
    members = [replace(member, weight=(1.0 - share) * member.weight) for member in before.members]
    members.append(Member(_heaviest_map(before), head, share))
    return Posteriors(tuple(members), out_of_fold, side.targets.log_loss(out_of_fold), before.recipes)
