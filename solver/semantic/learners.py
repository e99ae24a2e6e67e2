"""How the classifiers of an ensemble are learned, and their predictions out of fold."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from solver.evaluation.splits import MIN_CLASS_SIZE, stratified_folds
from solver.linalg import (
    Centered,
    FloatArray,
    RowSpaceBasis,
    Samples,
    can_be_compact,
    is_sparse,
    lift_factors,
)
from solver.logistic import IMPOSSIBLE_SCORE, LinearClassifier, Regression, Targets
from solver.progress import Heartbeat
from solver.scaling.feature_maps import FeatureMap, FeatureMapConfig
from solver.semantic.ensemble import (
    MAX_INVERSE_TEMPERATURE,
    Branch,
    Classifier,
    Ensemble,
    NeighbourClassifier,
    WeightedClassifier,
)
from solver.supervision.kinds import Indices
from solver.validation import SupervisionError

_MAX_SINGLETON_SHARE = 0.5
"""Out-of-fold posteriors mean nothing where most samples are the only one of their class."""


def check_classes_can_be_held_out(targets: Targets) -> None:
    """Raise SupervisionError if most samples are the only one of their class: without them it is unknown."""
    if np.mean(_class_sizes(targets) < MIN_CLASS_SIZE) > _MAX_SINGLETON_SHARE:
        raise SupervisionError("most samples are the only one of their class: none can be held out")


def usable_folds(targets: Targets, n_folds: int) -> int:
    """Return how many of `n_folds` folds, at least two, leave the typical sample others of its class.
    Of a sample's several labels the most common one counts, although folds are stratified by whole sets."""
    return max(min(n_folds, int(np.median(_class_sizes(targets)))), 2)


def _class_sizes(targets: Targets) -> FloatArray:
    """Return for each sample with a label how many samples carry it; of several labels, the most common."""
    sizes = (targets.indicators * targets.indicators.sum(axis=0)).max(axis=1)
    labelled_sizes: FloatArray = sizes[sizes > 0]
    return labelled_sizes if len(labelled_sizes) else np.array([len(sizes)], np.float64)


def make_folds(targets: Targets, n_folds: int, rng: np.random.Generator) -> list[Indices]:
    """Return a partition of the rows into usable folds, `n_folds` at most, stratified by class (by set of
    labels where there are several)."""
    n_usable = usable_folds(targets, n_folds)
    return [np.sort(fold) for fold in stratified_folds(targets.indicators, n_usable, rng)]


def stratified_sample(targets: Targets, max_samples: int, rng: np.random.Generator) -> Indices:
    """Return rows to search on: all of them, or an even share of each class; at least two samples in each
    class and two outside it where there are as many, so that a little more than `max_samples` may come."""
    n_samples = len(targets.indicators)
    if n_samples <= max_samples:
        return np.arange(n_samples)
    (by_class,) = stratified_folds(targets.indicators, 1, rng)
    is_sampled = np.zeros(n_samples, np.bool_)
    is_sampled[by_class[np.arange(max_samples) * n_samples // max_samples]] = True
    for has_label in targets.indicators.T > 0:
        for rows in (by_class[has_label[by_class]], by_class[~has_label[by_class]]):
            n_missing = max(MIN_CLASS_SIZE - int(is_sampled[rows].sum()), 0)
            is_sampled[rows[~is_sampled[rows]][:n_missing]] = True
    return np.flatnonzero(is_sampled)


def paired_folds(
    x_targets: Targets, z_targets: Targets, max_samples: int, n_folds: int, seed: int
) -> tuple[list[Indices], list[Indices]]:
    """Return equally many folds of a `stratified_sample` of each modality, at most `n_folds`.
    Of paired rows with equal classes both are in the same fold."""
    # Both generators start equal: of paired rows with equal classes both fall into the same fold.
    x_rng, z_rng = (np.random.default_rng(seed) for _ in range(2))
    x_rows = stratified_sample(x_targets, max_samples, x_rng)
    z_rows = stratified_sample(z_targets, max_samples, z_rng)
    x_sample, z_sample = x_targets.subset(x_rows), z_targets.subset(z_rows)
    n_usable = min(usable_folds(x_sample, n_folds), usable_folds(z_sample, n_folds))
    x_folds = [x_rows[fold] for fold in make_folds(x_sample, n_usable, x_rng)]
    z_folds = [z_rows[fold] for fold in make_folds(z_sample, n_usable, z_rng)]
    return x_folds, z_folds


def complement(rows: Indices, n_samples: int) -> Indices:
    """Return all other rows, in ascending order."""
    return np.delete(np.arange(n_samples), rows)


RIDGES = 10.0 ** np.arange(-4.0, 1.1, 0.5)
"""Ridge penalties to try, as shares of the largest eigenvalue of the covariance matrix."""
VOTE_SHARPNESS = (8.0, 16.0, 32.0, 64.0)
"""Sharpness of votes to try: a sample at the mean squared distance has a vote of exp(-8) to exp(-64)."""
_LOG_TEMPERATURES = (-2.0, 6.0)
"""Bounds of the logarithm of a ridge classifier's inverse temperature; 2 to 3 is typical."""

_TINY = float(np.finfo(np.float32).tiny)  # smallest variance that is divided by: samples may be all equal


@dataclass(frozen=True, slots=True)
class LogisticLearner:
    """Logistic regression; `inverse_penalty` is its ``C``."""

    inverse_penalty: float

    def fit(self, mapped: Samples, targets: Targets) -> LinearClassifier:
        return Regression(targets.is_exclusive).fit(mapped, targets, self.inverse_penalty)


@dataclass(frozen=True, slots=True)
class RidgeLearner:
    """Softmax of a ridge regression of class indicators; with a kernel map a least-squares SVM (Suykens and
    Vandewalle, Neural Processing Letters 9, 1999), whose scores take a temperature as in Platt's method."""

    ridge: float  # penalty, as a share of the largest eigenvalue of the covariance matrix
    inverse_temperature: float  # factor of the scores inside the softmax

    def fit(self, mapped: Samples, targets: Targets) -> LinearClassifier:
        """Return the classifier; a class that no sample has gets posterior 0."""
        t, path = self.inverse_temperature, _RidgePath.of(mapped, targets.indicators)
        coefficients = path.axes @ path.coefficients(self.ridge)
        intercepts = path.target_mean - path.mean @ coefficients
        is_seen = targets.indicators.any(axis=0)
        return LinearClassifier(
            np.where(is_seen, t * coefficients, 0.0),
            np.where(is_seen, t * intercepts, IMPOSSIBLE_SCORE),
            True,
        )


@dataclass(frozen=True, slots=True)
class VoteLearner:
    """Votes of at most `max_anchors` training samples of the same modality, drawn by `seed`.
    A vote decays with the squared distance of mapped samples: ``exp(-sharpness d^2 / mean d^2)``."""

    sharpness: float
    max_anchors: int
    seed: int

    def fit(self, mapped: Samples, targets: Targets) -> NeighbourClassifier:
        """Return the classifier, whose similarity is minus half the squared distance plus a constant."""
        rows = stratified_sample(targets, self.max_anchors, np.random.default_rng(self.seed))
        anchors = mapped[rows].astype(np.float64)
        n_mapped, halves = anchors.shape[1], -0.5 * np.sum(anchors**2, axis=1)
        mean_half_distance = max(float(anchors.var(axis=0).sum()), _TINY)
        return NeighbourClassifier(
            np.eye(n_mapped, n_mapped + 1, dtype=np.float32),
            np.eye(n_mapped + 1, dtype=np.float32)[-1],
            np.column_stack([anchors, halves]).astype(np.float32),
            targets.indicators[rows].astype(np.float32),
            min(self.sharpness / mean_half_distance, MAX_INVERSE_TEMPERATURE),
            targets.is_exclusive,
        )


Learner = LogisticLearner | RidgeLearner | VoteLearner  # fits classifiers of one kind


@dataclass(frozen=True, slots=True, eq=False)
class RidgeScreening:
    """Out-of-fold scores (n_samples, n_classes) of the ridge regression with the smallest error, and its
    penalty."""

    error: float  # squared, out of fold, per sample, summed over classes
    ridge: float
    scores: FloatArray

    @classmethod
    def of(
        cls, mapped: FloatArray, targets: Targets, folds: Sequence[Indices], heartbeat: Heartbeat
    ) -> RidgeScreening:
        """Try all of `RIDGES`; call `heartbeat` before each fold."""
        indicators, exact = targets.indicators, mapped.astype(np.float64)
        scores = np.zeros((len(RIDGES), *indicators.shape), np.float32)
        errors = np.zeros(len(RIDGES))
        for fold in folds:
            heartbeat()
            rest = complement(fold, len(exact))
            path = _RidgePath.of(exact[rest], indicators[rest])
            rotated = (exact[fold] - path.mean) @ path.axes
            for number, ridge in enumerate(RIDGES):
                predicted = path.target_mean + rotated @ path.coefficients(ridge)
                errors[number] += float(np.sum((predicted - indicators[fold]) ** 2))
                scores[number, fold] = predicted
        best = int(np.argmin(errors))
        return cls(float(errors[best]) / len(exact), float(RIDGES[best]), scores[best].astype(np.float64))

    def to_learner(self, targets: Targets) -> tuple[RidgeLearner, FloatArray]:
        """Return a learner with the most likely temperature, and its out-of-fold posteriors."""
        inverse_temperature, posteriors = calibrate(self.scores, targets)
        return RidgeLearner(self.ridge, inverse_temperature), posteriors


def calibrate(scores: FloatArray, targets: Targets) -> tuple[float, FloatArray]:
    """Return the inverse temperature with which the softmax of scores (n_samples, n_classes) is most likely,
    and that softmax. Classes are exclusive; one that no sample has gets posterior 0."""
    is_seen = targets.indicators.any(axis=0)

    def posteriors(log_temperature: float) -> FloatArray:
        tempered = np.where(is_seen, np.exp(log_temperature) * scores, IMPOSSIBLE_SCORE)
        return np.asarray(softmax(tempered, axis=1))

    best = minimize_scalar(
        lambda logarithm: targets.log_loss(posteriors(logarithm)),
        bounds=_LOG_TEMPERATURES,
        method="bounded",
        options={"xatol": 0.02},
    )
    return float(np.exp(best.x)), posteriors(best.x)


@dataclass(frozen=True, slots=True, eq=False)
class _RidgePath:
    """Ridge regressions of all penalties on the same samples, which share one eigendecomposition."""

    mean: FloatArray  # (n_mapped,), of the samples
    target_mean: FloatArray  # (n_classes,), of the indicators
    variances: FloatArray  # (n_mapped,), eigenvalues of the covariance matrix, ascending
    axes: FloatArray  # (n_mapped, n_mapped), its eigenvectors
    products: FloatArray  # (n_mapped, n_classes), covariances of the rotated samples with the indicators

    @classmethod
    def of(cls, samples: Samples, indicators: FloatArray) -> _RidgePath:
        """Decompose the covariance matrix of dense, sparse or `Centered` samples."""
        n_samples, target_mean = samples.shape[0], indicators.mean(axis=0)
        exact, shift = samples.astype(np.float64), 0.0
        if isinstance(exact, Centered):
            exact, shift = exact.sparse, exact.shift  # which changes no covariance
        mean = np.asarray(exact.mean(axis=0)).ravel()
        if isinstance(exact, np.ndarray):
            exact = exact - mean
            covariance = exact.T @ exact / n_samples
        else:
            covariance = (exact.T @ exact).toarray() / n_samples - np.outer(mean, mean)
        values, axes = scipy.linalg.eigh(covariance, check_finite=False)
        products = axes.T @ (exact.T @ (indicators - target_mean)) / n_samples
        return cls(mean - shift, target_mean, np.maximum(values, 0.0), axes, products)

    def coefficients(self, ridge: float) -> FloatArray:
        """Return the coefficients of the rotated samples."""
        penalty = ridge * max(float(self.variances[-1]), _TINY)
        return self.products / (self.variances + penalty)[:, None]


@dataclass(frozen=True, slots=True)
class ClassifierConfig:
    """How one classifier of an ensemble is fitted; those of equal feature maps share one."""

    feature_map: FeatureMapConfig
    learner: Learner
    weight: float  # share of the ensemble's average


@dataclass(frozen=True, slots=True, eq=False)
class ClassifierPlan:
    """A classifier to be fitted on all samples."""

    config: ClassifierConfig
    out_of_fold: FloatArray | None = None  # (n_samples, n_classes), without a fold


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """Fitted class posteriors of one modality. Scaling and landmarks come from all searched samples, without
    their classes; the choice of classifiers and weights has seen all classes."""

    ensemble: Ensemble
    out_of_fold: FloatArray  # (n_samples, n_classes), by the same classifiers fitted without the fold
    log_loss: float  # mean, out of fold, in nats per sample
    configs: tuple[ClassifierConfig, ...]

    def predict(self, samples: Samples) -> FloatArray:
        """Return posteriors of raw samples, of shape (n_samples, n_classes), in float64."""
        return self.ensemble.predict(samples)


def fit_ensemble(
    samples: Samples,
    targets: Targets,
    feature_maps: Mapping[FeatureMapConfig, FeatureMap],
    plans: Sequence[ClassifierPlan],
    folds: Sequence[Indices],
    n_jobs: int | None,
    heartbeat: Heartbeat,
) -> Posteriors:
    """Fit classifiers on all samples, and without each fold where their out-of-fold predictions are missing.
    `heartbeat` is called before each classifier and after each fold; an exception it raises ends the fit."""
    branches: list[Branch] = []
    out_of_fold = np.zeros(targets.indicators.shape)
    for kind in dict.fromkeys(plan.config.feature_map for plan in plans):
        mapped, basis = to_row_space(feature_maps[kind].transform(samples))
        members: list[WeightedClassifier] = []
        for plan in plans:
            if plan.config.feature_map != kind:
                continue
            heartbeat()
            config, predicted = plan.config, plan.out_of_fold
            if predicted is None:
                predicted = cross_predict(
                    [config.learner.fit] * len(folds), mapped, targets, folds, n_jobs, heartbeat
                )
            out_of_fold += config.weight * predicted
            classifier = config.learner.fit(mapped, targets)
            lifted = replace(classifier, coefficients=lift_factors(basis, classifier.coefficients))
            members.append(WeightedClassifier(lifted, config.weight))
        branches.append(Branch(feature_maps[kind], tuple(members)))
    configs = tuple(plan.config for plan in plans)
    return Posteriors(Ensemble(tuple(branches)), out_of_fold, targets.log_loss(out_of_fold), configs)


def cross_predict(
    fits: Sequence[Callable[[Samples, Targets], Classifier]],
    mapped: Samples,
    targets: Targets,
    folds: Sequence[Indices],
    n_jobs: int | None,
    heartbeat: Heartbeat,
) -> FloatArray:
    """Return a prediction for each sample by a classifier fitted on the other folds; one of `fits` a fold."""
    # Sparse and `Centered` samples are fitted one fold at a time, whatever `n_jobs`: the optimiser keeps tens
    # of copies of the coefficients of all their features.
    if not isinstance(mapped, np.ndarray):
        n_jobs = 1
    predicted = np.zeros(targets.indicators.shape)

    def predict_fold(fit: Callable[[Samples, Targets], Classifier], fold: Indices) -> None:
        rest = complement(fold, mapped.shape[0])
        predicted[fold] = fit(mapped[rest], targets.subset(rest)).predict(mapped[fold])

    with ThreadPoolExecutor(n_jobs or os.cpu_count() or 1) as pool:
        futures = [pool.submit(predict_fold, *pair) for pair in zip(fits, folds, strict=True)]
        try:
            for future in futures:
                future.result()
                heartbeat()
        except BaseException:  # an interrupt, too, must not leave folds waiting to be fitted
            for future in futures:
                future.cancel()
            raise
    return predicted


def to_row_space(mapped: Samples) -> tuple[Samples, RowSpaceBasis | None]:
    """Return dense samples in coordinates of their row space, if that is smaller, and the way back."""
    # Ridge and logistic regression penalise the norm of the coefficients, so that this change of basis leaves
    # their predictions as they are. No basis: the features were kept.
    n_samples, n_features = mapped.shape
    is_dense = not (is_sparse(mapped) or isinstance(mapped, Centered))
    if not is_dense and not can_be_compact(n_samples, n_features):
        return mapped, None
    if n_features <= n_samples:
        return (mapped if is_dense else mapped.toarray()), None
    basis = RowSpaceBasis(mapped.astype(np.float64))
    return basis.reduced, basis
