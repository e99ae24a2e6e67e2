"""Retrains of many labels: what `auto` takes then, what it needs for it, and what is refused."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from app.services.training.data import LabelledItems
from app.services.training.methods import select_and_fit
from app.services.training.requests import (
    Sizes,
    TrainingParameters,
    pairs_too_slow,
    posteriors_too_large,
    posteriors_too_slow,
    sums_too_large,
)
from solver.evaluation.metrics import chance_average_precision
from solver.logistic import Targets
from solver.scaling.feature_maps import FeatureMapConfig
from solver.semantic.learners import (
    ClassifierConfig,
    ClassifierPlan,
    LogisticLearner,
    fit_ensemble,
    make_folds,
)
from tests.app.refused import refused

N_LABELS, OF_EACH, N_FEATURES = 2500, 2, 128


def many_labels() -> LabelledItems:
    """Return samples of which either modality shows two of every label, by another linear map."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((N_LABELS, 24))
    codes = rng.permutation(np.repeat(np.arange(N_LABELS), OF_EACH))
    sides = [
        (centres[codes] + 0.4 * rng.standard_normal((len(codes), 24))) @ rng.standard_normal((24, N_FEATURES))
        for _ in "xz"
    ]
    labels = np.char.add("label ", codes.astype(np.str_))
    ids = [np.char.add(side, np.arange(len(codes)).astype(np.str_)) for side in "xz"]
    return LabelledItems(*(side.astype(np.float32) for side in sides), labels, labels, *ids)


def test_many_labels_are_learned_from_sums_without_an_array_of_samples_and_classes() -> None:
    data, told = many_labels(), []
    tracemalloc.start()
    try:
        learned = select_and_fit(data, TrainingParameters(), ("x", "z"), told.append)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(data.X) * N_LABELS  # what one array of them took
    assert (learned.method, list(learned.selection.held_out_map)) == ("squared", ["squared"])
    refused = learned.selection.refused
    assert list(refused) == ["lrbs", "semantic"]
    assert "pairs of items of 2500 labels" in refused["lrbs"]
    assert "at most 2 GB" in refused["semantic"]
    assert {step["phase"] for step in told} == {"choosing", "judging", "fitting"}
    # What is judged learned from all items but those on which it is judged.
    assert learned.judged is not None
    assert learned.held_out is not None
    quality = learned.held_out_quality
    n_held = quality.items["x"] + quality.items["z"]
    assert len(learned.judged.training_ids) == 2 * len(data.X) - n_held
    assert not learned.judged.training_ids & {
        *learned.held_out.x_ids.tolist(),
        *learned.held_out.z_ids.tolist(),
    }
    chance = chance_average_precision(learned.held_out.x_labels, learned.held_out.z_labels)
    worse = min(direction.map for direction in quality.directions.values())
    assert worse > 100 * chance
    assert worse > 0.5
    probabilities = learned.projector.probability(
        learned.projector.project_x(data.X[:50]) @ learned.projector.project_z(data.Z[:50]).T
    )
    same = data.x_labels[:50, None] == data.z_labels[None, :50]
    assert 0.0 <= probabilities.min() <= probabilities.max() <= 1.0
    assert probabilities[same].mean() > 3 * probabilities[~same].mean()


def test_posteriors_that_would_not_fit_are_refused_before_anything_is_queued(pairs: Any) -> None:
    pairs.make("a")
    rows = [(side, number) for side in "xz" for number in range(2000)]
    items = [pairs.item(side, f"{side}{number}", [number], f"label {number // 2}") for side, number in rows]
    pairs.services.catalogue.add_items("a", items)
    pairs.services.training.request("a", TrainingParameters(method="semantic"))
    (queued,) = pairs.services.training.jobs("a", 10)
    pairs.services.training.cancel(queued.id)
    more = [pairs.item(side, f"{side}+{number}", [number], f"{side} {number}") for side, number in rows]
    pairs.services.catalogue.add_items("a", more)
    with refused("training-data", match=r"posteriors of 5000 labels .* at most 2 GB are allowed"):
        pairs.services.training.request("a", TrainingParameters(method="semantic"))
    assert [job.id for job in pairs.services.training.jobs("a", 10)] == [queued.id]


def test_what_is_refused_at_a_request_is_refused_by_the_training_too() -> None:
    with refused("training-data", match=r"posteriors of 2500 labels .* at most 2 GB are allowed"):
        select_and_fit(many_labels(), TrainingParameters(method="semantic"), ("x", "z"), lambda _: None)


def few_labels_of_sparse_samples(n_items: int, n_features: int, n_labels: int) -> LabelledItems:
    """Return dense vectors of one modality, and of the other sparse rows with one feature each."""
    rng = np.random.default_rng(0)
    codes = np.arange(n_items) % n_labels
    columns = codes * (n_features // n_labels) + rng.integers(n_features // n_labels, size=n_items)
    rows = (np.ones(n_items, np.float32), columns, np.arange(n_items + 1))
    z = scipy.sparse.csr_array(rows, shape=(n_items, n_features))
    x = rng.standard_normal((2 * n_labels, 4)).astype(np.float32)
    x_labels, z_labels = (some.astype(np.str_) for some in (np.arange(2 * n_labels) % n_labels, codes))
    x_ids, z_ids = (np.arange(len(some)).astype(np.str_) for some in (x_labels, z_labels))
    return LabelledItems(x, z, x_labels, z_labels, x_ids, z_ids)


@pytest.mark.parametrize("n_items", [2000, 12_000])
def test_posteriors_of_very_many_features_are_refused(n_items: int) -> None:
    data = few_labels_of_sparse_samples(n_items, 200_000, 200)
    said = r"learned from 4 and 200000 features, would take about .* at most 2 GB are allowed"
    with refused("training-data", match=said):
        select_and_fit(data, TrainingParameters(method="semantic"), ("x", "z"), lambda _: None)


def test_a_fit_on_samples_that_stay_sparse_takes_no_more_than_the_bound_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n_items, n_features, n_labels = 12_000, 15_000, 10
    data = few_labels_of_sparse_samples(n_items, n_features, n_labels)
    targets = Targets(np.eye(n_labels)[data.z_labels.astype(int)], True)
    kind = FeatureMapConfig("l2", "linear", 1.0)
    feature_maps = {kind: kind.fit(data.Z, n_landmarks=1, seed=0)}
    plan = ClassifierPlan(ClassifierConfig(kind, LogisticLearner(3.0), 1.0))
    folds = make_folds(targets, 3, np.random.default_rng(0))
    tracemalloc.start()
    try:
        fit_ensemble(data.Z, targets, feature_maps, [plan], folds, 3, lambda: None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    monkeypatch.setattr("app.services.training.requests._MOST_BYTES", peak)
    assert "would take" in str(posteriors_too_large(Sizes.of(data), (4, n_features), (False, True)))


@pytest.mark.parametrize("n", [Sizes(2173, 2173, 10), Sizes(3000, 3000, 150), Sizes(30_000, 30_000, 2)])
def test_collections_of_few_labels_try_both_methods(n: Sizes) -> None:
    assert posteriors_too_large(n) is posteriors_too_slow(n) is pairs_too_slow(n, 128) is None
    assert posteriors_too_large(n, (4096, 2000), (False, True)) is None


def test_bounds_say_what_they_are() -> None:
    many = Sizes(60_000, 60_000, 20_000)
    assert "20000 labels for each of 120000 items would take about 4" in str(posteriors_too_large(many))
    assert "at most 5 are taken unasked" in str(posteriors_too_slow(many))
    assert "3.6e+09 pairs of items of 20000 labels" in str(pairs_too_slow(many, 64))
    assert sums_too_large(4096, 2000) is None
    assert "sums of products of 20000 and 64 features" in str(sums_too_large(20_000, 64))
