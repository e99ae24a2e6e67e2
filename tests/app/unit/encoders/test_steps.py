import json
from typing import Any

import numpy as np
import pytest

from app.domain.entities import Content
from app.domain.errors import InvalidFieldError
from app.encoders.registry import ContentLimits, EncoderRegistry
from solver import is_sparse
from tests.app.refused import refused

REGISTRY = EncoderRegistry(ContentLimits(10**6, 10**6, 1000))
ROWS = (np.random.default_rng(0).normal(size=(60, 5)) * [9, 3, 1, 0.1, 0] + [1, 2, 3, 4, 5]).astype(
    np.float32
)
CONTENTS = [Content(vector=row.tolist()) for row in ROWS]
TEXTS = ["a red bag", "a blue bag", "red shoes", "blue shoes to run in", "a weekend bag"]


def fitted(*steps: str) -> Any:
    encoder = REGISTRY.make({"type": "vector", "steps": list(steps)})
    return encoder.fit_to_stored(ROWS) if encoder.learns_from_stored else encoder


def test_each_step_does_what_its_name_says() -> None:
    np.testing.assert_allclose(fitted("center").encode(CONTENTS).mean(axis=0), 0, atol=1e-5)
    standardized = fitted("standardize").encode(CONTENTS)
    np.testing.assert_allclose(standardized.std(axis=0), [1, 1, 1, 1, 0], rtol=1e-4)
    np.testing.assert_allclose(standardized[:, 4], 0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(fitted("l2").encode(CONTENTS), axis=1), 1, rtol=1e-6)
    roots = fitted("sqrt").encode(CONTENTS)
    np.testing.assert_allclose(roots * np.abs(roots), ROWS, rtol=1e-5)
    both = fitted("standardize", "l2").encode(CONTENTS)
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("step", "energy"), [("pca", 0.95), ("pca:0.5", 0.5), ("pca:0.999", 0.999)])
def test_principal_components_keep_the_least_that_has_the_energy(step: str, energy: float) -> None:
    values = np.linalg.eigvalsh(np.cov(ROWS.T))[::-1]
    expected = int(np.searchsorted(np.cumsum(values) / values.sum(), energy)) + 1
    components = fitted(step).encode(CONTENTS)
    assert components.shape == (60, expected)
    np.testing.assert_allclose(np.var(components, axis=0, ddof=1), values[:expected], rtol=1e-4)


def test_what_is_stored_with_items_is_what_comes_before_the_steps() -> None:
    encoder = fitted("center", "pca:0.9", "l2")
    np.testing.assert_array_equal(encoder.encode_to_store(CONTENTS), ROWS)
    np.testing.assert_array_equal(encoder.from_stored(ROWS), encoder.encode(CONTENTS))


@pytest.mark.parametrize(
    "steps", [["l2"], ["sqrt"], ["center"], ["standardize", "pca"], ["sqrt", "pca", "l2"]]
)
@pytest.mark.parametrize("kind", ["vector", "tfidf"])
def test_what_steps_learned_comes_back_to_the_bit_and_rows_do_not_depend_on_others(
    kind: str, steps: list[str]
) -> None:
    options = {"type": kind, "steps": steps}
    encoder, contents = REGISTRY.make(options), CONTENTS
    if kind == "tfidf":
        contents = [Content(text=text) for text in TEXTS]
        encoder.fit(TEXTS)
    elif encoder.learns_from_stored:
        encoder.fit_to_stored(ROWS)
    features = encoder.encode(contents)
    state = json.loads(json.dumps(encoder.state()))
    restored = REGISTRY.restore(options, state)
    dense = features.toarray() if is_sparse(features) else features
    again = restored.encode(contents)
    np.testing.assert_array_equal(again.toarray() if is_sparse(again) else again, dense)
    assert restored.state() == encoder.state()
    assert features.dtype == np.float32
    alone = [restored.encode([content]) for content in contents]
    rows = np.concatenate([row.toarray() if is_sparse(row) else row for row in alone])
    np.testing.assert_allclose(rows, dense, rtol=1e-6, atol=1e-7)


def test_texts_remain_sparse_where_no_step_needs_all_numbers() -> None:
    features = (
        REGISTRY.make({"type": "tfidf", "steps": ["sqrt", "l2"]}).fit(TEXTS).encode([Content(text="bag")])
    )
    assert is_sparse(features)
    np.testing.assert_allclose(np.linalg.norm(features.toarray()), 1.0, rtol=1e-6)


def test_more_features_than_can_be_learned_from_are_refused() -> None:
    encoder = REGISTRY.make({"type": "vector", "steps": ["pca"]})
    with refused("training-data", match="at most 8192 features, and it gives 8193"):
        encoder.fit_to_stored(np.zeros((2, 8193), np.float32))


@pytest.mark.parametrize("steps", [[], ["pac"], ["pca:2"], ["pca:0.4"], ["pca:"], "l2", ["l2"] * 9, [1]])
def test_what_is_no_list_of_steps_is_refused(steps: Any) -> None:
    with pytest.raises(InvalidFieldError, match=r"^encoder\.steps: expected a list of center, l2, pca, sqrt"):
        REGISTRY.make({"type": "tfidf", "steps": steps})


def test_the_parts_of_a_combination_may_have_steps_that_learn_nothing() -> None:
    part = {"type": "tfidf", "steps": ["sqrt"]}
    options = {"type": "combine", "parts": [part, {"type": "word-frequency"}], "steps": ["standardize"]}
    features = REGISTRY.make(options).fit(TEXTS).encode([Content(text=text) for text in TEXTS])
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-5)
    with pytest.raises(InvalidFieldError, match=r"^encoder\.parts\.1\.steps: what learns belongs behind"):
        REGISTRY.make({"type": "combine", "parts": [part, {**part, "steps": ["center"]}]})
