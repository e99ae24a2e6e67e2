"""Class posteriors of one modality: an average of well-regularised classifiers, chosen out of fold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from solver.basis import SampleBasis
from solver.errors import SupervisionError
from solver.feature_maps import FeatureMap
from solver.holdout import deal
from solver.linalg import FloatArray
from solver.logistic import Head, Regression, Targets
from solver.read_out import ReadOut
from solver.supervision import Indices
from solver.threads import single_threaded_blas

_WIDTHS = {"linear": (1.0,), "rbf": (0.3, 1.0, 3.0), "laplacian": (0.3, 1.0, 3.0)}
_MOST_LAPLACIAN_FEATURES = 256
_RIDGES = 10.0 ** np.arange(-4.0, 1.1, 0.5)
_INVERSE_PENALTIES = (3.0, 15.0, 75.0)
_OVERFITTED = 1.02
_LEAST_OF_A_CLASS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One classifier of an average.

    Parameters
    ----------
    features : FeatureMap
        Of raw samples.
    head : Head or ReadOut
        Posteriors from its features.
    weight : float
        Share in the average.
    """

    features: FeatureMap
    head: Head | ReadOut
    weight: float

    @property
    def is_read_out(self) -> bool:
        """Whether its posteriors are read out of a similarity."""
        return isinstance(self.head, ReadOut)

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
        Parts of the samples that are held out in turn, where classes have as many samples.
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
        For every training sample, what the same recipe predicts when its classifiers are fitted without
        its fold. Scaling and landmarks are those of all searched samples, without their classes; the choice
        of recipe and weights has seen all classes.
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
    mapped = {id(member.features): member.features for member in members}
    by_map = {key: features.transform(samples) for key, features in mapped.items()}
    parts = [member.weight * member.head.predict(by_map[id(member.features)]) for member in members]
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

    Raises
    ------
    SupervisionError
        If most samples are the only one of their class.

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
    # Set once, around all threads: warnings cannot be caught in each. A classifier that is not quite
    # converged is judged by what it predicts, like any other.
    with single_threaded_blas(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        return _searched(samples, targets, options, heartbeat)


def _searched(
    samples: FloatArray, targets: Targets, options: SearchOptions, heartbeat: Callable[[], None]
) -> Posteriors:
    rng = np.random.default_rng(options.seed)
    searched = draw(targets, options.max_samples, rng)
    some, some_targets = samples[searched], targets.rows(searched)
    folds = deal_folds(some_targets, most_folds(some_targets, options.n_folds), rng)
    maps = _screened(some, some_targets, folds, options, heartbeat)
    recipes, predicted = _candidates(maps, some, some_targets, folds, options, heartbeat)
    weights = _greedy_average(predicted, some_targets, options.n_rounds)
    chosen = [number for number, weight in enumerate(weights) if weight > 0.0]
    if len(searched) < len(samples):
        folds = deal_folds(targets, most_folds(targets, options.n_folds), rng)
        for number in chosen:
            heartbeat()
            mapped, _ = _rotated(recipes[number].features.transform(samples))
            regressions = [Regression(targets.is_exclusive) for _ in folds]
            inverse = recipes[number].inverse_penalty
            predicted[number] = _cross_fitted(
                regressions, mapped, targets, folds, inverse, options.n_jobs, heartbeat
            )
    out_of_fold = np.sum([weights[number] * predicted[number] for number in chosen], axis=0)
    members = []
    for number in chosen:
        heartbeat()
        features, inverse = recipes[number].features, recipes[number].inverse_penalty
        mapped, basis = _rotated(features.transform(samples))
        head = Regression(targets.is_exclusive).fit(mapped, targets, inverse)
        if basis is not None:
            head = Head(basis.lift(head.coefficients), head.intercepts, head.is_exclusive)
        members.append(Member(features, head, weights[number]))
    return Posteriors(tuple(members), out_of_fold, targets.log_loss(out_of_fold))


def most_folds(targets: Targets, n_folds: int) -> int:
    """Return how many of `n_folds` folds leave a part of its class to the median sample.

    With more of them a fold would hold out the half of one class and nothing of another, and what is
    predicted without it would be biased against the truth: with two samples of each of two classes and
    four folds, every sample looks like one of the other class.

    Raises
    ------
    SupervisionError
        If even two are too many: most samples are the only one of their class.
    """
    sizes = (targets.indicators * targets.indicators.sum(axis=0)).max(axis=1)
    typical = int(np.median(sizes[sizes > 0])) if sizes.any() else n_folds
    if typical < _LEAST_OF_A_CLASS:
        raise SupervisionError("most samples are the only one of their class: none can be held out")
    return min(n_folds, typical)


def deal_folds(targets: Targets, n_folds: int, rng: np.random.Generator) -> list[Indices]:
    """Return disjoint sets of rows, each with its share of every class (of labels: of every set of them)."""
    return [np.sort(fold) for fold in deal(targets.indicators, n_folds, rng)]


def draw(targets: Targets, max_samples: int, rng: np.random.Generator) -> Indices:
    """Return the rows to search on: all, or an even share of every class, two of each at least."""
    n_samples = len(targets.indicators)
    if n_samples <= max_samples:
        return np.arange(n_samples)
    (by_class,) = deal(targets.indicators, 1, rng)
    is_drawn = np.zeros(n_samples, np.bool_)
    is_drawn[by_class[np.arange(max_samples) * n_samples // max_samples]] = True
    for carried in targets.indicators.T > 0:
        for rows in (by_class[carried[by_class]], by_class[~carried[by_class]]):
            n_missing = max(_LEAST_OF_A_CLASS - int(is_drawn[rows].sum()), 0)
            is_drawn[rows[~is_drawn[rows]][:n_missing]] = True
    return np.flatnonzero(is_drawn)


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
                mapped, _ = _rotated(features.transform(samples))
                error = _ridge_error(mapped, targets.indicators, folds, heartbeat)
                found.append((error, features))
    found.sort(key=lambda each: each[0])
    return [features for _, features in found[: options.n_kept]]


def _ridge_error(
    mapped: FloatArray, indicators: FloatArray, folds: list[Indices], heartbeat: Callable[[], None]
) -> float:
    """Return the least mean squared error out of fold over all ridge penalties."""
    errors = np.zeros(len(_RIDGES))
    exact = mapped.astype(np.float64)
    for held in folds:
        heartbeat()
        fitted = _others(held, len(exact))
        mean, target_mean = exact[fitted].mean(axis=0), indicators[fitted].mean(axis=0)
        centred = exact[fitted] - mean
        values, vectors = scipy.linalg.eigh(centred.T @ centred / len(fitted), check_finite=False)
        along = vectors.T @ (centred.T @ (indicators[fitted] - target_mean)) / len(fitted)
        rotated = (exact[held] - mean) @ vectors
        for number, ridge in enumerate(_RIDGES * max(values[-1], np.finfo(np.float64).tiny)):
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
        mapped, _ = _rotated(features.transform(samples))
        regressions, best = [Regression(targets.is_exclusive) for _ in folds], np.inf
        for inverse in _INVERSE_PENALTIES:
            heartbeat()
            found = _cross_fitted(regressions, mapped, targets, folds, inverse, options.n_jobs, heartbeat)
            recipes.append(_Recipe(features, inverse))
            predicted.append(found)
            loss = targets.log_loss(found)
            if loss > _OVERFITTED * best:
                break  # still weaker penalties would only overfit more, and take longest
            best = min(best, loss)
    return recipes, predicted


def _cross_fitted(
    regressions: Sequence[Regression],
    mapped: FloatArray,
    targets: Targets,
    folds: list[Indices],
    inverse_penalty: float,
    n_jobs: int,
    heartbeat: Callable[[], None],
) -> FloatArray:
    """Return predictions for every sample from a regression on the other folds, one for each fold."""
    predicted = np.zeros(targets.indicators.shape)

    def fit_one(regression: Regression, held: Indices) -> None:
        fitted = _others(held, len(mapped))
        head = regression.fit(mapped[fitted], targets.rows(fitted), inverse_penalty)
        predicted[held] = head.predict(mapped[held])

    with ThreadPoolExecutor(n_jobs) as pool:
        running = [pool.submit(fit_one, *each) for each in zip(regressions, folds, strict=True)]
        try:
            for done in running:
                done.result()
                heartbeat()
        except BaseException:  # whatever ends the search: what has not begun is not begun any more
            for each in running:
                each.cancel()
            raise
    return predicted


def _greedy_average(predicted: Sequence[FloatArray], targets: Targets, n_rounds: int) -> list[float]:
    """Return the weight of each prediction in an average that is likely out of fold."""
    counts, total = [0] * len(predicted), np.zeros(targets.indicators.shape)
    for n_before in range(n_rounds):
        losses = [targets.log_loss((total + each) / (n_before + 1)) for each in predicted]
        best = int(np.argmin(losses))
        counts[best] += 1
        total = total + predicted[best]
    return [count / n_rounds for count in counts]


def _rotated(mapped: FloatArray) -> tuple[FloatArray, SampleBasis | None]:
    """Return samples with more features than there are samples in the span of these.

    Neither ridge nor logistic regression, which both penalise the norm of a coefficient vector, notice.
    """
    if mapped.shape[1] <= len(mapped):
        return mapped, None
    basis = SampleBasis(mapped.astype(np.float64))
    return basis.reduced, basis


def _others(held: Indices, n_samples: int) -> Indices:
    is_fitted = np.ones(n_samples, np.bool_)
    is_fitted[held] = False
    return np.flatnonzero(is_fitted)
