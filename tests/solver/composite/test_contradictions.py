import numpy as np
import pytest

from solver import Annotations, CompositeBilinear, Facet
from solver.composite.contradictions import find_contradictions
from solver.composite.facet_terms import FacetPosteriors

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
