"""Blending neighbour classifiers, which learn from both modalities, into the posteriors of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from solver.bilinear.estimator import LowRankBilinear
from solver.linalg.matrices import FloatArray, Samples
from solver.linalg.row_space import compact, lift_factors
from solver.logistic import Targets
from solver.semantic.ensemble import NeighbourClassifier
from solver.semantic.folds import paired_folds
from solver.semantic.posteriors import Posteriors
from solver.semantic.search import SearchOptions
from solver.supervision.base import Indices, Supervision
from solver.validation.errors import ConvergenceWarning, SupervisionError

_ALPHA_FRACTION = 0.03
"""Penalty weight as a share of `alpha_max`, the strongest that `select_on` tries by default."""
_TOL, _MAX_ITER = 0.1, 3
"""The similarity is stopped early, which regularises it further: only its predictions are used."""
_N_FOLDS = 3
"""Each fold costs one more fit of the similarity; without it two thirds of the anchors still vote."""


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One modality: raw samples, their classes, and the posteriors fitted to them."""

    samples: Samples
    targets: Targets
    posteriors: Posteriors


def fuse(
    x: Side, z: Side, supervision: Supervision, options: SearchOptions, heartbeat: Callable[[], None]
) -> tuple[Posteriors, Posteriors]:
    """Return the posteriors of both modalities, each blended with a neighbour classifier;
    the given ones for share 0, or if without some fold no similar pair or no informative feature is left."""
    # The similarity is a `LowRankBilinear` with the softmax loss, stopped after a few steps, on the feature
    # map of the heaviest branch of each side. For out-of-fold predictions both the matrix and the anchors
    # come from the other folds. If x[i] and z[i] belong together and have equal classes in every row, they
    # are in the same fold; if pairs are in another order, the out-of-fold posteriors leak the paired sample.
    share = float(options.neighbour_share)
    if share == 0.0:
        return x.posteriors, z.posteriors
    x_side, z_side = _split(x, z, options)
    row_sets = [(x_side.rows, z_side.rows)]
    row_sets += zip(x_side.rows_without_each_fold(), z_side.rows_without_each_fold(), strict=True)
    x_classifiers, z_classifiers = [], []
    for x_rows, z_rows in row_sets:
        classifiers = _fit_classifiers(x_side, z_side, x_rows, z_rows, supervision, options, heartbeat)
        if classifiers is None:
            return x.posteriors, z.posteriors
        x_classifiers.append(classifiers[0])
        z_classifiers.append(classifiers[1])
    return x_side.blend(x_classifiers, share), z_side.blend(z_classifiers, share)


@dataclass(frozen=True, slots=True, eq=False)
class _SplitSide:
    """One modality, mapped by the heaviest branch;
    the rows that the similarity is learned from, split into folds."""

    side: Side
    mapped: Samples
    rows: Indices
    folds: list[Indices]

    def rows_without_each_fold(self) -> list[Indices]:
        """Return for each fold the sampled rows that are not in it."""
        return [np.setdiff1d(self.rows, fold) for fold in self.folds]

    def blend(self, classifiers: list[NeighbourClassifier], share: float) -> Posteriors:
        """Blend in the first of the classifiers; the others, one without each fold, predict out of fold."""
        whole, *without_folds = classifiers
        targets, posteriors = self.side.targets, self.side.posteriors
        predicted = np.zeros(targets.indicators.shape)
        not_sampled = np.setdiff1d(np.arange(self.mapped.shape[0]), self.rows)
        predicted[not_sampled] = whole.predict(self.mapped[not_sampled])
        for fold, classifier in zip(self.folds, without_folds, strict=True):
            predicted[fold] = classifier.predict(self.mapped[fold])
        out_of_fold = (1.0 - share) * posteriors.out_of_fold + share * predicted
        ensemble = posteriors.ensemble.blend(whole, share)
        return Posteriors(ensemble, out_of_fold, targets.log_loss(out_of_fold), posteriors.configs)


def _split(x: Side, z: Side, options: SearchOptions) -> tuple[_SplitSide, _SplitSide]:
    """Sample both modalities, and deal each sample into the same number of folds."""
    x_folds, z_folds = paired_folds(x.targets, z.targets, options.max_samples, _N_FOLDS, options.random_state)
    return _split_side(x, x_folds), _split_side(z, z_folds)


def _split_side(side: Side, folds: list[Indices]) -> _SplitSide:
    feature_map = side.posteriors.ensemble.heaviest_branch.feature_map
    return _SplitSide(side, feature_map.transform(side.samples), np.sort(np.concatenate(folds)), folds)


def _fit_classifiers(
    x: _SplitSide,
    z: _SplitSide,
    x_rows: Indices,
    z_rows: Indices,
    supervision: Supervision,
    options: SearchOptions,
    heartbeat: Callable[[], None],
) -> tuple[NeighbourClassifier, NeighbourClassifier] | None:
    """Learn a similarity from some rows of both modalities, and return a classifier of either by the other.
    None if no pair of them is similar, or if no feature distinguishes similar pairs."""
    (A, a_basis), (B, b_basis) = compact(x.mapped[x_rows]), compact(z.mapped[z_rows])
    try:
        subset = supervision.subset(x_rows, z_rows)
    except SupervisionError:
        return None
    bilinear = LowRankBilinear(
        alpha_fraction=_ALPHA_FRACTION,
        loss="softmax",
        tol=_TOL,
        max_iter=_MAX_ITER,
        n_threads=options.n_jobs,
    )
    with warnings.catch_warnings():
        # It is judged by its predictions, like the other classifiers.
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            bilinear.fit(A, B, subset, callback=lambda _: heartbeat())
        except SupervisionError:
            return None
    x_targets, z_targets = x.side.targets.subset(x_rows), z.side.targets.subset(z_rows)
    x_factors, z_factors = (
        lift_factors(basis, factors).astype(factors.dtype, copy=False)
        for basis, factors in ((a_basis, bilinear.x_factors_), (b_basis, bilinear.z_factors_))
    )
    x_anchors, z_anchors = bilinear.project_x(A), bilinear.project_z(B)
    t = float(options.inverse_temperature)
    return (
        _neighbour_classifier(x_factors, bilinear.x_intercept_, z_anchors, z_targets, t),
        _neighbour_classifier(z_factors, bilinear.z_intercept_, x_anchors, x_targets, t),
    )


def _neighbour_classifier(
    factors: FloatArray,
    intercept: FloatArray,
    anchors: FloatArray,
    anchor_targets: Targets,
    inverse_temperature: float,
) -> NeighbourClassifier:
    indicators = anchor_targets.indicators.astype(np.float32)
    return NeighbourClassifier(
        factors, intercept, anchors, indicators, inverse_temperature, anchor_targets.is_exclusive
    )
