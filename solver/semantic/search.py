"""Model selection for one modality: which feature maps and penalties suit its classes, judged out of fold."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning

from solver.linalg.matrices import FloatArray, Samples
from solver.logistic import Regression, Targets
from solver.scaling.feature_maps import FeatureMap, FeatureMapConfig
from solver.semantic.folds import (
    check_classes_can_be_held_out,
    make_folds,
    stratified_sample,
    usable_folds,
)
from solver.semantic.learners import (
    VOTE_SHARPNESS,
    Learner,
    LogisticLearner,
    RidgeScreening,
    VoteLearner,
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

SEARCHED_SCALINGS = ("standard", "l2", "sqrt")  # kinds of `Scaler` to try by default
WIDTHS = {"linear": (1.0,), "rbf": (0.3, 1.0, 3.0), "laplacian": (0.3, 1.0, 3.0)}
"""Kernel widths to try: exponents at the median distance, three for each kernel, half a decade apart."""
INVERSE_PENALTIES = (3.0, 15.0, 75.0)
"""Inverse penalties ``C`` to try of the logistic regressions, each five times weaker than the one before."""
_MAX_LOSS_RATIO = 1.02
"""Weaker penalties are skipped once the log loss exceeds the best one by 2 %: they overfit still more."""


_MAX_RIDGE_FEATURES = 2000
"""Their covariance matrix takes 32 MB, and its eigenvectors a few seconds for each fold."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """The parameters of `SemanticBilinear`: search space and effort, and how posteriors are blended."""

    loss: str
    alpha_fraction: float | None
    scalings: tuple[str, ...]  # of `Scaler`; "sqrt" is skipped where a feature is negative
    kernels: tuple[str, ...]  # of `FeatureMap`; "laplacian" is skipped with more than 256 features
    n_landmarks: int
    n_folds: int  # at most; fewer where classes have fewer samples
    n_kept: int  # feature maps that pass the screening
    n_rounds: int  # classifiers in the average, counted with repetition
    max_samples: int  # of each modality, to search on and as anchors; what is chosen is fitted on all
    neighbour_share: float  # weight of the neighbour classifier, in [0, 1); none is fitted for 0
    inverse_temperature: float
    tol: float
    random_state: int
    n_jobs: int

    def n_steps(self, configs: Sequence[ClassifierConfig] = ()) -> int:
        """Return about how many steps a search takes, or a fit of classifiers that were chosen before."""
        if configs:
            return len(configs) * (1 + self.n_folds)
        n_maps = len(self.scalings) * sum(len(WIDTHS[kernel]) for kernel in self.kernels)
        n_classifiers = self.n_kept * len(INVERSE_PENALTIES) + len(VOTE_SHARPNESS)
        return (n_maps + n_classifiers) * (1 + self.n_folds) + n_classifiers

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
    """Choose classifiers by out-of-fold predictions and fit them, or fit the choice `configs` again.
    SupervisionError if most samples are alone in their class, InvalidInputError if no map suits them."""
    # A ridge regression of the class indicators, where all penalties share one eigendecomposition, screens
    # the feature maps. On the best of them logistic regressions are fitted; the ridge regressions of kernel
    # maps, calibrated by a temperature, are candidates too, and so are votes of the nearest samples on the
    # best kernel map. The average is built greedily: each round adds, with repetition, the classifier that
    # makes it most likely (Caruana et al., "Ensemble Selection from Libraries of Models", ICML 2004). There
    # is a new search where samples or options rule out one of the maps of `configs`.
    # Filters are set once, around all threads: they are a property of the process. A classifier that has not
    # fully converged is judged by its predictions like any other.
    with single_threaded_blas(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SklearnConvergenceWarning)
        check_classes_can_be_held_out(targets)
        rng = np.random.default_rng(options.random_state)
        rows = stratified_sample(targets, options.max_samples, rng)
        sample, sample_targets = samples[rows], targets.subset(rows)
        folds = make_folds(sample_targets, usable_folds(sample_targets, options.n_folds), rng)
        if configs and all(options.allow(config.feature_map, samples) for config in configs):
            plans = [ClassifierPlan(config) for config in configs]
            kinds = dict.fromkeys(config.feature_map for config in configs)
            feature_maps = {
                kind: kind.fit(sample, options.n_landmarks, options.random_state) for kind in kinds
            }
        else:
            search = _Search(sample, sample_targets, folds, options, heartbeat)
            screened = search.screen_feature_maps()
            plans = search.choose_classifiers(screened)
            feature_maps = {entry.kind: entry.feature_map for entry in screened}
        if len(rows) < samples.shape[0]:
            folds = make_folds(targets, usable_folds(targets, options.n_folds), rng)
            plans = [replace(plan, out_of_fold=None) for plan in plans]
        return fit_ensemble(samples, targets, feature_maps, plans, folds, options.n_jobs, heartbeat)


@dataclass(frozen=True, slots=True, eq=False)
class _ScreenedMap:
    """A fitted feature map with the ridge regression that it was screened by."""

    kind: FeatureMapConfig
    feature_map: FeatureMap
    mapped: FloatArray  # (n_samples, n_mapped), in coordinates of their row space
    ridge: RidgeScreening


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A search on some samples; fields as the parameters of `fit_posteriors`."""

    samples: Samples
    targets: Targets
    folds: list[Indices]
    options: SearchOptions
    heartbeat: Callable[[], None]

    def screen_feature_maps(self) -> list[_ScreenedMap]:
        """Return the feature maps with the smallest out-of-fold error of ridge regression, best first.
        Maps that leave sparse samples too large to be made dense are skipped."""
        kinds = [
            FeatureMapConfig(scaling, kernel, width)
            for scaling in self.options.scalings
            for kernel in self.options.kernels
            for width in WIDTHS[kernel]
        ]
        screened: list[_ScreenedMap] = []
        for kind in kinds:
            if kind.suits(self.samples):
                self.heartbeat()
                feature_map = kind.fit(self.samples, self.options.n_landmarks, self.options.random_state)
                mapped, _ = to_row_space(feature_map.transform(self.samples))
                if isinstance(mapped, np.ndarray):
                    ridge = RidgeScreening.of(mapped, self.targets, self.folds, self.heartbeat)
                    screened.append(_ScreenedMap(kind, feature_map, mapped, ridge))
                    screened.sort(key=lambda entry: entry.ridge.error)
                    del screened[self.options.n_kept :]
        if not screened:
            raise InvalidInputError("none of the given scalings and kernels suits these samples")
        return screened

    def choose_classifiers(self, screened: Sequence[_ScreenedMap]) -> list[ClassifierPlan]:
        """Return the classifiers of an average that is likely out of fold, with their predictions."""
        configs: list[ClassifierConfig] = []
        predictions: list[FloatArray] = []
        kernel_maps = [entry for entry in screened if entry.kind.kernel != "linear"]
        for entry in screened:
            for learner, predicted in self._predict_candidates(entry, votes=entry in kernel_maps[:1]):
                configs.append(ClassifierConfig(entry.kind, learner, 0.0))
                predictions.append(predicted)
        weights = _greedy_weights(predictions, self.targets, self.options.n_rounds)
        return [
            ClassifierPlan(replace(config, weight=weight), predicted)
            for config, predicted, weight in zip(configs, predictions, weights, strict=True)
            if weight > 0.0
        ]

    def _predict_candidates(self, entry: _ScreenedMap, votes: bool) -> Iterator[tuple[Learner, FloatArray]]:
        """Yield classifiers of a feature map with their out-of-fold predictions."""
        yield from self._predict_logistic(entry.mapped)
        if self.targets.is_exclusive and entry.feature_map.n_mapped <= _MAX_RIDGE_FEATURES:
            yield entry.ridge.to_learner(self.targets)
        if votes:
            yield from self._predict_votes(entry.mapped)

    def _predict_logistic(self, mapped: Samples) -> Iterator[tuple[Learner, FloatArray]]:
        """Yield logistic regressions by inverse penalty, up to the first that clearly overfits."""
        regressions = [Regression(self.targets.is_exclusive) for _ in self.folds]
        best_loss = np.inf
        for inverse_penalty in INVERSE_PENALTIES:
            self.heartbeat()
            # Each starts from its previous fit.
            fits = [partial(regression.fit, inverse_penalty=inverse_penalty) for regression in regressions]
            predicted = cross_predict(
                fits, mapped, self.targets, self.folds, self.options.n_jobs, self.heartbeat
            )
            yield LogisticLearner(inverse_penalty), predicted
            loss = self.targets.log_loss(predicted)
            if loss > _MAX_LOSS_RATIO * best_loss:
                break  # the weakest penalties also take longest
            best_loss = min(best_loss, loss)

    def _predict_votes(self, mapped: FloatArray) -> Iterator[tuple[Learner, FloatArray]]:
        for sharpness in VOTE_SHARPNESS:
            self.heartbeat()
            learner = VoteLearner(sharpness, self.options.max_samples, self.options.random_state)
            fits = [learner.fit] * len(self.folds)
            yield (
                learner,
                cross_predict(fits, mapped, self.targets, self.folds, self.options.n_jobs, self.heartbeat),
            )


def _greedy_weights(predictions: Sequence[FloatArray], targets: Targets, n_rounds: int) -> list[float]:
    """Return the weight of each prediction in an average that is likely, built in `n_rounds` rounds."""
    counts, total = [0] * len(predictions), np.zeros(targets.indicators.shape)
    for n_before in range(n_rounds):
        losses = [targets.log_loss((total + predicted) / (n_before + 1)) for predicted in predictions]
        best = int(np.argmin(losses))
        counts[best] += 1
        total = total + predictions[best]
    return [count / n_rounds for count in counts]
