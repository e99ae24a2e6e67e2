"""Learners of single classifiers: compared with scikit-learn and with their formulas."""

import numpy as np
import pytest
import scipy.sparse
from scipy.special import softmax
from sklearn.linear_model import Ridge

from solver.linalg import Centered
from solver.logistic import Targets
from solver.semantic.learners import (
    RidgeLearner,
    RidgeScreening,
    VoteLearner,
    calibrate,
    complement,
    make_folds,
)


def blobs(n: int = 90, n_classes: int = 3) -> tuple[np.ndarray, Targets]:
    rng = np.random.default_rng(0)
    codes = np.arange(n) % n_classes
    return 2.0 * np.eye(5)[codes] + rng.standard_normal((n, 5)), Targets(np.eye(n_classes)[codes], True)


def ridge_scores(samples: np.ndarray, targets: Targets, share: float, others: np.ndarray) -> np.ndarray:
    """Return the scores of scikit-learn's ridge regression for other samples."""
    largest = np.linalg.eigvalsh(np.cov(samples.T, bias=True))[-1]
    model = Ridge(share * largest * len(samples)).fit(samples, targets.indicators)
    return np.asarray(model.predict(others))


def test_a_ridge_classifier_is_the_softmax_of_a_ridge_regression() -> None:
    samples, targets = blobs()
    expected = softmax(4.0 * ridge_scores(samples, targets, 0.1, samples), axis=1)
    np.testing.assert_allclose(RidgeLearner(0.1, 4.0).fit(samples, targets).predict(samples), expected)


@pytest.mark.parametrize("is_centred", [False, True])
def test_a_ridge_classifier_takes_sparse_samples(is_centred: bool) -> None:
    samples, targets = blobs()
    samples = np.where(samples > 1.0, samples, 0.0)
    shift = samples.mean(axis=0) if is_centred else np.zeros(5)
    sparse = scipy.sparse.csr_array(samples)
    mapped = Centered(sparse, shift) if is_centred else sparse
    expected = RidgeLearner(0.1, 4.0).fit(samples - shift, targets).predict(samples - shift)
    np.testing.assert_allclose(RidgeLearner(0.1, 4.0).fit(mapped, targets).predict(mapped), expected)


def test_a_class_without_samples_gets_no_posterior() -> None:
    samples, targets = blobs()
    wider = Targets(np.column_stack([targets.indicators, np.zeros(len(samples))]), True)
    assert RidgeLearner(0.1, 4.0).fit(samples, wider).predict(samples)[:, 3].max() == 0.0
    assert VoteLearner(4.0, 1000, 0).fit(samples, wider).predict(samples)[:, 3].max() == 0.0
    assert calibrate(np.ones((len(samples), 4)), wider)[1][:, 3].max() == 0.0


def test_the_screening_predicts_each_fold_by_the_regression_on_the_others() -> None:
    samples, targets = blobs()
    folds = make_folds(targets, 3, np.random.default_rng(0))
    screening = RidgeScreening.of(samples, targets, folds, lambda: None)
    for fold in folds:
        rest = complement(fold, len(samples))
        expected = ridge_scores(samples[rest], targets.subset(rest), screening.ridge, samples[fold])
        np.testing.assert_allclose(screening.scores[fold], expected, atol=1e-6)
    assert screening.error == pytest.approx(
        np.sum((screening.scores - targets.indicators) ** 2) / len(samples), rel=1e-5
    )
    learner, posteriors = screening.to_learner(targets)
    np.testing.assert_allclose(posteriors, softmax(learner.inverse_temperature * screening.scores, axis=1))


def test_the_temperature_is_the_most_likely_one() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((4000, 3))
    codes = (3.0 * scores + rng.gumbel(size=scores.shape)).argmax(axis=1)  # drawn from softmax(3 scores)
    inverse_temperature, _ = calibrate(scores, Targets(np.eye(3)[codes], True))
    assert inverse_temperature == pytest.approx(3.0, rel=0.1)


def test_votes_decay_with_the_squared_distance() -> None:
    samples, targets = blobs()
    distances = ((samples[:, None] - samples) ** 2).sum(axis=2)
    weights = np.exp(-4.0 * distances / distances.mean())
    expected = weights @ targets.indicators / weights.sum(axis=1, keepdims=True)
    classifier = VoteLearner(4.0, 1000, 0).fit(samples, targets)
    np.testing.assert_allclose(classifier.predict(samples), expected, atol=1e-5)
    assert len(VoteLearner(4.0, 30, 0).fit(samples, targets).anchors) == 30


def test_votes_of_equal_samples_are_shared() -> None:
    _, targets = blobs()
    posteriors = VoteLearner(8.0, 1000, 0).fit(np.ones((90, 5)), targets).predict(np.ones((1, 5)))
    np.testing.assert_allclose(posteriors, np.full((1, 3), 1 / 3), atol=1e-6)
