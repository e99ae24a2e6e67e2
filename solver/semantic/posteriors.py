"""Fitting an ensemble, together with its out-of-fold predictions for the training samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from solver.linalg.centered import Centered
from solver.linalg.matrices import FloatArray, Samples, is_sparse
from solver.linalg.row_space import RowSpaceBasis, can_be_compact, lift_factors
from solver.logistic import Targets
from solver.scaling.feature_maps import FeatureMap, FeatureMapConfig
from solver.semantic.ensemble import Branch, Classifier, Ensemble, WeightedClassifier
from solver.semantic.folds import complement
from solver.semantic.learners import Learner
from solver.supervision.base import Indices


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
    n_jobs: int,
    heartbeat: Callable[[], None],
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
    n_jobs: int,
    heartbeat: Callable[[], None],
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

    with ThreadPoolExecutor(n_jobs) as pool:
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
