"""Which samples are searched on, and which are held out together."""

from __future__ import annotations

import numpy as np

from solver.evaluation.splits import MIN_CLASS_SIZE, stratified_folds
from solver.linalg.matrices import FloatArray
from solver.logistic import Targets
from solver.supervision.base import Indices
from solver.validation.errors import SupervisionError

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
    """Return a partition of the rows, stratified by class (by set of labels where there are several)."""
    return [np.sort(fold) for fold in stratified_folds(targets.indicators, n_folds, rng)]


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
