"""Class posteriors of one modality: an average of well-regularised classifiers, chosen out of fold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.linalg
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.linear_model import LogisticRegression

from solver.errors import InvalidInputError
from solver.feature_maps import FeatureMap
from solver.linalg import FloatArray
from solver.supervision import Indices
from solver.threads import single_threaded_blas

_WIDTHS = {"linear": (1.0,), "rbf": (0.3, 1.0, 3.0), "laplacian": (0.3, 1.0, 3.0)}
_MOST_LAPLACIAN_FEATURES = 256
_RIDGES = 10.0 ** np.arange(-4.0, 1.1, 0.5)
_INVERSE_PENALTIES = (3.0, 15.0, 75.0)
_OVERFITTED = 1.02
_LEAST = 1e-9
_NEVER = -1e4
"""A score whose exponential is zero."""
_TOLERANCE, _MOST_ITERATIONS = 1e-4, 300


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What is predicted: one class for each sample, or any number of labels.

    Parameters
    ----------
    indicators : ndarray of shape (n_samples, n_classes)
        1 where a sample is of a class.
    is_exclusive : bool
        Whether every sample has exactly one class.
    """

    indicators: FloatArray
    is_exclusive: bool

    def rows(self, rows: Indices) -> Targets:
        """Return the targets of some samples."""
        return Targets(self.indicators[rows], self.is_exclusive)

    def log_loss(self, posteriors: FloatArray) -> float:
        """Return the mean negative log-likelihood of the truth, in nats per sample."""
        likely = np.clip(posteriors, _LEAST, 1.0 - _LEAST)
        total = np.sum(self.indicators * np.log(likely))
        if not self.is_exclusive:
            total += np.sum((1.0 - self.indicators) * np.log1p(-likely))
        return -float(total) / len(self.indicators)


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """Scores that are linear in mapped samples, and their softmax, or the logistic sigmoid of each.

    Parameters
    ----------
    coefficients : ndarray of shape (n_mapped, n_classes)
        Linear part of the scores.
    intercepts : ndarray of shape (n_classes,)
        Constant part; very low for a class that was not seen.
    is_exclusive : bool
        Softmax if true.
    """

    coefficients: FloatArray
    intercepts: FloatArray
    is_exclusive: bool

    def __post_init__(self) -> None:
        """Refuse parts that do not fit each other."""
        if self.coefficients.ndim != 2 or self.intercepts.shape != self.coefficients.shape[1:]:
            raise InvalidInputError(
                f"coefficients {self.coefficients.shape} and intercepts {self.intercepts.shape} do not fit"
            )

    def predict(self, mapped: FloatArray) -> FloatArray:
        """Return posteriors of mapped samples, of shape (n_samples, n_classes), in float64."""
        scores = mapped.astype(np.float64) @ self.coefficients + self.intercepts
        posteriors: FloatArray = softmax(scores, axis=1) if self.is_exclusive else expit(scores)
        return posteriors


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One classifier of an average.

    Parameters
    ----------
    features : FeatureMap
        Of raw samples.
    head : Head
        Posteriors from its features.
    weight : float
        Share in the average.
    """

    features: FeatureMap
    head: Head
    weight: float

    def predict(self, samples: FloatArray) -> FloatArray:
        """Return posteriors of raw samples, of shape (n_samples, n_classes), in float64."""
        return self.head.predict(self.features.transform(samples))


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How classifiers are sought.

    Parameters
    ----------
    scalings : tuple of str
        Kinds of `FeatureScaler`; those that need features >= 0 are left out where some are not.
    kernels : tuple of str
        Kinds of `FeatureMap`.
    n_landmarks : int
        Landmarks of the kernel maps.
    n_folds : int
        Parts of the samples that are held out in turn.
    n_kept : int
        Feature maps that are looked at closely.
    n_rounds : int
        Classifiers in the average, counted with repetition.
    max_samples : int
        Samples for the search; those who are chosen are fitted on all.
    seed : int
        Of folds and landmarks.
    n_jobs : int
        Classifiers fitted at once.
    """

    scalings: tuple[str, ...]
    kernels: tuple[str, ...]
    n_landmarks: int
    n_folds: int
    n_kept: int
    n_rounds: int
    max_samples: int
    seed: int
    n_jobs: int


@dataclass(frozen=True, slots=True, eq=False)
class _Recipe:
    """A classifier that is not fitted yet."""

    features: FeatureMap
    inverse_penalty: float


@dataclass(frozen=True, slots=True, eq=False)
class Posteriors:
    """Fitted class posteriors of one modality.

    Parameters
    ----------
    members : tuple of Member
        Their weights sum to one.
    out_of_fold : ndarray of shape (n_samples, n_classes)
        For every training sample, what the same recipe predicts when fitted without its fold.
    log_loss : float
        Mean negative log-likelihood of those, in nats per sample.
    """

    members: tuple[Member, ...]
    out_of_fold: FloatArray
    log_loss: float

    def predict(self, samples: FloatArray) -> FloatArray:
        """Return posteriors of raw samples, of shape (n_samples, n_classes), in float64."""
        return average(self.members, samples)


def average(members: Sequence[Member], samples: FloatArray) -> FloatArray:
    """Return the weighted mean of the members' posteriors."""
    parts = [member.weight * member.predict(samples) for member in members]
    total: FloatArray = np.sum(parts, axis=0)
    return total


def fit_posteriors(
    samples: FloatArray, targets: Targets, options: SearchOptions, heartbeat: Callable[[], None]
) -> Posteriors:
    """Choose classifiers and fit them.

    Parameters
    ----------
    samples : ndarray of shape (n_samples, n_features)
        Raw features. Not modified.
    targets : Targets
        Their classes.
    options : SearchOptions
        Where to look.
    heartbeat : callable
        Called now and then; what it raises ends the search.

    Notes
    -----
    Everything is compared on predictions for samples that were held out. Ridge regression of the
    indicators, whose every penalty costs one eigendecomposition, says which feature maps are worth a
    logistic regression; of those, the average with the best likelihood is built greedily, one
    classifier after the other, with repetition [1]_.

    References
    ----------
    .. [1] R. Caruana, A. Niculescu-Mizil, G. Crew, A. Ksikes, "Ensemble Selection from Libraries of
       Models", ICML 2004.
    """
    rng = np.random.default_rng(options.seed)
    searched = _drawn(targets, options.max_samples, rng)
    some, some_targets = samples[searched], targets.rows(searched)
    folds = deal_folds(some_targets, options.n_folds, rng)
    maps = _screened(some, some_targets, folds, options, heartbeat)
    recipes, predicted = _candidates(maps, some, some_targets, folds, options, heartbeat)
    weights = _greedy_average(predicted, some_targets, options.n_rounds)
    chosen = [number for number, weight in enumerate(weights) if weight > 0.0]
    if len(searched) < len(samples):
        folds = deal_folds(targets, options.n_folds, rng)
        for number in chosen:
            heartbeat()
            mapped = recipes[number].features.transform(samples)
            regressions = [_Regression(targets.is_exclusive) for _ in folds]
            inverse = recipes[number].inverse_penalty
            predicted[number] = _cross_fitted(regressions, mapped, targets, folds, inverse, options.n_jobs)
    out_of_fold = np.sum([weights[number] * predicted[number] for number in chosen], axis=0)
    members = []
    for number in chosen:
        heartbeat()
        features, inverse = recipes[number].features, recipes[number].inverse_penalty
        with single_threaded_blas():
            head = _Regression(targets.is_exclusive).fit(features.transform(samples), targets, inverse)
        members.append(Member(features, head, weights[number]))
    return Posteriors(tuple(members), out_of_fold, targets.log_loss(out_of_fold))


def deal_folds(targets: Targets, n_folds: int, rng: np.random.Generator) -> list[Indices]:
    """Return disjoint sets of rows, each with its share of every class (of labels: of every set of them)."""
    _, kinds = np.unique(targets.indicators, axis=0, return_inverse=True)
    shuffled = rng.permutation(len(kinds))
    order = shuffled[np.argsort(kinds.ravel()[shuffled], kind="stable")]
    return [np.sort(order[first::n_folds]) for first in range(min(n_folds, len(kinds)))]


def _drawn(targets: Targets, max_samples: int, rng: np.random.Generator) -> Indices:
    """Return the rows to search on: all, or an even share of every class."""
    n_samples = len(targets.indicators)
    if n_samples <= max_samples:
        return np.arange(n_samples)
    return deal_folds(targets, -(-n_samples // max_samples), rng)[0]


def _screened(
    samples: FloatArray,
    targets: Targets,
    folds: list[Indices],
    options: SearchOptions,
    heartbeat: Callable[[], None],
) -> list[FeatureMap]:
    """Return the feature maps on which ridge regression errs least out of fold, best first."""
    found: list[tuple[float, FeatureMap]] = []
    for scaling in options.scalings:
        if scaling == "sqrt" and samples.min() < 0:
            continue
        for kernel in options.kernels:
            if kernel == "laplacian" and samples.shape[1] > _MOST_LAPLACIAN_FEATURES:
                continue
            for width in _WIDTHS[kernel]:
                heartbeat()
                features = FeatureMap.fit(samples, scaling, kernel, width, options.n_landmarks, options.seed)
                error = _ridge_error(features.transform(samples), targets.indicators, folds)
                found.append((error, features))
    found.sort(key=lambda each: each[0])
    return [features for _, features in found[: options.n_kept]]


def _ridge_error(mapped: FloatArray, indicators: FloatArray, folds: list[Indices]) -> float:
    """Return the least mean squared error out of fold over all ridge penalties."""
    errors = np.zeros(len(_RIDGES))
    exact = mapped.astype(np.float64)
    with single_threaded_blas():
        for held in folds:
            fitted = _others(held, len(exact))
            mean, target_mean = exact[fitted].mean(axis=0), indicators[fitted].mean(axis=0)
            centred = exact[fitted] - mean
            values, vectors = scipy.linalg.eigh(centred.T @ centred / len(fitted), check_finite=False)
            along = vectors.T @ (centred.T @ (indicators[fitted] - target_mean)) / len(fitted)
            rotated = (exact[held] - mean) @ vectors
            for number, ridge in enumerate(_RIDGES * values[-1]):
                predicted = target_mean + rotated @ (along / (np.maximum(values, 0.0) + ridge)[:, None])
                errors[number] += float(np.sum((predicted - indicators[held]) ** 2))
    return float(errors.min()) / len(exact)


def _candidates(
    maps: Sequence[FeatureMap],
    samples: FloatArray,
    targets: Targets,
    folds: list[Indices],
    options: SearchOptions,
    heartbeat: Callable[[], None],
) -> tuple[list[_Recipe], list[FloatArray]]:
    """Return classifiers on each feature map, from strong to weak penalties, with their predictions."""
    recipes, predicted = [], []
    for features in maps:
        mapped = features.transform(samples)
        regressions, best = [_Regression(targets.is_exclusive) for _ in folds], np.inf
        for inverse in _INVERSE_PENALTIES:
            heartbeat()
            found = _cross_fitted(regressions, mapped, targets, folds, inverse, options.n_jobs)
            recipes.append(_Recipe(features, inverse))
            predicted.append(found)
            loss = targets.log_loss(found)
            if loss > _OVERFITTED * best:
                break  # still weaker penalties would only overfit more, and take longest
            best = min(best, loss)
    return recipes, predicted


def _cross_fitted(
    regressions: Sequence[_Regression],
    mapped: FloatArray,
    targets: Targets,
    folds: list[Indices],
    inverse_penalty: float,
    n_jobs: int,
) -> FloatArray:
    """Return predictions for every sample from a regression on the other folds, one for each fold."""
    predicted = np.zeros(targets.indicators.shape)

    def fit_one(regression: _Regression, held: Indices) -> None:
        fitted = _others(held, len(mapped))
        head = regression.fit(mapped[fitted], targets.rows(fitted), inverse_penalty)
        predicted[held] = head.predict(mapped[held])

    with single_threaded_blas(), ThreadPoolExecutor(n_jobs) as pool:
        for done in [pool.submit(fit_one, *each) for each in zip(regressions, folds, strict=True)]:
            done.result()
    return predicted


class _Regression:
    """Logistic regression of classes or of labels; each fit begins at the one before.

    Parameters
    ----------
    is_exclusive : bool
        Multinomial if true, else one for each label.
    """

    def __init__(self, is_exclusive: bool) -> None:
        self._is_exclusive = is_exclusive
        self._models: dict[int, LogisticRegression] = {}

    def fit(self, mapped: FloatArray, targets: Targets, inverse_penalty: float) -> Head:
        """Fit to mapped samples of shape (n_samples, n_mapped)."""
        exact, n_classes = mapped.astype(np.float64), targets.indicators.shape[1]
        coefficients, intercepts = np.zeros((exact.shape[1], n_classes)), np.full(n_classes, _NEVER)
        if self._is_exclusive:
            classes, codes = np.unique(targets.indicators.argmax(axis=1), return_inverse=True)
            # Of two classes the first has the score 0, with which the other's is compared.
            intercepts[classes] = 0.0
            parts = [(0, classes[1:] if len(classes) == 2 else classes, codes)]
        else:
            intercepts[targets.indicators.all(axis=0)] = -_NEVER
            parts = [(label, np.array([label]), codes) for label, codes in enumerate(targets.indicators.T)]
        for key, columns, codes in parts:
            if len(np.unique(codes)) > 1:
                model = self._fitted(key, exact, codes, inverse_penalty)
                coefficients[:, columns], intercepts[columns] = model.coef_.T, model.intercept_
        return Head(coefficients, intercepts, self._is_exclusive)

    def _fitted(
        self, key: int, exact: FloatArray, codes: npt.NDArray[Any], inverse_penalty: float
    ) -> LogisticRegression:
        model = self._models.setdefault(
            key, LogisticRegression(tol=_TOLERANCE, max_iter=_MOST_ITERATIONS, warm_start=True)
        )
        with warnings.catch_warnings():
            # A classifier that is not quite converged is judged by what it predicts, like any other.
            warnings.simplefilter("ignore", SklearnConvergenceWarning)
            model.set_params(C=inverse_penalty).fit(exact, codes)
        return model


def _greedy_average(predicted: Sequence[FloatArray], targets: Targets, n_rounds: int) -> list[float]:
    """Return the weight of each prediction in an average that is likely out of fold."""
    counts, total = [0] * len(predicted), np.zeros(targets.indicators.shape)
    for n_before in range(n_rounds):
        losses = [targets.log_loss((total + each) / (n_before + 1)) for each in predicted]
        best = int(np.argmin(losses))
        counts[best] += 1
        total = total + predicted[best]
    return [count / n_rounds for count in counts]


def _others(held: Indices, n_samples: int) -> Indices:
    is_fitted = np.ones(n_samples, np.bool_)
    is_fitted[held] = False
    return np.flatnonzero(is_fitted)
