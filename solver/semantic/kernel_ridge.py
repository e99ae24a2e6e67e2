"""A classifier on all samples instead of a few landmarks: kernel ridge regression with calibrated scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from solver.linalg.matrices import FloatArray, Samples
from solver.logistic import IMPOSSIBLE_SCORE, LinearClassifier, Targets
from solver.scaling.feature_maps import FeatureMap
from solver.semantic.ensemble import Branch, Ensemble, WeightedClassifier
from solver.semantic.folds import make_folds, stratified_sample, usable_folds
from solver.semantic.learners import calibrate
from solver.semantic.posteriors import Posteriors
from solver.semantic.search import SearchOptions
from solver.supervision.base import Indices
from solver.threads import single_threaded_blas

_RIDGES = (0.03, 0.3, 3.0)  # penalties to try, a decade apart, of a kernel that is 1 between equal samples
_SHARES = tuple(number / 8 for number in range(1, 8))
"""Shares of the average to try, as fine as that of eight rounds."""


def blend_kernel_ridge(
    samples: Samples,
    targets: Targets,
    posteriors: Posteriors,
    options: SearchOptions,
    heartbeat: Callable[[], None],
) -> Posteriors:
    """Return posteriors with a share of kernel ridge regression, where out of fold that is more likely.
    The given ones come back where classes overlap, no feature map has an RBF kernel, or no share helps."""
    # The kernel is that of the heaviest feature map with an RBF kernel; at most `max_samples` are landmarks.
    # The other classifiers see its Nystroem approximation by fewer.
    branches = [branch for branch in posteriors.ensemble.branches if branch.feature_map.kernel == "rbf"]
    if not branches or not targets.is_exclusive:
        return posteriors
    feature_map = max(branches, key=lambda branch: branch.weight).feature_map
    rng = np.random.default_rng(options.random_state)
    rows = stratified_sample(targets, options.max_samples, rng)
    sample_targets = targets.subset(rows)
    folds = make_folds(sample_targets, usable_folds(sample_targets, options.n_folds), rng)
    with single_threaded_blas():
        landmarks, kernel = feature_map.kernel_matrix(samples[rows])
        best = _best_regression(kernel, sample_targets, folds, posteriors.out_of_fold[rows], heartbeat)
        if best is None:
            return posteriors
        exact_map = replace(feature_map, landmarks=landmarks, whitening=best.dual.astype(np.float32))
        return _blend(samples, targets, posteriors, best, exact_map, rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Regression:
    """A kernel ridge regression with its share of the average."""

    dual: FloatArray  # (n_samples, n_classes), coefficients of the kernel with each sample
    inverse_temperature: float  # factor of the scores inside the softmax
    out_of_fold: FloatArray  # (n_samples, n_classes), posteriors of each sample without its fold
    share: float


def _best_regression(
    kernel: FloatArray,
    targets: Targets,
    folds: Sequence[Indices],
    others: FloatArray,
    heartbeat: Callable[[], None],
) -> _Regression | None:
    """Return the regression and the share that are most likely together with other posteriors."""
    best, best_loss = None, targets.log_loss(others)
    for ridge in _RIDGES:
        heartbeat()
        dual, scores = _solve(kernel, targets.indicators, folds, ridge)
        inverse_temperature, predicted = calibrate(scores, targets)
        for share in _SHARES:
            loss = targets.log_loss((1.0 - share) * others + share * predicted)
            if loss < best_loss:
                best, best_loss = _Regression(dual, inverse_temperature, predicted, share), loss
    return best


def _solve(
    kernel: FloatArray, indicators: FloatArray, folds: Sequence[Indices], ridge: float
) -> tuple[FloatArray, FloatArray]:
    """Return dual coefficients, and the score of each sample by the regression without its fold."""
    # With G = (K + 1 + ridge I)^-1, where 1 adds a penalised constant, and A = G Y, the errors on a fold f
    # that is left out are G_ff^-1 A_f: no regression without it has to be fitted.
    system = kernel + 1.0
    system[np.diag_indices_from(system)] += ridge
    inverse = scipy.linalg.inv(system, overwrite_a=True, check_finite=False)
    dual: FloatArray = inverse @ indicators
    scores = np.empty_like(dual)
    for fold in folds:
        errors = scipy.linalg.solve(inverse[np.ix_(fold, fold)], dual[fold], check_finite=False)
        scores[fold] = indicators[fold] - errors
    return dual, scores


def _blend(
    samples: Samples,
    targets: Targets,
    posteriors: Posteriors,
    regression: _Regression,
    feature_map: FeatureMap,
    rows: Indices,
) -> Posteriors:
    t, share, is_seen = regression.inverse_temperature, regression.share, targets.indicators.any(axis=0)
    constants = np.where(is_seen, t * regression.dual.sum(axis=0), IMPOSSIBLE_SCORE)
    classifier = LinearClassifier(t * np.eye(len(constants)), constants, True)
    predicted = np.empty(targets.indicators.shape)
    predicted[rows] = regression.out_of_fold
    others = np.setdiff1d(np.arange(len(predicted)), rows)
    predicted[others] = classifier.predict(feature_map.transform(samples[others]))
    out_of_fold = (1.0 - share) * posteriors.out_of_fold + share * predicted
    branch = Branch(feature_map, (WeightedClassifier(classifier, share),))
    ensemble = Ensemble((*posteriors.ensemble.scale_weights(1.0 - share).branches, branch))
    return Posteriors(ensemble, out_of_fold, targets.log_loss(out_of_fold), posteriors.configs)
