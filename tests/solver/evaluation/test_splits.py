from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from solver.evaluation.splits import LabelledPair, class_counts, hold_out_by_class, stratified_folds
from solver.validation.errors import InvalidParameterError, SupervisionError


def _pair(x_labels: Any, z_labels: Any) -> LabelledPair:
    """Return samples that carry their row number."""
    x, z = np.asarray(x_labels), np.asarray(z_labels)
    return LabelledPair(np.arange(len(x))[:, None], np.arange(len(z))[:, None] + 0.5, x, z)


def _classes(n_classes: int, n_each: int) -> npt.NDArray[np.str_]:
    return np.repeat([f"c{i:04d}" for i in range(n_classes)], n_each)


def test_parts_are_disjoint_cover_all_and_keep_rows_with_their_labels() -> None:
    labels = _classes(6, 10)
    fitting, held_out = _pair(labels, labels[::-1]).split(0.2, 1000, 0)
    for name, truth in (("x", labels), ("z", labels[::-1])):
        parts = [
            (getattr(part, name.upper())[:, 0].astype(int), getattr(part, f"{name}_labels"))
            for part in (fitting, held_out)
        ]
        rows = np.concatenate([rows for rows, _ in parts])
        assert sorted(rows) == list(range(60))
        np.testing.assert_array_equal(np.concatenate([each for _, each in parts]), truth[rows])


def test_each_class_gives_its_share() -> None:
    labels = np.concatenate([_classes(3, 20), ["rare", "rare", "once"]])
    fitting, held_out = _pair(labels, labels).split(0.25, 1000, 0)
    assert Counter(held_out.x_labels.tolist()) == {"c0000": 5, "c0001": 5, "c0002": 5, "rare": 1}
    assert Counter(fitting.x_labels.tolist()) == {"c0000": 15, "c0001": 15, "c0002": 15, "rare": 1, "once": 1}


def test_rows_are_in_no_order_of_classes() -> None:
    labels = _classes(10, 40)
    for part in _pair(labels, labels).split(0.5, 1000, 0):
        for found in (part.x_labels, part.z_labels):
            n_equal_neighbours = int((found[1:] == found[:-1]).sum())
            assert n_equal_neighbours < 50  # 199 pairs of neighbours, 20 expected by chance


def test_split_is_seeded() -> None:
    labels = _classes(5, 9)
    first, again, other = (_pair(labels, labels).split(0.3, 30, seed) for seed in (0, 0, 1))
    for part in (0, 1):
        np.testing.assert_array_equal(first[part].X, again[part].X)
        np.testing.assert_array_equal(first[part].Z, again[part].Z)
    assert not np.array_equal(first[0].X, other[0].X)


@pytest.mark.parametrize("max_samples", [4, 5, 17, 100, 999])
@pytest.mark.parametrize(("n_classes", "n_each"), [(2, 300), (40, 10), (300, 2), (600, 1), (7, 41)])
def test_no_more_than_max_samples_are_drawn(max_samples: int, n_classes: int, n_each: int) -> None:
    labels = np.concatenate([_classes(n_classes, n_each), ["a"] * 60, ["b"] * 60])
    fitting, held_out = _pair(labels, labels[::-1]).split(0.2, max_samples, 0)
    for name in ("X", "Z"):
        drawn = len(getattr(fitting, name)) + len(getattr(held_out, name))
        assert drawn <= max_samples
        assert drawn >= min(max_samples, len(labels)) - n_classes - 2  # rounded down in each class


def test_too_many_classes_are_left_out_whole_and_the_same_ones_in_both_modalities() -> None:
    labels = _classes(100, 6)
    fitting, held_out = _pair(labels, np.concatenate([labels, _classes(300, 6)[600:]])).split(0.2, 60, 0)
    for part in (fitting, held_out):
        assert set(part.x_labels) == set(part.z_labels)
        assert len(set(part.x_labels)) == 30


@pytest.mark.parametrize("holdout", [0.0, 1.0, -5.0, 2.0, np.nan, np.inf, "0.2", None])
def test_share_to_hold_out_must_lie_between_zero_and_one(holdout: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"^holdout must be"):
        _pair(["a", "a"], ["a", "a"]).split(holdout, 100, 0)


@pytest.mark.parametrize("max_samples", [0, 3, -1, 10.0, True, None])
def test_max_samples_must_allow_two_classes(max_samples: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"^max_samples must be"):
        _pair(["a", "a"], ["a", "a"]).split(0.2, max_samples, 0)


def test_classes_of_one_sample_each_cannot_be_held_out() -> None:
    with pytest.raises(SupervisionError, match="too few samples"):
        _pair(["a", "b"], ["a", "a", "b", "b"]).split(0.2, 100, 0)


@pytest.mark.parametrize(
    ("x_labels", "problem"),
    [(["a"], "do not give 2 samples"), ([["a"], ["b"]], "do not give"), ([1, 2], "not of one kind")],
)
def test_labels_that_do_not_fit_the_samples_are_refused(x_labels: Any, problem: str) -> None:
    with pytest.raises(SupervisionError, match=problem):
        LabelledPair(np.zeros((2, 1)), np.zeros((2, 1)), np.asarray(x_labels), np.array(["a", "b"]))


def test_no_samples_are_refused() -> None:
    with pytest.raises(SupervisionError, match="do not give 0 samples"):
        _pair(np.zeros(0, np.str_), ["a", "b"])


def test_of_each_class_a_share_is_held_out_but_never_all() -> None:
    members = [np.arange(10), np.arange(10, 12), np.array([12]), np.arange(13, 20)]
    fitting, held_out = hold_out_by_class(members, [10, 2, 1, 4], 0.2)
    assert held_out.tolist() == [0, 1, 10, 13]
    assert fitting.tolist() == [*range(2, 10), 11, 12, 14, 15, 16]
    fitting, held_out = hold_out_by_class(members, [10, 2, 1, 0], 0.99)
    assert fitting.tolist() == [9, 11, 12]


def test_classes_are_counted_in_their_own_order_and_absent_ones_are_none() -> None:
    labels = np.array(["b", "a", "b", "d"])
    assert class_counts(labels, np.array(["d", "c", "b", "z"])).tolist() == [1, 0, 2, 0]


@pytest.mark.parametrize("n_folds", [2, 3, 7])
def test_folds_cover_all_rows_and_have_nearly_equal_shares_of_each_class(n_folds: int) -> None:
    labels = np.concatenate([_classes(4, 11), ["rare"]])
    folds = stratified_folds(labels, n_folds, np.random.default_rng(0))
    assert sorted(np.concatenate(folds).tolist()) == list(range(45))
    for label in np.unique(labels):
        counts = [int((labels[fold] == label).sum()) for fold in folds]
        assert max(counts) - min(counts) <= 1
