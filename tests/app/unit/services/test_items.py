import numpy as np
import pytest

from app.services.training.data import LabelledItems
from solver.validation import SupervisionError


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


def paired(count: int, n_classes: int = 4, with_labels: bool = True) -> LabelledItems:
    """Return items of which two thirds have a partner, in another order in the second modality."""
    plain = items(count, n_classes)
    groups = np.asarray([f"p{n}" if n % 3 else "" for n in range(count)])
    order = np.random.default_rng(0).permutation(count)
    labels = plain.x_labels if with_labels else np.full(count, "")
    return LabelledItems(
        plain.X,
        plain.Z[order],
        labels,
        labels[order],
        plain.x_ids,
        plain.z_ids[order],
        groups=(groups, groups[order]),
    )


@pytest.mark.parametrize("with_labels", [True, False])
def test_partners_are_on_the_same_side(with_labels: bool) -> None:
    fitting, held_out = paired(300, with_labels=with_labels).split(0.2, 3000, 0)
    # Without a label, an item that has no partner either is never held out.
    for part, size in ((fitting, 240 if with_labels else 260), (held_out, 60 if with_labels else 40)):
        assert part.groups is not None
        x, z = (set(side.tolist()) - {""} for side in part.groups)
        assert x == z
        assert abs(len(part.X) - size) <= 4
        assert len(part.X) == len(part.Z)
        assert len(part.annotations().pairs) == len(x)
    if with_labels:
        assert np.unique(held_out.x_labels, return_counts=True)[1].min() >= 12


def test_the_order_of_rows_does_not_give_partners_away() -> None:
    _, held_out = paired(300).split(0.2, 3000, 0)
    assert held_out.groups is not None
    same_place = (held_out.groups[0] == held_out.groups[1]) & (held_out.groups[0] != "")
    assert same_place.mean() < 0.2


def test_partners_that_are_held_out_stay_so_while_a_collection_grows() -> None:
    _, before = paired(300).split(0.2, 3000, 0)
    _, after = paired(360).split(0.2, 3000, 0)
    assert len({*before.x_ids.tolist()} & {*after.x_ids.tolist()}) >= 0.85 * len(before.X)


def test_a_part_of_many_pairs_is_used() -> None:
    fitting, held_out = paired(300).split(0.2, 100, 0)
    assert 80 <= len(fitting.X) + len(held_out.X) <= 110
    assert fitting.groups is not None
    assert set(fitting.groups[0].tolist()) == set(fitting.groups[1].tolist())


def test_what_is_known_by_feedback_alone_is_never_held_out() -> None:
    plain = items(60)
    labels = np.where(np.arange(60) < 50, plain.x_labels, "")
    data = LabelledItems(plain.X, plain.Z, labels, plain.z_labels, plain.x_ids, plain.z_ids)
    fitting, held_out = data.split(0.2, 3000, 0)
    assert {f"x{n}" for n in range(50, 60)} <= {*fitting.x_ids.tolist()}
    same = LabelledItems(plain.X[:50], plain.Z, labels[:50], plain.z_labels, plain.x_ids[:50], plain.z_ids)
    assert same.split(0.2, 3000, 0)[1].x_ids.tolist() == held_out.x_ids.tolist()
