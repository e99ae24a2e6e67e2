"""A composite similarity on planted data: every kind of supervision helps, and the file brings it back."""

import json
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
    SignedPairs,
    SupervisionError,
    load_projector,
    save_projector,
)

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
    assert set(whole.weights_) == {"facet:colour", "facet:kind", "pairs"}
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
    steps: list[int] = []
    reused = CompositeBilinear(**QUICK).fit(
        PLANTED.X, PLANTED.Z, annotations, reuse=whole, callback=lambda step: steps.append(1)
    )
    assert reused.choice_ == whole.choice_
    assert len(steps) < 40


def test_probabilities_are_calibrated(whole: CompositeBilinear) -> None:
    scores = whole.similarity(PLANTED.X[TEST], PLANTED.Z[TEST])
    probabilities = whole.projector_.probability(scores)
    grades = PLANTED.annotations(TEST, "colour", "kind").grades(np.arange(len(TEST)), np.arange(len(TEST)))
    assert probabilities.mean() == pytest.approx(float(np.mean(grades == 2)), abs=0.03)
    assert (probabilities <= 1.0).all()


def test_sparse_samples_give_what_dense_ones_give() -> None:
    Z = np.where(np.abs(PLANTED.Z) > 1.0, PLANTED.Z, 0.0)
    annotations = PLANTED.annotations(TRAIN, "kind", pairs=True)
    dense, sparse = (
        CompositeBilinear(**QUICK).fit(PLANTED.X[TRAIN], side, annotations)
        for side in (Z[TRAIN], scipy.sparse.csr_array(Z[TRAIN]))
    )
    np.testing.assert_allclose(
        dense.similarity(PLANTED.X[TEST], Z[TEST]),
        sparse.similarity(PLANTED.X[TEST], scipy.sparse.csr_array(Z[TEST])),
        atol=1e-4,
    )


def test_a_saved_projector_projects_as_before(whole: CompositeBilinear, tmp_path: Path) -> None:
    rbf = _fit("colour", pairs=True, kernels=("rbf",), n_landmarks=20)
    for number, model in enumerate((whole, rbf)):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_projector(model.projector_, folder, {"a": 1})
        again, facts = load_projector(folder)
        assert facts == {"a": 1}
        assert again.rank == model.project_x(PLANTED.X).shape[1]
        np.testing.assert_array_equal(again.project_x(PLANTED.X), model.project_x(PLANTED.X))
        np.testing.assert_array_equal(again.project_z(PLANTED.Z), model.project_z(PLANTED.Z))
        scores = model.similarity(PLANTED.X, PLANTED.Z)
        np.testing.assert_array_equal(again.probability(scores), model.projector_.probability(scores))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("x",), [], "x of format 3 must be of type dict"),
        (("x", "map"), None, "x must have a map and heads"),
        (("x", "map", "gamma"), "0", "x.map.gamma must be of type float"),
        (("z", "heads", 0, "scale"), 0.0, "scale must be positive"),
        (("z", "heads", 0, "kind"), "cube", "kind must be one of"),
        (("z", "heads", 0, "n_scores"), 1, "coefficients must have shape"),
        (("z", "heads", 0, "scale"), 0.5, "the same terms"),
        (("z", "heads"), [], "coefficients must have shape"),
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
        ("levels", lambda array: array[::-1], "levels must ascend"),
        ("probabilities", lambda array: array + 1.0, "must not descend"),
        ("probabilities", lambda array: array[1:], "probabilities must have shape"),
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


def test_samples_of_another_width_are_refused(whole: CompositeBilinear) -> None:
    with pytest.raises(InvalidInputError, match="X has 15 features, the model expects 20"):
        whole.project_x(PLANTED.Z)
