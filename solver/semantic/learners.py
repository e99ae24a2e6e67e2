"""How a classifier of an ensemble is learned from mapped samples: by logistic regression, ridge or votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples
from solver.logistic import IMPOSSIBLE_SCORE, LinearClassifier, Regression, Targets
from solver.semantic.ensemble import MAX_INVERSE_TEMPERATURE, NeighbourClassifier
from solver.semantic.folds import complement, stratified_sample
from solver.supervision.base import Indices

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
        cls, mapped: FloatArray, targets: Targets, folds: Sequence[Indices], heartbeat: Callable[[], None]
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
