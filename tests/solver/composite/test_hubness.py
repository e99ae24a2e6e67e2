"""The distinctness of samples, and that it ranks partners higher where there are hubs."""

import numpy as np
import pytest
from scipy.special import logsumexp

from solver.composite.projector import distinctness, draw_bank


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_it_is_one_minus_the_logarithm_of_the_mean_exponential() -> None:
    rng = np.random.default_rng(0)
    unit, bank = _unit(rng.standard_normal((5, 3))), _unit(rng.standard_normal((7, 3)))
    expected = [1.0 - np.log(np.mean(np.exp(7.0 * bank @ row))) / 7.0 for row in unit]
    np.testing.assert_allclose(distinctness(unit, bank)[:, 0], expected, rtol=1e-12)


def test_a_hub_is_ranked_below_the_partner() -> None:
    rng = np.random.default_rng(0)
    common = rng.standard_normal((200, 20)) + 0.5
    queries, gallery = (_unit(common + rng.standard_normal(common.shape)) for _ in range(2))
    gallery[:10] = _unit(queries.mean(axis=0) + 0.05 * rng.standard_normal((10, 20)))
    plain = queries @ gallery.T
    product = distinctness(queries, draw_bank(gallery)) @ distinctness(gallery, draw_bank(queries)).T

    def mean_rank(scores: np.ndarray) -> float:
        others = scores[10:]
        return float(np.mean(np.sum(others > np.diag(scores)[10:, None], axis=1)))

    assert mean_rank(plain + product) < 0.9 * mean_rank(plain)


def test_a_bank_is_an_even_sample() -> None:
    rows = np.arange(5000, dtype=float)[:, None]
    bank = draw_bank(rows)
    assert bank.shape == (2048, 1)
    assert (bank[0, 0], bank[-1, 0]) == (0.0, 4999.0)
    assert len(draw_bank(rows[:3])) == 3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_hubness_is_the_logarithm_of_a_mean_as_scipy_computes_it(dtype: type) -> None:
    rng = np.random.default_rng(0)
    unit, bank = (rng.standard_normal((n, 6)).astype(dtype) for n in (40, 30))
    unit, bank = _unit(unit), _unit(bank)
    bank[5:9] = bank[4]  # the nearest of some may be several
    unit[0] = bank[4]
    unit[1] = np.nan
    expected = 1.0 - (logsumexp(7.0 * (unit @ bank.T), axis=1) - np.log(len(bank))) / 7.0
    np.testing.assert_allclose(distinctness(unit, bank), expected[:, None], rtol=8 * np.finfo(dtype).eps)
