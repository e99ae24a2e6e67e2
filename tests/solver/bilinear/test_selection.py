from typing import Any

import numpy as np
import pytest

from solver import CandidateProgress, IterationProgress, Labels, LowRankBilinear, Progress, alpha_max
from solver.bilinear.estimator import fit_projector, select_on
from solver.datasets import make_low_rank_pairs
from solver.evaluation.splits import LabelledPair, stratified_folds
from solver.scaling.estimator import FeatureScaler
from solver.validation import InvalidInputError, InvalidParameterError


def _related(noise: float = 0.5, seed: int = 0) -> LabelledPair:
    data = make_low_rank_pairs(120, 100, n_classes=4, noise=noise, random_state=seed)
    names = np.array(["ant", "bee", "cat", "dog"])
    return LabelledPair(data.X, data.Z, names[data.x_labels], names[data.z_labels])


def _unrelated(seed: int) -> LabelledPair:
    """Return samples that say nothing of their classes, which stand class by class."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(list("abcdefghij"), 60)
    return LabelledPair(rng.standard_normal((600, 20)), rng.standard_normal((600, 15)), labels, labels)


def _split(data: LabelledPair, seed: int = 0) -> tuple[LabelledPair, LabelledPair]:
    """Return four fifths of each class to fit, and one fifth to hold out in random order."""
    rng = np.random.default_rng(seed)
    sides = ((data.X, data.x_labels), (data.Z, data.z_labels))
    folds = [[rng.permutation(fold) for fold in stratified_folds(labels, 5, rng)] for _, labels in sides]
    rows = [(np.concatenate(rest), held_out) for held_out, *rest in folds]
    fitting, held_out = (
        LabelledPair(data.X[x], data.Z[z], data.x_labels[x], data.z_labels[z])
        for x, z in zip(*rows, strict=True)
    )
    return fitting, held_out


def _random_average_precision(n_relevant: int, n_gallery: int) -> float:
    """Return the expected AveP of a random order: P(r) rel(r) averaged in closed form."""
    harmonic = float(np.sum(1.0 / np.arange(1, n_gallery + 1)))
    return (harmonic + (n_relevant - 1) / (n_gallery - 1) * (n_gallery - harmonic)) / n_gallery


def test_model_of_rank_zero_scores_as_a_random_order_does() -> None:
    # All its scores are equal, so its ranking is the order of the held-out rows: 12 of 120 are relevant.
    scores = []
    for seed in range(5):
        parts = _split(_unrelated(seed), seed)
        (candidate,) = select_on(*parts, scalings=("center",), alpha_fractions=(2.0,))
        assert candidate.rank == 0
        scores += [candidate.map_x_to_z, candidate.map_z_to_x]
    expected = _random_average_precision(12, 120)
    # One order gives ten values of AveP with a spread of about 0.04, so 0.013 each, and ten orders 0.004.
    assert np.mean(scores) == pytest.approx(expected, abs=0.015)
    assert max(scores) < expected + 0.05


def test_model_that_learned_wins_over_one_of_rank_zero() -> None:
    best, *others = select_on(*_split(_related()), scalings=("center",), alpha_fractions=(2.0, 0.05))
    assert best.alpha_fraction == 0.05
    assert best.rank >= 3
    assert best.mean > others[-1].mean + 0.3


def test_candidates_come_best_first_and_each_is_reported_once() -> None:
    seen: list[Progress] = []
    found = select_on(
        *_split(_related()),
        scalings=("l2", "center"),
        alpha_fractions=(0.01, 0.3),
        callback=seen.append,
    )
    scored = [progress for progress in seen if isinstance(progress, CandidateProgress)]
    assert len(scored) < len(seen)
    assert [each.mean for each in found] == sorted((each.mean for each in found), reverse=True)
    assert [(progress.number, progress.total) for progress in scored] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {progress.candidate for progress in scored} == set(found)
    assert [progress.candidate.alpha_fraction for progress in scored] == [0.3, 0.01] * 2
    assert {(each.scaling, each.alpha_fraction) for each in found} == {
        (scaling, share) for scaling in ("l2", "center") for share in (0.01, 0.3)
    }


def test_of_equal_candidates_the_stronger_penalty_comes_first() -> None:
    found = select_on(*_split(_related()), scalings=("center",), alpha_fractions=(2.0, 3.0))
    assert [each.alpha_fraction for each in found] == [3.0, 2.0]


def test_wide_samples_score_as_their_rotation_does() -> None:
    data = _related()
    rng = np.random.default_rng(0)
    wide = LabelledPair(
        data.X @ np.linalg.qr(rng.standard_normal((400, 20)))[0].T, data.Z, data.x_labels, data.z_labels
    )
    narrow, rotated = (
        select_on(*_split(each), scalings=("center",), alpha_fractions=(0.05,))[0] for each in (data, wide)
    )
    assert rotated.rank == narrow.rank
    assert rotated.mean == pytest.approx(narrow.mean, abs=0.02)  # both stop at a loose tolerance


def test_exception_of_the_callback_ends_the_selection() -> None:
    class StopHereError(Exception):
        pass

    def stop(progress: IterationProgress) -> None:
        raise StopHereError

    with pytest.raises(StopHereError):
        select_on(*_split(_related()), callback=stop)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"scalings": ()}, "scalings"),
        ({"scalings": ("center", "whiten")}, "scalings"),
        ({"alpha_fractions": ()}, "alpha_fractions"),
        ({"alpha_fractions": (0.1, 0.0)}, "alpha_fractions"),
        ({"alpha_fractions": (np.nan,)}, "alpha_fractions"),
        ({"alpha_fractions": ("0.1",)}, "alpha_fractions"),
        ({"alpha_fractions": 0.1}, "alpha_fractions"),
    ],
)
def test_invalid_option_is_named(options: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{name} must be"):
        select_on(*_split(_related()), **options)


def test_held_out_parts_without_a_common_class_are_refused() -> None:
    rng = np.random.default_rng(0)
    held_out = LabelledPair(
        rng.random((2, 20)), rng.random((2, 15)), np.repeat("ant", 2), np.repeat("bee", 2)
    )
    with pytest.raises(InvalidInputError, match="no class in common"):
        select_on(_related(), held_out, scalings=("center",), alpha_fractions=(0.1,))


@pytest.mark.parametrize("scaling", ["center", "l2"])
def test_projector_is_the_scaled_estimator(scaling: str) -> None:
    data = _related()
    estimator = LowRankBilinear()
    projector = fit_projector(data, scaling, estimator, 0.05)
    x_scaler, z_scaler = FeatureScaler(scaling).fit(data.X), FeatureScaler(scaling).fit(data.Z)
    X, Z = x_scaler.transform(data.X), z_scaler.transform(data.Z)
    assert estimator.alpha_ == 0.05 * alpha_max(X, Z, Labels(data.x_labels, data.z_labels))
    assert (projector.x_scaling, projector.z_scaling) == (scaling, scaling)
    np.testing.assert_array_equal(projector.project_x(data.X), estimator.project_x(X))
    np.testing.assert_array_equal(projector.project_z(data.Z), estimator.project_z(Z))


def test_penalty_of_the_estimator_is_kept_without_a_fraction() -> None:
    estimator = LowRankBilinear(alpha=0.02)
    seen: list[IterationProgress] = []
    fit_projector(_related(), "center", estimator, None, seen.append)
    assert (estimator.alpha, estimator.alpha_) == (0.02, 0.02)
    assert seen == estimator.history_
