"""The search for weights, and the measures it maximises."""

import numpy as np
import pytest

from solver import Annotations, Facet, bidirectional_map
from solver.composite.weights import GradedGain, HeldOutScores, WeightSearch


def _gain(grades: np.ndarray, scores: np.ndarray) -> float:
    """nDCG@10, query by query."""
    values = []
    for grade, score in zip(grades, scores, strict=True):
        gains = 2.0**grade - 1.0
        discounts = 1.0 / np.log2(np.arange(min(10, len(gains))) + 2.0)
        ideal = np.sort(gains)[::-1][:10] @ discounts
        if ideal > 0:
            values.append(gains[np.argsort(-score)][:10] @ discounts / ideal)
    return float(np.mean(values))


@pytest.mark.parametrize("n_gallery", [30, 4])
def test_the_graded_gain_is_that_of_its_definition(n_gallery: int) -> None:
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 4, (20, n_gallery)).astype(np.int8)
    grades[3] = 0
    scores = rng.standard_normal((20, n_gallery)).astype(np.float32)
    assert GradedGain(grades).mean(scores) == pytest.approx(_gain(grades, scores), rel=1e-6)


def test_without_a_relevant_sample_the_gain_is_zero() -> None:
    assert GradedGain(np.zeros((3, 5), np.int8)).mean(np.ones((3, 5), np.float32)) == 0.0


def _part(seed: int) -> HeldOutScores:
    """Two facets with a posterior each, a term of noise, and one that misleads."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 4, (2, 80))
    values = [[[str(number)] for number in side] for side in classes]
    annotations = Annotations((80, 80), {"a": Facet.of(values[0], values[1])})
    terms = {
        "a": tuple(np.eye(4)[side] + 0.4 * rng.standard_normal((80, 4)) for side in classes),
        "noise": (rng.standard_normal((80, 4)), rng.standard_normal((80, 4))),
    }
    return HeldOutScores.of(terms, annotations)


def test_a_term_of_noise_gets_no_weight() -> None:
    search = WeightSearch([_part(0), _part(1)])
    weights, quality = search.run(lambda: None)
    assert weights["a"] == 1.0
    assert weights["noise"] < 0.1
    assert quality == search.quality(weights)
    assert quality > search.quality({"a": 1.0, "noise": 1.0})


def test_the_quality_is_the_gain_plus_the_average_precision() -> None:
    part = _part(0)
    x, z = part.total({"a": 1.0}), np.eye(80, dtype=np.float32)
    labels = [part.shared[0].astype(int)]
    quality = WeightSearch([part]).quality({"a": 1.0, "noise": 0.0})
    gains = np.mean([_gain(part.grades, x), _gain(part.grades.T, x.T)])
    # Rows with the same relevant columns are of one class, so that classes can be read off the columns.
    classes = np.unique(labels[0], axis=0, return_inverse=True)[1].reshape(-1)
    column_classes = np.array([classes[np.argmax(column)] if column.any() else -1 for column in labels[0].T])
    assert quality - gains == pytest.approx(bidirectional_map(x, z, classes, column_classes).mean, abs=1e-5)
