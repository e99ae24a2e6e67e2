import numpy as np
import pytest
import scipy.sparse

from solver import (
    Labels,
    LowRankBilinear,
    MultiLabels,
    PairedRows,
    SignedPairs,
    alpha_max,
    make_low_rank_pairs,
)
from solver.growth import growing_samples
from solver.problem import AnySupervision


def _classes(m: int, n: int, n_classes: int = 5) -> Labels:
    return Labels(np.arange(m) % n_classes, np.arange(n) % n_classes)


def _sizes(supervision: AnySupervision) -> list[tuple[int, int]]:
    return [(len(x_rows), len(z_rows)) for x_rows, z_rows, _ in growing_samples(supervision)]


@pytest.mark.parametrize(
    ("m", "n", "sizes"),
    [
        (60, 50, []),
        (4500, 4500, []),  # one and a half times the small size is solved at once
        (4501, 4501, [(1500, 1500)]),
        (27_000, 27_000, [(3000, 3000), (9000, 9000)]),
        (60_000, 600, [(20_000, 200)]),
        (1_000_000, 3, []),
    ],
)
def test_parts_grow_threefold_from_a_geometric_mean_of_about_three_thousand(
    m: int, n: int, sizes: list[tuple[int, int]]
) -> None:
    assert _sizes(_classes(m, n, 2)) == sizes


@pytest.mark.parametrize(
    "supervision", [_classes(20_000, 15_000), MultiLabels(np.eye(3)[np.arange(20_000) % 3])]
)
def test_each_part_is_drawn_at_random_and_holds_the_one_before(supervision: AnySupervision) -> None:
    parts = list(growing_samples(supervision))
    assert len(parts) == 2
    for side in (0, 1):
        smaller, larger = parts[0][side], parts[1][side]
        assert np.isin(smaller, larger).all()
        assert (np.diff(smaller) > 0).all()
        n_all = len((supervision.x_order, supervision.z_order)[side])
        # The mean of a uniform draw is within four standard errors of the middle.
        assert np.mean(smaller) == pytest.approx(n_all / 2, abs=4 * n_all / np.sqrt(12 * len(smaller)))
    assert not np.array_equal(parts[0][0][:100], parts[0][1][:100])
    for x_rows, z_rows, part in parts:
        assert (len(part.x_order), len(part.z_order)) == (len(x_rows), len(z_rows))


def test_parts_are_the_same_again() -> None:
    first, second = (list(growing_samples(_classes(9000, 9000))) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


def test_paired_rows_stay_paired() -> None:
    for x_rows, z_rows, part in growing_samples(PairedRows(9000)):
        np.testing.assert_array_equal(x_rows, z_rows)
        assert part.n_similar == len(x_rows)


def test_listed_pairs_have_no_parts() -> None:
    signs = scipy.sparse.coo_array(([1, -1], ([0, 1], [0, 8999])), shape=(9000, 9000))
    assert _sizes(SignedPairs(signs)) == []


def test_parts_that_lack_similar_or_dissimilar_pairs_are_passed_over() -> None:
    rare = np.zeros(9000, int)
    missing = np.setdiff1d(np.arange(9000), next(growing_samples(_classes(9000, 9000)))[0])
    rare[missing[0]] = 1  # the only sample of its class is not in the first part
    assert _sizes(Labels(rare, np.zeros(9000, int))) == []  # nothing dissimilar
    assert _sizes(Labels(rare, np.ones(9000, int))) == []  # nothing similar


@pytest.mark.parametrize("kind", ["labels", "paired", "rare"])
def test_large_problem_is_begun_on_a_part_and_ends_certified_on_all_samples(kind: str) -> None:
    data = make_low_rank_pairs(4600, 4600, n_features_x=8, n_features_z=7, noise=1.0, random_state=0)
    supervision: AnySupervision = Labels(data.x_labels, data.z_labels)
    if kind == "paired":
        supervision = PairedRows(4600)
    if kind == "rare":
        one = np.zeros(4600, int)
        one[np.setdiff1d(np.arange(4600), next(growing_samples(supervision))[0])[0]] = 1
        supervision = Labels(one, np.zeros(4600, int))
    alpha = alpha_max(data.X, data.Z, supervision) / 3
    model = LowRankBilinear(alpha, tol=1e-2).fit(data.X, data.Z, supervision)
    shares = [entry.share for entry in model.history_]
    assert model.converged_
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert (shares[0] == pytest.approx(1 / 3, rel=1e-3)) == (kind != "rare")
    assert [entry.iteration for entry in model.history_] == list(range(1, model.n_iter_ + 1))


def test_part_is_fitted_with_a_penalty_as_much_stronger_as_its_gradient_is_noisier() -> None:
    data = make_low_rank_pairs(4600, 4600, n_features_x=8, n_features_z=7, noise=1.0, random_state=0)
    supervision = Labels(data.x_labels, data.z_labels)
    alpha = alpha_max(data.X, data.Z, supervision) / 10
    entries = LowRankBilinear(alpha, tol=1e-2).fit(data.X, data.Z, supervision).history_
    last = [entry for entry in entries if entry.share < 1.0][-1]
    ((x_rows, z_rows, part),) = growing_samples(supervision)
    stronger = LowRankBilinear(alpha / np.sqrt(last.share), tol=1e-4)
    optimum = stronger.fit(data.X[x_rows], data.Z[z_rows], part).objective_
    # The part is left within a twentieth of its optimum; that of alpha itself lies much lower.
    assert optimum * (1 - 1e-4) <= last.objective <= optimum / 0.95
    as_strong = LowRankBilinear(alpha, tol=1e-4).fit(data.X[x_rows], data.Z[z_rows], part)
    assert as_strong.objective_ < 0.9 * optimum
