import numpy as np

from solver.baselines import CentredBasis


def test_coordinates_along_the_axes_give_the_centred_samples() -> None:
    samples = np.random.default_rng(0).standard_normal((20, 5)) + 3.0
    basis = CentredBasis.of(samples, "X")
    np.testing.assert_allclose(basis.coordinates @ basis.axes.T + basis.mean, samples, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(basis.coordinates, axis=0), basis.lengths, rtol=1e-12)
    assert basis.n_bytes == 8 * (5 * 5 + 20 * 5)
