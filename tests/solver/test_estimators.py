import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import solver
from solver import Labels, baselines
from solver.comparison.methods import METHODS
from solver.datasets import SyntheticPairs
from solver.validation.errors import (
    InvalidInputError,
    InvalidParameterError,
    NotFittedError,
    SupervisionError,
)
from tests.solver.every_estimator import (
    CROSS_MODAL,
    ESTIMATORS,
    INVALID,
    NO_NUMBER,
    NUMERIC,
    cheap,
    fitted,
    fitted_once,
    is_under_the_contract,
    parameters_of,
)


def _estimators_of_the_package() -> Iterator[type[Any]]:
    for module in pkgutil.walk_packages(solver.__path__, "solver."):
        for each in vars(importlib.import_module(module.name)).values():
            if is_under_the_contract(each) and each.__module__ == module.name:
                yield each


def test_every_estimator_of_the_package_is_under_the_contract() -> None:
    found = set(_estimators_of_the_package())
    unlisted = sorted(each.__qualname__ for each in found - set(ESTIMATORS))
    assert not unlisted, f"neither exported by solver nor in solver/comparison/methods.py: {unlisted}"
    assert found == set(ESTIMATORS)
    assert len(found) == len(ESTIMATORS)


def test_every_baseline_takes_part_in_the_comparison() -> None:
    compared = {method.estimator for method in METHODS.values()}
    package = baselines.__name__ + "."
    unlisted = sorted(
        each.__qualname__
        for each in set(_estimators_of_the_package()) - compared
        if each.__module__.startswith(package)
    )
    assert not unlisted, (
        f"a module of solver/baselines without a Method in solver/comparison/methods.py: {unlisted}"
    )


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_each_estimator_projects_two_modalities_or_transforms_one(Estimator: type[Any]) -> None:
    assert Estimator in CROSS_MODAL or callable(getattr(Estimator, "transform", None))


def test_each_parameter_of_each_estimator_has_an_invalid_value() -> None:
    for Estimator in CROSS_MODAL:
        unknown = sorted(parameters_of(Estimator) - {name for name, _ in INVALID})
        assert not unknown, (
            f"INVALID in every_estimator.py has no value for these of {Estimator.__name__}: {unknown}"
        )


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_parameters_survive_get_set_and_clone(Estimator: type[Any]) -> None:
    marked = {name: object() for name in parameters_of(Estimator)}
    model = Estimator().set_params(**marked)
    assert model.get_params() == marked
    assert Estimator(**Estimator().get_params()).get_params() == Estimator().get_params()
    fresh = Estimator()
    twin = clone(fresh)
    assert twin is not fresh
    assert twin.get_params() == fresh.get_params()


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_unknown_parameter_is_refused(Estimator: type[Any]) -> None:
    with pytest.raises(ValueError, match="no_such_parameter"):
        Estimator().set_params(no_such_parameter=1)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_the_number_of_features_is_there_after_the_fit(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    assert not hasattr(Estimator(), "n_features_in_")
    assert fitted(Estimator, pairs).n_features_in_ == pairs.X.shape[1] != pairs.Z.shape[1]


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_clone_of_a_fitted_estimator_is_not_fitted(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    with pytest.raises(NotFittedError, match=Estimator.__name__):
        clone(fitted(Estimator, pairs)).project_x(pairs.X)


@pytest.mark.parametrize(
    ("Estimator", "name", "value"),
    [(each, name, value) for each in CROSS_MODAL for name, value in INVALID if name in parameters_of(each)],
)
def test_invalid_parameter_is_named_at_fit(
    Estimator: type[Any], name: str, value: Any, pairs: SyntheticPairs
) -> None:
    model = cheap(Estimator, **{name: value})
    with pytest.raises(InvalidParameterError, match=f"^{name} must be") as caught:
        model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    assert caught.value.name == name
    assert caught.value.value is value


def _with_numeric_parameters() -> list[tuple[type[Any], str]]:
    return [(each, name) for each in CROSS_MODAL for name in NUMERIC if name in parameters_of(each)]


def test_each_parameter_with_a_number_for_its_default_is_known_to_be_numeric() -> None:
    for Estimator in CROSS_MODAL:
        for name, value in Estimator().get_params().items():
            is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
            missing = f"NUMERIC in every_estimator.py has no {name!r}, a number of {Estimator.__name__}"
            assert not is_numeric or name in NUMERIC, missing


@pytest.mark.parametrize(("Estimator", "name"), _with_numeric_parameters())
def test_no_estimator_takes_what_is_no_number_or_out_of_range(
    Estimator: type[Any], name: str, pairs: SyntheticPairs
) -> None:
    for value in [*NO_NUMBER, NUMERIC[name][0]]:
        with pytest.raises(InvalidParameterError, match=f"^{name} must be") as caught:
            cheap(Estimator, **{name: value}).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
        assert caught.value.value is value


@pytest.mark.parametrize(("Estimator", "name"), _with_numeric_parameters())
def test_numbers_of_any_type_are_accepted_alike(Estimator: type[Any], name: str) -> None:
    accepted = NUMERIC[name][1]
    types = [np.int64, int] if isinstance(accepted, int) else [np.float32, np.float64, float]
    for to_type in types:
        cheap(Estimator, **{name: to_type(accepted)})._check_parameters()


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_unfitted_estimator_says_so(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    for call in (Estimator().project_x, Estimator().project_z):
        with pytest.raises(NotFittedError, match="call fit first"):
            call(pairs.X)
    with pytest.raises(NotFittedError, match="call fit first"):
        Estimator().similarity(pairs.X, pairs.Z)


BREAK: dict[str, Callable[[Any], Any]] = {
    "nan": lambda array: np.where(array == array[1, 2], np.nan, array),
    "inf": lambda array: np.where(array == array[1, 2], np.inf, array),
    "text": lambda array: array.astype(str),
    "object": lambda array: array.astype(object),
    "complex": lambda array: array.astype(complex),
    "flat": lambda array: array[:, 0],
    "deep": lambda array: array[:, :, None],
    "empty": lambda array: array[:, :0],
    "ragged": lambda _: [[1.0, 2.0], [3.0]],
}


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("kind", BREAK)
@pytest.mark.parametrize("name", ["X", "Z"])
def test_unusable_samples_are_refused_by_name(
    Estimator: type[Any], kind: str, name: str, pairs: SyntheticPairs
) -> None:
    samples = {"X": pairs.X, "Z": pairs.Z}
    samples[name] = BREAK[kind](samples[name])
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    with pytest.raises(InvalidInputError, match=f"^{name} "):
        cheap(Estimator).fit(samples["X"], samples["Z"], supervision)
    with pytest.raises(InvalidInputError, match=f"^{name} "):
        fitted_once(Estimator).similarity(samples["X"], samples["Z"])


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_bare_labels_are_refused_with_what_is_expected(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    with pytest.raises(SupervisionError, match=r"\bLabels\b.*\bndarray\b|\bndarray\b.*\bLabels\b"):
        cheap(Estimator).fit(pairs.X, pairs.Z, pairs.x_labels)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("name", ["X", "Z"])
def test_wrong_number_of_features_is_refused_by_name(
    Estimator: type[Any], name: str, pairs: SyntheticPairs
) -> None:
    samples = {"X": pairs.X, "Z": pairs.Z}
    samples[name] = samples[name][:, :-1]
    with pytest.raises(InvalidInputError, match=f"^{name} has"):
        fitted_once(Estimator).similarity(samples["X"], samples["Z"])
