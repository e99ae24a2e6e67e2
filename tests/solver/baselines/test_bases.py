import numpy as np
import pytest

from solver.baselines import CentredBasis
from solver.validation import InvalidInputError


def test_coordinates_along_the_axes_give_the_centred_samples() -> None:
    samples = np.random.default_rng(0).standard_normal((20, 5)) + 3.0
    basis = CentredBasis.of(samples, "X")
    np.testing.assert_allclose(basis.coordinates @ basis.axes.T + basis.mean, samples, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(basis.coordinates, axis=0), basis.lengths, rtol=1e-12)
    assert basis.n_bytes == 8 * (5 * 5 + 20 * 5)


def test_equal_samples_have_no_basis() -> None:
    with pytest.raises(InvalidInputError, match="X holds the same sample only"):
        CentredBasis.of(np.ones((4, 3)), "X")
