"""The same samples on the same number of threads give the same bits."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

from solver import Labels, LowRankBilinear, alpha_max, make_low_rank_pairs
from solver.linalg import singular_triplets_above, spectral_norm


def _bag_of_words(n: int, d: int, n_words: int, seed: int) -> tuple[Any, Any]:
    """Return labels and counts of words of which most never occur."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 5
    counts = np.zeros((n, d))
    used = np.sort(rng.permutation(d)[:n_words])
    topical = np.arange(n_words)[None, :] % 7 == labels[:, None]
    counts[:, used] = rng.poisson(np.where(topical, 0.8, 0.2))
    return labels, counts


def _bits(model: LowRankBilinear) -> list[bytes]:
    names = ("x_factors_", "z_factors_", "x_intercept_", "z_intercept_", "singular_values_")
    numbers = np.array([model.objective_, model.duality_gap_, model.n_iter_])
    return [np.ascontiguousarray(getattr(model, name)).tobytes() for name in names] + [numbers.tobytes()]


def _disturb(seed: int) -> None:
    """Change whatever state of random numbers or of ARPACK a fit might lean on."""
    np.random.seed(seed)  # noqa: NPY002
    A = scipy.sparse.random_array((90, 90), density=0.1, rng=np.random.default_rng(seed))
    scipy.sparse.linalg.eigsh(A @ A.T, k=3)


@pytest.mark.parametrize(("as_sparse", "fraction"), [(False, 1 / 4), (True, 1 / 40)])
def test_words_that_never_occur_give_the_same_bits_again(fraction: float, as_sparse: bool) -> None:
    # More than 600 features on both sides, of which 40 and 30 count: the gradient has rank 31 at most,
    # so that Lanczos runs out of directions and has to draw new ones.
    x_labels, X = _bag_of_words(660, 640, 40, 0)
    z_labels, Z = _bag_of_words(620, 630, 30, 1)
    supervision = Labels(x_labels, z_labels)
    samples: Any = [scipy.sparse.csr_array(side) if as_sparse else side for side in (X, Z)]
    alpha = fraction * alpha_max(*samples, supervision)
    fits = []
    for seed in range(2):
        _disturb(seed)
        assert fraction * alpha_max(*samples, supervision) == alpha
        fits.append(LowRankBilinear(alpha, n_threads=2).fit(*samples, supervision))
    assert fits[0].converged_
    assert _bits(fits[0]) == _bits(fits[1])


SMALL, WIDE, LARGE = (60, 50, 12, 9), (40, 50, 70, 60), (1600, 400, 12, 9)  # the last on several lanes
PARAMETERS = [{}, {"dtype": np.float64}, {"tol": 1e-6}, {"solver": "paper", "tol": 1e-2}]


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [*itertools.product((SMALL, WIDE), PARAMETERS), (LARGE, {}), (LARGE, {"tol": 1e-5})],
)
def test_fitting_again_gives_the_same_bits(
    shape: tuple[int, int, int, int], parameters: dict[str, Any]
) -> None:
    m, n, d1, d2 = shape
    data = make_low_rank_pairs(m, n, n_features_x=d1, n_features_z=d2, noise=2.0, random_state=0)
    supervision = Labels(data.x_labels, data.z_labels)
    alpha = alpha_max(data.X, data.Z, supervision) / 30
    bits = []
    for seed, n_threads in enumerate((2, 2, 1)):
        _disturb(seed)
        model = LowRankBilinear(alpha, n_threads=n_threads, **parameters)
        bits.append(_bits(model.fit(data.X, data.Z, supervision)))
    assert bits[0] == bits[1]
    assert bits[0] == bits[2]  # nor does the number of threads matter


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rank", [1, 5, 200])
def test_large_matrix_of_low_rank_has_the_same_triplets_again(dtype: type, rank: int) -> None:
    rng = np.random.default_rng(0)
    A = np.zeros((650, 640), dtype)
    used = rng.permutation(640)[: 2 * rank]
    A[:, used] = rng.standard_normal((650, rank)) @ rng.standard_normal((rank, len(used)))
    s = np.linalg.svd(A.astype(np.float64), compute_uv=False)
    threshold = float(s[rank // 2]) * 0.999
    found = []
    for seed in range(2):
        _disturb(seed)
        triplets = singular_triplets_above(A, threshold)
        found.append((triplets, spectral_norm(A)))
    kept = np.count_nonzero(s > threshold)
    assert found[0][0].rank == kept
    np.testing.assert_allclose(found[0][0].s, s[:kept], rtol=100 * float(np.finfo(dtype).eps))
    assert found[0][1] == found[1][1] == pytest.approx(s[0], rel=1e-12)
    for name in ("U", "s", "V"):
        np.testing.assert_array_equal(getattr(found[0][0], name), getattr(found[1][0], name))
