import numpy as np
import pytest

from app.services.training.holdout import LabelledItems
from solver.validation.errors import SupervisionError


def items(count: int, n_classes: int = 4, prefix: str = "") -> LabelledItems:
    rows = np.arange(count, dtype=np.float32)[:, None]
    labels = np.asarray([f"class {number % n_classes}" for number in range(count)])
    x_ids = np.asarray([f"{prefix}x{number}" for number in range(count)])
    z_ids = np.asarray([f"{prefix}z{number}" for number in range(count)])
    return LabelledItems(rows, rows + 0.5, labels, labels, x_ids, z_ids)


def test_each_class_gives_its_share_and_every_row_keeps_what_belongs_to_it() -> None:
    fitting, held_out = items(200).split(0.2, 3000, 0)
    assert (len(fitting.X), len(held_out.X)) == (160, 40)
    names, counts = np.unique(held_out.x_labels, return_counts=True)
    assert (len(names), set(counts.tolist())) == (4, {10})
    for part in (fitting, held_out):
        assert [f"x{int(row)}" for row in part.X[:, 0]] == part.x_ids.tolist()
        assert [f"z{int(row)}" for row in part.Z[:, 0]] == part.z_ids.tolist()
        assert [f"class {int(row) % 4}" for row in part.X[:, 0]] == part.x_labels.tolist()
    assert not set(fitting.x_ids.tolist()) & set(held_out.x_ids.tolist())


def test_what_is_held_out_stays_so_while_a_collection_grows() -> None:
    _, before = items(400).split(0.2, 3000, 0)
    _, after = items(500).split(0.2, 3000, 0)
    kept = set(before.x_ids.tolist()) & set(after.x_ids.tolist())
    assert len(kept) >= 0.9 * len(before.X)
    _, other = items(400).split(0.2, 3000, 1)
    assert len(set(before.x_ids.tolist()) & set(other.x_ids.tolist())) < 0.5 * len(before.X)


def test_all_others_are_fitted_where_that_is_asked_for() -> None:
    data = items(1000, n_classes=100)
    few, held_out = data.split(0.2, 100, 0)
    fitting, same = data.split(0.2, 100, 0, fit_all_others=True)
    assert same.x_ids.tolist() == held_out.x_ids.tolist()
    assert same.z_ids.tolist() == held_out.z_ids.tolist()
    assert {*few.x_ids.tolist()} < {*fitting.x_ids.tolist()}
    assert sorted([*fitting.z_ids.tolist(), *same.z_ids.tolist()]) == sorted(data.z_ids.tolist())
    assert [f"z{int(row)}" for row in fitting.Z[:, 0]] == fitting.z_ids.tolist()


def test_the_order_of_rows_says_nothing_of_the_class() -> None:
    _, held_out = items(400, n_classes=2).split(0.5, 3000, 0)
    first = np.mean(held_out.x_labels[:100] == "class 0")
    assert 0.3 < first < 0.7


def test_no_more_than_asked_are_used_and_classes_go_whole() -> None:
    fitting, held_out = items(1000).split(0.2, 100, 0)
    assert 90 <= len(fitting.X) + len(held_out.X) <= 100
    fitting, held_out = items(100, n_classes=50).split(0.2, 20, 0)
    assert len(fitting.X) == len(held_out.X) == 10
    assert set(fitting.x_labels.tolist()) == set(held_out.z_labels.tolist())


def test_too_few_to_hold_any_out_is_refused() -> None:
    with pytest.raises(SupervisionError, match="too few"):
        items(4, n_classes=4).split(0.2, 3000, 0)


def test_items_are_left_out_by_id() -> None:
    rest = items(4).without({"x0", "x1", "z3"})
    assert rest is not None
    assert (rest.x_ids.tolist(), rest.z_ids.tolist()) == (["x2", "x3"], ["z0", "z1", "z2"])
    assert items(2).without({"x0", "x1"}) is None
