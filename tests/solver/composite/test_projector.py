"""Several queries as one: each facet is decided by the query that names a value of it."""

import numpy as np
import pytest
from scipy.special import logsumexp

from solver import CompositeProjector, FloatArray
from solver.composite.projector import NO_CURVE, CompositeSide, Head, distinctness, draw_bank
from solver.scaling.feature_maps import FeatureMap

VALUES = {"kind": ("bag", "shoe"), "colour": ("blue", "green", "grey", "red")}


@pytest.fixture(scope="module")
def projector() -> CompositeProjector:
    """Return what compares samples of six features by kind and colour, and pairs by their direction."""
    heads = [Head(f"facet:{name}", "softmax", len(of), 0.7, of) for name, of in VALUES.items()]
    heads.append(Head("pairs", "direction", 2, 0.5))
    feature_map = FeatureMap.fit(np.eye(6), "none", "linear", 0.0, 0, 0)
    scores = sum(head.n_scores for head in heads)
    side = CompositeSide(feature_map, np.ones((6, scores)), np.zeros(scores), tuple(heads), NO_CURVE)
    return CompositeProjector(side, side)


def sample(projector: CompositeProjector, **posteriors: list[float]) -> FloatArray:
    """Return a projection that says of each facet what it is likely to be, and nothing else."""
    parts = [
        head.scale * np.array(posteriors[head.facet]) if head.facet in posteriors else np.zeros(width)
        for head, width in zip(projector.x.heads, projector.x.widths, strict=True)
    ]
    return np.hstack(parts)


def values_of(projector: CompositeProjector, composed: FloatArray) -> dict[str, str]:
    """Return the likeliest value of each facet."""
    parts = np.split(composed, np.cumsum(projector.x.widths)[:-1])
    return {
        head.facet: head.values[int(part.argmax())]
        for head, part in zip(projector.x.heads, parts, strict=True)
        if head.facet is not None
    }


@pytest.mark.parametrize("certain", [0.8, 0.9, 0.99])
@pytest.mark.parametrize("text", ["blue", "bag"])
def test_a_text_replaces_what_it_names_of_an_item_that_is_certain_of_everything(
    projector: CompositeProjector, text: str, certain: float
) -> None:
    item = sample(projector, kind=[0.001, 0.999], colour=[0.001, 0.001, 0.001, 0.997])
    rest = (1 - certain) / 3
    texts = {
        "blue": sample(projector, kind=[0.3, 0.7], colour=[certain, rest, rest, rest]),
        "bag": sample(projector, kind=[certain, 1 - certain], colour=[0.2, 0.2, 0.3, 0.3]),
    }
    both = {"blue": {"kind": "shoe", "colour": "blue"}, "bag": {"kind": "bag", "colour": "red"}}
    composed = projector.compose(np.array([item, texts[text]]), np.ones(2), np.array([False, True]))
    assert values_of(projector, composed) == both[text]


def test_one_query_says_of_facets_what_it_says_alone_however_unsure_it_is(
    projector: CompositeProjector,
) -> None:
    unsure = sample(projector, kind=[0.501, 0.499], colour=[0.97, 0.01, 0.01, 0.01])
    composed = projector.compose(unsure[None], np.ones(1), np.array([True]))
    of_facets = np.repeat([bool(part.values) for part in projector.parts], projector.x.widths)
    np.testing.assert_allclose(composed[of_facets], unsure[of_facets], rtol=1e-5)


def test_a_query_of_negative_weight_counts_against_what_it_is_certain_of(
    projector: CompositeProjector,
) -> None:
    item = sample(projector, kind=[0.001, 0.999], colour=[0.001, 0.001, 0.001, 0.997])
    red = sample(projector, kind=[0.5, 0.5], colour=[0.02, 0.02, 0.02, 0.94])
    composed = projector.compose(np.array([item, red]), np.array([1.0, -1.0]), np.array([False, True]))
    values = values_of(projector, composed)
    assert values["kind"] == "shoe"
    assert values["colour"] != "red"


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
