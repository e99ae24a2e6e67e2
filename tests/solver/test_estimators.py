import inspect
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone

import solver
from solver import Labels, Progress
from solver.base import CrossModalEstimator
from solver.datasets import SyntheticPairs
from solver.errors import InvalidInputError, InvalidParameterError, NotFittedError

PUBLIC = [getattr(solver, name) for name in solver.__all__]
ESTIMATORS = [each for each in PUBLIC if inspect.isclass(each) and issubclass(each, BaseEstimator)]
CROSS_MODAL = [each for each in ESTIMATORS if issubclass(each, CrossModalEstimator)]
WITH_HISTORY = [each for each in CROSS_MODAL if each is not solver.LowRankBilinearCV]

# What makes each quick to fit on the small data of these tests, and what sets its threads.
QUICK: dict[type[Any], dict[str, Any]] = {
    solver.LowRankBilinear: {"alpha": 0.02},
    solver.LowRankBilinearCV: {"alphas": [0.05, 0.02], "n_folds": 2},
}
THREADS = {solver.LowRankBilinear: "n_threads", solver.LowRankBilinearCV: "n_jobs"}

INVALID: dict[str, list[Any]] = {
    "alpha": [0.0, -1.0, np.nan, np.inf, "1", None],
    "alphas": [[], [0.0], [-1.0, 1.0], [np.nan], [np.inf]],
    "dtype": [np.int32, np.float16, "no such type", None],
    "fit_intercept": [1, None],
    "max_iter": [0, 1.5, True],
    "n_alphas": [0, 1.5],
    "n_folds": [1, 2.5],
    "n_jobs": [0, 1.5],
    "n_threads": [0, 1.5],
    "one_standard_error": [1, None],
    "path_tol": [0.0, np.inf],
    "random_state": [-1, 0.5, None],
    "smallest_fraction": [0.0, 1.0, None],
    "solver": ["sgd", None],
    "tol": [0.0, np.inf],
    "warm_start": ["yes"],
}
INVALID_CASES = [
    (Estimator, name, value)
    for Estimator in CROSS_MODAL
    for name in inspect.signature(Estimator.__init__).parameters
    if name != "self"
    for value in INVALID[name]
]


def _fitted(Estimator: type[Any], pairs: SyntheticPairs, **parameters: Any) -> Any:
    model = Estimator(**{**QUICK[Estimator], **parameters})
    return model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))


def test_the_contract_covers_the_public_estimators() -> None:
    assert {each.__name__ for each in CROSS_MODAL} >= {"LowRankBilinear"}
    assert {each.__name__ for each in ESTIMATORS} >= {"LowRankBilinear", "FeatureScaler"}


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_parameters_survive_get_set_and_clone(Estimator: type[Any]) -> None:
    names = set(inspect.signature(Estimator.__init__).parameters) - {"self"}
    marked = {name: object() for name in names}
    model = Estimator().set_params(**marked)
    assert model.get_params() == marked
    assert Estimator(**Estimator().get_params()).get_params() == Estimator().get_params()
    fresh = Estimator()
    copy = clone(fresh)
    assert copy is not fresh
    assert copy.get_params() == fresh.get_params()


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_unknown_parameter_is_refused(Estimator: type[Any]) -> None:
    with pytest.raises(ValueError, match="no_such_parameter"):
        Estimator().set_params(no_such_parameter=1)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_clone_of_a_fitted_estimator_is_not_fitted(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    with pytest.raises(NotFittedError, match=Estimator.__name__):
        clone(_fitted(Estimator, pairs)).project_x(pairs.X)


@pytest.mark.parametrize(("Estimator", "name", "value"), INVALID_CASES)
def test_invalid_parameter_is_named_at_fit(
    Estimator: type[Any], name: str, value: Any, pairs: SyntheticPairs
) -> None:
    model = Estimator(**{name: value})
    with pytest.raises(InvalidParameterError, match=f"^{name} must be") as caught:
        model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    assert caught.value.name == name
    assert caught.value.value is value


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_unfitted_estimator_says_so(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    for call in (Estimator().project_x, Estimator().project_z):
        with pytest.raises(NotFittedError, match="call fit first"):
            call(pairs.X)
    with pytest.raises(NotFittedError, match="call fit first"):
        Estimator().similarity(pairs.X, pairs.Z)


def _broken(kind: str, array: Any) -> Any:
    if kind == "text":
        return array.astype(str)
    if kind == "object":
        return array.astype(object)
    if kind == "complex":
        return array.astype(complex)
    if kind == "flat":
        return array[:, 0]
    if kind == "deep":
        return array[:, :, None]
    if kind == "empty":
        return array[:, :0]
    if kind == "ragged":
        return [[1.0, 2.0], [3.0]]
    broken = array.copy()
    broken[1, 2] = {"nan": np.nan, "inf": np.inf}[kind]
    return broken


KINDS = [
    "nan", "inf", "text", "object", "complex", "flat", "deep", "empty",
    "ragged",
]  # fmt: skip


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["X", "Z"])
def test_unusable_samples_are_refused_by_name(
    Estimator: type[Any], kind: str, name: str, pairs: SyntheticPairs
) -> None:
    samples = {"X": pairs.X, "Z": pairs.Z}
    samples[name] = _broken(kind, samples[name])
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    with pytest.raises(InvalidInputError, match=f"^{name} "):
        Estimator(**QUICK[Estimator]).fit(samples["X"], samples["Z"], supervision)
    with pytest.raises(InvalidInputError, match=f"^{name} "):
        _fitted(Estimator, pairs).similarity(samples["X"], samples["Z"])


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("name", ["X", "Z"])
def test_wrong_number_of_features_is_refused_by_name(
    Estimator: type[Any], name: str, pairs: SyntheticPairs
) -> None:
    samples = {"X": pairs.X, "Z": pairs.Z}
    samples[name] = samples[name][:, :-1]
    with pytest.raises(InvalidInputError, match=f"^{name} has"):
        _fitted(Estimator, pairs).similarity(samples["X"], samples["Z"])


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_fit_and_projection_leave_their_inputs_unmodified(
    Estimator: type[Any], pairs: SyntheticPairs
) -> None:
    arrays = (pairs.X, pairs.Z, pairs.x_labels, pairs.z_labels)
    copies = [array.copy() for array in arrays]
    _fitted(Estimator, pairs).similarity(pairs.X, pairs.Z)
    if "solver" in Estimator().get_params():
        _fitted(Estimator, pairs, solver="paper").similarity(pairs.X, pairs.Z)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("n_threads", [None, 1, 2, 5])
def test_fitting_again_gives_the_same_bits_on_any_number_of_threads(
    Estimator: type[Any], n_threads: int | None, pairs: SyntheticPairs
) -> None:
    first, second = _fitted(Estimator, pairs), _fitted(Estimator, pairs, **{THREADS[Estimator]: n_threads})
    for name in ("x_factors_", "z_factors_", "x_intercept_", "z_intercept_"):
        np.testing.assert_array_equal(getattr(second, name), getattr(first, name))


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_similarity_is_the_inner_product_of_affine_projections(
    Estimator: type[Any], fit_intercept: bool, pairs: SyntheticPairs
) -> None:
    model = _fitted(Estimator, pairs, fit_intercept=fit_intercept, dtype=np.float64)
    x = pairs.X @ model.x_factors_ + model.x_intercept_
    z = pairs.Z @ model.z_factors_ + model.z_intercept_
    np.testing.assert_allclose(model.project_x(pairs.X), x, atol=1e-13)
    np.testing.assert_allclose(model.project_z(pairs.Z), z, atol=1e-13)
    np.testing.assert_allclose(model.similarity(pairs.X, pairs.Z), x @ z.T, atol=1e-12)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("input_dtype", [np.float32, np.float64])
def test_attributes_and_projections_have_the_requested_dtype(
    Estimator: type[Any], dtype: type, input_dtype: type, pairs: SyntheticPairs
) -> None:
    X, Z = pairs.X.astype(input_dtype), pairs.Z.astype(input_dtype)
    model = Estimator(**QUICK[Estimator], dtype=dtype).fit(X, Z, Labels(pairs.x_labels, pairs.z_labels))
    for name in ("x_factors_", "z_factors_", "x_intercept_", "z_intercept_"):
        assert getattr(model, name).dtype == dtype
    assert model.project_x(X).dtype == dtype
    assert model.similarity(X, Z).dtype == dtype


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_lists_and_integers_are_taken_as_arrays(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    X, Z = np.rint(4 * pairs.X).astype(int), np.rint(4 * pairs.Z).astype(int)
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    from_lists = Estimator(**QUICK[Estimator]).fit(X.tolist(), Z.tolist(), supervision)
    from_floats = Estimator(**QUICK[Estimator]).fit(X.astype(float), Z.astype(float), supervision)
    np.testing.assert_array_equal(from_lists.x_factors_, from_floats.x_factors_)


@pytest.mark.parametrize("Estimator", WITH_HISTORY)
def test_callback_sees_each_iteration(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    seen: list[Progress] = []
    model = Estimator(alpha=0.02)
    model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), callback=seen.append)
    assert seen == model.history_
    assert len(seen) == model.n_iter_ > 0


@pytest.mark.parametrize("Estimator", WITH_HISTORY)
def test_exception_of_the_callback_reaches_the_caller(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    class StopHereError(Exception):
        pass

    calls = []

    def stop(progress: Progress) -> None:
        calls.append(progress.iteration)
        if progress.iteration == 2:
            raise StopHereError

    model = Estimator(alpha=1e-4, tol=1e-8)
    with pytest.raises(StopHereError):
        model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), callback=stop)
    assert calls == [1, 2]
    with pytest.raises(NotFittedError):
        model.project_x(pairs.X)
