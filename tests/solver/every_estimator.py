"""The estimators that keep the contract, with cheap and with invalid parameters."""

import inspect
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin

import solver
from solver import Labels, make_low_rank_pairs
from solver.base import CrossModalEstimator, LinearCrossModalEstimator
from solver.comparison.methods import METHODS
from solver.datasets import SyntheticPairs

PUBLIC = [getattr(solver, name) for name in solver.__all__]
ROWS = [method.estimator for method in METHODS.values() if method.estimator not in PUBLIC]
"""Of the table of a comparison only: they keep the contract, and are not exported."""


def is_under_the_contract(candidate: Any) -> bool:
    """Whether it is an estimator; not one that takes another one, for which see `test_paired`."""
    is_estimator = inspect.isclass(candidate) and issubclass(candidate, BaseEstimator)
    return (
        is_estimator and not inspect.isabstract(candidate) and not issubclass(candidate, MetaEstimatorMixin)
    )


ESTIMATORS = [each for each in [*PUBLIC, *ROWS] if is_under_the_contract(each)]
CROSS_MODAL = [each for each in ESTIMATORS if issubclass(each, CrossModalEstimator)]

LINEAR = [each for each in CROSS_MODAL if issubclass(each, LinearCrossModalEstimator)]
ITERATIVE = [each for each in LINEAR if "callback" in inspect.signature(each.fit).parameters]

CHEAP: dict[str, dict[str, Any]] = {
    "LowRankBilinear": {"alpha": 0.02},
    "LowRankBilinearCV": {"alphas": (0.05, 0.02), "n_folds": 2, "n_jobs": 1},
    "SemanticBilinear": {
        "kernels": ("rbf",),
        "scalings": ("standard",),
        "n_landmarks": 20,
        "n_folds": 2,
        "n_kept": 1,
        "n_rounds": 2,
        "n_jobs": 1,
    },
}
CHEAP["ITML"] = {"n_constraints": 50, "max_iter": 5}
CHEAP["LMNN"] = {"n_rounds": 1}
CHEAP["CompositeBilinear"] = {"kernels": ("linear", "rbf"), "scalings": ("standard",), "n_landmarks": 20}
CHEAP["SemanticIdentity"] = CHEAP["SemanticBilinear"]
CHEAP["KernelSemanticMatching"] = {"n_landmarks": 20}


class Floor(NamedTuple):
    """The least held-out MAP of an estimator on the planted classes, and why it is not that of all others."""

    map: float
    reason: str


USUAL_FLOOR = Floor(0.95, "classes are ten standard deviations of the noise apart")
CHANCE = 0.25
"""MAP of a random ranking of the four planted classes."""
WEAK: dict[str, Floor] = {}
"""Baselines that cannot reach the usual floor, by class, such as ``"Sum": Floor(0.5, "it is not trained")``.
A floor lies above chance; an entry whose estimator reaches the usual one fails the test."""

INVALID = [
    ("max_iter", 1.5), ("n_threads", 1.5), ("n_alphas", 2.0), ("n_components", 1.5), ("n_components", "all"),
    ("n_intrinsic", 2.0), ("n_jobs", 1.5), ("n_impostors", 1.5), ("alpha_fraction", 1.1),
    ("neighbour_share", None), ("smallest_fraction", None), ("n_folds", None), ("reg", None), ("gamma", None),
    ("eigenvalue_power", None), ("n_penalty", None), ("random_state", None), ("shrinkage", None),
    ("push", None), ("n_pairs", None),
    ("solver", "sgd"), ("solver", None), ("loss", "hinge"), ("loss", None), ("objective", "accuracy"),
    ("objective", 3), ("objective", {"map": 0.0}), ("objective", {"map": 1, "at_least": {"recall": 0.9}}),
    ("scalings", ("log",)), ("scalings", "standard"), ("scalings", (["standard"],)), ("kernels", ()),
    ("kernels", (1,)), ("fit_intercept", 1), ("fit_intercept", None), ("warm_start", "yes"),
    ("one_standard_error", 1), ("dtype", np.int32), ("dtype", np.float16), ("dtype", "no such type"),
    ("dtype", None), ("alphas", ()), ("alphas", 0.1), ("alphas", (0.1, 0.0)), ("alphas", (np.nan,)),
    ("alphas", ((0.1,),)), ("alphas", (True,)), ("alphas", "0.1"), ("alphas", ("0.1",)),
    ("metric", "euclidean"), ("metric", None), ("pairs", "all"), ("pairs", None), ("deflation", "none"),
    ("x_map", ("rbf", True)), ("x_map", "rbf"), ("x_map", ("rbf", 0.0)), ("z_map", ("no such kernel", 1.0)),
    ("z_map", None),
]  # fmt: skip
"""Beside what is no number or out of range, of which see `NUMERIC`."""

NO_NUMBER = [True, False, np.True_, np.nan, np.inf, -np.inf, "1", 1j, (1.0,), np.ones(1), object()]
"""Values that no numeric parameter accepts; None is not among them, since some parameters allow it."""
NUMERIC: dict[str, tuple[Any, Any]] = {
    "alpha": (0.0, 1), "tol": (0.0, 1), "path_tol": (0, 1), "C": (0.0, 1), "z_C": (-1, 1),
    "mu": (0.0, 1), "gamma": (0, 1), "reg": (-1e-9, 0), "coupling": (-1, 0), "correlation_power": (-1, 1),
    "eigenvalue_power": (-0.5, 1), "alpha_fraction": (1, 0.1), "smallest_fraction": (0, 0.1),
    "neighbour_share": (1, 0), "inverse_temperature": (10_001, 1),
    "n_components": (0, 2), "max_iter": (0, 2000), "n_alphas": (0, 2), "n_folds": (1, 2),
    "n_landmarks": (0, 20), "n_kept": (0, 1), "n_rounds": (0, 1), "max_samples": (9, 50),
    "n_intrinsic": (0, 5), "n_penalty": (0, 5), "n_threads": (0, 1), "n_jobs": (0, 1),
    "random_state": (-1, 3), "shrinkage": (-0.1, 0), "n_constraints": (0, 50), "n_targets": (0, 3),
    "n_impostors": (0, 20), "push": (0.0, 1), "beta": (0.0, 3), "n_pairs": (0, 10),
}  # fmt: skip
"""Numeric parameters: a number out of range, and an integer (where one is in range) that is accepted."""


def parameters_of(Estimator: type[Any]) -> set[str]:
    return set(inspect.signature(Estimator.__init__).parameters) - {"self"}


def cheap(Estimator: type[Any], **parameters: Any) -> Any:
    """Return an unfitted estimator that is quick to fit; parameters it does not have are left out."""
    known = {name: value for name, value in parameters.items() if name in parameters_of(Estimator)}
    return Estimator(**{**CHEAP.get(Estimator.__name__, {}), **known})


def make_pairs() -> SyntheticPairs:
    return make_low_rank_pairs(60, 50, n_features_x=8, n_features_z=6, n_classes=4, noise=0.5, random_state=0)


def fitted(Estimator: type[Any], pairs: SyntheticPairs, **parameters: Any) -> Any:
    return cheap(Estimator, **parameters).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))


@cache
def fitted_once(Estimator: type[Any]) -> Any:
    """Return an estimator fitted on `make_pairs()`, for tests that leave it as it is."""
    return fitted(Estimator, make_pairs())
