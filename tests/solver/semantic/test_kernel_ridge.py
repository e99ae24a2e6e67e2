"""Kernel ridge regression: compared with scikit-learn, and blended only where it helps."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from scipy.special import softmax
from sklearn.kernel_ridge import KernelRidge

from solver import Labels, PosteriorProjector, SemanticBilinear
from solver.artifacts import load_projector, save_projector
from solver.linalg import Samples
from solver.logistic import LinearClassifier, Targets
from solver.scaling.feature_maps import FeatureMap
from solver.semantic.ensemble import Branch, Ensemble, WeightedClassifier
from solver.semantic.learners import Posteriors
from solver.semantic.search import SearchOptions, Side, blend_kernel_ridge

OPTIONS = SearchOptions(**SemanticBilinear(max_samples=1000, n_folds=3).get_params())


def ignore() -> None:
    """A heartbeat without effect."""


def rings(n: int = 150, n_classes: int = 3) -> tuple[np.ndarray, Targets]:
    rng = np.random.default_rng(0)
    codes, angles = np.arange(n) % n_classes, rng.uniform(0, 2 * np.pi, n)
    radii = 1.0 + 2.0 * codes + 0.2 * rng.standard_normal(n)
    samples = np.column_stack([radii * np.cos(angles), radii * np.sin(angles)])
    return samples, Targets(np.eye(n_classes)[codes], True)


def know_nothing(samples: Samples, targets: Targets, kernel: str = "rbf") -> Posteriors:
    """Return uniform posteriors, of a classifier on a map with five landmarks."""
    feature_map = FeatureMap.fit(samples, "standard", kernel, 3.0, 5, 0)
    n_classes = targets.indicators.shape[1]
    classifier = LinearClassifier(
        np.zeros((feature_map.n_mapped, n_classes)), np.zeros(n_classes), targets.is_exclusive
    )
    uniform = np.full(targets.indicators.shape, 1 / n_classes)
    ensemble = Ensemble((Branch(feature_map, (WeightedClassifier(classifier, 1.0),)),))
    return Posteriors(ensemble, uniform, targets.log_loss(uniform), ())


def test_the_blend_is_kernel_ridge_regression_on_all_samples() -> None:
    samples, targets = rings()
    before = know_nothing(samples, targets)
    after = blend_kernel_ridge(Side(samples, targets, before), OPTIONS, ignore)
    first, exact = after.ensemble.branches
    assert first.weight + exact.weight == pytest.approx(1.0)
    assert after.log_loss < 0.3 < before.log_loss
    assert after.log_loss == pytest.approx(targets.log_loss(after.out_of_fold))
    scaled = np.asarray(exact.feature_map.landmarks, np.float64)
    kernel = np.exp(-exact.feature_map.gamma * ((scaled[:, None] - scaled) ** 2).sum(axis=2))
    classifier = exact.classifiers[0].classifier
    assert isinstance(classifier, LinearClassifier)
    scores = classifier.coefficients[0, 0] * np.stack(
        [
            KernelRidge(alpha=ridge, kernel="precomputed")
            .fit(kernel + 1, targets.indicators)
            .predict(kernel + 1)
            for ridge in (0.03, 0.3, 3.0)
        ]
    )
    predicted = classifier.predict(exact.feature_map.transform(samples))
    errors = [np.abs(softmax(each, axis=1) - predicted).max() for each in scores]
    assert min(errors) < 1e-4


def test_a_sample_does_not_influence_its_own_out_of_fold_posterior() -> None:
    rng = np.random.default_rng(0)
    samples, codes = rng.standard_normal((120, 30)), rng.integers(0, 2, 120)
    targets = Targets(np.eye(2)[codes], True)
    after = blend_kernel_ridge(Side(samples, targets, know_nothing(samples, targets)), OPTIONS, ignore)
    assert (after.out_of_fold * targets.indicators).sum(axis=1).mean() < 0.55


def test_a_sample_of_landmarks_predicts_all_samples() -> None:
    samples, targets = rings(300)
    few = replace(OPTIONS, max_samples=100)
    after = blend_kernel_ridge(Side(samples, targets, know_nothing(samples, targets)), few, ignore)
    assert after.ensemble.branches[-1].feature_map.landmarks.shape[0] == 100
    assert (after.out_of_fold.argmax(axis=1) == targets.indicators.argmax(axis=1)).mean() > 0.95


def test_landmarks_of_sparse_samples_are_sparse() -> None:
    samples, targets = rings()
    sparse = scipy.sparse.csr_array(np.where(samples > 0.0, samples, 0.0))
    after = blend_kernel_ridge(Side(sparse, targets, know_nothing(sparse, targets)), OPTIONS, ignore)
    assert scipy.sparse.issparse(after.ensemble.branches[-1].feature_map.landmarks)
    np.testing.assert_allclose(after.predict(sparse), after.predict(sparse.toarray()), atol=1e-5)


@pytest.mark.parametrize("case", ["no kernel", "several labels", "no help"])
def test_posteriors_are_unchanged_where_there_is_nothing_to_add(case: str) -> None:
    samples, targets = rings()
    if case == "several labels":
        targets = Targets(targets.indicators, False)
    before = know_nothing(samples, targets, "linear" if case == "no kernel" else "rbf")
    if case == "no help":
        before = replace(before, out_of_fold=targets.indicators)
    assert blend_kernel_ridge(Side(samples, targets, before), OPTIONS, ignore) is before


def test_an_estimator_with_it_is_stored(tmp_path: Path) -> None:
    samples, targets = rings()
    codes = targets.indicators.argmax(axis=1)
    model = SemanticBilinear(
        kernels=("rbf",), scalings=("standard",), n_landmarks=8, n_folds=3, n_kept=1, n_rounds=2, n_jobs=1
    ).fit(samples, samples, Labels(codes))
    n_landmarks = [branch.feature_map.landmarks.shape[0] for branch in model.x_posteriors_.ensemble.branches]
    assert n_landmarks == [8, 150]
    projector = PosteriorProjector.of(model)
    save_projector(projector, tmp_path, {})
    again, _ = load_projector(tmp_path)
    np.testing.assert_array_equal(again.project_x(samples), projector.project_x(samples))
