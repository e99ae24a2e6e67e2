"""Changes of the samples under which no kind of supervision may change its solution."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import Labels, LowRankBilinear, MultiLabels, PairedRows, SignedPairs, alpha_max

# Factors kept in float32 are no closer to the optimum than their rounding lets them.
TOL = {np.float32: 1e-5, np.float64: 1e-7}
# Two points within a relative gap of TOL of the optimum of a strongly curved loss differ by about its
# root, times the size of the scores, which stays below 20 here.
SCORES = {dtype: 20 * 1.6 * np.sqrt(tol) for dtype, tol in TOL.items()}
Fitted = tuple[LowRankBilinear, npt.NDArray[Any]]
"""Of a change of an instance, and the scores it gives, in the order of the plain one."""
KINDS = ["labels", "several labels", "paired rows", "signed pairs", "weighted pairs"]
LISTED = ("signed pairs", "weighted pairs")


INSTANCES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from([np.float32, np.float64]),
        "m": st.integers(6, 40),
        "n": st.integers(6, 40),
        "d1": st.integers(1, 12),
        "d2": st.integers(1, 50),  # often more than there are samples
        "n_classes": st.integers(2, 4),
        "fraction": st.sampled_from([0.5, 0.1, 0.03]),
        "seed": st.integers(0, 2**16),
    }
)
PROPERTY = settings(max_examples=4)
"""For each kind of supervision."""


@dataclass(frozen=True)
class PairFacts:
    """What is known of the pairs: something of each sample, or a table of signs and weights."""

    kind: str
    x: npt.NDArray[Any]
    z: npt.NDArray[Any]

    @classmethod
    def draw(cls, kind: str, m: int, n: int, n_classes: int, rng: np.random.Generator) -> Self:
        if kind == "labels":
            return cls(kind, np.arange(m) % n_classes, np.arange(n) % n_classes)
        if kind == "several labels":
            x, z = rng.random((m, n_classes)) < 0.4, rng.random((n, n_classes)) < 0.4
            x[0], z[0], x[1] = True, True, False  # at least one similar and one dissimilar pair
            return cls(kind, x, z)
        if kind == "paired rows":
            return cls(kind, np.arange(m), np.arange(m))
        signs = rng.choice([-1.0, 0.0, 1.0], (m, n))
        signs[0, :2] = 1.0, -1.0
        return cls(kind, signs, np.ones((m, n)) if kind == "signed pairs" else rng.uniform(0.2, 5.0, (m, n)))

    @property
    def shape(self) -> tuple[int, int]:
        return (self.x.shape[0], self.x.shape[1] if self.kind in LISTED else self.z.shape[0])

    def supervision(self) -> Any:
        if self.kind == "labels":
            return Labels(self.x, self.z)
        if self.kind == "several labels":
            return MultiLabels(self.x, self.z)
        if self.kind == "paired rows":
            return PairedRows(len(self.x))
        signs, weights = map(scipy.sparse.csr_array, (self.x, np.where(self.x != 0, self.z, 0.0)))
        return SignedPairs(signs, weights if self.kind == "weighted pairs" else None)

    def of(self, rows: Any, columns: Any) -> Self:
        """Return the same of these samples, in this order."""
        if self.kind in LISTED:
            return replace(self, x=self.x[np.ix_(rows, columns)], z=self.z[np.ix_(rows, columns)])
        return replace(self, x=self.x[rows], z=self.z[columns])

    def swapped(self) -> Self:
        if self.kind in LISTED:
            return replace(self, x=self.x.T, z=self.z.T)
        return replace(self, x=self.z, z=self.x)


class Instance:
    """Samples, classes among them around random centres, with a penalty weight."""

    def __init__(
        self,
        kind: str,
        dtype: type,
        m: int,
        n: int,
        d1: int,
        d2: int,
        n_classes: int,
        fraction: float,
        seed: int,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.facts = PairFacts.draw(kind, m, n, n_classes, self.rng)
        (m, n), classes = self.facts.shape, np.arange(max(m, n)) % n_classes
        self.X = self.rng.standard_normal((n_classes, d1))[classes[:m]] + self.rng.standard_normal((m, d1))
        self.Z = self.rng.standard_normal((n_classes, d2))[classes[:n]] + self.rng.standard_normal((n, d2))
        self.alpha = fraction * alpha_max(self.X, self.Z, self.facts.supervision(), fit_intercept=False)
        self.model = self.fit(self.X, self.Z, self.facts)
        self.scores = self.model.similarity(self.X, self.Z)

    def fit(self, X: Any, Z: Any, facts: PairFacts, alpha: float | None = None) -> LowRankBilinear:
        model = LowRankBilinear(
            alpha or self.alpha, fit_intercept=False, dtype=self.dtype, tol=TOL[self.dtype], max_iter=200
        )
        return model.fit(X, Z, facts.supervision())

    def assert_same(self, other: LowRankBilinear, scores: npt.NDArray[Any]) -> None:
        """Require the objective within both tolerances, and the scores."""
        tolerance = 2 * TOL[self.dtype] * self.model.objective_
        assert abs(other.objective_ - self.model.objective_) <= tolerance
        np.testing.assert_allclose(scores, self.scores, atol=SCORES[self.dtype])


def units_move_into_the_penalty(plain: Instance) -> Fitted:
    powers = plain.rng.uniform(-15, 15, 2) * (
        1 if plain.dtype == np.float32 else 2
    )  # which has room for more
    sizes = 10.0**powers
    X, Z = sizes[0] * plain.X, sizes[1] * plain.Z
    other = plain.fit(X, Z, plain.facts, alpha=plain.alpha * sizes[0] * sizes[1])
    return other, other.similarity(X, Z)


def samples_change_places(plain: Instance) -> Fitted:
    rows, columns = (plain.rng.permutation(size) for size in plain.facts.shape)
    if plain.facts.kind == "paired rows":
        columns = rows
    other = plain.fit(plain.X[rows], plain.Z[columns], plain.facts.of(rows, columns))
    return other, other.similarity(plain.X, plain.Z)


def classes_change_names_and_order(plain: Instance) -> Fitted:
    x, z = plain.facts.x, plain.facts.z
    if plain.facts.kind == "labels":
        names = plain.rng.permutation(np.array(["ant", "bee", "cat", "dog"]))
        facts = replace(plain.facts, x=names[x], z=names[z])
    else:
        order = plain.rng.permutation(x.shape[1])
        facts = replace(plain.facts, x=x[:, order], z=z[:, order])
    other = plain.fit(plain.X, plain.Z, facts)
    return other, other.similarity(plain.X, plain.Z)


def features_are_rotated(plain: Instance) -> Fitted:
    X, Z = (
        samples @ np.linalg.qr(plain.rng.standard_normal((samples.shape[1],) * 2))[0]
        for samples in (plain.X, plain.Z)
    )
    other = plain.fit(X, Z, plain.facts)
    return other, other.similarity(X, Z)


def features_that_are_zero_come_in(plain: Instance) -> Fitted:
    X, Z = (np.column_stack([samples, np.zeros((len(samples), 60))]) for samples in (plain.X, plain.Z))
    other = plain.fit(X, Z, plain.facts)
    return other, other.similarity(X, Z)


def modalities_are_swapped(plain: Instance) -> Fitted:
    other = plain.fit(plain.Z, plain.X, plain.facts.swapped())
    return other, other.similarity(plain.Z, plain.X).T


def samples_are_repeated(plain: Instance) -> Fitted:
    m, n = plain.facts.shape
    rows, columns = np.repeat(np.arange(m), plain.rng.integers(2, 4)), np.arange(n)
    other = plain.fit(plain.X[rows], plain.Z, plain.facts.of(rows, columns))
    return other, other.similarity(plain.X, plain.Z)


CHANGES: list[tuple[Callable[[Instance], Fitted], list[str]]] = [
    (units_move_into_the_penalty, KINDS),
    (samples_change_places, KINDS),
    (classes_change_names_and_order, ["labels", "several labels"]),
    (features_are_rotated, KINDS),
    (features_that_are_zero_come_in, KINDS),
    (modalities_are_swapped, KINDS),
    (samples_are_repeated, [kind for kind in KINDS if kind != "paired rows"]),
]


@pytest.mark.parametrize("kind", KINDS)
@PROPERTY
@given(instance=INSTANCES)
def test_what_says_nothing_new_changes_nothing(kind: str, instance: dict[str, Any]) -> None:
    plain = Instance(kind, **instance)
    for change, kinds in CHANGES:
        if kind in kinds:
            plain.assert_same(*change(plain))


@PROPERTY
@given(instance=INSTANCES)
def test_paired_rows_are_classes_of_one_row_each_and_a_list_of_all_pairs(instance: dict[str, Any]) -> None:
    plain = Instance("paired rows", **instance)
    m = len(plain.X)
    signs = 2.0 * np.eye(m) - 1.0
    for facts in (
        replace(plain.facts, kind="labels"),
        PairFacts("several labels", np.eye(m), np.eye(m)),
        PairFacts("signed pairs", signs, np.ones((m, m))),
    ):
        other = plain.fit(plain.X, plain.Z, facts)
        plain.assert_same(other, other.similarity(plain.X, plain.Z))
