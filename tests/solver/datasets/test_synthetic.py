from typing import Any

import numpy as np
import pytest

from solver import make_low_rank_pairs
from solver.validation import InvalidParameterError


def test_synthetic_pairs_are_seeded() -> None:
    first, second, other = (make_low_rank_pairs(random_state=seed) for seed in (0, 0, 1))
    for name in ("X", "Z", "x_labels", "z_labels", "M"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert not np.array_equal(first.X, other.X)
    by_generator = make_low_rank_pairs(random_state=np.random.default_rng(0))
    np.testing.assert_array_equal(by_generator.X, first.X)


def test_synthetic_truth_has_rank_classes_minus_one_and_matches_equal_classes() -> None:
    data = make_low_rank_pairs(30, 25, n_classes=4, noise=0.0, random_state=0)
    assert (data.X.shape, data.Z.shape, data.M.shape) == ((30, 20), (25, 15), (20, 15))
    np.testing.assert_allclose(
        np.linalg.svd(data.M, compute_uv=False), [1.0] * 3 + [0.0] * 12, atol=1e-14
    )  # a few eps
    similar = data.x_labels[:, None] == data.z_labels[None, :]
    np.testing.assert_allclose(data.X @ data.M @ data.Z.T, np.where(similar, 1.0, -1 / 3), atol=1e-14)


def test_synthetic_classes_are_nearly_equally_frequent() -> None:
    data = make_low_rank_pairs(32, 33, n_classes=5, random_state=0)
    for labels in (data.x_labels, data.z_labels):
        counts = np.bincount(labels, minlength=5)
        assert counts.max() - counts.min() <= 1


def test_synthetic_noise_has_the_stated_length() -> None:
    quiet = make_low_rank_pairs(4000, 4000, noise=0.0, random_state=0)
    noisy = make_low_rank_pairs(4000, 4000, noise=0.7, random_state=0)
    for name in ("X", "Z"):
        noise = getattr(noisy, name) - getattr(quiet, name)
        length = np.sqrt(np.mean(np.sum(noise**2, axis=1)))
        assert length == pytest.approx(0.7, rel=0.02)  # 60000 squares: 1/sqrt(2 * 60000) = 0.3 %


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"n_features_x": 4}, "n_features_x"),
        ({"n_features_z": 4}, "n_features_z"),
        ({"n_classes": 1}, "n_classes"),
        ({"n_samples_x": 4}, "n_classes"),
        ({"n_samples_z": 4}, "n_classes"),
        ({"noise": -0.1}, "noise"),
        ({"noise": np.nan}, "noise"),
    ],
)
def test_synthetic_pairs_of_unusable_parameters_are_refused(parameters: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{name} must be"):
        make_low_rank_pairs(**parameters)
