import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from solver import CCA, Labels, LowRankBilinear, SemanticBilinear, alpha_max, mean_average_precision
from solver.baselines import CentredBasis
from solver.comparison import compare
from solver.comparison.cells import (
    PCA_ENERGY,
    BoundedCache,
    CellRunner,
    PreparedSplits,
    cells,
    prepare_features,
    tune,
)
from solver.comparison.methods import METHODS, Axis, Method
from solver.datasets import PairedFeatures
from solver.validation import InvalidInputError


@pytest.mark.parametrize(("max_bytes", "computed"), [(80, "abcb"), (10, "abacab")])
def test_a_cache_computes_again_what_was_least_recently_used(max_bytes: int, computed: str) -> None:
    cache, seen = BoundedCache[str, np.ndarray](max_bytes, lambda array: array.nbytes), []
    for key in "abacab":
        cache.get(key, lambda key=key: seen.append(key) or np.zeros(5))
    assert "".join(seen) == computed


QUICK = ("LowRankBilinear", "CCA", "MsAlg")  # that walk through their penalties, share bases, and do neither


@pytest.mark.parametrize(("name", "pca"), [("CCA", False), *((name, True) for name in QUICK)])
def test_what_is_chosen_does_not_depend_on_the_test_split(
    data: PairedFeatures, garbled: PairedFeatures, name: str, pca: bool
) -> None:
    chosen = [tune(PreparedSplits(each, 3, 0), METHODS[name], pca) for each in (data, garbled)]
    assert chosen[0] == chosen[1]


def test_what_is_chosen_inside_a_fit_does_not_depend_on_the_test_split(
    data: PairedFeatures, garbled: PairedFeatures
) -> None:
    fixed = {"kernels": ("linear", "rbf"), "n_landmarks": 20, "n_folds": 3, "n_kept": 2, "n_jobs": 1}
    method = Method(SemanticBilinear, fixed=fixed, scalings=("none",))
    projected = []
    for each in (data, garbled):
        splits = PreparedSplits(each, 3, 0)
        choice = tune(splits, method, True)
        (X, _), (Z, _) = (splits.features(splits.final, side, "none", True) for side in "xz")
        fitted = method.fit(X, Z, splits.supervision(splits.final), choice.parameters)
        projected.append((choice, fitted.project_x(X), fitted.project_z(Z)))
    assert projected[0][0] == projected[1][0]
    np.testing.assert_array_equal(projected[0][1], projected[1][1])
    np.testing.assert_array_equal(projected[0][2], projected[1][2])


def test_each_modality_has_the_scaling_that_suits_it(data: PairedFeatures) -> None:
    rng = np.random.default_rng(3)
    # Samples of X differ in size; beside Z stands a large feature that says nothing.
    X = data.X * np.exp(2.0 * rng.standard_normal((len(data.X), 1)))
    Z = np.hstack([data.Z, 1e4 * rng.standard_normal((len(data.Z), 1))])
    method = Method(CCA, (Axis("reg", (1.0, 0.01), 1.0),), scalings=("none", "l2", "standard"))
    splits = PreparedSplits(dataclasses.replace(data, X=X, Z=Z), 3, 0)
    choice = tune(splits, method, False)
    for kind in method.scalings:
        other = tune(splits, dataclasses.replace(method, scalings=(kind,)), False)
        assert other.score <= choice.score
    assert (choice.x_scaling, choice.z_scaling) == ("l2", "standard")


def test_bases_are_computed_once_while_methods_are_tuned(
    data: PairedFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = PreparedSplits(data, 3, 0)
    choice = tune(splits, METHODS["CCA"], False)
    bases = [splits.basis(fold, "x", "l2", False) for fold in splits.folds]

    def fail(*_: Any) -> Any:
        raise AssertionError("a basis is computed again")

    monkeypatch.setattr(CentredBasis, "of", fail)
    assert tune(splits, METHODS["CCA"], False) == choice
    for fold, basis in zip(splits.folds, bases, strict=True):
        assert splits.basis(fold, "x", "l2", False) is basis
        assert len(basis.coordinates) == len(fold.fitting)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.uses_bases])
def test_known_bases_do_not_change_a_fit(name: str, data: PairedFeatures) -> None:
    splits = PreparedSplits(data, 3, 0)
    fold, method = splits.folds[0], METHODS[name]
    X, x = splits.features(fold, "x", "standard", False)
    Z, z = splits.features(fold, "z", "l2", False)
    bases = splits.basis(fold, "x", "standard", False), splits.basis(fold, "z", "l2", False)
    labels = splits.supervision(fold)
    alone = method.fit(X, Z, labels, method.defaults)
    with_bases = method.fit(X, Z, labels, method.defaults, bases)
    np.testing.assert_array_equal(with_bases.project_x(x), alone.project_x(x))
    np.testing.assert_array_equal(with_bases.project_z(z), alone.project_z(z))


def test_folds_split_the_training_rows_class_by_class_and_hold_no_test_row(data: PairedFeatures) -> None:
    splits = PreparedSplits(data, 3, 0)
    held = np.concatenate([fold.scoring for fold in splits.folds])
    assert sorted(held) == np.flatnonzero(data.is_train).tolist()
    for fold in splits.folds:
        assert not set(fold.fitting) & set(fold.scoring)
        assert data.is_train[fold.fitting].all()
    for label in np.unique(data.labels):
        counts = [(data.labels[fold.scoring] == label).sum() for fold in splits.folds]
        assert max(counts) - min(counts) <= 1


def test_scaling_and_components_are_learned_on_the_rows_that_are_fitted(data: PairedFeatures) -> None:
    splits = PreparedSplits(data, 3, 0)
    fold = splits.folds[1]
    fitted, judged = splits.features(fold, "x", "standard", True)
    alone = prepare_features("standard", True, data.X[fold.fitting])[0]
    np.testing.assert_array_equal(fitted, alone)
    scoring = data.X[fold.scoring]
    np.testing.assert_array_equal(
        judged, prepare_features("standard", True, data.X[fold.fitting], 5.0 * scoring, scoring)[2]
    )


def test_no_more_prepared_features_are_kept_than_fit(data: PairedFeatures) -> None:
    n_bytes = 2 * 4 * data.X.size
    splits = PreparedSplits(data, 3, 0, max_feature_bytes=n_bytes)
    first, again = (splits.features(splits.final, "x", "l2", False) for _ in range(2))
    assert again[0] is first[0]
    for fold in splits.folds:
        for scaling in ("l2", "center", "none"):
            splits.features(fold, "x", scaling, False)
    made_again = splits.features(splits.final, "x", "l2", False)
    assert made_again[0] is not first[0]
    np.testing.assert_array_equal(made_again[0], first[0])


def test_pca_keeps_the_energy_it_is_to_keep_and_no_more() -> None:
    rng = np.random.default_rng(0)
    samples = rng.standard_normal((200, 10)) * 2.0 ** -np.arange(10)
    kept = prepare_features("center", True, samples)[0]
    energy = np.linalg.svd(samples - samples.mean(axis=0), compute_uv=False) ** 2
    shares = np.cumsum(energy) / energy.sum()
    assert kept.shape[1] == int(np.searchsorted(shares, PCA_ENERGY)) + 1


def test_pca_of_more_features_than_samples() -> None:
    samples = np.random.default_rng(0).standard_normal((12, 40))
    assert prepare_features("none", True, samples)[0].shape[1] <= 11


def test_roots_are_tried_only_where_nothing_is_negative(data: PairedFeatures) -> None:
    shifted = dataclasses.replace(data, Z=data.Z - data.Z.min())
    splits = PreparedSplits(shifted, 3, 0)
    assert "sqrt" not in splits.usable_scalings("x", ("l2", "sqrt"))
    assert "sqrt" in splits.usable_scalings("z", ("l2", "sqrt"))


def test_the_best_value_of_an_axis_is_taken(data: PairedFeatures) -> None:
    method = Method(CCA, (Axis("reg", (1e6, 0.1), 0.1), Axis("n_components", (1, 2), 2)))
    splits = PreparedSplits(data, 3, 0)
    choice = tune(splits, method, False)

    def score(parameters: dict[str, float]) -> float:
        found = []
        for fold in splits.folds:
            X, x = splits.features(fold, "x", choice.x_scaling, False)
            Z, z = splits.features(fold, "z", choice.z_scaling, False)
            model = CCA(**parameters).fit(X, Z, Labels(data.labels[fold.fitting]))
            labels = data.labels[fold.scoring]
            pair = model.project_x(x), model.project_z(z)
            found.append(mean_average_precision(*pair, labels, labels))
            found.append(mean_average_precision(*pair[::-1], labels, labels))
        return float(np.mean(found))

    assert score(choice.parameters) == pytest.approx(choice.score, abs=1e-12)
    last = method.grid[-1]
    for value in last.values:
        assert score({**choice.parameters, last.name: value}) <= choice.score + 1e-12


@pytest.mark.parametrize("fractions", [(0.3, 0.1, 0.02), (0.02, 0.3)], ids=["down", "up"])
def test_the_walk_in_alpha_scores_as_separate_fits_do(
    data: PairedFeatures, fractions: tuple[float, ...]
) -> None:
    walked = METHODS["LowRankBilinear"]
    splits = PreparedSplits(data, 3, 0)
    fold = splits.folds[0]
    X, x = splits.features(fold, "x", "l2", False)
    Z, z = splits.features(fold, "z", "l2", False)
    labels = Labels(data.labels[fold.fitting])
    candidates = [{"alpha_fraction": fraction} for fraction in fractions]
    held = data.labels[fold.scoring]
    for parameters, project in zip(candidates, walked.projections(X, Z, labels, candidates), strict=True):
        alpha = parameters["alpha_fraction"] * alpha_max(X, Z, labels)
        model = LowRankBilinear(alpha=alpha).fit(X, Z, labels)
        expected = mean_average_precision(model.project_x(x), model.project_z(z), held, held)
        assert mean_average_precision(*project(x, z), held, held) == pytest.approx(expected, abs=0.02)


def test_every_method_has_its_defaults_in_its_grid_and_no_value_twice() -> None:
    for method in METHODS.values():
        for axis in method.grid:
            assert axis.default in axis.values
            assert len(set(axis.values)) == len(axis.values)


class _Refusing(CCA):
    """Cannot be fitted to features that are centred, nor without a ridge."""

    def fit(self, X: Any, Z: Any, supervision: Any) -> Self:
        if abs(float(np.mean(X))) < 1e-5 or self.reg == 0.0:
            raise InvalidInputError("these cannot be fitted")
        return super().fit(X, Z, supervision)


def test_what_cannot_be_fitted_is_the_worst_candidate(data: PairedFeatures) -> None:
    grid = (Axis("reg", (0.0, 0.3), 0.3),)
    shifted = dataclasses.replace(data, X=data.X + 5.0)
    method = Method(_Refusing, grid, scalings=("standard", "center", "none"))
    choice = tune(PreparedSplits(shifted, 3, 0), method, False)
    assert choice.x_scaling == "none"
    assert choice.parameters == {"reg": 0.3}
    assert np.isfinite(choice.score)
    with pytest.raises(InvalidInputError, match="these cannot be fitted"):
        tune(PreparedSplits(shifted, 3, 0), dataclasses.replace(method, scalings=("standard",)), False)


def test_a_cell_is_computed_from_its_own_splits_whatever_came_before_it(data: PairedFeatures) -> None:
    runner = CellRunner()
    other = dataclasses.replace(data, X=-2.0 * np.roll(data.X, 1, axis=0))
    asked = [(data, 3, 0), (data, 3, 1), (data, 4, 1), (other, 4, 1), (data, 3, 0)]
    scores = []
    for features, n_folds, seed in asked:
        (cell,) = cells(features, [METHODS["CCA"]], [False], n_folds, seed)
        scores.append(runner.run(cell).cv_score)
        assert scores[-1] == CellRunner().run(cell).cv_score
    assert len(set(scores)) == 4


def test_a_method_that_cannot_be_fitted_leaves_the_others_their_rows(data: PairedFeatures) -> None:
    options = {"pca": (False,), "n_jobs": 1, "n_resamples": 50, "n_permutations": 50}
    refusing = Method(_Refusing, scalings=("standard",))
    found = compare(data, methods=["MsAlg", refusing], **options)
    assert [row.method for row in found.rows] == ["MsAlg"]
    (failure,) = found.failures
    assert failure.startswith("_Refusing without PCA: no scaling")
    with pytest.raises(InvalidInputError, match="no method can be fitted on mine: _Refusing"):
        compare(data, dataset="mine", methods=[refusing], **options)


def _own_method(body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Method:
    source = f'from solver import CCA\n\n\nclass Mine(CCA):\n    """{body}."""\n'
    (folder / "own_method.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "own_method", raising=False)
    return Method(importlib.import_module("own_method").Mine)


def test_what_is_kept_of_a_method_is_not_taken_for_that_of_other_code(
    data: PairedFeatures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for number, body in enumerate(("One", "Two", "One")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (cell,) = cells(data, [_own_method(body, folder, monkeypatch)], [False], 3, 0)
        keys.append(cell.key)
    assert keys[0] != keys[1]
    assert keys[0] == keys[2]
    (nameless,) = cells(data, [Method(type("Mine", (CCA,), {}))], [False], 3, 0)
    assert nameless.key not in keys
