import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from solver import IterationProgress, Labels, make_low_rank_pairs, mean_average_precision
from solver.datasets import SyntheticPairs
from solver.validation import NotFittedError
from tests.solver.every_estimator import (
    CHANCE,
    CROSS_MODAL,
    ESTIMATORS,
    ITERATIVE,
    LINEAR,
    USUAL_FLOOR,
    WEAK,
    cheap,
    fitted,
    fitted_once,
    parameters_of,
)


def _fit_any(Estimator: type[Any], X: Any, pairs: SyntheticPairs) -> tuple[Any, Callable[[Any], Any]]:
    """Return any estimator fitted, and what it does to samples of the first modality."""
    if Estimator in CROSS_MODAL:
        model = cheap(Estimator).fit(X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
        return model, model.project_x
    model = Estimator().fit(X)
    return model, model.transform


@pytest.mark.parametrize("Estimator", ESTIMATORS)
@pytest.mark.parametrize(("dtype", "order"), [(np.float32, "C"), (np.float64, "F")])
def test_samples_stay_unmodified_and_may_be_read_only(
    Estimator: type[Any], dtype: type, order: Any, pairs: SyntheticPairs
) -> None:
    X = np.array(pairs.X, dtype, order=order)
    before = X.copy()
    _, apply = _fit_any(Estimator, X, pairs)
    projected = apply(X)
    np.testing.assert_array_equal(X, before)
    assert not np.shares_memory(projected, X)
    X.flags.writeable = False
    _, apply = _fit_any(Estimator, X, pairs)
    np.testing.assert_array_equal(apply(X), projected)


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_fitted_estimator_survives_pickling_and_copying(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    model = fitted_once(Estimator) if Estimator in CROSS_MODAL else Estimator().fit(pairs.X)
    apply = model.project_x if Estimator in CROSS_MODAL else model.transform
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert twin.get_params() == model.get_params()
        again = twin.project_x if Estimator in CROSS_MODAL else twin.transform
        np.testing.assert_array_equal(again(pairs.X), apply(pairs.X))


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_fit_returns_itself_and_leaves_its_parameters(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    model = cheap(Estimator)
    before = dict(model.get_params())
    fitted = (
        model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
        if Estimator in CROSS_MODAL
        else model.fit(pairs.X)
    )
    assert fitted is model
    assert all(value is before[name] for name, value in model.get_params().items())


@pytest.mark.parametrize("Estimator", ESTIMATORS)
def test_fit_neither_uses_nor_moves_the_global_random_state(
    Estimator: type[Any], pairs: SyntheticPairs
) -> None:
    projections = []
    for seed in (0, 1):
        np.random.seed(seed)  # noqa: NPY002 - the state in question
        before = np.random.get_state()[1].copy()  # noqa: NPY002
        _, apply = _fit_any(Estimator, pairs.X, pairs)
        projections.append(apply(pairs.X))
        np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.testing.assert_array_equal(*projections)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("n_features", [(8, 6), (9, 7)])  # as many as the second time; others
def test_fitting_again_on_other_samples_forgets_the_first(
    Estimator: type[Any], n_features: tuple[int, int], pairs: SyntheticPairs
) -> None:
    d1, d2 = n_features
    other = make_low_rank_pairs(40, 45, n_features_x=d1, n_features_z=d2, n_classes=3, random_state=5)
    model = fitted(Estimator, other)
    assert model.project_x(other.X).shape[0] == 40
    again = model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    fresh = fitted_once(Estimator)
    np.testing.assert_array_equal(again.project_x(pairs.X), fresh.project_x(pairs.X))
    np.testing.assert_array_equal(again.project_z(pairs.Z), fresh.project_z(pairs.Z))


@pytest.mark.parametrize("Estimator", [each for each in CROSS_MODAL if "random_state" in parameters_of(each)])
def test_random_state_decides_the_result_whatever_the_number_of_jobs(
    Estimator: type[Any], pairs: SyntheticPairs
) -> None:
    first, same, other = (
        fitted(Estimator, pairs, random_state=seed, n_jobs=n_jobs)
        for seed, n_jobs in ((3, 1), (3, 2), (4, 1))
    )
    found, again, differing = (
        each.cv_results_
        if hasattr(each, "cv_results_")
        else {"similarity": each.similarity(pairs.X, pairs.Z)}
        for each in (first, same, other)
    )
    for name, values in found.items():
        np.testing.assert_array_equal(again[name], values)
    assert any(not np.array_equal(differing[name], values) for name, values in found.items())


def _rows_out_of_order(array: Any) -> Any:
    """Return sparse samples in no canonical form, which routines like to establish in place."""
    table = scipy.sparse.csr_array(np.where(np.abs(array) < 0.2, 7.0, array))
    table.data[table.data == 7.0] = 0.0  # stored all the same
    for each in (table.indices, table.data):
        each[: table.indptr[1]] = each[: table.indptr[1]][::-1].copy()
    table.has_sorted_indices = False
    return table


def _arrays_of(samples: Any) -> list[Any]:
    return [samples.data, samples.indices, samples.indptr] if scipy.sparse.issparse(samples) else [samples]


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_fit_and_projection_leave_their_inputs_unmodified_and_take_sparse_ones_as_dense(
    Estimator: type[Any], pairs: SyntheticPairs
) -> None:
    for convert in (np.array, _rows_out_of_order):
        X, Z = convert(pairs.X), convert(pairs.Z)
        supervision = Labels(pairs.x_labels, pairs.z_labels)
        arrays = [pairs.x_labels, pairs.z_labels, *_arrays_of(X), *_arrays_of(Z)]
        copies = [array.copy() for array in arrays]
        for name in ("paper", "apg") if "solver" in parameters_of(Estimator) else ("apg",):
            similarity = cheap(Estimator, solver=name).fit(X, Z, supervision).similarity(X, Z)
        for array, before in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array, before)
        for array, given in zip([*_arrays_of(X), *_arrays_of(Z)], arrays[2:], strict=True):
            assert array is given  # nor replaced
    # The last ones are sparse: they teach what dense ones do.
    dense = X.toarray(), Z.toarray()
    expected = cheap(Estimator).fit(*dense, supervision).similarity(*dense)
    np.testing.assert_allclose(similarity, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
@pytest.mark.parametrize("n_threads", [1, 5])
def test_fitting_again_gives_the_same_bits_on_any_number_of_threads(
    Estimator: type[Any], n_threads: int, pairs: SyntheticPairs
) -> None:
    first = fitted_once(Estimator)
    second = fitted(Estimator, pairs, n_threads=n_threads, n_jobs=n_threads)
    np.testing.assert_array_equal(second.project_x(pairs.X), first.project_x(pairs.X))
    np.testing.assert_array_equal(second.project_z(pairs.Z), first.project_z(pairs.Z))


@pytest.mark.parametrize("Estimator", LINEAR)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_similarity_is_the_inner_product_of_affine_projections(
    Estimator: type[Any], fit_intercept: bool, pairs: SyntheticPairs
) -> None:
    model = fitted(Estimator, pairs, fit_intercept=fit_intercept, dtype=np.float64, metric="inner")
    x = pairs.X @ model.x_factors_ + model.x_intercept_
    z = pairs.Z @ model.z_factors_ + model.z_intercept_
    np.testing.assert_allclose(model.project_x(pairs.X), x, atol=1e-13)
    np.testing.assert_allclose(model.project_z(pairs.Z), z, atol=1e-13)
    np.testing.assert_allclose(model.similarity(pairs.X, pairs.Z), x @ z.T, atol=1e-12)


@pytest.mark.parametrize("Estimator", [each for each in LINEAR if "dtype" in parameters_of(each)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("input_dtype", [np.float32, np.float64])
def test_attributes_and_projections_have_the_requested_dtype(
    Estimator: type[Any], dtype: type, input_dtype: type, pairs: SyntheticPairs
) -> None:
    X, Z = pairs.X.astype(input_dtype), pairs.Z.astype(input_dtype)
    model = cheap(Estimator, dtype=dtype).fit(X, Z, Labels(pairs.x_labels, pairs.z_labels))
    for name in ("x_factors_", "z_factors_", "x_intercept_", "z_intercept_"):
        assert getattr(model, name).dtype == dtype
    assert model.project_x(X).dtype == dtype
    assert model.similarity(X, Z).dtype == dtype


@pytest.mark.parametrize("Estimator", [each for each in LINEAR if "metric" in parameters_of(each)])
def test_cosine_is_the_inner_product_of_projections_of_norm_one(
    Estimator: type[Any], pairs: SyntheticPairs
) -> None:
    model = fitted(Estimator, pairs, metric="cosine")
    projected = fitted(Estimator, pairs, metric="inner").project_x(pairs.X)
    cosines = model.project_x(pairs.X)
    np.testing.assert_allclose(np.linalg.norm(cosines, axis=1), 1.0, rtol=1e-12)
    norms = np.linalg.norm(projected, axis=1, keepdims=True)
    np.testing.assert_allclose(cosines * norms, projected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_lists_and_integers_are_taken_as_arrays(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    X, Z = np.rint(4 * pairs.X).astype(int), np.rint(4 * pairs.Z).astype(int)
    supervision = Labels(pairs.x_labels, pairs.z_labels)
    from_lists = cheap(Estimator).fit(X.tolist(), Z.tolist(), supervision)
    from_floats = cheap(Estimator).fit(X.astype(float), Z.astype(float), supervision)
    np.testing.assert_array_equal(from_lists.similarity(X, Z), from_floats.similarity(X, Z))


@pytest.mark.parametrize("Estimator", ITERATIVE)
def test_callback_sees_each_iteration(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    seen: list[IterationProgress] = []
    model = cheap(Estimator)
    model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), callback=seen.append)
    # What cross-validation chose is fitted last; the folds come before.
    final = getattr(model, "best_estimator_", model)
    assert len(seen) >= final.n_iter_ > 0
    assert seen[-final.n_iter_ :] == final.history_
    assert (len(seen) == final.n_iter_) == (final is model)


@pytest.mark.parametrize("Estimator", ITERATIVE)
def test_exception_of_the_callback_reaches_the_caller(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    class StopHereError(Exception):
        pass

    calls = []

    def stop(progress: IterationProgress) -> None:
        calls.append(progress.iteration)
        if progress.iteration == 2:
            raise StopHereError

    model = cheap(Estimator, alpha=1e-4, alphas=(1e-4,), tol=1e-8, path_tol=1e-8, n_jobs=2)
    with pytest.raises(StopHereError):
        model.fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels), callback=stop)
    assert 2 in calls
    assert set(calls) == {1, 2}
    with pytest.raises(NotFittedError):
        model.project_x(pairs.X)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_similarity_ranks_the_planted_classes(Estimator: type[Any]) -> None:
    data = make_low_rank_pairs(
        120, 110, n_features_x=8, n_features_z=6, n_classes=4, noise=0.3, random_state=1
    )
    train = SyntheticPairs(data.X[:80], data.Z[:70], data.x_labels[:80], data.z_labels[:70], data.M)
    model = fitted(Estimator, train)
    x, z = model.project_x(data.X[80:]), model.project_z(data.Z[70:])
    worse = min(
        mean_average_precision(x, z, data.x_labels[80:], data.z_labels[70:]),
        mean_average_precision(z, x, data.z_labels[70:], data.x_labels[80:]),
    )
    floor = WEAK.get(Estimator.__name__, USUAL_FLOOR)
    assert worse > max(floor.map, CHANCE), (
        f"{floor.reason}; a weaker baseline is named in WEAK, with a reason"
    )
    if Estimator.__name__ in WEAK:
        assert floor.reason
        assert worse <= USUAL_FLOOR.map, f"{Estimator.__name__} needs no entry in WEAK"
