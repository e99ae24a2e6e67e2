"""Which feature maps and penalties suit the classes of a modality: chosen out of fold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from solver.errors import InvalidInputError
from solver.linalg.matrices import FloatArray, Samples
from solver.logistic import Regression, Targets
from solver.semantic.ensemble import (
    FeatureMapConfig,
    Part,
    Posteriors,
    Recipe,
    cross_fitted,
    deal_folds,
    draw,
    fit_parts,
    others,
    require_company,
    rotated,
    usable_folds,
)
from solver.semantic.feature_maps import FeatureMap
from solver.supervision.base import Indices
from solver.threads import single_threaded_blas

WIDTHS = {"linear": (1.0,), "rbf": (0.3, 1.0, 3.0), "laplacian": (0.3, 1.0, 3.0)}
"""Widths that are tried of each kind of kernel."""
_RIDGES = 10.0 ** np.arange(-4.0, 1.1, 0.5)
INVERSE_PENALTIES = (3.0, 15.0, 75.0)
"""Penalties that are tried of the logistic regression on a kernel map."""
_OVERFITTED = 1.02


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


def fit_posteriors(
    samples: Samples,
    targets: Targets,
    options: SearchOptions,
    heartbeat: Callable[[], None],
    recipes: Sequence[Recipe] = (),
) -> Posteriors:
    """Choose classifiers and fit them.

    Parameters
    ----------
    samples : ndarray or CSR array of shape (n_samples, n_features)
        Raw features. Not modified.
    targets : Targets
        Their classes.
    options : SearchOptions
        Where to look.
    heartbeat : callable
        Called now and then; what it raises ends the search.
    recipes : sequence of Recipe
        Choice that is made already; it is made here where there is none, or where samples or options do
        not allow it.

    Raises
    ------
    SupervisionError
        If most samples are the only one of their class.
    InvalidInputError
        If no feature map that may be tried suits the samples.

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
        require_company(targets)
        rng = np.random.default_rng(options.seed)
        searched = draw(targets, options.max_samples, rng)
        some, some_targets = samples[searched], targets.rows(searched)
        folds = deal_folds(some_targets, usable_folds(some_targets, options.n_folds), rng)
        if recipes and all(_is_allowed(recipe.kind, samples, options) for recipe in recipes):
            parts = _prepared(recipes, some, options)
        else:
            parts = _searched(some, some_targets, folds, options, heartbeat)
        if len(searched) < samples.shape[0]:
            folds = deal_folds(targets, usable_folds(targets, options.n_folds), rng)
            parts = [Part(part.recipe, part.features, None) for part in parts]
        return fit_parts(samples, targets, parts, folds, options.n_jobs, heartbeat)


def _is_allowed(kind: FeatureMapConfig, samples: Samples, options: SearchOptions) -> bool:
    return kind.scaling in options.scalings and kind.kernel in options.kernels and kind.suits(samples)


def _prepared(recipes: Sequence[Recipe], samples: Samples, options: SearchOptions) -> list[Part]:
    maps = {kind: _fitted_map(kind, samples, options) for kind in {recipe.kind for recipe in recipes}}
    return [Part(recipe, maps[recipe.kind], None) for recipe in recipes]


def _fitted_map(kind: FeatureMapConfig, samples: Samples, options: SearchOptions) -> FeatureMap:
    return FeatureMap.fit(samples, kind.scaling, kind.kernel, kind.width, options.n_landmarks, options.seed)


def _searched(
    samples: Samples,
    targets: Targets,
    folds: list[Indices],
    options: SearchOptions,
    heartbeat: Callable[[], None],
) -> list[Part]:
    """Return the classifiers of an average that is likely out of fold, with their predictions."""
    maps = _screened(samples, targets, folds, options, heartbeat)
    candidates = _candidates(maps, samples, targets, folds, options, heartbeat)
    weights = _greedy_average([each.predicted for each in candidates], targets, options.n_rounds)
    return [
        Part(Recipe(each.kind, each.inverse_penalty, weight), each.features, each.predicted)
        for each, weight in zip(candidates, weights, strict=True)
        if weight > 0.0
    ]


def _screened(
    samples: Samples,
    targets: Targets,
    folds: list[Indices],
    options: SearchOptions,
    heartbeat: Callable[[], None],
) -> list[tuple[FeatureMapConfig, FeatureMap]]:
    """Return the feature maps on which ridge regression errs least out of fold, best first.

    Maps after which sparse samples are still too many to be made dense are left out.
    """
    kinds = [
        FeatureMapConfig(scaling, kernel, width)
        for scaling in options.scalings
        for kernel in options.kernels
        for width in WIDTHS[kernel]
    ]
    found: list[tuple[float, FeatureMapConfig, FeatureMap]] = []
    for kind in kinds:
        if kind.suits(samples):
            heartbeat()
            features = _fitted_map(kind, samples, options)
            mapped, _ = rotated(features.transform(samples))
            if isinstance(mapped, np.ndarray):
                error = _ridge_error(mapped, targets.indicators, folds, heartbeat)
                found.append((error, kind, features))
    if not found:
        raise InvalidInputError("none of the given scalings and kernels suits these samples")
    found.sort(key=lambda each: each[0])
    return [(kind, features) for _, kind, features in found[: options.n_kept]]


def _ridge_error(
    mapped: FloatArray, indicators: FloatArray, folds: list[Indices], heartbeat: Callable[[], None]
) -> float:
    """Return the least mean squared error out of fold over all ridge penalties."""
    errors = np.zeros(len(_RIDGES))
    exact = mapped.astype(np.float64)
    for held in folds:
        heartbeat()
        fitted = others(held, len(exact))
        mean, target_mean = exact[fitted].mean(axis=0), indicators[fitted].mean(axis=0)
        centred = exact[fitted] - mean
        values, vectors = scipy.linalg.eigh(centred.T @ centred / len(fitted), check_finite=False)
        along = vectors.T @ (centred.T @ (indicators[fitted] - target_mean)) / len(fitted)
        turned = (exact[held] - mean) @ vectors
        for number, ridge in enumerate(_RIDGES * max(values[-1], np.finfo(np.float64).tiny)):
            predicted = target_mean + turned @ (along / (np.maximum(values, 0.0) + ridge)[:, None])
            errors[number] += float(np.sum((predicted - indicators[held]) ** 2))
    return float(errors.min()) / len(exact)


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A classifier that may come into the average."""

    kind: FeatureMapConfig
    features: FeatureMap
    inverse_penalty: float
    predicted: FloatArray


def _candidates(
    maps: Sequence[tuple[FeatureMapConfig, FeatureMap]],
    samples: Samples,
    targets: Targets,
    folds: list[Indices],
    options: SearchOptions,
    heartbeat: Callable[[], None],
) -> list[_Candidate]:
    """Return classifiers on each feature map, from strong to weak penalties, with their predictions."""
    candidates = []
    for kind, features in maps:
        mapped, _ = rotated(features.transform(samples))
        regressions, best = [Regression(targets.is_exclusive) for _ in folds], np.inf
        for inverse in INVERSE_PENALTIES:
            heartbeat()
            found = cross_fitted(regressions, mapped, targets, folds, inverse, options.n_jobs, heartbeat)
            candidates.append(_Candidate(kind, features, inverse, found))
            loss = targets.log_loss(found)
            if loss > _OVERFITTED * best:
                break  # still weaker penalties would only overfit more, and take longest
            best = min(best, loss)
    return candidates


def _greedy_average(predicted: Sequence[FloatArray], targets: Targets, n_rounds: int) -> list[float]:
    """Return the weight of each prediction in an average that is likely out of fold."""
    counts, total = [0] * len(predicted), np.zeros(targets.indicators.shape)
    for n_before in range(n_rounds):
        losses = [targets.log_loss((total + each) / (n_before + 1)) for each in predicted]
        best = int(np.argmin(losses))
        counts[best] += 1
        total = total + predicted[best]
    return [count / n_rounds for count in counts]
