import dataclasses
import json
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone

from solver import CCA, AffineProjector, FeatureScaler, Labels, LowRankBilinear, SemanticBilinear, load
from solver.artifacts import load_projector, save_projector
from solver.bilinear.estimator import LabelledPair, fit_projector
from solver.datasets import SyntheticPairs
from solver.validation import ArtifactError, InvalidInputError, NotFittedError
from tests.solver.every_estimator import CROSS_MODAL, LINEAR, cheap, fitted_once, make_pairs

FROM_PAIRS = ("LowRankBilinear", "CompositeBilinear", "CCA")
FACTS = {"classes": ["a", "b\u00fc"], "alpha": 0.02, "nested": {"n": [1, None]}}


def _projector(pairs: SyntheticPairs, alpha_fraction: float = 0.05) -> AffineProjector:
    names = np.array(list("abcd"))
    data = LabelledPair(pairs.X, pairs.Z, names[pairs.x_labels], names[pairs.z_labels])
    return fit_projector(data, "center", LowRankBilinear(), alpha_fraction)


@pytest.fixture
def saved(pairs: SyntheticPairs, tmp_path: Path) -> Path:
    save_projector(_projector(pairs), tmp_path, FACTS)
    return tmp_path


@pytest.mark.parametrize("alpha_fraction", [0.05, 1.0])
def test_projector_and_facts_come_back_as_they_were_saved(
    pairs: SyntheticPairs, tmp_path: Path, alpha_fraction: float
) -> None:
    projector = _projector(pairs, alpha_fraction)
    assert (projector.rank == 0) == (alpha_fraction == 1.0)
    save_projector(projector, tmp_path, FACTS)
    again, facts = load_projector(tmp_path)
    assert facts == FACTS
    for name, array in projector.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array)
        assert again.arrays()[name].dtype == array.dtype
    np.testing.assert_array_equal(again.project_x(pairs.X), projector.project_x(pairs.X))
    np.testing.assert_array_equal(again.project_z(pairs.Z), projector.project_z(pairs.Z))


def test_the_loss_says_what_a_similarity_is_and_files_that_name_none_are_of_the_papers(
    pairs: SyntheticPairs, tmp_path: Path
) -> None:
    similarities = np.array([-2.0, 0.0, 0.25, 3.0])
    projector = dataclasses.replace(_projector(pairs), loss="squared")
    save_projector(projector, tmp_path, FACTS)
    again, _ = load_projector(tmp_path)
    np.testing.assert_array_equal(again.probability(similarities), [0.0, 0.0, 0.25, 1.0])
    path = tmp_path / "model.json"
    header = json.loads(path.read_text(encoding="utf-8"))
    for other in ("evil", None, ["squared"]):
        path.write_text(json.dumps({**header, "loss": other}), encoding="utf-8")
        with pytest.raises(ArtifactError, match="loss"):
            load_projector(tmp_path)
    del header["loss"]
    path.write_text(json.dumps(header), encoding="utf-8")
    older, _ = load_projector(tmp_path)
    assert older.probability(similarities)[1] == 0.5


@pytest.mark.parametrize("facts", [{"a": np.float32(1)}, {"a": float("nan")}])
def test_facts_that_are_no_json_are_refused_before_a_file_is_written(
    pairs: SyntheticPairs, tmp_path: Path, facts: dict[str, Any]
) -> None:
    with pytest.raises((TypeError, ValueError), match="JSON"):
        save_projector(_projector(pairs), tmp_path, facts)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
@pytest.mark.parametrize("content", [None, b"", b"\x00", b"\xff" * 40, b"[" * 200_000, b"{}", b"[]", b"1"])
def test_missing_or_damaged_file_is_named(saved: Path, name: str, content: bytes | None) -> None:
    (saved / name).unlink()
    if content is not None:
        (saved / name).write_bytes(content)
    with pytest.raises(ArtifactError, match=name):
        load_projector(saved)


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "BOOL", "F64", "NEW"])
def test_safetensors_of_other_types_are_refused(saved: Path, dtype: str) -> None:
    width = {"BF16": 2, "F64": 8}.get(dtype, 1)
    header = json.dumps({"x_mean": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * width]}}).encode()
    (saved / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(2 * width))
    with pytest.raises(ArtifactError):
        load_projector(saved)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 2),
        ("format", True),
        ("format", "1"),
        ("format", None),
        ("x_scaling", "evil"),
        ("x_scaling", ["l2"]),
        ("z_scaling", None),
        ("z_scaling", ""),
        ("facts", "x"),
        ("facts", [["a", 1]]),
        ("facts", None),
        ("facts", {"a": float("nan")}),
    ],
)
def test_unusable_field_is_named(saved: Path, field: str, value: Any) -> None:
    path = saved / "model.json"
    header = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**header, field: value}), encoding="utf-8")
    expected = "NaN" if field == "facts" and isinstance(value, dict) else field
    with pytest.raises(ArtifactError, match=expected):
        load_projector(saved)
    del header[field]
    path.write_text(json.dumps(header), encoding="utf-8")
    with pytest.raises(ArtifactError, match=field):
        load_projector(saved)


@pytest.mark.parametrize("Estimator", CROSS_MODAL)
def test_a_saved_estimator_comes_back_to_the_bit(
    Estimator: type[Any], pairs: SyntheticPairs, tmp_path: Path
) -> None:
    model = fitted_once(Estimator)
    model.save(tmp_path / "new folder")
    again = load(tmp_path / "new folder")
    assert type(again) is Estimator
    assert again.get_params() == model.get_params()
    assert vars(again).keys() == vars(model).keys()
    np.testing.assert_array_equal(again.similarity(pairs.X, pairs.Z), model.similarity(pairs.X, pairs.Z))
    assert again.project_x(pairs.X).dtype == model.project_x(pairs.X).dtype
    assert clone(again).get_params() == model.get_params()
    with pytest.raises(NotFittedError, match="call fit first"):
        cheap(Estimator).save(tmp_path)
    assert sorted(file.name for file in tmp_path.rglob("*.*")) == ["model.json", "model.safetensors"]


@pytest.mark.parametrize("Estimator", [each for each in CROSS_MODAL if each.__name__ in FROM_PAIRS])
def test_what_learned_from_pairs_comes_back_as_well(
    Estimator: type[Any], pairs: SyntheticPairs, tmp_path: Path
) -> None:
    rows = slice(min(len(pairs.X), len(pairs.Z)))
    model = cheap(Estimator).fit(pairs.X[rows], pairs.Z[rows])
    model.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).project_x(pairs.X), model.project_x(pairs.X))
    assert load(tmp_path).score(pairs.X[rows], pairs.Z[rows]) > 0


@pytest.mark.filterwarnings("ignore::solver.RankWarning")
def test_names_of_columns_sparse_landmarks_and_special_numbers_are_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    Z = scipy.sparse.random_array((40, 5000), density=0.01, rng=rng)
    X = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
    labels = np.arange(40) % 2
    model = SemanticBilinear(kernels=("rbf",), n_landmarks=10, n_folds=2, n_kept=1, n_rounds=1, n_jobs=1)
    model.fit(X, Z, labels).save(tmp_path)
    again = load(tmp_path)
    np.testing.assert_array_equal(again.similarity(X, Z), model.similarity(X, Z))
    with pytest.raises(InvalidInputError, match="their order"):
        again.project_x(X[["b", "a", "c"]])
    fitted = CCA(np.int64(2)).fit(X, X, labels)
    fitted.correlations_ = np.float32(np.inf)
    fitted.save(tmp_path)
    assert load(tmp_path).correlations_ == np.inf


def test_what_is_no_estimator_is_refused_by_name(saved: Path, tmp_path: Path, pairs: SyntheticPairs) -> None:
    with pytest.raises(ArtifactError, match="holds a projector, which `load_projector` reads"):
        load(saved)
    with pytest.raises(ArtifactError, match=r"model\.safetensors is not a readable"):
        load(tmp_path / "nowhere")
    model = LowRankBilinear(alpha_fraction=0.1).fit(pairs.X, pairs.Z, Labels(pairs.x_labels, pairs.z_labels))
    model.save(tmp_path)
    with pytest.raises(ArtifactError, match="holds an estimator, which `load` reads"):
        load_projector(tmp_path)
    header = json.loads((tmp_path / "model.json").read_text())
    state = header["estimator"]["fields"]["dict"]
    for damage in (
        {"estimator": {"object": "Popen", "fields": {"dict": {"args": "true"}}}},
        {"estimator": {"object": "IterationProgress", "fields": {"dict": {}}}},
        {"estimator": {"object": "Choice", "fields": {"dict": {"maps": [], "useless": {"dict": {}}}}}},
        {"estimator": {"words": ["a"]}},
        {"estimator": {"object": "LowRankBilinear", "fields": {"dict": {**state, "tol": -1}}}},
        {"estimator": {"object": "LowRankBilinear", "fields": {"dict": {"alpha": 1}}}},
        {"estimator": {**header["estimator"], "fields": {"dict": {"x_factors_": {"array": "none"}}}}},
    ):
        (tmp_path / "model.json").write_text(json.dumps({**header, **damage}))
        with pytest.raises(ArtifactError, match="no estimator of this version"):
            load(tmp_path)


def test_what_a_file_cannot_hold_is_named_when_it_is_saved(pairs: SyntheticPairs, tmp_path: Path) -> None:
    model = fitted_once(CCA)
    other = clone(model)
    vars(other).update(vars(model), extra_=Path("/"))
    with pytest.raises(TypeError, match=r"CCA\.extra_ is a \w*Path, which has no file format"):
        other.save(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("Estimator", LINEAR)
def test_m_is_the_matrix_between_raw_features(Estimator: type[Any], pairs: SyntheticPairs) -> None:
    model = fitted_once(Estimator)
    assert model.M_.shape == (pairs.X.shape[1], pairs.Z.shape[1])
    if getattr(model, "metric_", "inner") == "inner":
        x, z = np.zeros((1, model.M_.shape[0])), np.zeros((1, model.M_.shape[1]))
        bilinear = [
            model.similarity(a, b) for a, b in ((pairs.X, pairs.Z), (pairs.X, z), (x, pairs.Z), (x, z))
        ]
        found = bilinear[0] - bilinear[1] - bilinear[2] + bilinear[3]
        np.testing.assert_allclose(pairs.X @ model.M_ @ pairs.Z.T, found, rtol=1e-3, atol=1e-3)


def _fitted(pairs: SyntheticPairs, alpha: float = 0.02, **parameters: Any) -> tuple[AffineProjector, Any]:
    scalers = FeatureScaler("center").fit(pairs.X), FeatureScaler("standard").fit(pairs.Z)
    model = LowRankBilinear(alpha, **parameters).fit(
        scalers[0].transform(pairs.X), scalers[1].transform(pairs.Z), Labels(pairs.x_labels, pairs.z_labels)
    )
    return AffineProjector.of(*scalers, model), model


def test_projections_are_float32_whatever_the_estimator_computed_in(pairs: SyntheticPairs) -> None:
    projector, _ = _fitted(pairs, dtype=np.float64)
    assert projector.project_x(pairs.X).dtype == np.float32
    assert projector.project_z(pairs.Z).dtype == np.float32


def _broken(array: npt.NDArray[Any], how: str) -> npt.NDArray[Any]:
    if how == "cut":
        return array[:-1]
    if how == "narrow":
        return array[..., :-1]
    if how == "flat":
        return array.ravel()[:1].reshape(())
    if how == "deep":
        return array[None]
    if how == "int8":
        return array.astype(np.int8)
    if how == "complex":
        return array.astype(complex)
    broken = array.copy()
    broken.flat[-1] = {"nan": np.nan, "inf": np.inf}[how]
    return broken


NAMES = [f"{side}_{part}" for side in "xz" for part in ("mean", "scale", "factors", "intercept")]


@cache
def _arrays() -> dict[str, npt.NDArray[Any]]:
    return _fitted(make_pairs())[0].arrays()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["cut", "narrow", "flat", "deep", "int8", "complex", "nan", "inf"])
def test_array_that_does_not_fit_is_refused(name: str, how: str) -> None:
    # Where two arrays disagree, either may be the one that is named.
    named = name if how in ("int8", "nan") else r"[xz]_\w+"
    with pytest.raises(InvalidInputError, match=rf"^{named} (must|contains)"):
        AffineProjector.from_arrays({**_arrays(), name: _broken(_arrays()[name], how)}, "center", "standard")


@pytest.mark.parametrize("name", NAMES)
def test_missing_and_unknown_arrays_are_refused(name: str) -> None:
    others = {each: array for each, array in _arrays().items() if each != name}
    for arrays in (others, {**_arrays(), "other": _arrays()[name]}):
        with pytest.raises(InvalidInputError, match="expected the arrays"):
            AffineProjector.from_arrays(arrays, "center", "center")
