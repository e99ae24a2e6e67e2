"""Vectors in a gallery: content, partners and carried values, joined as evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from solver import (
    Annotations,
    CompositeBilinear,
    CompositeProjector,
    Facet,
    FloatArray,
    InvalidInputError,
    Queries,
    load_projector,
    save_projector,
)
from solver.composite.placement import (
    CONTENT_WEIGHTS,
    Block,
    HeldOutVectors,
    attainable,
    certainty,
    information,
    place,
    project_words,
    weigh_content,
)

N_COLOURS = 4
COLOURS = tuple(f"colour {number}" for number in range(N_COLOURS))
EXCLUSIVE = [Block("colour", True, 2.0, N_COLOURS)]
SEVERAL = [Block("colour", False, 2.0, N_COLOURS)]


def nobody(projected: FloatArray) -> FloatArray:
    """Return the partners of samples that have none."""
    return np.full_like(projected, np.nan)


def carry(*values: int | None) -> dict[str, np.ndarray]:
    """Return indicators of one value each."""
    indicators = np.zeros((len(values), N_COLOURS), bool)
    for row, value in enumerate(values):
        if value is not None:
            indicators[row, value] = True
    return {"colour": indicators}


def test_a_carried_value_replaces_a_guess_and_what_is_unknown_stays_as_it_was() -> None:
    projected = 2.0 * np.full((2, N_COLOURS), 1 / N_COLOURS, np.float32)
    placed = place(projected, nobody(projected), nobody(projected), carry(1, None), EXCLUSIVE, 0.0) / 2.0
    assert placed[0, 1] > 0.9
    assert placed.sum(axis=1) == pytest.approx([1.0, 1.0])
    np.testing.assert_array_equal(placed[1] * 2.0, projected[1])


@pytest.mark.parametrize("blocks", [EXCLUSIVE, SEVERAL])
def test_content_that_contradicts_a_carried_value_keeps_a_say(blocks: list[Block]) -> None:
    sure = np.array([[0.001, 0.997, 0.001, 0.001], [0.25, 0.25, 0.25, 0.25]], np.float32)
    placed = place(2.0 * sure, nobody(sure), nobody(sure), carry(0, 0), blocks, 0.0) / 2.0
    assert placed[0, 1] > placed[0, 0]
    assert placed[1, 0] > 0.8


def test_where_several_values_may_be_true_one_says_little_of_the_others() -> None:
    projected = 2.0 * np.array([[0.5, 0.5, 0.9, 0.1]], np.float32)
    (placed,) = place(projected, nobody(projected), nobody(projected), carry(0), SEVERAL, 0.0) / 2.0
    assert placed[0] > 0.9
    assert 0.1 < placed[1] < 0.5
    assert placed[2] > placed[1] > placed[3]


def test_partners_have_their_share_and_those_without_any_lose_nothing() -> None:
    projected = np.array([[1.0, 0.0], [1.0, 0.0]], np.float32)
    partners = np.array([[0.0, 1.0], [np.nan, np.nan]], np.float32)
    placed = place(projected, partners, nobody(projected), {}, [Block(None, False, 1.0, 2)], 0.75)
    np.testing.assert_allclose(placed, [[0.25, 0.75], [1.0, 0.0]])


Shop = tuple[CompositeBilinear, FloatArray, FloatArray, Annotations]


@pytest.fixture(scope="module")
def shop() -> Shop:
    """Return a model of pictures that show little of their colour, and texts that name it."""
    rng = np.random.default_rng(0)
    colours = np.arange(240) % N_COLOURS
    shown = np.eye(N_COLOURS)[colours]
    X = (shown + rng.standard_normal((240, N_COLOURS))).astype(np.float32)
    Z = np.hstack([3.0 * shown, rng.standard_normal((240, 3))]).astype(np.float32)
    values = [[COLOURS[colour]] for colour in colours]
    annotations = Annotations(
        (240, 240), {"colour": Facet.of(values, values)}, np.column_stack([range(240)] * 2)
    )
    rows = np.arange(160)
    model = CompositeBilinear(kernels=("linear",)).fit(X[:160], Z[:160], annotations.subset(rows, rows))
    new = np.arange(160, 240)
    return model, X[160:], Z[160:], annotations.subset(new, new)


def test_texts_of_other_pictures_find_new_ones_better_with_each_thing_that_is_known(shop: Shop) -> None:
    model, X, Z, annotations = shop
    vectors = model.projector_.held_out((model.project_x(X), model.project_z(Z)), annotations)
    share = model.projector_.x.partner_share
    assert share + model.projector_.z.partner_share == 1.0
    content, partners, known = (
        vectors.rankings(share if has_share else None, with_values=has_values)[0].gain()
        for has_share, has_values in ((False, False), (True, False), (True, True))
    )
    assert content + 0.1 < partners <= known
    assert known > 0.95


def test_a_projector_places_by_the_names_of_values_also_after_it_was_stored(
    shop: Shop, tmp_path: Path
) -> None:
    model, X, Z, _ = shop
    values = {"colour": [[COLOURS[0]]] * 79 + [["a colour without samples"]]}
    projected = model.project_x(X)
    placed = model.projector_.place(projected, model.project_z(Z), values)
    alone = model.projector_.place(projected, nobody(projected), values)
    np.testing.assert_array_equal(alone[79], projected[79])
    assert not np.allclose(alone[0], placed[0])
    save_projector(model.projector_, tmp_path, {})
    stored, _ = load_projector(tmp_path)
    assert isinstance(stored, CompositeProjector)
    assert stored.facets == ("colour",)
    assert stored.uses_partners
    np.testing.assert_array_equal(stored.place(projected, model.project_z(Z), values), placed)


def test_models_of_earlier_releases_place_by_content_with_one_curve_for_both(shop: Shop) -> None:
    model, X, Z, _ = shop
    arrays, description = model.projector_.arrays(), model.projector_.describe()
    earlier = {
        name: array for name, array in arrays.items() if not name.endswith(("levels", "probabilities"))
    }
    earlier |= {"levels": arrays["z_levels"], "probabilities": arrays["z_probabilities"]}
    for side in description.values():
        del side["partner_share"], side["least_information"]
        for head in side["heads"]:
            head.pop("values", None)
    restored = CompositeProjector.from_arrays(earlier, description)
    projected = model.project_x(X)
    assert (restored.facets, restored.uses_partners) == ((), False)
    np.testing.assert_array_equal(restored.place(projected, model.project_z(Z), {}), projected)
    scores = np.linspace(0.0, 2.0, 80)[:, None]
    expected = np.interp(scores, earlier["levels"], earlier["probabilities"])
    np.testing.assert_array_equal(restored.probability(scores, projected, "x"), expected)


def test_a_query_that_says_nothing_has_hardly_a_match(shop: Shop) -> None:
    model, _, Z, _ = shop
    projector = model.projector_
    block = projector.x.blocks[0]
    named = model.project_z(Z[:1])
    unsaid = named.copy()
    unsaid[:, : block.width] = block.scale / block.width
    item = named.copy()
    item[:, : block.width] = 0.0
    item[0, int(named[0, : block.width].argmax())] = block.scale
    of_named, of_unsaid = (
        projector.probability(query @ item.T, query, "z")[0, 0] for query in (named, unsaid)
    )
    assert of_unsaid < 0.6 * of_named


def test_what_saturated_posteriors_say_is_finite_and_several_values_may_be_meant() -> None:
    sure = 2.0 * np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]], np.float32)
    for blocks in (SEVERAL, EXCLUSIVE):
        assert np.isfinite(information(sure, blocks)).all()
    most, same, none = information(sure, SEVERAL)
    assert most == pytest.approx(N_COLOURS * np.log(2.0))
    assert (same, none) == pytest.approx((most, 0.0), abs=1e-9)
    assert attainable(sure[:2], SEVERAL) == pytest.approx([4.0, 8.0])
    assert attainable(sure[:2], EXCLUSIVE) == pytest.approx([4.0, 4.0])


def test_content_is_of_the_sample_or_else_of_partners_and_names_or_values() -> None:
    expected = np.zeros((N_COLOURS, 3), np.float32)
    expected[1] = [0.0, 1.0, 0.0]  # what texts of the second colour say
    blocks = [EXCLUSIVE[0], Block(None, False, 3.0, 3, is_content=True, expected=expected)]
    facet = np.full((4, N_COLOURS), 2.0 / N_COLOURS, np.float32)
    own = np.zeros((4, 3), np.float32)
    own[2, 0] = 3.0
    projected = np.hstack([facet, own])
    partners, words = nobody(projected), nobody(projected)
    partners[[0, 3]] = [*facet[0], 3.0, 0.0, 0.0]
    words[3] = [*facet[0], 0.0, 0.0, 3.0]
    placed = place(projected, partners, words, carry(1, 1, 1, 1), blocks, 0.5)[:, N_COLOURS:] / 3.0
    half = 0.5**0.5
    np.testing.assert_allclose(placed[0], [half, half, 0.0], rtol=1e-5)  # its partner's, and its value's
    np.testing.assert_allclose(placed[1], [0.0, 1.0, 0.0], atol=1e-5)
    np.testing.assert_allclose(placed[2], [1.0, 0.0, 0.0])
    np.testing.assert_allclose(placed[3], [half, 0.0, half], rtol=1e-5)  # names rather than what is expected


def test_names_of_what_samples_carry_are_those_of_texts_that_name_one_value() -> None:
    facets = {
        "colour": Facet.of([["red"], ["blue"], []], [["red"], ["blue"], []]),
        "kind": Facet.of([["shoe"], [], []], [["shoe"], ["shoe"], []]),
    }
    annotations = Annotations((3, 3), facets)
    values = {"colour": [["red"], ["blue"], ["red"], []], "kind": [[], [], ["shoe"], ["shoe"]]}
    named = Queries.of(np.zeros((4, 1)), values, facets)
    of_names = np.array([[1.0, 0.0], [5.0, 5.0], [9.0, 9.0], [0.0, 1.0]], np.float32)
    x, z = project_words(annotations, (None, named), (of_names[:0], of_names))
    np.testing.assert_array_equal(x, [[0.5, 0.5], [5.0, 5.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(z, [[0.5, 0.5], [2.5, 3.0], [np.nan, np.nan]])


def test_held_out_texts_without_a_word_have_no_content_as_those_that_are_served() -> None:
    facet, texts = np.eye(2, dtype=np.float32), np.array([[0.0, 0.0], [1.0, 0.0]], np.float32)
    terms = {"facet:kind": (facet, facet), "content:z": (0.0 * texts, texts)}
    annotations = Annotations((2, 2), {"kind": Facet.of([["a"], ["b"]], [["a"], ["b"]])})
    vectors = HeldOutVectors.of(
        terms, dict.fromkeys(terms, 1.0), annotations, (None, None), {"kind": True}, {"content:z": facet}
    )
    pictures, named = (
        place(content, nobody(content), nobody(content), {}, blocks, 0.0)[:, 2:]
        for content, blocks in zip(vectors.samples, vectors.blocks, strict=True)
    )
    np.testing.assert_array_equal(named, texts)
    np.testing.assert_array_equal(pictures, facet)  # what is to be expected of texts of their kind


def test_words_that_nothing_was_learned_of_find_the_pictures_whose_names_have_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n, n_words = 240, 600  # more words than a block has dimensions
    kinds = np.arange(n) % 2
    X = (np.eye(2)[kinds] + 0.3 * rng.standard_normal((n, 2))).astype(np.float32)
    words = rng.integers(2, n_words, (n, 3))
    Z = np.zeros((n, n_words), np.float32)
    Z[np.arange(n), kinds] = 1.0
    for column in range(3):
        Z[np.arange(n), words[:, column]] = 1.0
    values = [[f"kind {kind}"] for kind in kinds]
    pairs = np.column_stack([range(n)] * 2)
    annotations = Annotations((n, n), {"kind": Facet.of(values, values)}, pairs)
    rows = np.arange(160)
    ranks = []
    for with_content in (False, True):
        model = CompositeBilinear(kernels=("linear",)).fit(
            X[:160], Z[:160], annotations.subset(rows, rows), with_content=(False, with_content)
        )
        queries = Z[160:].copy()
        queries[:, :2] = 0.0  # a name without its kind
        projected = model.project_x(X[160:])
        placed = model.projector_.place(projected, model.project_z(Z[160:]), {})
        scores = model.project_z(queries) @ placed.T
        ranks.append(float(np.mean(np.argmax(scores, axis=1) == np.arange(80))))
    assert model.weights_["content:z"] >= 6.4
    side = model.projector_.x
    with pytest.raises(InvalidInputError, match="expected"):  # its rows are of the facets before it
        replace(side, heads=side.heads[::-1])
    assert ranks[0] < 0.5
    assert ranks[1] > 0.9
    save_projector(model.projector_, tmp_path, {})
    stored, _ = load_projector(tmp_path)
    np.testing.assert_array_equal(stored.place(projected, model.project_z(Z[160:]), {}), placed)


def test_likeness_counts_in_plain_queries_by_few_samples_and_not_in_composed_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((60, 12)), rng.standard_normal((60, 7))
    values = [[f"colour {number % 2}"] for number in range(60)]
    pairs = np.repeat(np.arange(20)[:, None], 2, axis=1)
    annotations = Annotations((20, 20), {"colour": Facet.of(values[:20], values[:20])}, pairs)
    model = CompositeBilinear(kernels=("linear",)).fit(
        X[:20], Z[:20], annotations, with_likeness=(True, False)
    )
    assert model.weights_["content:x"] >= 51.2  # of 20 samples; they were drawn at random
    save_projector(model.projector_, tmp_path, {})
    stored, _ = load_projector(tmp_path)
    x, z = stored.project_x(X), stored.project_z(Z)
    placed = stored.place(z, x, {"colour": values}, side="z")
    seen_again = stored.project_x(X + 0.1 * rng.standard_normal(X.shape))
    assert np.mean(np.argmax(seen_again @ placed.T, axis=1) == np.arange(60)) > 0.9
    (width,) = [part.width for part in stored.parts if part.name == "content:x"]
    ends = np.cumsum([part.width for part in stored.parts])
    start = int(ends[[part.name for part in stored.parts].index("content:x")]) - width
    likeness = slice(start, start + width)
    across = np.array([True, True])
    assert not stored.compose(np.stack([x[0], z[1]]), np.ones(2), across)[likeness].any()
    np.testing.assert_allclose(
        stored.compose(x[:1], np.ones(1), across[:1])[likeness], x[0, likeness], rtol=1e-5
    )


def test_no_term_learns_from_further_features_which_are_content_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 90)
    X = np.eye(3)[labels] + 0.5 * rng.standard_normal((90, 3))
    learned = np.abs(np.eye(3)[labels] + 0.3 * rng.standard_normal((90, 3))).repeat(3, axis=1)
    further = np.eye(30)[rng.integers(0, 30, 90)]
    values = [[str(label)] for label in labels]
    annotations = Annotations((90, 90), {"label": Facet.of(values, values)}, np.empty((0, 2), np.intp))
    queries = Queries.of(np.hstack([learned[:3], further[:3]]), {"label": values[:3]}, annotations.facets)
    Z = np.hstack([learned, further])
    model = CompositeBilinear().fit(
        X, Z, annotations, queries=lambda _: (None, queries), with_content=(False, True), n_further=(0, 30)
    )
    assert model.projector_.n_features == (3, 39)
    (content,) = [part.width for part in model.projector_.parts if part.name == "content:z"]
    assert content == 39
    others = np.hstack([learned, 0.0 * further])
    projected = model.project_z(Z)
    np.testing.assert_array_equal(projected[:, :-content], model.project_z(others)[:, :-content])
    assert not np.allclose(projected[:, -content:], model.project_z(others)[:, -content:])
    alone = CompositeBilinear().fit(X, learned, annotations)
    facet = projected[:, :3] / model.weights_["facet:label"] ** 0.5
    np.testing.assert_allclose(facet, alone.project_z(learned)[:, :3], atol=1e-5)
    with pytest.raises(InvalidInputError, match="9 features, the model expects 39"):
        model.project_z(learned)
    save_projector(model.projector_, tmp_path, {})
    stored, _ = load_projector(tmp_path)
    np.testing.assert_allclose(stored.project_z(Z), projected, atol=1e-6)
    with pytest.raises(InvalidInputError, match="n_further"):
        CompositeBilinear().fit(X, Z, annotations, n_further=(0, 39))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_certainty_is_a_share_of_what_there_is_to_say(dtype: type) -> None:
    sure, unsure = np.eye(N_COLOURS, dtype=dtype), np.full((1, N_COLOURS), 0.5, dtype)
    np.testing.assert_allclose(certainty(sure, EXCLUSIVE[0]), 1.0)
    np.testing.assert_allclose(certainty(sure, SEVERAL[0]), 1.0)
    np.testing.assert_allclose(certainty(unsure, SEVERAL[0]), 0.0, atol=1e-9)
    np.testing.assert_allclose(certainty(unsure / 2, EXCLUSIVE[0]), 0.0, atol=1e-6)
    np.testing.assert_array_equal(certainty(np.ones((1, 1), dtype), Block("one", True, 1.0, 1)), [0.0])


def gains(*of_weights: float, n_queries: int = 100) -> np.ndarray:
    """Return gains that all queries share with weights below each of some, and those of the rest."""
    return np.repeat(np.array(of_weights)[:, None], n_queries, axis=1)


def test_content_weighs_as_much_as_each_kind_of_query_allows() -> None:
    n, many = len(CONTENT_WEIGHTS), 100_000
    flat, falling = gains(*[1.0] * n), gains(*[1.0] * 3, *[0.9] * (n - 3))
    assert weigh_content([flat], many, False) == CONTENT_WEIGHTS[-1]
    assert weigh_content([flat, falling], many, False) == CONTENT_WEIGHTS[2]
    assert weigh_content([flat, falling, 0.0 * flat], many, False) == CONTENT_WEIGHTS[2]
    assert weigh_content([0.0 * flat], many, False) == 0.4
    # After many samples a loss of half a hundredth counts, though one query alone has it.
    single = np.ones((n, 200))
    single[4:, 0] = 0.0
    assert weigh_content([single], many, False) == CONTENT_WEIGHTS[3]


def test_after_few_samples_content_weighs_more() -> None:
    n = len(CONTENT_WEIGHTS)
    falling, single = gains(1.0, *[0.5] * (n - 1)), np.ones((n, 50))
    assert weigh_content([falling], 200, False) == pytest.approx(
        1.6
    )  # a quarter of the largest below 1280 / 200
    assert weigh_content([falling], 200, True) == pytest.approx(6.4)
    assert weigh_content([falling], 1, True) == CONTENT_WEIGHTS[-1]
    assert weigh_content([0.0 * falling], 1, False) == CONTENT_WEIGHTS[-1]
    single[1:, 0] = 0.5  # a hundredth of the mean, as much as chance explains
    assert weigh_content([single], 200, False) == pytest.approx(6.4)
