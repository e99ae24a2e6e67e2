"""Model selection for one modality: which feature maps and penalties suit its classes, judged out of fold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from solver.linalg.matrices import FloatArray, Samples
from solver.logistic import Regression, Targets
from solver.semantic.feature_maps import FeatureMap, FeatureMapConfig
from solver.semantic.folds import (
    check_classes_can_be_held_out,
    complement,
    make_folds,
    stratified_sample,
    usable_folds,
)
from solver.semantic.posteriors import (
    ClassifierConfig,
    ClassifierPlan,
    Posteriors,
    cross_predict,
    fit_ensemble,
    to_row_space,
)
from solver.supervision.base import Indices
from solver.threads import single_threaded_blas
from solver.validation.errors import InvalidInputError

SEARCHED_SCALINGS = ("standard", "l2", "sqrt")
"""Kinds of `Scaler` to try by default."""
WIDTHS = {"linear": (1.0,), "rbf": (0.3, 1.0, 3.0), "laplacian": (0.3, 1.0, 3.0)}
"""Kernel widths to try: exponents at the median distance, three for each kernel, half a decade apart."""
INVERSE_PENALTIES = (3.0, 15.0, 75.0)
"""Inverse penalties ``C`` to try of the logistic regressions, each five times weaker than the one before."""
_RIDGES = 10.0 ** np.arange(-4.0, 1.1, 0.5)
"""Ridge penalties of the screening, as shares of the largest eigenvalue of the covariance matrix."""
_MAX_LOSS_RATIO = 1.02
"""Weaker penalties are skipped once the log loss exceeds the best one by 2 %: they overfit still more."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Search space and effort.

    Parameters
    ----------
    scalings : tuple of str
        Kinds of `Scaler`; "sqrt" is skipped where a feature is negative.
    kernels : tuple of str
        Kernels of `FeatureMap`; "laplacian" is skipped with more than 256 features.
    n_landmarks : int
        Landmarks of the kernel maps.
    n_folds : int
        Maximum number of folds; fewer are used where classes have fewer samples.
    n_kept : int
        Feature maps that pass the screening.
    n_rounds : int
        Classifiers in the average, counted with repetition.
    max_samples : int
        Samples to search on; the chosen classifiers are fitted on all.
    seed : int
        Seed of folds and landmarks.
    n_jobs : int
        Maximum number of folds fitted in parallel.
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

    def allow(self, kind: FeatureMapConfig, samples: Samples) -> bool:
        """Return whether a kind of feature map is in the search space and suits the samples."""
        return kind.scaling in self.scalings and kind.kernel in self.kernels and kind.suits(samples)


def fit_posteriors(
    samples: Samples,
    targets: Targets,
    options: SearchOptions,
    heartbeat: Callable[[], None],
    configs: Sequence[ClassifierConfig] = (),
) -> Posteriors:
    """Choose classifiers and fit them.

    Parameters
    ----------
    samples : ndarray or CSR array of shape (n_samples, n_features)
        Raw features.
    targets : Targets
        Classes of the samples.
    options : SearchOptions
        Search space and effort.
    heartbeat : callable
        Called before each feature map and classifier and after each fold; an exception it raises ends the
        search.
    configs : sequence of ClassifierConfig
        An earlier choice to fit again. There is a new search if it is empty, or if samples or options rule
        out one of its feature maps.

    Raises
    ------
    SupervisionError
        If most samples are the only one of their class.
    InvalidInputError
        If no feature map of the search space suits the samples.

    Notes
    -----
    Everything is judged by out-of-fold predictions. A ridge regression of the class indicators, where
    all penalties share one eigendecomposition, screens the feature maps; logistic regressions are fitted on
    the best of them. The average is built greedily: each round adds, with repetition, the classifier that
    makes it most likely [1]_.

    References
    ----------
    .. [1] R. Caruana, A. Niculescu-Mizil, G. Crew, A. Ksikes, "Ensemble Selection from Libraries of
       Models", ICML 2004.
    """
    # Filters are set once, around all threads: they are a property of the process. A classifier that has not
    # fully converged is judged by its predictions like any other.
    with single_threaded_blas(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        check_classes_can_be_held_out(targets)
        rng = np.random.default_rng(options.seed)
        rows = stratified_sample(targets, options.max_samples, rng)
        sample, sample_targets = samples[rows], targets.subset(rows)
        folds = make_folds(sample_targets, usable_folds(sample_targets, options.n_folds), rng)
        if configs and all(options.allow(config.feature_map, samples) for config in configs):
            plans = [ClassifierPlan(config) for config in configs]
            kinds = dict.fromkeys(config.feature_map for config in configs)
            feature_maps = {kind: kind.fit(sample, options.n_landmarks, options.seed) for kind in kinds}
        else:
            search = _Search(sample, sample_targets, folds, options, heartbeat)
            feature_maps = search.screen_feature_maps()
            plans = search.choose_classifiers(feature_maps)
        if len(rows) < samples.shape[0]:
            folds = make_folds(targets, usable_folds(targets, options.n_folds), rng)
            plans = [replace(plan, out_of_fold=None) for plan in plans]
        return fit_ensemble(samples, targets, feature_maps, plans, folds, options.n_jobs, heartbeat)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A search on some samples; fields as the parameters of `fit_posteriors`."""

    samples: Samples
    targets: Targets
    folds: list[Indices]
    options: SearchOptions
    heartbeat: Callable[[], None]

    def screen_feature_maps(self) -> dict[FeatureMapConfig, FeatureMap]:
        """Return the feature maps with the smallest out-of-fold error of ridge regression, best first.

        Maps that leave sparse samples too large to be made dense are skipped.
        """
        kinds = [
            FeatureMapConfig(scaling, kernel, width)
            for scaling in self.options.scalings
            for kernel in self.options.kernels
            for width in WIDTHS[kernel]
        ]
        screened: list[tuple[float, FeatureMapConfig, FeatureMap]] = []
        for kind in kinds:
            if kind.suits(self.samples):
                self.heartbeat()
                feature_map = kind.fit(self.samples, self.options.n_landmarks, self.options.seed)
                mapped, _ = to_row_space(feature_map.transform(self.samples))
                if isinstance(mapped, np.ndarray):
                    screened.append((self._ridge_error(mapped), kind, feature_map))
        if not screened:
            raise InvalidInputError("none of the given scalings and kernels suits these samples")
        screened.sort(key=lambda entry: entry[0])
        return {kind: feature_map for _, kind, feature_map in screened[: self.options.n_kept]}

    def choose_classifiers(self, feature_maps: dict[FeatureMapConfig, FeatureMap]) -> list[ClassifierPlan]:
        """Return the classifiers of an average that is likely out of fold, with their predictions."""
        configs: list[ClassifierConfig] = []
        predictions: list[FloatArray] = []
        for kind, feature_map in feature_maps.items():
            for inverse_penalty, predicted in self._predict_candidates(feature_map).items():
                configs.append(ClassifierConfig(kind, inverse_penalty, 0.0))
                predictions.append(predicted)
        weights = _greedy_weights(predictions, self.targets, self.options.n_rounds)
        return [
            ClassifierPlan(replace(config, weight=weight), predicted)
            for config, predicted, weight in zip(configs, predictions, weights, strict=True)
            if weight > 0.0
        ]

    def _predict_candidates(self, feature_map: FeatureMap) -> dict[float, FloatArray]:
        """Return out-of-fold predictions by inverse penalty, up to the first that clearly overfits."""
        mapped, _ = to_row_space(feature_map.transform(self.samples))
        regressions = [Regression(self.targets.is_exclusive) for _ in self.folds]
        predictions: dict[float, FloatArray] = {}
        best_loss = np.inf
        for inverse_penalty in INVERSE_PENALTIES:
            self.heartbeat()
            predicted = cross_predict(
                regressions,
                mapped,
                self.targets,
                self.folds,
                inverse_penalty,
                self.options.n_jobs,
                self.heartbeat,
            )
            predictions[inverse_penalty] = predicted
            loss = self.targets.log_loss(predicted)
            if loss > _MAX_LOSS_RATIO * best_loss:
                break  # the weakest penalties also take longest
            best_loss = min(best_loss, loss)
        return predictions

    def _ridge_error(self, mapped: FloatArray) -> float:
        """Return the smallest mean squared out-of-fold error of all ridge penalties."""
        indicators, errors = self.targets.indicators, np.zeros(len(_RIDGES))
        exact = mapped.astype(np.float64)
        for fold in self.folds:
            self.heartbeat()
            rest = complement(fold, len(exact))
            mean, target_mean = exact[rest].mean(axis=0), indicators[rest].mean(axis=0)
            centred = exact[rest] - mean
            values, vectors = scipy.linalg.eigh(centred.T @ centred / len(rest), check_finite=False)
            cross_products = vectors.T @ (centred.T @ (indicators[rest] - target_mean)) / len(rest)
            rotated = (exact[fold] - mean) @ vectors
            for number, ridge in enumerate(_RIDGES * max(values[-1], np.finfo(np.float64).tiny)):
                coefficients = cross_products / (np.maximum(values, 0.0) + ridge)[:, None]
                predicted = target_mean + rotated @ coefficients
                errors[number] += float(np.sum((predicted - indicators[fold]) ** 2))
        return float(errors.min()) / len(exact)


def _greedy_weights(predictions: Sequence[FloatArray], targets: Targets, n_rounds: int) -> list[float]:
    """Return the weight of each prediction in an average that is likely, built in `n_rounds` rounds."""
    counts, total = [0] * len(predictions), np.zeros(targets.indicators.shape)
    for n_before in range(n_rounds):
        losses = [targets.log_loss((total + predicted) / (n_before + 1)) for predicted in predictions]
        best = int(np.argmin(losses))
        counts[best] += 1
        total = total + predictions[best]
    return [count / n_rounds for count in counts]
