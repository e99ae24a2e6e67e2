import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from solver.artifacts import load_projector, save_projector
from solver.bilinear.estimator import LowRankBilinear, fit_projector, select_on
from solver.evaluation.metrics import rank_gallery
from solver.evaluation.splits import LabelledPair
from solver.linalg import Centered, RowSpaceBasis, can_be_compact, compact, is_sparse, most_compact
from solver.logistic import Regression, Targets
from solver.projector import AffineProjector, Projector
from solver.scaling.estimator import FeatureScaler
from solver.scaling.feature_maps import FeatureMap
from solver.scaling.scaler import SCALINGS
from solver.semantic.estimator import SemanticBilinear
from solver.semantic.projector import PosteriorProjector
from solver.supervision.kinds import Labels
from solver.validation import InvalidInputError, OutOfRangeError

N_CLASSES = 4
FEW: dict[str, Any] = {"kernels": ("linear", "rbf"), "scalings": ("standard", "l2"), "n_folds": 3}
"""What is searched: kernels and none, of samples that are centred and that are not."""


def texts_like(n_samples: int, n_features: int, seed: int) -> tuple[Any, np.ndarray]:
    """Sparse rows of unit norm, of which some features are typical of the row's class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n_samples) % N_CLASSES
    rows = np.repeat(np.arange(n_samples), 12)
    typical = labels[rows] * 15 + rng.integers(15, size=len(rows))
    columns = np.where(rng.random(len(rows)) < 0.4, typical, rng.integers(n_features, size=len(rows)))
    entries = np.ones(len(rows)), (rows, columns)
    counts = scipy.sparse.coo_array(entries, shape=(n_samples, n_features)).tocsr()
    norms = np.sqrt((counts * counts).sum(axis=1))
    return scipy.sparse.csr_array(counts / norms[:, None], dtype=np.float32), labels.astype(np.str_)


def dense(samples: Any) -> np.ndarray:
    return samples if isinstance(samples, np.ndarray) else samples.toarray()


def vectors(n_samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(n_samples) % N_CLASSES
    features = np.abs(rng.normal(size=(n_samples, 8)) + 2.0 * np.eye(8)[labels]).astype(np.float32)
    return features, labels.astype(np.str_)


def stored_in_parts(samples: Any) -> Any:
    """Return the same array by rows, every entry as two parts of which one is three times the other."""
    parts = np.repeat(samples.data, 2) * np.tile([0.25, 0.75], samples.nnz).astype(samples.dtype)
    return scipy.sparse.csr_array(
        (parts, np.repeat(samples.indices, 2), 2 * samples.indptr), shape=samples.shape
    )


@pytest.mark.parametrize("kind", SCALINGS)
def test_sparse_samples_are_scaled_as_dense_ones_also_where_entries_are_stored_in_parts(kind: str) -> None:
    samples = texts_like(60, 300, 0)[0].astype(np.float64)
    parts = stored_in_parts(samples)
    before = [each.copy() for each in (parts.data, parts.indices, parts.indptr)]
    scaler, reference = FeatureScaler(kind).fit(parts), FeatureScaler(kind).fit(samples.toarray())
    np.testing.assert_allclose(scaler.mean_, reference.mean_, rtol=1e-6, atol=1e-15)
    np.testing.assert_allclose(scaler.scale_, reference.scale_, rtol=1e-5)
    for form in (parts, parts.tocsc(), samples):
        scaled = scaler.transform(form)
        assert isinstance(
            scaled, Centered if kind in ("center", "standard", "sqrt") else scipy.sparse.csr_array
        )
        np.testing.assert_allclose(
            dense(scaled), reference.transform(samples.toarray()), rtol=1e-5, atol=1e-6
        )
    for now, then in zip((parts.data, parts.indices, parts.indptr), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("method", ["l2", "semantic"])
def test_a_model_projects_sparse_samples_of_any_format(method: str) -> None:
    """With too many features to be made dense."""
    z, z_labels = texts_like(40, 9000, 12)
    x, x_labels = vectors(40, 13)
    projector: Projector
    if method == "semantic":
        estimator = SemanticBilinear(kernels=("rbf",), n_rounds=1, n_kept=1, n_landmarks=20)
        projector = PosteriorProjector.of(estimator.fit(x, z, Labels(x_labels, z_labels)))
    else:
        projector = fit_projector(LabelledPair(x, z, x_labels, z_labels), method, LowRankBilinear(), 0.03)
    wanted = projector.project_z(z)
    for form in (z.tobsr(), z.tocoo(), z.tocsc(), stored_in_parts(z.astype(np.float64))):
        np.testing.assert_allclose(projector.project_z(form), wanted, atol=1e-5 * np.abs(wanted).max())


def test_sparse_samples_out_of_range_are_named() -> None:
    samples, _ = texts_like(20, 80, 0)
    scaler = FeatureScaler("none").fit(samples * np.float32(1e-30))
    far = samples.astype(np.float64)
    far.data[far.indptr[7] : far.indptr[8]] *= 1e12
    with pytest.raises(OutOfRangeError) as refused:
        scaler.transform(far)
    assert np.flatnonzero(refused.value.is_outside).tolist() == [7]


def test_centred_products_are_those_of_the_dense_array() -> None:
    samples, _ = texts_like(30, 80, 1)
    centred = FeatureScaler("standard").fit(samples).transform(samples)
    full, rng = centred.toarray().astype(np.float64), np.random.default_rng(0)
    factors, weights = rng.normal(size=(80, 5)), rng.normal(size=(30, 5))
    np.testing.assert_allclose(centred.astype(np.float64) @ factors, full @ factors, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(centred.gather(weights), full.T @ weights, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(centred.inner_products(centred[:7]), full @ full[:7].T, rtol=1e-5, atol=1e-5)
    basis = RowSpaceBasis(centred)
    np.testing.assert_allclose(basis.reduced @ basis.reduced.T, full @ full.T, atol=1e-5)
    lifted = basis.lift(np.eye(basis.reduced.shape[1]))
    np.testing.assert_allclose(centred.astype(np.float64) @ lifted, basis.to_row_space(centred), atol=1e-4)


@pytest.mark.parametrize("n_features", [60, 400])
@pytest.mark.parametrize("method", ["none", "center", "standard", "l2", "sqrt", "semantic"])
def test_what_is_learned_from_sparse_samples_is_what_dense_ones_teach(method: str, n_features: int) -> None:
    z, z_labels = texts_like(80, n_features, 2)
    x, x_labels = vectors(60, 3)
    queries, _ = texts_like(40, n_features, 4)

    def fitted(texts: Any) -> Projector:
        if method == "semantic":
            estimator = SemanticBilinear(**FEW, n_rounds=3, n_kept=2, n_landmarks=30)
            return PosteriorProjector.of(estimator.fit(x, texts, Labels(x_labels, z_labels)))
        bilinear = LowRankBilinear(tol=1e-5, max_iter=200)
        return fit_projector(LabelledPair(x, texts, x_labels, z_labels), method, bilinear, 0.03)

    sparse, reference = fitted(z), fitted(z.toarray())
    gallery = reference.project_x(x)
    wanted = reference.project_z(queries.toarray()) @ gallery.T
    for projector, some in ((sparse, queries), (sparse, queries.toarray()), (reference, queries)):
        found = projector.project_z(some) @ projector.project_x(x).T
        # What is learned differs by rounding, and by what the fits' tolerance leaves open.
        share = 1e-5 if projector is reference else 2e-3
        np.testing.assert_allclose(found, wanted, atol=share * np.abs(wanted).max())


@pytest.mark.parametrize("method", ["center", "l2", "semantic"])
def test_one_model_ranks_sparse_samples_as_a_dense_reference_in_float64(method: str) -> None:
    """Enough samples and features that products are sparse, and rows are mapped in several blocks."""
    n_features = 9000
    z, z_labels = texts_like(400, n_features, 5)
    x, x_labels = vectors(100, 6)
    projector: Projector
    if method == "semantic":
        estimator = SemanticBilinear(**FEW, n_rounds=4, n_kept=4, n_landmarks=80).fit(
            x, z, Labels(x_labels, z_labels)
        )
        projector = PosteriorProjector.of(estimator)
    else:
        bilinear = LowRankBilinear(max_iter=50)
        projector = fit_projector(LabelledPair(x, z, x_labels, z_labels), method, bilinear, 0.03)
    found = projector.project_z(z).astype(np.float64) @ projector.project_x(x).T.astype(np.float64)
    if isinstance(projector, AffineProjector):
        scaled = FeatureScaler.restore(method, projector.z_scaler.mean_, projector.z_scaler.scale_)
        exact = scaled.transform(z.toarray()).astype(np.float64) @ projector.z_factors + projector.z_intercept
    else:
        posteriors = np.zeros((400, N_CLASSES))
        for branch in projector.z_ensemble.branches:
            mapped = in_float64(branch.feature_map, z.toarray())
            for member in branch.classifiers:
                posteriors += member.weight * member.classifier.predict(mapped)
        exact = posteriors @ projector.z_factors.astype(np.float64)
    wanted = exact @ projector.project_x(x).T.astype(np.float64)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    gaps = -np.sort(-wanted, axis=1)
    is_clear = (gaps[:, :-1] - gaps[:, 1:]).min(axis=1) > 2e-5 * np.abs(wanted).max()
    assert is_clear.any()
    np.testing.assert_array_equal(rank_gallery(found[is_clear]), rank_gallery(wanted[is_clear]))


def in_float64(features: FeatureMap, samples: np.ndarray) -> np.ndarray:
    kind, scaler = features.scaler.kind_, features.scaler
    prepared = samples.astype(np.float64)
    if kind == "l2":
        prepared /= np.linalg.norm(prepared, axis=1, keepdims=True)
    elif kind == "sqrt":
        prepared = np.sqrt(prepared)
    scaled = (prepared - scaler.mean_) * scaler.scale_
    if features.kernel == "linear":
        return scaled
    landmarks = dense(features.landmarks).astype(np.float64)
    if is_sparse(features.landmarks):
        landmarks = landmarks - scaler.mean_ * scaler.scale_
    squares = (scaled**2).sum(axis=1)[:, None] + (landmarks**2).sum(axis=1) - 2.0 * scaled @ landmarks.T
    return np.exp(-features.gamma * squares) @ features.whitening.astype(np.float64)


def test_sparse_landmarks_come_back_from_their_files(tmp_path: Path) -> None:
    z, z_labels = texts_like(80, 9000, 7)
    x, x_labels = vectors(60, 8)
    options = {"kernels": ("rbf",), "n_rounds": 2, "n_kept": 2, "n_landmarks": 30}
    projector = PosteriorProjector.of(SemanticBilinear(**options).fit(x, z, Labels(x_labels, z_labels)))
    assert all(is_sparse(branch.feature_map.landmarks) for branch in projector.z_ensemble.branches)
    save_projector(projector, tmp_path, {})
    loaded, _ = load_projector(tmp_path)
    np.testing.assert_array_equal(loaded.project_z(z), projector.project_z(z))
    described, arrays = projector.describe(), projector.arrays()
    name = next(name for name in arrays if name.endswith("landmark_columns"))
    for damage in (arrays[name] + 9000, arrays[name][1:], arrays[name].astype(np.float64)):
        with pytest.raises(InvalidInputError, match="landmark"):
            PosteriorProjector.from_arrays({**arrays, name: damage}, described)


def test_a_regression_of_centred_samples_that_are_never_dense_is_that_of_dense_ones() -> None:
    samples, labels = texts_like(200, 80, 9)
    centred = FeatureScaler("center").fit(samples).transform(samples)
    targets = Targets(np.eye(N_CLASSES)[labels.astype(int)], True)
    sparse = Regression(True, np.float64, 1e-9, 5000).fit(centred, targets, 3.0)
    reference = Regression(True, np.float64, 1e-9, 5000).fit(centred.toarray(), targets, 3.0)
    np.testing.assert_allclose(sparse.predict(centred), reference.predict(centred.toarray()), atol=1e-5)


@pytest.mark.parametrize("scaling", ["center", "l2"])
def test_the_choice_of_classifiers_is_made_on_as_many_sparse_samples_as_can_be_centred(
    scaling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("solver.linalg._MOST_ENTRIES", 10_000)
    z, z_labels = texts_like(400, 300, 14)
    x, x_labels = vectors(120, 15)
    estimator = SemanticBilinear(scalings=(scaling,), kernels=("linear",), n_rounds=2)
    estimator.fit(x, z, Labels(x_labels, z_labels))
    found = estimator.similarity(x, z)
    assert np.mean(x_labels[found.argmax(axis=0)] == z_labels) > 0.9
    assert len(estimator.z_posteriors_.out_of_fold) == 400


def test_samples_that_no_feature_map_suits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    z, z_labels = texts_like(400, 300, 16)
    x, x_labels = vectors(120, 17)
    labels = Labels(x_labels, z_labels)
    with pytest.raises(InvalidInputError, match="suits"):
        SemanticBilinear(kernels=("laplacian",)).fit(x, z, labels)
    # Not even two samples of each class can be centred.
    monkeypatch.setattr("solver.linalg._MOST_ENTRIES", 10)
    with pytest.raises(InvalidInputError, match="suits"):
        SemanticBilinear(kernels=("linear",)).fit(x, z, labels)
    SemanticBilinear(kernels=("rbf",), n_landmarks=20, n_rounds=1, n_kept=1, n_folds=2).fit(x, z, labels)


def test_sparse_samples_cannot_be_centred_beyond_the_bound_that_is_stated() -> None:
    for n_features in (257, 5000, 12_000, 10**6):
        assert can_be_compact(most_compact(n_features), n_features)
        assert not can_be_compact(most_compact(n_features) + 1, n_features)


def test_too_many_sparse_samples_are_not_centred_in_one_array() -> None:
    assert can_be_compact(10**6, 100)
    assert can_be_compact(2000, 10**6)
    assert not can_be_compact(20_000, 200_000)
    huge = scipy.sparse.csr_array((20_000, 200_000), dtype=np.float32)
    with pytest.raises(InvalidInputError, match="l2"):
        compact(Centered(huge, np.zeros(200_000, np.float32)))


@pytest.mark.parametrize("scaling", ["center", "l2"])
def test_learning_from_very_many_features_takes_memory_for_what_is_there(scaling: str) -> None:
    n_features = 200_000
    z, z_labels = texts_like(300, n_features, 10)
    x, x_labels = vectors(100, 11)
    pair, held_out = (
        LabelledPair(x, z, x_labels, z_labels),
        LabelledPair(x, z[:100], x_labels, z_labels[:100]),
    )
    tracemalloc.start()
    select_on(pair, held_out, scalings=(scaling,), alpha_fractions=(0.03,))
    projector = fit_projector(pair, scaling, LowRankBilinear(max_iter=10, tol=1e-2), 0.03)
    projector.project_z(z)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * 4 * 300 * n_features, "less than half of the dense float32 array"
