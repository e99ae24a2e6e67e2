"""Changes of the samples under which the solution may not change, for random instances."""

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import Labels, LowRankBilinear, alpha_max

TOL = 1e-7
# Two points within a relative gap of 1e-7 of the optimum of a strongly curved loss differ by about its
# root, times the size of the scores, which stays below 20 here.
SCORES = 20 * 5e-4

INSTANCES = st.fixed_dictionaries(
    {
        "m": st.integers(6, 40),
        "n": st.integers(6, 40),
        "d1": st.integers(1, 12),
        "d2": st.integers(1, 50),  # often more than there are samples
        "n_classes": st.integers(2, 4),
        "fraction": st.sampled_from([0.5, 0.1, 0.03]),
        "seed": st.integers(0, 2**16),
    }
)
PROPERTY = settings(max_examples=15)


class Instance:
    """Labelled samples around random class centres, with a penalty weight."""

    def __init__(self, m: int, n: int, d1: int, d2: int, n_classes: int, fraction: float, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.labels = np.arange(m) % n_classes, np.arange(n) % n_classes
        self.X = self.rng.standard_normal((n_classes, d1))[self.labels[0]] + self.rng.standard_normal((m, d1))
        self.Z = self.rng.standard_normal((n_classes, d2))[self.labels[1]] + self.rng.standard_normal((n, d2))
        self.alpha = fraction * alpha_max(self.X, self.Z, Labels(*self.labels), fit_intercept=False)
        self.model = self.fit(self.X, self.Z, *self.labels)
        self.scores = self.model.similarity(self.X, self.Z)

    def fit(
        self, X: Any, Z: Any, x_labels: Any, z_labels: Any, alpha: float | None = None
    ) -> LowRankBilinear:
        model = LowRankBilinear(
            alpha or self.alpha, fit_intercept=False, dtype=np.float64, tol=TOL, max_iter=200
        )
        return model.fit(X, Z, Labels(x_labels, z_labels))

    def assert_same(self, other: LowRankBilinear, scores: npt.NDArray[Any]) -> None:
        """Require the objective within both tolerances, and the scores."""
        assert abs(other.objective_ - self.model.objective_) <= 2 * TOL * self.model.objective_
        np.testing.assert_allclose(scores, self.scores, atol=SCORES)


@PROPERTY
@given(instance=INSTANCES, x_power=st.floats(-30, 30), z_power=st.floats(-30, 30))
def test_units_of_the_samples_move_into_the_penalty(
    instance: dict[str, Any], x_power: float, z_power: float
) -> None:
    plain = Instance(**instance)
    X, Z = 10.0**x_power * plain.X, 10.0**z_power * plain.Z
    other = plain.fit(X, Z, *plain.labels, alpha=plain.alpha * 10.0**x_power * 10.0**z_power)
    plain.assert_same(other, other.similarity(X, Z))


@PROPERTY
@given(instance=INSTANCES)
def test_order_of_samples_does_not_matter(instance: dict[str, Any]) -> None:
    plain = Instance(**instance)
    rows, columns = (plain.rng.permutation(len(labels)) for labels in plain.labels)
    other = plain.fit(plain.X[rows], plain.Z[columns], plain.labels[0][rows], plain.labels[1][columns])
    plain.assert_same(other, other.similarity(plain.X, plain.Z))


@PROPERTY
@given(instance=INSTANCES)
def test_names_of_the_classes_do_not_matter(instance: dict[str, Any]) -> None:
    plain = Instance(**instance)
    names = plain.rng.permutation(np.array(["ant", "bee", "cat", "dog"]))
    other = plain.fit(plain.X, plain.Z, *(names[labels] for labels in plain.labels))
    plain.assert_same(other, other.similarity(plain.X, plain.Z))


@PROPERTY
@given(instance=INSTANCES)
def test_orthogonal_change_of_features_does_not_matter(instance: dict[str, Any]) -> None:
    plain = Instance(**instance)
    X, Z = (
        samples @ np.linalg.qr(plain.rng.standard_normal((samples.shape[1],) * 2))[0]
        for samples in (plain.X, plain.Z)
    )
    other = plain.fit(X, Z, *plain.labels)
    plain.assert_same(other, other.similarity(X, Z))


@PROPERTY
@given(instance=INSTANCES)
def test_features_that_are_zero_do_not_matter(instance: dict[str, Any]) -> None:
    plain = Instance(**instance)
    X, Z = (np.column_stack([samples, np.zeros((len(samples), 60))]) for samples in (plain.X, plain.Z))
    other = plain.fit(X, Z, *plain.labels)
    plain.assert_same(other, other.similarity(X, Z))


@PROPERTY
@given(instance=INSTANCES)
def test_swapping_the_modalities_transposes_the_scores(instance: dict[str, Any]) -> None:
    plain = Instance(**instance)
    other = plain.fit(plain.Z, plain.X, plain.labels[1], plain.labels[0])
    plain.assert_same(other, other.similarity(plain.Z, plain.X).T)


@PROPERTY
@given(instance=INSTANCES, copies=st.integers(2, 3))
def test_repeating_every_sample_does_not_matter(instance: dict[str, Any], copies: int) -> None:
    plain = Instance(**instance)
    other = plain.fit(
        np.repeat(plain.X, copies, axis=0), plain.Z, np.repeat(plain.labels[0], copies), plain.labels[1]
    )
    plain.assert_same(other, other.similarity(plain.X, plain.Z))
