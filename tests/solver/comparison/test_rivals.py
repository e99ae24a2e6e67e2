from typing import Any

import numpy as np
import pytest

from solver import Labels, SemanticBilinear, SemanticMatching, mean_average_precision
from solver.comparison import METHODS, chosen_methods, compare
from solver.comparison.methods import Axis, KernelSemanticMatching, SemanticIdentity
from solver.datasets import PairedFeatures
from solver.scaling.feature_maps import FeatureMap
from solver.validation import InvalidInputError, InvalidParameterError

SMALL: dict[str, Any] = {
    "kernels": ("rbf",), "n_landmarks": 20, "n_folds": 3, "n_kept": 1, "n_rounds": 2, "n_jobs": 1
}  # fmt: skip


def test_the_identity_is_the_same_method_but_for_m(data: PairedFeatures) -> None:
    labels = Labels(data.labels)
    identity, learned = (
        each(alpha_fraction=1e-3, **SMALL).fit(data.X, data.Z, labels)
        for each in (SemanticIdentity, SemanticBilinear)
    )
    x, z = learned.x_posteriors_.predict(data.X), learned.z_posteriors_.predict(data.Z)
    np.testing.assert_array_equal(identity.similarity(data.X, data.Z), x @ z.T)
    assert not np.allclose(learned.similarity(data.X, data.Z), x @ z.T, atol=1e-3)


def test_kernel_matching_is_semantic_matching_of_the_maps_of_semantic_bilinear(data: PairedFeatures) -> None:
    labels = Labels(data.labels)
    model = KernelSemanticMatching(("rbf", 3.0), ("laplacian", 0.3), C=3.0, z_C=75.0, n_landmarks=30)
    model.fit(data.X, data.Z, labels)
    maps = [
        FeatureMap.fit(samples, "none", kernel, width, 30, 0)
        for samples, kernel, width in ((data.X, "rbf", 3.0), (data.Z, "laplacian", 0.3))
    ]
    matching = SemanticMatching(3.0, z_C=75.0)
    matching.fit(maps[0].transform(data.X), maps[1].transform(data.Z), labels)
    expected = matching.similarity(maps[0].transform(data.X), maps[1].transform(data.Z))
    np.testing.assert_array_equal(model.similarity(data.X, data.Z), expected)


def test_a_kernel_separates_what_no_line_does() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 2
    X, Z = (rng.standard_normal((120, 2)) for _ in range(2))
    for side in (X, Z):  # a disc and the ring around it
        side *= ((0.5 + 2.0 * labels) / np.linalg.norm(side, axis=1))[:, None]
    quality = {}
    for kernel in ("linear", "rbf"):
        model = KernelSemanticMatching((kernel, 1.0), (kernel, 1.0)).fit(X, Z, Labels(labels))
        quality[kernel] = mean_average_precision(model.project_x(X), model.project_z(Z), labels, labels)
    assert quality["linear"] < 0.7
    assert quality["rbf"] > 0.99


def test_a_long_laplacian_and_a_map_that_does_not_exist_are_refused(data: PairedFeatures) -> None:
    wide = np.random.default_rng(0).standard_normal((len(data.labels), 257))
    with pytest.raises(InvalidInputError, match="257 features"):
        KernelSemanticMatching(("laplacian", 1.0)).fit(wide, data.Z, Labels(data.labels))
    for wrong in (("cubic", 1.0), ("rbf", 0.0), "rbf"):
        with pytest.raises(InvalidParameterError, match="x_map"):
            KernelSemanticMatching(wrong).fit(data.X, data.Z, Labels(data.labels))  # type: ignore[arg-type]


def test_what_is_optional_is_compared_where_it_is_named(data: PairedFeatures) -> None:
    optional = {name for name, method in METHODS.items() if method.is_optional}
    assert optional >= {"SemanticIdentity", "KernelSemanticMatching"}
    assert {method.name for method in chosen_methods(None)} == set(METHODS) - optional
    found = compare(
        data,
        methods=["SemanticMatching", "KernelSemanticMatching"],
        pca=(False,),
        n_jobs=1,
        n_resamples=50,
        n_permutations=50,
    )
    assert [row.method for row in found.rows] == ["SemanticMatching", "KernelSemanticMatching"]


def test_rivals_have_what_semantic_bilinear_has() -> None:
    axes: dict[str, Axis] = {axis.name: axis for axis in METHODS["KernelSemanticMatching"].grid}
    assert {name for name, _ in axes["x_map"].values} == set(SemanticBilinear().kernels)
    assert KernelSemanticMatching().n_landmarks == SemanticBilinear().n_landmarks
    assert "n_components" in {axis.name for axis in METHODS["SCM"].grid}
