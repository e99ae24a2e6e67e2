"""Features from one space, few labels: training is not worse than the cosine, and better where it can be."""

import numpy as np
import pytest

from solver import Annotations, CompositeBilinear, Facet, Labels, bidirectional_map
from solver.composite.facet_terms import FacetPosteriors, find_contradictions

N_CLASSES, N_FEATURES, N_TEST = 5, 24, 200
NOISE = 0.015
"""Of MAP over 200 test samples: in 36 draws of labels that say little, the largest loss was 0.009."""


def _gain(seed: int, n_samples: int, class_spread: float, own_spread: float) -> float:
    """Return how much higher the MAP of a trained similarity is than that of the cosine."""
    # A sample is the mean of its class plus something of its own, the same in both modalities, without any
    # rotation; noise is added in each.
    rng = np.random.default_rng(seed)
    means = class_spread * rng.standard_normal((N_CLASSES, N_FEATURES))
    classes = rng.integers(0, N_CLASSES, n_samples + N_TEST)
    classes[: 2 * N_CLASSES] = np.tile(np.arange(N_CLASSES), 2)
    common = means[classes] + own_spread * rng.standard_normal((len(classes), N_FEATURES))
    X, Z = (common + 0.5 * rng.standard_normal(common.shape) for _ in range(2))
    labels = Labels(classes[:n_samples])
    model = CompositeBilinear(kernels=("linear",), scalings=("center",))
    model.fit(X[:n_samples], Z[:n_samples], labels)
    trained, cosine = (
        bidirectional_map(x, z, classes[n_samples:], classes[n_samples:]).mean
        for x, z in (
            (model.project_x(X[n_samples:]), model.project_z(Z[n_samples:])),
            [side[n_samples:] / np.linalg.norm(side[n_samples:], axis=1, keepdims=True) for side in (X, Z)],
        )
    )
    return trained - cosine


@pytest.mark.parametrize("n_samples", [30, 150])
@pytest.mark.parametrize(
    ("class_spread", "own_spread", "least"),
    [
        pytest.param(0.0, 1.0, -NOISE, id="labels say nothing"),
        pytest.param(0.35, 1.0, -NOISE, id="labels say little"),
        pytest.param(1.0, 0.5, -NOISE, id="the cosine is right already"),
        pytest.param(0.6, 0.7, 0.1, id="labels say what the cosine does not show"),
    ],
)
def test_training_is_never_worse_than_the_cosine(
    n_samples: int, class_spread: float, own_spread: float, least: float
) -> None:
    for seed in range(3):
        assert _gain(seed, n_samples, class_spread, own_spread) >= least


COUNT = 400


def fit(shuffled: float, noise: float) -> tuple[CompositeBilinear, set[tuple[str, int, int]]]:
    """Return a model of samples of which a share of the values is drawn again, and where they are wrong."""
    rng = np.random.default_rng(0)
    right = {"label": rng.integers(0, 6, COUNT), "colour": rng.integers(0, 3, COUNT)}
    latent = np.hstack([np.eye(6)[right["label"]], np.eye(3)[right["colour"]]])
    sides = [
        latent @ rng.standard_normal((9, width)) + noise * rng.standard_normal((COUNT, width))
        for width in (14, 12)
    ]
    wrong: set[tuple[str, int, int]] = set()
    facets = {}
    for name, values in right.items():
        both = []
        for side in (0, 1):
            carried = values.copy()
            drawn = np.flatnonzero(rng.random(COUNT) < shuffled)
            carried[drawn] = rng.permutation(values)[: len(drawn)]
            wrong |= {(name, side, row) for row in np.flatnonzero(carried != values).tolist()}
            both.append([(f"{name} {value}",) for value in carried.tolist()])
        facets[name] = Facet.of(*both)
    annotations = Annotations((COUNT, COUNT), facets)
    model = CompositeBilinear(scalings=("standard",), kernels=("linear",), max_samples=100)
    return model.fit(*sides, annotations), wrong


@pytest.mark.parametrize("noise", [0.1, 0.5])
def test_shuffled_values_are_contradicted_and_hardly_any_other(noise: float) -> None:
    model, wrong = fit(0.05, noise)
    listed = model.contradictions_
    places = [(entry.facet, entry.side, entry.row) for entry in listed]
    assert len(listed) > len(wrong) / 4
    assert np.mean([place in wrong for place in places]) >= 0.8
    assert all(entry.probability >= 0.9 and entry.carried != entry.likely for entry in listed)
    clean, _ = fit(0.0, noise)
    assert len(clean.contradictions_) <= 0.005 * 4 * COUNT


def test_a_value_that_the_content_of_partners_shows_is_not_contradicted() -> None:
    says_b, says_a = [0.001, 0.999], [0.9, 0.1]
    left_out = np.array([[says_b] * 3, [says_a, says_b, says_a]])
    fits = [FacetPosteriors(np.ones((1, 2)), np.ones(2), side, 0.1, True) for side in left_out]
    facets = {"colour": Facet.of([("a",)] * 3, [("a",), ("a",), ("b",)])}
    listed = find_contradictions(facets, {"colour": (fits[0], fits[1])}, np.array([[0, 0], [1, 1]]))
    assert sorted((entry.side, entry.row) for entry in listed) == [(0, 1), (0, 2), (1, 1)]
