import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

import solver
from solver import Labels, PairedRows, baselines
from solver.comparison.methods import METHODS
from solver.datasets import SyntheticPairs
from solver.validation import (
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


def test_each_parameter_of_each_estimator_has_an_invalid_value() -> None:
    for Estimator in CROSS_MODAL:
        unknown = sorted(parameters_of(Estimator) - NUMERIC.keys() - {name for name, _ in INVALID})
        assert not unknown, (
            f"NUMERIC and INVALID in every_estimator.py lack these of {Estimator.__name__}: {unknown}"
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
    assert fitted_once(Estimator).n_features_in_ == pairs.X.shape[1] != pairs.Z.shape[1]


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
def test_unfitted_estimator_and_clone_of_a_fitted_one_say_so(
    Estimator: type[Any], pairs: SyntheticPairs
) -> None:
    for model in (Estimator(), clone(fitted_once(Estimator))):
        for call in (model.project_x, model.project_z, lambda X, model=model: model.similarity(X, pairs.Z)):
            with pytest.raises(
                NotFittedError, match=f"{Estimator.__name__} is not fitted yet: call fit first"
            ):
                call(pairs.X)


BREAK: dict[str, Callable[[Any], Any]] = {
    "nan": lambda array: np.where(array == array[1, 2], np.nan, array),
    "inf": lambda array: np.where(array == array[1, 2], np.inf, array),
    "text": lambda array: array.astype(str),
    "object": lambda array: np.where(array == array[1, 2], "much", array.astype(object)),
    "missing": lambda array: np.ma.masked_equal(array, array[1, 2]),
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


def named(array: np.ndarray) -> dict[str, np.ndarray]:
    return {f"feature {number}": array[:, number] for number in range(array.shape[1])}


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_tables_and_plain_labels_teach_what_arrays_do(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    X = pd.DataFrame(named(pairs.X)).astype({"feature 0": "Float64", "feature 1": "double[pyarrow]"})
    Z = pl.DataFrame(named(pairs.Z))
    labels = pd.Series(pairs.x_labels).astype("category"), pl.Series(pairs.z_labels)
    model = cheap(Estimator).fit(X, Z, labels)
    expected = fitted_once(Estimator).similarity(pairs.X, pairs.Z)
    np.testing.assert_allclose(model.similarity(X, Z), expected, rtol=1e-6, atol=1e-9)
    assert [*model.feature_names_in_, *model.z_feature_names_in_] == [*X.columns, *Z.columns]
    for project, side in ((model.project_x, X), (model.project_z, Z)):
        with pytest.raises(InvalidInputError, match=r"columns of . differ from .* fitted: their order"):
            project(side[side.columns[::-1]])
    X.loc[0, "feature 0"] = pd.NA
    for call in (model.fit, model.similarity):
        with pytest.raises(InvalidInputError, match=r"^X .*missing.*'feature 0' of dtype Float64.*row 0"):
            call(X, Z)
    worded = Z.with_columns(pl.lit("wide").alias("feature 1"))
    for call in (model.fit, model.similarity):
        with pytest.raises(InvalidInputError, match=r"^Z .*column 'feature 1' of dtype String holds text"):
            call(pairs.X, worded)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_without_labels_rows_are_pairs_where_these_can_be_learned_from(
    Estimator: type[Any], pairs: SyntheticPairs
) -> None:
    X, Z = pairs.X[:50], pairs.Z
    if getattr(Estimator, "_needs_classes", "Semantic" in Estimator.__name__):
        name = Estimator.__name__.removeprefix("Kernel")  # which maps samples for the one of that name
        for supervision in (None, PairedRows(50)):
            with pytest.raises(SupervisionError, match=f"^{name} learns from classes: .*PairedRows"):
                cheap(Estimator).fit(X, Z, supervision)
    else:
        model = cheap(Estimator).fit(X, Z)
        expected = cheap(Estimator).fit(X, Z, PairedRows(50)).similarity(X, Z)
        np.testing.assert_array_equal(model.similarity(X, Z), expected)
        assert 0.0 < model.score(X, Z) <= 1.0
    with pytest.raises(SupervisionError, match="60 samples and Z has 50: nothing says"):
        cheap(Estimator).fit(pairs.X, Z)
    with pytest.raises(SupervisionError, match="60 samples and Z has 50: one array"):
        cheap(Estimator).fit(pairs.X, Z, pairs.x_labels)
    with pytest.raises(SupervisionError, match=r"Labels.*or an array of labels, got dict"):
        cheap(Estimator).fit(pairs.X, Z, {"x": pairs.x_labels})


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_a_search_of_scikit_learn_is_led_to_what_can_be_split(
    Estimator: type[Any], pairs: SyntheticPairs
) -> None:
    X, Z, labels = pairs.X[:50], pairs.Z, np.resize(pairs.x_labels, 50)
    with pytest.raises(InvalidInputError, match=r"^Z is one column, such as labels: .*PairedEstimator"):
        cheap(Estimator).fit(X, labels)
    with pytest.raises(SupervisionError, match=r"^X has 25 samples, the supervision has 50; .*Paired"):
        cheap(Estimator).fit(X[:25], Z[:25], Labels(labels))
    with pytest.raises(SupervisionError, match=r"labels were learned from, .*PairedEstimator"):
        fitted_once(Estimator).score(X, Z)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("name", ["X", "Z"])
def test_wrong_number_of_features_is_refused_by_name(
    Estimator: type[Any], name: str, pairs: SyntheticPairs
) -> None:
    samples = {"X": pairs.X, "Z": pairs.Z}
    samples[name] = samples[name][:, :-1]
    with pytest.raises(InvalidInputError, match=f"^{name} has"):
        fitted_once(Estimator).similarity(samples["X"], samples["Z"])
