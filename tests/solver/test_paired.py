"""Estimators in the hands of scikit-learn: pairs that are split together, scores, errors, data frames."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn.exceptions
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from solver import (
    CCA,
    InvalidInputError,
    Labels,
    LowRankBilinear,
    NotFittedError,
    PairedEstimator,
    PairedRows,
    PairedSamples,
    bidirectional_map,
    load,
    make_low_rank_pairs,
)

GRID = {"estimator__alpha_fraction": [0.9, 0.3, 0.05]}


Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    """Samples of both modalities, row i of which are of the same class, and the classes."""
    data = make_low_rank_pairs(60, 60, n_classes=3, n_features_x=6, n_features_z=5, noise=1.0, random_state=0)
    x, z = np.argsort(data.x_labels), np.argsort(data.z_labels)
    mixed = np.random.default_rng(0).permutation(60)
    return data.X[x][mixed], data.Z[z][mixed], data.x_labels[x][mixed]


def test_a_grid_search_selects_as_one_by_hand(drawn: Drawn) -> None:
    X, Z, classes = drawn
    folds = [(np.arange(0, 60, 2), np.arange(1, 60, 2)), (np.arange(1, 60, 2), np.arange(0, 60, 2))]
    search = GridSearchCV(PairedEstimator(LowRankBilinear()), GRID, cv=folds)
    search.fit(PairedSamples(X, Z), classes)
    by_hand = []
    for fraction in GRID["estimator__alpha_fraction"]:
        values = []
        for fitting, rest in folds:
            model = LowRankBilinear(alpha_fraction=fraction)
            model.fit(X[fitting], Z[fitting], Labels(classes[fitting]))
            projections = model.project_x(X[rest]), model.project_z(Z[rest])
            values.append(bidirectional_map(*projections, classes[rest], classes[rest]).mean)
        by_hand.append(np.mean(values))
    assert search.cv_results_["mean_test_score"] == pytest.approx(by_hand, abs=1e-6)
    assert len(set(by_hand)) == 3
    assert search.best_params_ == {
        "estimator__alpha_fraction": GRID["estimator__alpha_fraction"][int(np.argmax(by_hand))]
    }
    best = search.best_estimator_
    assert (best.n_features_in_, best.estimator_.n_features_in_) == (11, 6)
    assert best.project_x(X).shape == best.project_z(Z).shape


@pytest.mark.parametrize("with_classes", [True, False])
def test_sparse_samples_and_frames_give_the_scores_of_arrays(drawn: Drawn, with_classes: bool) -> None:
    X, Z, classes = drawn
    y = classes if with_classes else None
    forms = [
        PairedSamples(X, Z),
        PairedSamples(X.tolist(), Z.tolist()),
        PairedSamples(scipy.sparse.csr_array(X), Z),
        PairedSamples(pd.DataFrame(X), pd.DataFrame(Z)),
    ]
    estimator = PairedEstimator(LowRankBilinear(alpha_fraction=0.1))
    scores = [cross_val_score(estimator, samples, y, cv=3) for samples in forms]
    assert np.isfinite(scores[0]).all()
    assert np.ptp(scores[0]) > 0
    for other in scores[1:]:
        np.testing.assert_allclose(other, scores[0], atol=1e-6)


def test_columns_of_frames_are_remembered_and_compared(
    drawn: Drawn,
) -> None:
    X, Z, classes = drawn
    left = pd.DataFrame(X, columns=[f"pixel {number}" for number in range(6)])
    right = pd.DataFrame(Z, columns=[f"word {number}" for number in range(5)])
    estimator = PairedEstimator(LowRankBilinear(alpha_fraction=0.1)).fit(PairedSamples(left, right), classes)
    assert estimator.feature_names_in_.tolist() == [*left.columns, *right.columns]
    assert estimator.score(PairedSamples(left, right), classes) > 0.5
    renamed = left.rename(columns={"pixel 0": "weight"})
    with pytest.raises(
        InvalidInputError, match="columns of X differ from those that were fitted: pixel 0, weight"
    ):
        estimator.score(PairedSamples(renamed, right), classes)
    with pytest.raises(InvalidInputError, match="their order"):
        estimator.score(PairedSamples(left[left.columns[::-1]], right), classes)
    with pytest.raises(InvalidInputError, match=r"columns of X .* their order"):
        estimator.project_x(left[left.columns[::-1]])
    with pytest.raises(InvalidInputError, match=r"columns of Z .* their order"):
        estimator.project_z(right[right.columns[::-1]])
    np.testing.assert_array_equal(estimator.project_x(left), estimator.project_x(X))
    estimator.fit(PairedSamples(X, right), classes)
    assert estimator.z_feature_names_in_.tolist() == right.columns.tolist()
    assert not hasattr(estimator, "x_feature_names_in_")
    assert not hasattr(estimator, "feature_names_in_")
    with pytest.raises(InvalidInputError, match="columns of Z"):
        estimator.score(PairedSamples(X, right[right.columns[::-1]]), classes)
    estimator.fit(PairedSamples(X, Z), classes)
    assert not hasattr(estimator, "z_feature_names_in_")


def test_errors_say_what_is_wrong(drawn: Drawn) -> None:
    X, Z, classes = drawn
    with pytest.raises(InvalidInputError, match="X has 60 rows and Z has 59"):
        PairedSamples(X, Z[1:])
    with pytest.raises(InvalidInputError, match="Z must be of shape"):
        PairedSamples(X, Z[:, 0])
    with pytest.raises(InvalidInputError, match="must be PairedSamples, got ndarray"):
        PairedEstimator(LowRankBilinear()).fit(X, classes)


@pytest.mark.parametrize("error", [sklearn.exceptions.NotFittedError, NotFittedError])
def test_what_is_not_fitted_raises_the_error_of_scikit_learn(drawn: Drawn, error: type[Exception]) -> None:
    X, Z, _ = drawn
    for unfitted in (LowRankBilinear(), PairedEstimator(LowRankBilinear())):
        with pytest.raises(error, match="call fit first"):
            unfitted.project_x(X)
    with pytest.raises(error):
        LowRankBilinear().score(X, Z, PairedRows(60))
    assert not hasattr(LowRankBilinear(), "n_features_in_")


def test_an_objective_can_be_chosen(drawn: Drawn) -> None:
    X, Z, classes = drawn
    model = LowRankBilinear(alpha_fraction=0.1).fit(X, Z, Labels(classes))
    projections = model.project_x(X), model.project_z(Z)
    assert model.score(X, Z, Labels(classes)) == pytest.approx(
        bidirectional_map(*projections, classes, classes).mean, abs=1e-6
    )
    partners = [model.score(X, Z, PairedRows(60), objective) for objective in ("recall", None)]
    assert partners[0] != partners[1]
    assert all(0 < value < 1 for value in partners)


def test_searches_over_an_estimator_itself_split_pairs_or_say_what_takes_labels(
    drawn: Drawn,
) -> None:
    X, Z, classes = drawn
    search = GridSearchCV(CCA(), {"n_components": [1, 2]}, cv=2).fit(X, Z)  # rows are pairs
    by_hand = GridSearchCV(PairedEstimator(CCA()), {"estimator__n_components": [1, 2]}, cv=2)
    by_hand.fit(PairedSamples(X, Z))
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand.cv_results_["mean_test_score"])
    with pytest.raises(ValueError, match=r"Z is one column, such as labels: .*PairedEstimator\(estimator\)"):
        GridSearchCV(LowRankBilinear(), {"alpha_fraction": [0.1, 0.3]}, cv=2).fit(X, classes)
    with pytest.raises(ValueError, match=r"X has 30 samples, the supervision has 60; .*PairedEstimator"):
        GridSearchCV(CCA(), {"n_components": [1, 2]}, cv=2).fit(X, Z, supervision=Labels(classes))


def test_scalers_of_scikit_learn_come_before_a_paired_estimator(drawn: Drawn, tmp_path: Path) -> None:
    X, Z, classes = drawn
    model = PairedEstimator(CCA(2), n_features_x=X.shape[1])
    pipeline = make_pipeline(StandardScaler(), model)
    frames = PairedSamples(pd.DataFrame(X).astype("Float64"), pl.DataFrame(Z))
    for samples in (PairedSamples(X, Z), frames, np.hstack([X, Z])):
        pipeline.fit(samples, classes)
        scaled = (StandardScaler().fit_transform(side) for side in (X, Z))
        expected = CCA(2).fit(*scaled, classes)
        np.testing.assert_allclose(pipeline[-1].estimator_.correlations_, expected.correlations_)
        assert pipeline.score(samples, classes) > 0.5
    grid = {"pairedestimator__estimator__n_components": [1, 2]}
    assert GridSearchCV(pipeline, grid, cv=2).fit(PairedSamples(X, Z), classes).best_score_ > 0.5
    for number, words in ((None, "n_features_x"), (11, "none are left for Z")):
        with pytest.raises(InvalidInputError, match=words):
            model.set_params(n_features_x=number).fit(np.hstack([X, Z]), classes)
    pipeline[-1].save(tmp_path)
    assert load(tmp_path).get_params() == CCA(2).get_params()
    ends = slice(X.shape[1]), slice(X.shape[1], None)
    parts = make_column_transformer((PCA(3), ends[0]), (StandardScaler(), ends[1]))
    by_side = make_pipeline(parts, PairedEstimator(CCA(2), n_features_x=3)).fit(PairedSamples(X, Z), classes)
    expected = CCA(2).fit(PCA(3).fit_transform(X), StandardScaler().fit_transform(Z), classes)
    np.testing.assert_allclose(by_side[-1].estimator_.correlations_, expected.correlations_)
    # An estimator alone takes pairs: the scaler sees X only.
    alone = make_pipeline(StandardScaler(), CCA(2)).fit(X, Z)
    assert alone.score(X, Z) > 0


def test_rows_of_pairs_are_taken_from_any_table(drawn: Drawn) -> None:
    X, Z, _ = drawn
    rows = [4, 0]
    mask = np.isin(np.arange(len(X)), rows)
    forms = pd.DataFrame(X), pl.DataFrame(X), scipy.sparse.coo_array(X), scipy.sparse.dia_matrix(X)
    for side in forms:
        pairs = PairedSamples(side, Z)
        np.testing.assert_array_equal(np.asarray(pairs[rows]), np.hstack([X, Z])[rows])
        np.testing.assert_array_equal(np.asarray(pairs[mask]), np.hstack([X, Z])[mask])
        np.testing.assert_array_equal(np.asarray(pairs[1:3]), np.hstack([X, Z])[1:3])
        np.testing.assert_array_equal(np.asarray(pairs[-1]), np.hstack([X, Z])[-1:])


def test_folds_are_drawn_within_the_classes(drawn: Drawn) -> None:
    X, Z, classes = drawn
    order = np.argsort(classes)  # a fold of neighbours would have one class
    pairs = PairedSamples(X[order], Z[order])
    for estimator in (PairedEstimator(CCA(2)), make_pipeline(PairedEstimator(CCA(2)))):
        assert min(cross_val_score(estimator, pairs, classes[order], cv=3)) > 0.5
