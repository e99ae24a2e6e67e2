from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from solver.evaluation.splits import LabelledPair, class_counts, hold_out_by_class, stratified_folds
from solver.validation import SupervisionError


def _pair(x_labels: Any, z_labels: Any) -> LabelledPair:
    """Return samples that carry their row number."""
    x, z = np.asarray(x_labels), np.asarray(z_labels)
    return LabelledPair(np.arange(len(x))[:, None], np.arange(len(z))[:, None] + 0.5, x, z)


def _classes(n_classes: int, n_each: int) -> npt.NDArray[np.str_]:
    return np.repeat([f"c{i:04d}" for i in range(n_classes)], n_each)


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
