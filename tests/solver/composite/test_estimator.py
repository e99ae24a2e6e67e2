"""A composite similarity on planted data: every kind of supervision helps, and the file brings it back."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from safetensors.numpy import load_file, save_file

from solver import (
    Annotations,
    ArtifactError,
    CompositeBilinear,
    Facet,
    InvalidInputError,
    Labels,
    PairedRows,
    Queries,
    RankingQuality,
    SignedPairs,
    StepProgress,
    SupervisionError,
    load,
    load_projector,
    measure_quality,
    save_projector,
)
from solver.composite.projector import Head, distinctness, draw_bank

QUICK = {"kernels": ("linear",), "scalings": ("center",)}
N = 150


class Planted:
    """Samples that share a colour, a kind and something of their own, seen through two random maps."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.colours, self.kinds = rng.integers(0, 4, N), rng.integers(0, 3, N)
        own = rng.standard_normal((N, 3))
        hidden = np.hstack([2 * np.eye(4)[self.colours], 2 * np.eye(3)[self.kinds], own])
        self.X, self.Z = (
            (hidden @ rng.standard_normal((10, size)) + 0.3 * rng.standard_normal((N, size))).astype(
                np.float32
            )
            for size in (20, 15)
        )

    def annotations(self, rows: np.ndarray, *facets: str, pairs: bool = False) -> Annotations:
        values = {"colour": self.colours[rows], "kind": self.kinds[rows]}
        entries = {name: [[str(value)] for value in values[name]] for name in facets}
        numbers = np.arange(len(rows))
        return Annotations(
            (len(rows), len(rows)),
            {name: Facet.of(side, side) for name, side in entries.items()},
            np.column_stack([numbers, numbers]) if pairs else np.empty((0, 2), np.intp),
        )


PLANTED = Planted()
TRAIN, TEST = np.arange(100), np.arange(100, N)


def _fit(*facets: str, pairs: bool = False, **parameters: object) -> CompositeBilinear:
    annotations = PLANTED.annotations(TRAIN, *facets, pairs=pairs)
    return CompositeBilinear(**{**QUICK, **parameters}).fit(PLANTED.X[TRAIN], PLANTED.Z[TRAIN], annotations)


def _first_hits(model: CompositeBilinear) -> np.ndarray:
    return np.argsort(-model.similarity(PLANTED.X[TEST], PLANTED.Z[TEST]), axis=1)[
        :, :2
    ]  # most combinations of values have three test samples


@pytest.fixture(scope="module")
def whole() -> CompositeBilinear:
    return _fit("colour", "kind", pairs=True)


def test_hits_agree_in_every_facet(whole: CompositeBilinear) -> None:
    hits = _first_hits(whole)
    assert np.mean(PLANTED.colours[TEST][hits] == PLANTED.colours[TEST][:, None]) > 0.85
    assert np.mean(PLANTED.kinds[TEST][hits] == PLANTED.kinds[TEST][:, None]) > 0.85
    assert set(whole.weights_) == {"facet:colour", "facet:kind", "pairs", "distinctness"}
    assert max(whole.weights_.values()) == 1.0


def test_a_facet_that_is_left_out_is_not_learned() -> None:
    hits = _first_hits(_fit("kind"))
    assert np.mean(PLANTED.colours[TEST][hits] == PLANTED.colours[TEST][:, None]) < 0.6


def test_pairs_alone_find_the_partner() -> None:
    annotations = _fit(pairs=True)
    first = _first_hits(annotations)
    assert np.mean(first[:, 0] == np.arange(len(TEST))) > 0.7
    rows = CompositeBilinear(**QUICK).fit(PLANTED.X[TRAIN], PLANTED.Z[TRAIN], PairedRows(len(TRAIN)))
    np.testing.assert_array_equal(_first_hits(rows), first)


def test_no_more_directions_are_kept_than_help() -> None:
    """Sixteen dimensions are behind both sides; a kernel makes hundreds of coordinates of them."""
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((300, 16))
    X = hidden + 0.6 * rng.standard_normal(hidden.shape)
    Z = np.hstack([hidden, hidden[:, :1]]) + 0.6 * rng.standard_normal((300, 17))
    train, test = slice(0, 200), slice(200, None)
    model = CompositeBilinear(kernels=("rbf",)).fit(X[train], Z[train], PairedRows(200))
    assert model.dimensions_["pairs"] <= 64
    assert sum(model.dimensions_.values()) == model.projector_.rank
    partners = np.argmax(model.similarity(X[test], Z[test]), axis=1)
    assert np.mean(partners == np.arange(100)) > 0.7


def test_pairs_rank_the_partner_higher(whole: CompositeBilinear) -> None:
    def rank(model: CompositeBilinear) -> float:
        scores = model.similarity(PLANTED.X[TEST], PLANTED.Z[TEST])
        return float(np.mean(np.sum(scores > np.diag(scores)[:, None], axis=1)))

    assert rank(whole) < 0.7 * rank(_fit("colour", "kind"))


def test_judged_pairs_alone_find_what_they_agree_in() -> None:
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, len(TRAIN), (2, 1500))
    agrees = PLANTED.colours[rows] == PLANTED.colours[columns]
    keys, places = np.unique(np.column_stack([rows, columns]), axis=0, return_index=True)
    signs = scipy.sparse.csr_array((np.where(agrees[places], 1, -1), tuple(keys.T)), (len(TRAIN), len(TRAIN)))
    annotations = Annotations((len(TRAIN), len(TRAIN)), signs=signs)
    model = CompositeBilinear(**QUICK).fit(PLANTED.X[TRAIN], PLANTED.Z[TRAIN], annotations)
    assert model.weights_ == {"signs": 1.0}
    hits = _first_hits(model)
    assert np.mean(PLANTED.colours[TEST][hits] == PLANTED.colours[TEST][:, None]) > 0.6


def _clicks(base: CompositeBilinear, planted: Planted) -> scipy.sparse.csr_array:
    """What people who look for a colour think of the first ten results of 20 queries, 200 in all."""
    similarity = base.similarity(planted.X[TRAIN], planted.Z[TRAIN])
    rows = np.random.default_rng(0).permutation(len(TRAIN))[:20]
    columns = np.argsort(-similarity[rows], axis=1)[:, :10]
    agrees = planted.colours[rows][:, None] == planted.colours[columns]
    places = np.repeat(rows, 10), columns.ravel()
    return scipy.sparse.csr_array((np.where(agrees, 1, -1).ravel(), places), (len(TRAIN), len(TRAIN)))


@pytest.mark.parametrize("pairs", [True, False])
def test_clicks_on_what_no_facet_tells_help_other_queries_until_they_are_deleted(pairs: bool) -> None:
    gains = []
    for seed in (1, 2, 3):
        planted = Planted(seed)
        samples = planted.X[TRAIN], planted.Z[TRAIN]
        annotations = planted.annotations(TRAIN, "kind", pairs=pairs)
        before = CompositeBilinear(**QUICK).fit(*samples, annotations)
        judged = replace(annotations, signs=_clicks(before, planted))
        after = CompositeBilinear(**QUICK).fit(*samples, judged)
        truth = planted.annotations(TEST, "kind", "colour", pairs=pairs)
        first, second = (
            measure_quality(model.project_x(planted.X[TEST]), model.project_z(planted.Z[TEST]), truth)
            for model in (before, after)
        )
        gains.append(second.mean.ndcg - first.mean.ndcg)
        deleted = CompositeBilinear(**QUICK).fit(*samples, replace(judged, signs=None))
        for side, same in (
            (before.projector_.x, deleted.projector_.x),
            (before.projector_.z, deleted.projector_.z),
        ):
            np.testing.assert_array_equal(side.coefficients, same.coefficients)
            np.testing.assert_array_equal(side.intercepts, same.intercepts)
            assert side.heads == same.heads
        assert deleted.weights_ == before.weights_
    # Pairs know colours already: with them nDCG is .99 before, and a single seed varies by a thousandth.
    assert np.mean(gains) > 0.003 if pairs else min(gains) > 0.1


def test_samples_in_one_space_are_compared_by_their_cosine() -> None:
    rng = np.random.default_rng(0)
    common = rng.standard_normal((200, 16))
    X, Z = (common + 0.5 * rng.standard_normal((200, 16)) for _ in range(2))
    rows, test = np.arange(60), np.arange(60, 200)
    labels = Labels(rng.integers(0, 3, 60))
    model = CompositeBilinear(**QUICK).fit(
        X[rows], Z[rows], Annotations((60, 60), {}, np.column_stack([rows, rows]))
    )
    assert model.weights_["cosine"] > 0.0

    def recall(scores: np.ndarray) -> float:
        return float(np.mean(np.argmax(scores, axis=1) == np.arange(len(test))))

    X_unit, Z_unit = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (X, Z))
    assert recall(model.similarity(X[test], Z[test])) >= recall(X_unit[test] @ Z_unit[test].T) - 0.03
    assert "cosine" in CompositeBilinear(**QUICK).fit(X[rows], Z[rows], labels).weights_


def test_two_fits_agree_and_a_choice_can_be_taken_over(whole: CompositeBilinear) -> None:
    again = _fit("colour", "kind", pairs=True)
    np.testing.assert_array_equal(again.project_x(PLANTED.X), whole.project_x(PLANTED.X))
    annotations = PLANTED.annotations(np.arange(N), "colour", "kind", pairs=True)
    reused = CompositeBilinear(**QUICK).fit(PLANTED.X, PLANTED.Z, annotations, reuse=whole)
    assert reused.choice_ == whole.choice_


@pytest.mark.parametrize("is_chosen", [False, True])
def test_the_share_of_the_work_rises_to_the_whole(is_chosen: bool, whole: CompositeBilinear) -> None:
    seen: list[StepProgress] = []
    annotations = PLANTED.annotations(TRAIN, "colour", "kind", pairs=True)
    CompositeBilinear(**QUICK).fit(
        PLANTED.X[TRAIN],
        PLANTED.Z[TRAIN],
        annotations,
        callback=seen.append,
        reuse=whole if is_chosen else None,
    )
    assert [step.number for step in seen] == list(range(1, len(seen) + 1))
    shares = [step.share for step in seen]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert max(np.diff(shares)) < 0.6


def test_probabilities_are_calibrated(whole: CompositeBilinear) -> None:
    annotations = PLANTED.annotations(TEST, "colour", "kind")
    samples = whole.project_x(PLANTED.X[TEST]), whole.project_z(PLANTED.Z[TEST])
    rankings = whole.projector_.held_out(samples, annotations).rankings(None, with_values=True)
    for ranking, queries, side in zip(rankings, samples[::-1], "zx", strict=True):
        probabilities = whole.projector_.probability(ranking.scores, queries, side)
        assert probabilities.mean() == pytest.approx(ranking.is_match.mean(), abs=0.03)
        assert (probabilities <= 1.0).all()


def test_a_query_far_from_all_landmarks_is_unlike_what_was_learned(tmp_path: Path) -> None:
    save_projector(_fit("colour", pairs=True, kernels=("rbf",)).projector_, tmp_path, {})
    model, _ = load_projector(tmp_path)
    rows = np.vstack([PLANTED.X[TEST], 3.0 * PLANTED.X[:10]])
    projected, is_like = zip(*(model.project_query(row[None]) for row in rows), strict=True)
    np.testing.assert_allclose(np.vstack(projected), model.project_x(rows), atol=1e-5)
    assert np.mean(is_like[: len(TEST)]) > 0.9
    assert not any(is_like[len(TEST) :])


def test_a_saved_projector_projects_as_before(whole: CompositeBilinear, tmp_path: Path) -> None:
    rbf = _fit("colour", pairs=True, kernels=("rbf",), n_landmarks=20)
    for number, model in enumerate((whole, rbf)):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_projector(model.projector_, folder, {"a": 1})
        again, facts = load_projector(folder)
        assert facts == {"a": 1}
        assert again.rank == model.project_x(PLANTED.X).shape[1]
        # What serves maps by another order of the same products.
        np.testing.assert_allclose(again.project_x(PLANTED.X), model.project_x(PLANTED.X), atol=1e-5)
        np.testing.assert_allclose(again.project_z(PLANTED.Z), model.project_z(PLANTED.Z), atol=1e-5)
        scores = model.similarity(PLANTED.X, PLANTED.Z)
        queries = model.project_x(PLANTED.X)
        np.testing.assert_array_equal(
            again.probability(scores, queries), model.projector_.probability(scores, queries)
        )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("x",), [], "x of format 3 must be of type dict"),
        (("x", "map"), None, "x must have a map and heads"),
        (("x", "map", "gamma"), "0", "x.map.gamma must be of type float"),
        (("z", "heads", 0, "scale"), 0.0, "scale must be positive"),
        (("z", "heads", 0, "kind"), "cube", "kind must be one of"),
        (("z", "heads", 0, "n_scores"), 1, "4 values for 1 scores"),
        (("z", "heads", 0, "scale"), 0.5, "the same terms"),
        (("z", "heads"), [], "coefficients must have shape"),
        (("x", "heads", 0, "values"), ["red", 3], "heads.0.values must be a list of texts"),
        (("x", "heads", 0, "values"), ["red", "red"], "2 values for"),
        (("x", "partner_share"), 1.5, "partner_share must be from 0 to 1"),
        (("x", "partner_share"), "half", "partner_share must be of type float"),
        (("z", "heads", 0, "term"), 3, "z.heads.0.term must be of type str"),
    ],
)
def test_a_damaged_description_is_refused(
    path: tuple, value: object, message: str, whole: CompositeBilinear, tmp_path: Path
) -> None:
    save_projector(whole.projector_, tmp_path, {})
    file = tmp_path / "model.json"
    description = json.loads(file.read_text())
    part = description
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    file.write_text(json.dumps(description))
    with pytest.raises(ArtifactError, match=message):
        load_projector(tmp_path)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("x_levels", lambda array: array[::-1], "levels must ascend"),
        ("z_probabilities", lambda array: array + 1.0, "must not descend"),
        ("x_probabilities", lambda array: array[1:], "probabilities must have shape"),
        ("x_coefficients", lambda array: array * np.float32(1e30), "must not exceed"),
        ("x_intercepts", lambda array: array * np.nan, "x_?intercepts|intercepts contains NaN"),
    ],
)
def test_damaged_arrays_are_refused(
    name: str, change: object, message: str, whole: CompositeBilinear, tmp_path: Path
) -> None:
    save_projector(whole.projector_, tmp_path, {})
    file = tmp_path / "model.safetensors"
    arrays = load_file(file)
    arrays[name] = np.ascontiguousarray(change(arrays[name]))
    save_file(arrays, file)
    with pytest.raises(ArtifactError, match=message):
        load_projector(tmp_path)


def test_the_bank_of_distinctness_is_saved_and_checked(tmp_path: Path) -> None:
    plain = _fit(pairs=True).projector_
    plain = replace(
        plain, **{name: replace(getattr(plain, name), heads=plain.x.heads[:1], bank=None) for name in "xz"}
    )
    x, z = plain.project_x(PLANTED.X), plain.project_z(PLANTED.Z)
    heads = (plain.x.heads[0], Head("distinctness", "distinctness", 0, 0.5))
    projector = replace(
        plain,
        x=replace(plain.x, heads=heads, bank=draw_bank(z)),
        z=replace(plain.z, heads=heads, bank=draw_bank(x)),
    )
    assert projector.rank == plain.rank + 1
    np.testing.assert_allclose(
        projector.project_x(PLANTED.X), np.hstack([x, 0.5 * distinctness(x, draw_bank(z))]), atol=1e-5
    )
    save_projector(projector, tmp_path, {})
    again, _ = load_projector(tmp_path)
    np.testing.assert_array_equal(again.project_z(PLANTED.Z), projector.project_z(PLANTED.Z))
    file = tmp_path / "model.safetensors"
    arrays = load_file(file)
    save_file({**arrays, "z_bank": np.ascontiguousarray(arrays["z_bank"][:, 1:])}, file)
    with pytest.raises(ArtifactError, match="bank must have shape"):
        load_projector(tmp_path)
    save_file({name: array for name, array in arrays.items() if name != "x_bank"}, file)
    with pytest.raises(ArtifactError, match="expected the arrays"):
        load_projector(tmp_path)


def test_other_supervision_is_refused() -> None:
    signs = scipy.sparse.coo_array(([1, -1], ([0, 1], [0, 1])), shape=(100, 100))
    with pytest.raises(SupervisionError, match="not SignedPairs"):
        CompositeBilinear(**QUICK).fit(PLANTED.X[TRAIN], PLANTED.Z[TRAIN], SignedPairs(signs))
    annotations = PLANTED.annotations(TRAIN, "kind")
    with pytest.raises(SupervisionError, match="X has 150 samples, the supervision has 100"):
        CompositeBilinear(**QUICK).fit(PLANTED.X, PLANTED.Z[TRAIN], annotations)
    same = Annotations((100, 100), {"kind": Facet.of([["a"]] * 100, [["a"]] * 100)})
    with pytest.raises(SupervisionError, match="nothing to learn from"):
        CompositeBilinear(**QUICK).fit(PLANTED.X[TRAIN], PLANTED.Z[TRAIN], same)


def _queries(annotations: Annotations, features: np.ndarray) -> Queries:
    """Return noisy training samples as queries that name their colour alone."""
    features = features + 4 * np.random.default_rng(0).standard_normal(features.shape).astype(np.float32)
    entries = [[str(value)] for value in PLANTED.colours[TRAIN]]
    return Queries.of(features, {"colour": entries}, annotations.facets)


def test_short_queries_decide_about_weights_and_teach_nothing_else() -> None:
    annotations = PLANTED.annotations(TRAIN, "colour", "kind", pairs=True)
    X, Z = PLANTED.X[TRAIN], PLANTED.Z[TRAIN]
    queries = _queries(annotations, X), _queries(annotations, Z)
    first, second = (
        CompositeBilinear(**QUICK).fit(X, Z, annotations, queries=lambda _: queries) for _ in range(2)
    )
    assert first.weights_ == second.weights_
    without = CompositeBilinear(**QUICK).fit(X, Z, annotations)
    share = [model.weights_["facet:colour"] / sum(model.weights_.values()) for model in (first, without)]
    assert share[0] > share[1]
    same = CompositeBilinear(**QUICK).fit(X, Z, annotations, reuse=without, queries=lambda _: queries)
    np.testing.assert_array_equal(same.project_z(Z), without.project_z(Z))


def test_queries_that_do_not_match_are_refused() -> None:
    annotations = PLANTED.annotations(TRAIN, "colour")
    X, Z = PLANTED.X[TRAIN], PLANTED.Z[TRAIN]
    with pytest.raises(InvalidInputError, match="queries of Z"):
        CompositeBilinear().fit(X, Z, annotations, queries=lambda _: (None, _queries(annotations, X)))
    unknown = Queries(Z[:1], {"size": np.ones((1, 2), np.bool_)})
    with pytest.raises(SupervisionError, match=r"queries of Z: there is no facet 'size'"):
        CompositeBilinear().fit(X, Z, annotations, queries=lambda _: (None, unknown))
    narrow = Queries(X[:1], {"colour": np.ones((1, 2), np.bool_)})
    with pytest.raises(SupervisionError, match=r"'colour' has 4 values, the queries have 2"):
        CompositeBilinear().fit(X, Z, annotations, queries=lambda _: (narrow, None))


@pytest.mark.parametrize("seed", range(4))
def test_partners_without_anything_in_common_give_a_model_all_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, Z = rng.standard_normal((24, 5)), rng.standard_normal((24, 6))
    fitted = CompositeBilinear(n_folds=3).fit(X, Z, PairedRows(24))
    assert fitted.weights_["pairs"] > 0.0
    assert max(fitted.weights_.values()) == 1.0
    assert np.isfinite(fitted.project_x(X) @ fitted.project_z(Z).T).all()


def _shared_space(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Partners in one space, as of a pretrained encoder, and coarse classes of what they show."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 5, n)
    centres = np.random.default_rng(0).standard_normal((5, 24))
    content = centres[classes] + rng.standard_normal((n, 24))
    x, z = (content + 0.6 * rng.standard_normal(content.shape) for _ in "xz")
    return x, z, classes


def test_labels_alone_do_not_cost_a_shared_space_its_partners() -> None:
    X, Z, classes = _shared_space(300, 1)
    new_x, new_z, new_classes = _shared_space(200, 2)
    of_both = [[str(number)] for number in new_classes]
    partners = np.stack([np.arange(200)] * 2, axis=1)
    annotations = Annotations((200, 200), {"label": Facet.of(of_both, of_both)}, partners)

    def measure(x: np.ndarray, z: np.ndarray) -> RankingQuality:
        return measure_quality(x, z, annotations, label="label").mean

    cosine = measure(*(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (new_x, new_z)))
    model = CompositeBilinear().fit(X, Z, Labels(classes, classes))
    trained = measure(model.project_x(new_x), model.project_z(new_z))
    assert trained.recall_at_1 >= 0.9 * cosine.recall_at_1
    assert trained.map > cosine.map + 0.1


def test_features_of_unrelated_spaces_are_not_compared() -> None:
    X, Z, classes = _shared_space(300, 1)
    model = CompositeBilinear(kernels=("linear",)).fit(X, -Z[:, ::-1], Labels(classes, classes))
    assert model.weights_["cosine"] < 0.1


def test_what_was_chosen_for_each_measure_is_kept_by_a_second_fit_and_in_a_file(tmp_path: Path) -> None:
    X, Z, classes = _shared_space(200, 1)
    values = [[str(number)] for number in classes]
    annotations = Annotations(
        (200, 200), {"label": Facet.of(values, values)}, np.stack([np.arange(200)] * 2, axis=1)
    )
    objective = {"map": 1.0, "at_least": {"recall_1": 0.9}}
    model = CompositeBilinear(kernels=("linear",), objective=objective).fit(X, Z, annotations)
    assert set(model.choice_.emphases) == {"ndcg", "map", "recall"}
    again = CompositeBilinear(kernels=("linear",)).fit(X, Z, annotations, reuse=model)
    assert again.choice_ == model.choice_
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, CompositeBilinear)
    assert (loaded.choice_, loaded.objective) == (model.choice_, objective)


def test_samples_that_are_all_partners_of_one_are_fitted() -> None:
    # One part holds them all, and with them all landmarks: none is left to say how unlike a sample may be.
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((2, 40, 6)).astype(np.float32)
    values = [[str(number % 2)] for number in range(40)]
    chain = np.array([(n, m) for n in range(40) for m in (n, n + 1) if m < 40])
    annotations = Annotations((40, 40), {"kind": Facet.of(values, values)}, chain)
    model = CompositeBilinear(kernels=("rbf",)).fit(X, Z, annotations)
    assert np.isfinite(model.project_x(X)).all()
