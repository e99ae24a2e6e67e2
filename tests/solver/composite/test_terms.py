"""The parts of a composite similarity: ridge paths, calibration, coordinates, directions, parts, curves."""

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import Ridge

from solver import Annotations, CompositeBilinear, Facet, unpredicted_facets
from solver.composite.facet_terms import (
    RIDGES,
    Calibration,
    FacetLearner,
    PrincipalSpace,
    RidgePath,
    candidate_maps,
    choose_map,
    least_error,
    predicts,
)
from solver.composite.learning import draw, fit_match_curve, make_parts
from solver.composite.pairs import CanonicalDirections, JudgedSimilarity, cross_covariance
from solver.composite.placement import RankedScores
from solver.scaling.feature_maps import FeatureMapConfig
from solver.validation import InvalidInputError, SupervisionError

LINEAR = FeatureMapConfig("center", "linear", 1.0)


def _draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _nothing() -> None:
    pass


@pytest.mark.parametrize("ridge", [RIDGES[0], 1e-3, RIDGES[-1]])
def test_scores_of_a_ridge_path_are_those_of_fits_without_the_sample(ridge: float) -> None:
    X, Y = _draw(25, 8), _draw(25, 3, seed=1)
    (fit,) = RidgePath(X).fits(Y, [ridge])
    penalty = len(X) * ridge * np.var(X, axis=0).sum()
    whole = Ridge(alpha=penalty, solver="svd").fit(X, Y)
    np.testing.assert_allclose(X @ fit.coefficients + fit.intercepts, whole.predict(X), atol=1e-9)
    for row in (0, 7, 24):
        rest = np.delete(np.arange(25), row)
        # The centring of the penalised part is that of all samples in both: the intercept is free.
        without = Ridge(alpha=penalty, solver="svd").fit(X[rest], Y[rest])
        np.testing.assert_allclose(fit.left_out[row], without.predict(X[[row]])[0], atol=1e-8)


def test_calibration_recovers_the_scale_of_scores() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((4000, 3))
    posteriors = np.exp(3.0 * scores) / np.exp(3.0 * scores).sum(axis=1, keepdims=True)
    targets = np.array([rng.multinomial(1, row) for row in posteriors], float)
    calibration = Calibration.fit(scores, targets, is_exclusive=True)
    assert calibration.scale == pytest.approx(3.0, rel=0.1)
    np.testing.assert_allclose(calibration.posteriors(scores), posteriors, atol=0.05)


def test_calibration_of_labels_that_do_not_exclude_each_other() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((4000, 2))
    posteriors = 1.0 / (1.0 + np.exp(-(2.0 * scores + [0.5, -1.0])))
    targets = (rng.random((4000, 2)) < posteriors).astype(float)
    calibration = Calibration.fit(scores, targets, is_exclusive=False)
    np.testing.assert_allclose(calibration.posteriors(scores), posteriors, atol=0.05)


def test_a_value_that_no_sample_has_gets_a_small_posterior() -> None:
    targets = np.eye(3)[np.arange(60) % 2]
    posteriors = Calibration.fit(targets * 0.5, targets, is_exclusive=True).posteriors(targets * 0.5)
    assert posteriors[:, 2].max() < 0.02


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_calibration_that_starts_from_another_ends_at_the_same_posteriors(is_exclusive: bool) -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((500, 3))
    targets = np.eye(3)[np.argmax(scores + rng.standard_normal((500, 3)), axis=1)]
    first = Calibration.fit(scores, targets, is_exclusive)
    other = Calibration.fit(0.5 * scores + 0.2, targets, is_exclusive)
    again = Calibration.fit(scores, targets, is_exclusive, other)
    np.testing.assert_allclose(again.posteriors(scores), first.posteriors(scores), atol=0.01)


def test_scores_that_separate_all_values_still_give_posteriors_that_differ() -> None:
    rng = np.random.default_rng(0)
    targets = np.eye(3)[np.arange(90) % 3]
    scores = targets + 0.1 * rng.random((90, 3))
    calibration = Calibration.fit(scores, targets, is_exclusive=True)
    for _ in range(3):
        calibration = Calibration.fit(scores, targets, is_exclusive=True, start=calibration)
    largest = calibration.posteriors(scores).max(axis=1).astype(np.float32)
    assert largest.min() > 0.999
    assert len(np.unique(largest)) > 10


@pytest.mark.parametrize("n_components", [60, 20])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_coordinates_keep_inner_products_of_centred_samples(n_components: int, is_sparse: bool) -> None:
    X = _draw(60, 10) @ _draw(10, 30, seed=1)
    samples = scipy.sparse.csr_array(X) if is_sparse else X
    space, coordinates = PrincipalSpace.fit(samples, LINEAR, 10, n_components, 0)
    scaled = space.feature_map.scaler.transform(X)
    centred = scaled - scaled.mean(axis=0)
    np.testing.assert_allclose(coordinates @ coordinates.T, centred @ centred.T, atol=1e-3)
    np.testing.assert_allclose(np.mean(coordinates**2, axis=0), space.variances, rtol=1e-5)
    np.testing.assert_allclose(space.coordinates(samples), coordinates, atol=1e-4)
    coefficients, intercepts = space.lift(_draw(len(space.variances), 2, seed=2), np.array([1.0, -1.0]))
    np.testing.assert_allclose(
        scaled @ coefficients + intercepts,
        coordinates @ _draw(len(space.variances), 2, seed=2) + [1.0, -1.0],
        atol=1e-4,
    )


def test_equal_samples_have_no_axes() -> None:
    with pytest.raises(InvalidInputError, match="all samples are the same"):
        PrincipalSpace.fit(np.ones((5, 3)), LINEAR, 10, 5, 0)


def test_canonical_directions_find_what_pairs_have_in_common() -> None:
    rng = np.random.default_rng(0)
    common = rng.standard_normal((300, 2))
    sides = [np.hstack([common, rng.standard_normal((300, 4))]) for _ in range(2)]
    variances = [side.var(axis=0) for side in sides]
    pairs = np.column_stack([np.arange(300)] * 2)
    cross = cross_covariance((sides[0], sides[1]), pairs)
    directions = CanonicalDirections.fit(cross, (variances[0], variances[1]), len(pairs), 1e-4)
    assert directions.correlations[1] > 0.95 > 0.5 > directions.correlations[2]
    x, z = sides[0] @ directions.x_coefficients, sides[1] @ directions.z_coefficients
    for number in range(2):
        assert np.corrcoef(x[:, number], z[:, number])[0, 1] > 0.95


def test_judged_pairs_teach_what_they_agree_in() -> None:
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((200, 6)), rng.standard_normal((200, 6))
    rows, columns = rng.integers(0, 200, 300), rng.integers(0, 200, 300)
    values = np.where(X[rows, 0] * Z[columns, 0] > 0, 1, -1)
    judged = scipy.sparse.csr_array(
        (np.sign(_sum(values, rows, columns)), _unique(rows, columns)), (200, 200)
    )
    similarity = JudgedSimilarity.fit((X, Z), judged)
    assert similarity is not None
    assert similarity.duality_gap < 1e-3
    scores = (X @ similarity.x_factors) @ (Z @ similarity.z_factors).T
    assert np.mean((scores > 0) == (np.outer(X[:, 0], Z[:, 0]) > 0)) > 0.85


def _unique(rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.divmod(np.unique(rows * 200 + columns), 200)


def _sum(values: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return np.bincount(np.unique(rows * 200 + columns, return_inverse=True)[1], weights=values)


def test_judgements_of_one_kind_teach_nothing() -> None:
    signs = scipy.sparse.csr_array(([1, 1], ([0, 1], [1, 0])), (3, 3))
    assert JudgedSimilarity.fit((np.eye(3), np.eye(3)), signs) is None


def test_facets_known_of_a_part_only_are_predicted_for_the_rest() -> None:
    classes = np.arange(80) % 2
    coordinates = _draw(80, 5) + 3.0 * classes[:, None]
    indicators = np.eye(2, dtype=bool)[classes]
    indicators[60:] = False
    posteriors = FacetLearner(coordinates, _nothing).fit(indicators, is_exclusive=True)
    assert posteriors is not None
    assert np.mean(posteriors.left_out.argmax(axis=1) == classes) > 0.95


@pytest.mark.parametrize("n_unknown", [1, 12, 40])
def test_the_axes_of_all_samples_serve_facets_known_of_most(n_unknown: int) -> None:
    classes = np.arange(80) % 3
    samples = _draw(80, 70) + np.eye(3, 70)[classes]
    space, coordinates = PrincipalSpace.fit(samples, LINEAR, 80, 80, 0)
    indicators = np.eye(3, dtype=bool)[classes]
    indicators[np.random.default_rng(1).permutation(80)[:n_unknown]] = False
    learners = FacetLearner(coordinates, _nothing, space.variances), FacetLearner(coordinates, _nothing)
    fast, exact = (learner.fit(indicators, is_exclusive=True) for learner in learners)
    assert fast is not None
    assert exact is not None
    np.testing.assert_allclose(fast.left_out, exact.left_out, atol=1e-6)
    np.testing.assert_allclose(fast.coefficients, exact.coefficients, atol=1e-5)


@pytest.mark.parametrize("spread", [0.0, 1e-8, 1e-3])
def test_a_facet_known_of_samples_that_hardly_differ_does_not_disturb_the_others(spread: float) -> None:
    samples = _draw(90, 20)
    samples[:60] = samples[0] + spread * samples[:60]
    space, coordinates = PrincipalSpace.fit(samples, LINEAR, 90, 90, 0)
    indicators = np.eye(3, dtype=bool)[np.arange(90) % 3]
    indicators[60:] = False
    posteriors = FacetLearner(coordinates, _nothing, space.variances).fit(indicators, is_exclusive=True)
    assert posteriors is not None
    assert np.isfinite(posteriors.coefficients).all()
    np.testing.assert_allclose(posteriors.left_out.sum(axis=1), 1.0)


def test_a_facet_with_one_value_teaches_nothing() -> None:
    assert FacetLearner(_draw(10, 3), _nothing).fit(np.ones((10, 1), bool), is_exclusive=True) is None


def test_partners_are_in_the_same_part() -> None:
    pairs = np.column_stack([np.arange(50) % 30, np.arange(50) % 25])
    annotations = Annotations((40, 30), {}, pairs)
    parts = make_parts(annotations, 3, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(np.concatenate([x for x, _ in parts])), np.arange(40))
    np.testing.assert_array_equal(np.sort(np.concatenate([z for _, z in parts])), np.arange(30))
    for x, z in parts:
        np.testing.assert_array_equal(np.isin(pairs[:, 0], x), np.isin(pairs[:, 1], z))


def test_a_draw_keeps_partners_of_the_drawn() -> None:
    pairs = np.column_stack([np.arange(100)] * 2)
    x, z = draw((np.arange(100), np.arange(100)), 10, pairs, np.random.default_rng(0))
    np.testing.assert_array_equal(x, z)
    assert len(x) == 10


def test_the_match_curve_ascends_to_the_share_of_matches() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((400, 100))
    matches = rng.random((400, 100)) < scores**2
    curve = fit_match_curve(
        [RankedScores(0, scores, np.zeros(400), np.zeros(400), matches.astype(np.int8), matches)], rng
    )
    levels, probabilities = curve.levels, curve.probabilities
    assert (np.diff(levels) > 0).all()
    assert (np.diff(probabilities) >= 0).all()
    np.testing.assert_allclose(
        np.interp([0.3, 0.6, 0.9], levels, probabilities), [0.09, 0.36, 0.81], atol=0.05
    )


def test_of_samples_that_are_not_sure_the_score_counts_and_nine_of_ten_weak_ones_have_no_match() -> None:
    rng = np.random.default_rng(0)
    sure = rng.uniform(0.1, 1.0, 600)  # posterior of the value that each takes for its own
    carries = rng.integers(0, 4, (600, 40)) == 0
    scores = np.where(carries, sure[:, None], 0.01)
    is_match = carries & (rng.random(600) < sure)[:, None]
    says = 3.0 + np.log(sure)
    grades, nothing = is_match.astype(np.int8), np.zeros((600, 40), bool)
    curve = fit_match_curve([RankedScores(0, scores, sure, says, grades, is_match, nothing)], rng)
    assert curve.attained < 1.0  # half of it keeps the order of scores
    probabilities = curve.probability(scores, sure, says)[carries]
    for low in (0.1, 0.4, 0.7):
        rows = (probabilities >= low) & (probabilities < low + 0.3)
        assert probabilities[rows].mean() == pytest.approx(is_match[carries][rows].mean(), abs=0.05)
    assert curve.weak < 0.2


def test_beside_texts_of_several_values_samples_have_a_curve_of_their_own_without_partners() -> None:
    rng = np.random.default_rng(0)
    scores = np.where(np.arange(40) < 10, 1.0, 0.0) * np.ones((300, 1))
    own = np.arange(40) == np.full((300, 1), 0)
    of_samples = (rng.random((300, 40)) < 0.3) & (scores > 0.5) | own
    of_texts = (rng.random((300, 40)) < 0.9) & (scores > 0.5)
    nothing, grades = np.zeros(300), np.zeros((300, 40), np.int8)
    samples = RankedScores(0, scores + own, nothing, nothing + 9.0, grades, of_samples, own)
    for n_several, has_own_curve in ((200, True), (5, False)):
        decides = np.arange(300) < n_several
        texts = RankedScores(0, scores, nothing, nothing + 5.0, grades, of_texts, decides=decides)
        curve = fit_match_curve([samples, texts], np.random.default_rng(0))
        both = [
            float(curve.probability(np.ones((1, 1)), np.zeros(1), np.array([says]))[0, 0])
            for says in (5.0, 9.0)
        ]
        assert (curve.of_little is not None) is has_own_curve
        assert both == pytest.approx([0.9, 0.3] if has_own_curve else [0.69, 0.69], abs=0.04)


def test_samples_that_nothing_but_their_partners_matches_have_no_curve() -> None:
    own = np.eye(40, dtype=bool)
    nothing, grades = np.zeros(40), own.astype(np.int8)
    samples = RankedScores(0, 1.0 * own, nothing, nothing, grades, own, own)
    assert not fit_match_curve([samples], np.random.default_rng(0)).probabilities.any()
    of_texts = np.arange(40) < np.full((40, 1), 20)
    texts = RankedScores(0, 1.0 * of_texts, nothing, nothing, grades, of_texts)
    beside, alone = (fit_match_curve(one, np.random.default_rng(0)) for one in ([samples, texts], [texts]))
    np.testing.assert_array_equal(beside.probabilities, alone.probabilities)
    assert alone.probabilities[-1] > 0.9


def test_few_pairs_prove_neither_that_all_match_nor_that_none_does() -> None:
    matches = np.eye(4, dtype=bool)
    ranking = RankedScores(0, np.eye(4), np.zeros(4), np.zeros(4), matches.astype(np.int8), matches)
    probabilities = fit_match_curve([ranking], np.random.default_rng(0)).probabilities
    assert probabilities[0] == pytest.approx(1 / 14)
    assert probabilities[-1] == pytest.approx(5 / 6)


def test_the_map_that_predicts_is_chosen_and_a_linear_one_where_it_is_as_good() -> None:
    X = _draw(150, 2)
    circle = np.eye(2)[(np.linalg.norm(X, axis=1) > 1.1).astype(int)]
    configs = candidate_maps(X, ("center",), ("linear", "rbf"))
    rows = np.arange(150)
    assert choose_map(X, configs, [(rows, circle)], _nothing).kernel == "rbf"
    linear = X @ np.array([[0.3], [0.1]])
    assert choose_map(X, configs, [(rows, linear)], _nothing).kernel == "linear"


def test_a_linear_map_explains_most_of_what_little_can_be_explained() -> None:
    rng, X = np.random.default_rng(0), _draw(1500, 2)
    is_outside = (np.linalg.norm(X, axis=1) > 1.1) ^ (rng.random(1500) < 0.41)
    targets = [(np.arange(1500), np.eye(2)[is_outside.astype(int)])]
    configs = candidate_maps(X, ("center",), ("linear", "rbf"))
    chosen = choose_map(X, configs, targets, _nothing)
    of_linear, of_chosen = (least_error(X, config, targets[0][1]) for config in (configs[0], chosen))
    assert chosen.kernel == "rbf"
    assert of_chosen < of_linear < 1.03 * of_chosen


def test_what_no_map_predicts_does_not_make_maps_look_alike() -> None:
    X = _draw(150, 2)
    circle = np.eye(2)[(np.linalg.norm(X, axis=1) > 1.1).astype(int)]
    configs, rows = candidate_maps(X, ("center",), ("linear", "rbf")), np.arange(150)
    chance = [(rows, np.eye(3)[np.random.default_rng(seed).integers(3, size=150)]) for seed in range(40)]
    assert choose_map(X, configs, [(rows, circle), *chance], _nothing).kernel == "rbf"
    assert choose_map(X, configs, chance, _nothing) in configs


def test_facets_that_neither_modality_predicts_are_those_of_chance() -> None:
    rng = np.random.default_rng(0)
    X, Z = _draw(600, 6), _draw(400, 8, seed=1)
    chance, many = ([list(map(str, rng.integers(n, size=size))) for size in (600, 400)] for n in (30, 200))
    one, other = np.where(X[:, 0] > 0, "a", "b").tolist(), np.where(Z[:, 0] > 0, "a", "b").tolist()
    facets = {
        "chance": Facet.of(*chance),
        "many": Facet.of(*many),
        "of x": Facet.of(one, rng.choice(["a", "b"], 400).tolist()),
        "of both": Facet.of(one, other),
        "often": Facet.of([[v] if n % 5 else [] for n, v in enumerate(one)], [[v] for v in other]),
        "seldom": Facet.of([[v] if n < 9 else [] for n, v in enumerate(one)], [[v] for v in other]),
        "one value": Facet.of(["a"] * 600, ["a"] * 400),
        "no value": Facet.of([[]] * 600, [[]] * 400),
    }
    annotations = Annotations((600, 400), facets)
    assert unpredicted_facets(X, scipy.sparse.csr_array(Z), annotations) == {"chance", "many"}
    with pytest.raises(SupervisionError, match="Z"):
        unpredicted_facets(X, Z[:300], annotations)


def test_values_of_a_few_hundred_and_of_few_samples_are_none_of_chance() -> None:
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((300, 40))
    brand = rng.integers(300, size=5000)
    X = centres[brand] + 1.2 * rng.standard_normal((5000, 40))
    rare = [[str(n % 2)] if row % 100 == 0 else [] for row, n in enumerate((X[:, 0] > 0).tolist())]
    facets = {"brand": Facet.of(*[list(map(str, brand))] * 2), "rare": Facet.of(rare, rare)}
    assert unpredicted_facets(X, X, Annotations((5000, 5000), facets)) == frozenset()


def test_no_suitable_map_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="no feature map suits"):
        candidate_maps(-np.ones((3, 2)), ("sqrt",), ("linear",))


def test_a_facet_that_nothing_shows_weighs_nothing_though_its_names_are_learned() -> None:
    rng = np.random.default_rng(0)
    n_samples, names = 300, ("S", "M", "L")
    colours, sizes = np.arange(n_samples) % 3, rng.integers(3, size=n_samples)
    X = np.eye(3)[colours] + 0.5 * rng.standard_normal((n_samples, 3))
    Z = np.hstack([np.eye(3)[colours] + 0.5 * rng.standard_normal((n_samples, 3)), np.zeros((n_samples, 3))])
    named = np.repeat(np.hstack([np.zeros((3, 3)), np.eye(3)]), 10, axis=0)
    colour = [[f"colour {value}"] for value in colours]
    size = [[names[value]] for value in sizes]
    of_names = [[name] for name in names for _ in range(10)]
    annotations = Annotations(
        (n_samples, n_samples + 30),
        {"colour": Facet.of(colour, colour + [[]] * 30), "size": Facet.of(size, size + of_names)},
    )
    model = CompositeBilinear(kernels=("linear",)).fit(X, np.vstack([Z, named]), annotations)
    assert model.weights_["facet:size"] == 0.0
    assert model.weights_["facet:colour"] == 1.0
    assert model.projector_.facets == ("colour",)
    again = CompositeBilinear(kernels=("linear",)).fit(X, np.vstack([Z, named]), annotations, reuse=model)
    assert again.weights_ == model.weights_


def test_left_out_predictions_of_few_samples_hold_nothing_of_their_own_value() -> None:
    """With more coordinates than samples and hardly any penalty each sample predicts itself."""
    rng = np.random.default_rng(0)
    coordinates = rng.standard_normal((400, 200)) * np.linspace(1.0, 0.05, 200)
    for _ in range(10):
        indicators = np.zeros((400, 2), np.bool_)
        rows = rng.permutation(400)[:50]
        indicators[rows, rng.integers(0, 2, 50)] = True
        fit = FacetLearner(coordinates, _nothing).fit(indicators, True)
        assert fit is not None
        assert not predicts(fit.left_out[rows], indicators[rows], True)


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_what_another_facet_explains_is_no_merit(is_exclusive: bool) -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 10, 1000)
    seasons = np.where(rng.random(1000) < 0.7, kinds % 3, rng.integers(0, 3, 1000))
    colours = rng.integers(0, 3, 1000)
    beside = np.eye(10, dtype=np.bool_)[kinds]
    beside[:5] = False  # where it is unknown
    by_kind = 0.7 * np.eye(3)[kinds % 3] + 0.1
    exact = 0.94 * np.eye(3)[colours] + 0.02
    for values, posteriors, is_merit in ((seasons, by_kind, False), (colours, exact, True)):
        indicators = np.eye(3, dtype=np.bool_)[values]
        assert predicts(posteriors, indicators, is_exclusive)
        assert predicts(posteriors, indicators, is_exclusive, beside) == is_merit


def test_a_facet_that_labels_explain_is_used_only_if_it_is_asked_for() -> None:
    rng = np.random.default_rng(0)
    classes, products = rng.integers(0, 6, 300), np.arange(300) // 5
    colours = rng.integers(0, 3, 60)[products]
    latent = np.hstack([np.eye(6)[classes], np.eye(3)[colours], 2.0 * rng.standard_normal((60, 8))[products]])
    X, Z = (latent @ rng.standard_normal((17, 20)) + 0.3 * rng.standard_normal((300, 20)) for _ in "xz")
    columns = {"label": classes, "family": classes // 2, "colour": colours, "product": products}
    entries = {name: [[f"{name} {value}"] for value in column] for name, column in columns.items()}
    annotations = Annotations((300, 300), {name: Facet.of(side, side) for name, side in entries.items()})
    model = CompositeBilinear(kernels=("linear",), scalings=("center",), max_samples=100)
    # Each product has one colour, and no column is worth less for that.
    assert model.fit(X, Z, annotations).choice_.unused.keys() == {"family"}
    assert model.weights_["facet:family"] == 0.0
    assert model.fit(X, Z, annotations, keep=("family",)).choice_.unused == {}
