import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import (
    Labels,
    LowRankBilinear,
    MultiLabels,
    PosteriorProjector,
    SemanticBilinear,
    SemanticMatching,
    mean_average_precision,
)
from solver.artifacts import load_projector, save_projector
from solver.logistic import LinearClassifier
from solver.scaling.feature_maps import FeatureMap
from solver.semantic.ensemble import Branch, Ensemble, WeightedClassifier
from solver.validation import ArtifactError, InvalidInputError, NotFittedError

QUICK: dict[str, Any] = {"n_folds": 3, "n_kept": 2, "n_rounds": 3, "n_landmarks": 40, "n_jobs": 1}


def _rings(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes, angles = rng.integers(0, n_classes, n), rng.uniform(0, 2 * np.pi, n)
    radii = 1.0 + 2.0 * codes + 0.4 * rng.standard_normal(n)
    return np.column_stack([radii * np.cos(angles), radii * np.sin(angles)]), codes


def _blobs(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    centres = np.random.default_rng(99).standard_normal((n_classes, 6)) * 1.5
    return centres[codes] + rng.standard_normal((n, 6)), codes


@pytest.fixture(scope="module")
def fitted() -> SemanticBilinear:
    (X, x), (Z, z) = _rings(200, 4, 0), _blobs(180, 4, 1)
    return SemanticBilinear(alpha_fraction=1e-3, **QUICK).fit(X, Z, Labels(x, z))


def _average_map(model: Any) -> float:
    (X, x), (Z, z) = _rings(150, 4, 2), _blobs(150, 4, 3)
    scores = model.project_x(X), model.project_z(Z)
    there = mean_average_precision(*scores, x, z)
    return 0.5 * (there + mean_average_precision(*scores[::-1], z, x))


def test_it_finds_what_no_bilinear_function_of_the_features_can(fitted: SemanticBilinear) -> None:
    (X, x), (Z, z) = _rings(200, 4, 0), _blobs(180, 4, 1)
    linear = SemanticMatching().fit(X, Z, Labels(x, z))
    assert _average_map(fitted) > 0.85
    assert _average_map(fitted) > _average_map(linear) + 0.3


def test_the_similarity_is_nearly_the_probability_of_equal_classes(fitted: SemanticBilinear) -> None:
    (X, x), (Z, z) = _rings(400, 4, 4), _blobs(400, 4, 5)
    scores, matches = fitted.similarity(X, Z), x[:, None] == z
    # Only a few dozen samples between two rings have scores near one half.
    for low, tolerance in ((0.0, 0.08), (0.25, 0.2), (0.5, 0.2), (0.75, 0.08)):
        inside = (scores >= low) & (scores < low + 0.25)
        assert abs(scores[inside].mean() - matches[inside].mean()) < tolerance


def test_m_is_certified_and_made_of_out_of_fold_posteriors(fitted: SemanticBilinear) -> None:
    bilinear = fitted.bilinear_
    assert bilinear is not None
    assert bilinear.converged_
    (_, x), (_, z) = _rings(200, 4, 0), _blobs(180, 4, 1)
    parameters = bilinear.get_params()
    again = LowRankBilinear(**parameters).fit(
        fitted.x_posteriors_.out_of_fold, fitted.z_posteriors_.out_of_fold, Labels(x, z)
    )
    np.testing.assert_array_equal(again.singular_values_, fitted.singular_values_)
    assert fitted.rank_ == len(fitted.singular_values_) == 4


def test_a_fit_reuses_the_classifiers_of_another(fitted: SemanticBilinear) -> None:
    (X, x), (Z, z) = _rings(260, 4, 6), _blobs(240, 4, 7)
    again = SemanticBilinear(alpha_fraction=1e-3, **QUICK).fit(X, Z, Labels(x, z), reuse=fitted)
    assert again.x_posteriors_.configs == fitted.x_posteriors_.configs
    assert again.z_posteriors_.configs == fitted.z_posteriors_.configs
    assert not np.array_equal(again.singular_values_, fitted.singular_values_)
    assert _average_map(again) > 0.85
    with pytest.raises(NotFittedError):
        SemanticBilinear(**QUICK).fit(X, Z, Labels(x, z), reuse=SemanticBilinear())


def test_labels_may_be_many(fitted: SemanticBilinear) -> None:
    (X, x), (Z, z) = _rings(250, 3, 0), _blobs(250, 3, 1)
    has_label_x, has_label_z = np.eye(3)[x], np.eye(3)[z]
    # A sample with the first label has the last one, too.
    for has_label in (has_label_x, has_label_z):
        has_label[:, 2] = np.maximum(has_label[:, 2], has_label[:, 0])
    model = SemanticBilinear(**QUICK).fit(X, Z, MultiLabels(has_label_x, has_label_z))
    share = (has_label_x @ has_label_z.T) > 0
    scores = model.similarity(X, Z)
    assert scores[share].mean() > scores[~share].mean() + 0.4


@pytest.fixture(scope="module")
def fused() -> SemanticBilinear:
    (X, x), (Z, z) = _rings(200, 4, 0), _blobs(180, 4, 1)
    return SemanticBilinear(neighbour_share=0.3, **QUICK).fit(X, Z, Labels(x, z))


@pytest.mark.parametrize("loss", ["squared", "softmax", "logistic", "fused"])
def test_a_saved_projector_projects_to_the_same_bits(
    loss: str, fitted: SemanticBilinear, fused: SemanticBilinear, tmp_path: Path
) -> None:
    if loss == "fused":
        fitted = fused
    elif loss != "squared":
        (X, x), (Z, z) = _rings(60, 3, 0), _blobs(60, 3, 1)
        fitted = SemanticBilinear(loss=loss, alpha_fraction=0.01, **QUICK).fit(X, Z, Labels(x, z))
    projector = PosteriorProjector.of(fitted)
    (X, _), (Z, _) = _rings(30, 4, 6), _blobs(30, 4, 7)
    np.testing.assert_allclose(projector.project_x(X), fitted.project_x(X), atol=1e-5)
    np.testing.assert_allclose(projector.project_z(Z), fitted.project_z(Z), atol=1e-5)
    save_projector(projector, tmp_path, {"a": 1})
    again, facts = load_projector(tmp_path)
    assert facts == {"a": 1}
    assert again.rank == projector.rank
    np.testing.assert_array_equal(again.project_x(X), projector.project_x(X))
    np.testing.assert_array_equal(again.project_z(Z), projector.project_z(Z))
    similarities = np.linspace(-0.5, 1.5, 41)
    probabilities = again.probability(similarities)
    np.testing.assert_array_equal(probabilities, projector.probability(similarities))
    assert (np.diff(probabilities) >= 0.0).all()
    assert 0.0 <= probabilities.min() < probabilities.max() <= 1.0


@pytest.mark.parametrize("alpha_fraction", [None, 1e-3])
def test_samples_that_carry_labels_are_found_by_them(alpha_fraction: float | None, tmp_path: Path) -> None:
    (X, x), (Z, z) = _rings(200, 4, 0), _blobs(180, 4, 1)
    names = np.array(["a", "b", "c", "d"])
    model = SemanticBilinear(alpha_fraction=alpha_fraction, **QUICK).fit(X, Z, Labels(names[x], names[z]))
    save_projector(PosteriorProjector.of(model), tmp_path, {})
    projector, _ = load_projector(tmp_path)
    assert projector.facets == ("label",)
    (X, x), (Z, z) = _rings(100, 4, 6), _blobs(100, 4, 7)
    queries, projected = projector.project_z(Z), projector.project_x(X)
    nothing = np.full_like(projected, np.nan)
    by_content = mean_average_precision(queries, projected, z, x)
    labels = [[name, "of no class"] for name in names[x]]
    placed = projector.place(projected, nothing, {"label": labels})
    assert mean_average_precision(queries, placed, z, x) > max(by_content, 0.95)
    labels[0], labels[1] = [], [names[(x[1] + 1) % 4]]  # none, and one that the content contradicts
    projected[1] = np.eye(4, dtype=np.float32)[x[1]] @ projector.arrays()["x_factors"]
    placed = projector.place(projected, nothing, {"label": labels})
    np.testing.assert_array_equal(placed[0], projected[0])
    np.testing.assert_allclose(placed[1], projected[1], atol=1e-4)
    np.testing.assert_array_equal(projector.place(projected, nothing, {}), projected)


def test_a_sample_of_many_classes_is_placed_in_a_moment() -> None:
    n_classes = 1500
    feature_map = FeatureMap.fit(np.eye(3), "standard", "linear", 1.0, 10, 0)
    classifier = LinearClassifier(np.zeros((3, n_classes)), np.zeros(n_classes), True)
    ensemble = Ensemble((Branch(feature_map, (WeightedClassifier(classifier, 1.0),)),))
    factors, names = np.eye(n_classes, dtype=np.float32), tuple(map(str, range(n_classes)))
    projector = PosteriorProjector(ensemble, ensemble, factors, factors, "squared", names)
    projected = projector.project_x(np.zeros((1, 3)))
    began = time.process_time()
    placed = projector.place(projected, np.full_like(projected, np.nan), {"label": [["7"]]})
    assert time.process_time() - began < 1.0
    assert placed[0].argmax() == 7


@pytest.mark.parametrize("how", ["cut", "flat", "nan", "int8", "gone"])
@pytest.mark.parametrize("has_neighbours", [False, True])
def test_a_damaged_array_is_rejected(
    fitted: SemanticBilinear, fused: SemanticBilinear, how: str, has_neighbours: bool
) -> None:
    projector = PosteriorProjector.of(fused if has_neighbours else fitted)
    for name in sorted(projector.arrays()):
        arrays = projector.arrays()
        array = arrays[name]
        if how == "gone":
            del arrays[name]
        elif array.size == 0:
            continue
        else:
            arrays[name] = {
                "cut": lambda a: a[:-1],
                "flat": lambda a: a.ravel()[:1].reshape(()),
                "nan": lambda a: a * np.nan,
                "int8": lambda a: a.astype(np.int8),
            }[how](array)
        with pytest.raises(InvalidInputError, match=r"[xz]_"):
            PosteriorProjector.from_arrays(arrays, projector.describe())


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("kernel", ["poly"]),
        ("scaling", ["log"]),
        ("gamma", [np.nan, -1e6]),
        ("is_exclusive", [1]),
        ("weight", [None, -5.0, 0.0, 1e308, np.nan, 0.4]),
        ("map", [-1, 1, 7, True, None, "0"]),
        ("read_out_scale", [0.0, -1.0, np.nan, np.inf, 1e39, 2, None, "2"]),
    ],
)
def test_a_damaged_description_is_rejected(fused: SemanticBilinear, field: str, values: list[Any]) -> None:
    projector = PosteriorProjector.of(fused)
    for value in values:
        described = projector.describe()
        is_vote = [classifier.get("read_out_scale") == 2.0 for classifier in described["x"]]
        described["x"][is_vote.index(True) if field == "read_out_scale" else 0][field] = value
        with pytest.raises(InvalidInputError, match=r"x\.0\.map" if field == "map" else "x"):
            PosteriorProjector.from_arrays(projector.arrays(), described)
    for changed in ({"x": []}, {"x": "all"}, {"loss": "hinge"}, {"classes": ["a"]}, {"classes": "abcd"}):
        with pytest.raises(InvalidInputError):
            PosteriorProjector.from_arrays(projector.arrays(), {**projector.describe(), **changed})


def test_a_feature_map_is_stored_once(fused: SemanticBilinear, tmp_path: Path) -> None:
    projector = PosteriorProjector.of(fused)
    n_branches = len(projector.x_ensemble.branches)
    assert n_branches < len(projector.x_ensemble.members)
    names = [name for name in projector.arrays() if name.startswith("x_") and name.endswith("_landmarks")]
    assert len(names) == n_branches
    save_projector(projector, tmp_path, {})
    again, _ = load_projector(tmp_path)
    assert isinstance(again, PosteriorProjector)
    assert len(again.x_ensemble.branches) == n_branches


def _in_earlier_layout(
    projector: PosteriorProjector,
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return arrays and description with the neighbour classifier last, whatever its branch."""
    arrays, described = projector.arrays(), projector.describe()
    for side in "xz":
        # Votes of the same modality, which earlier versions did not have, have other inverse temperatures.
        is_last = [classifier.get("read_out_scale") == 2.0 for classifier in described[side]]
        order = sorted(range(len(is_last)), key=is_last.__getitem__)
        for name in [name for name in arrays if name.startswith(side) and name != f"{side}_factors"]:
            _, number, part = name.split("_", 2)
            arrays[f"new_{side}_{order.index(int(number))}_{part}"] = arrays.pop(name)
        described[side] = [
            {**described[side][number], "map": order.index(described[side][number]["map"])}
            for number in order
        ]
    return {name.removeprefix("new_"): array for name, array in arrays.items()}, described


def test_files_of_earlier_versions_end_with_the_neighbour_classifier() -> None:
    (X, x), (Z, z) = _rings(200, 4, 0), _blobs(180, 4, 1)
    parameters = {**QUICK, "n_rounds": 6, "n_kept": 4}
    fitted = SemanticBilinear(neighbour_share=0.3, **parameters).fit(X, Z, Labels(x, z))
    projector = PosteriorProjector.of(fitted)
    arrays, described = _in_earlier_layout(projector)
    assert described != projector.describe()
    again = PosteriorProjector.from_arrays(arrays, described)
    np.testing.assert_array_equal(again.project_x(X), projector.project_x(X))
    np.testing.assert_array_equal(again.project_z(Z), projector.project_z(Z))
    assert again.describe() == projector.describe()


def test_a_description_without_maps_has_a_branch_for_each_classifier(fitted: SemanticBilinear) -> None:
    projector = PosteriorProjector.of(fitted)
    first = projector.x_ensemble.branches[0]
    single = dataclasses.replace(first, classifiers=(dataclasses.replace(first.classifiers[0], weight=0.5),))
    twice = dataclasses.replace(projector, x_ensemble=Ensemble((single, single)))
    described = twice.describe()
    for classifier in described["x"]:
        del classifier["map"]
    again = PosteriorProjector.from_arrays(twice.arrays(), described)
    assert len(again.x_ensemble.branches) == 2
    X, _ = _rings(30, 4, 6)
    np.testing.assert_array_equal(again.project_x(X), twice.project_x(X))


@pytest.mark.parametrize(
    "name",
    ["x_factors", "x_0_landmarks", "x_0_whitening", "x_0_coefficients", "x_n_anchors", "x_n_indicators"],
)
def test_values_whose_sums_would_overflow_are_rejected(fused: SemanticBilinear, name: str) -> None:
    projector = PosteriorProjector.of(fused)
    arrays = projector.arrays()
    kinds = [member.kind for member in projector.x_ensemble.members]
    name = name.replace("_n_", f"_{kinds.index('neighbours')}_")
    arrays[name] = np.full_like(arrays[name], 1e38)
    with pytest.raises(InvalidInputError, match=name):
        PosteriorProjector.from_arrays(arrays, projector.describe())


def test_classifiers_of_one_side_must_take_the_same_features(fitted: SemanticBilinear) -> None:
    projector = PosteriorProjector.of(fitted)
    first = projector.x_ensemble.branches[0]
    half = dataclasses.replace(first.classifiers[0], weight=0.5)
    branch = dataclasses.replace(first, classifiers=(half,))
    twice = dataclasses.replace(projector, x_ensemble=Ensemble((branch, branch)))
    arrays = twice.arrays()
    for part in ("mean", "scale", "landmarks"):
        array = arrays[f"x_1_{part}"]
        arrays[f"x_1_{part}"] = np.concatenate([array, array[..., :1]], axis=-1)
    with pytest.raises(InvalidInputError, match="x_1_mean"):
        PosteriorProjector.from_arrays(arrays, twice.describe())
    described = twice.describe()
    described["x"][1]["is_exclusive"] = False
    with pytest.raises(InvalidInputError, match="x_1: is_exclusive"):
        PosteriorProjector.from_arrays(twice.arrays(), described)


def test_a_file_of_another_kind_is_rejected(fitted: SemanticBilinear, tmp_path: Path) -> None:
    save_projector(PosteriorProjector.of(fitted), tmp_path, {})
    header = (tmp_path / "model.json").read_text(encoding="utf-8")
    (tmp_path / "model.json").write_text(header.replace('"format": 2', '"format": 1'), encoding="utf-8")
    with pytest.raises(ArtifactError, match="x_scaling"):
        load_projector(tmp_path)
