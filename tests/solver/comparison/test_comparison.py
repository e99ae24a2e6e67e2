from pathlib import Path

import numpy as np
import pytest

from solver import MsAlg, compare, mean_average_precision, measure_quality
from solver.comparison import METHODS, CellOutcome, Comparison, Method, chosen_methods
from solver.comparison.cells import cells
from solver.datasets import PairedFeatures, annotate_rows, load_npz
from solver.validation import InvalidInputError, InvalidParameterError
from tests.solver.comparison.conftest import paired

QUICK = ("CCA", "MsAlg")


class InterruptionError(Exception):
    """Somebody pressed Ctrl-C."""


class MemoryStore:
    def __init__(self) -> None:
        self.stored: dict[str, CellOutcome] = {}

    def load(self, key: str) -> CellOutcome | None:
        return self.stored.get(key)

    def save(self, key: str, outcome: CellOutcome) -> None:
        self.stored[key] = outcome


def compared(data: PairedFeatures, **options: object) -> Comparison:
    chosen = {"methods": QUICK, "n_jobs": 1, "n_resamples": 200, "n_permutations": 200, **options}
    return compare(data, **chosen)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def usual() -> Comparison:
    """What is compared with the usual options, on the data of all these tests."""
    return compared(paired(), dataset="drawn")


def figures(comparison: Comparison) -> list[tuple[object, ...]]:
    return [
        (row.method, row.pca, row.image_query, row.text_query, row.params, row.intervals, row.p_value)
        for row in comparison.rows
    ]


def test_rows_hold_the_test_map_of_a_fit_on_the_whole_training_split(
    data: PairedFeatures, usual: Comparison
) -> None:
    comparison = usual
    assert [(row.method, row.pca) for row in comparison.rows] == [
        ("CCA", False),
        ("MsAlg", False),
        ("CCA", True),
        ("MsAlg", True),
    ]
    labels = data.labels[~data.is_train]
    for row, outcome in zip(comparison.rows, comparison.outcomes, strict=True):
        assert row.dataset == "drawn"
        x, z = outcome.x_test, outcome.z_test
        assert row.image_query == pytest.approx(mean_average_precision(x, z, labels, labels))
        assert row.text_query == pytest.approx(mean_average_precision(z, x, labels, labels))
        assert row.average == pytest.approx((row.image_query + row.text_query) / 2)
        low, high = row.intervals["average"]
        assert low <= row.average <= high
        assert comparison.chance < row.average <= 1


def test_each_row_is_tested_against_the_best_other_row_of_its_table(data: PairedFeatures) -> None:
    comparison = compared(data, methods=("CCA", "MsAlg", "GMLDA"), pca=(False,))
    ordered = sorted(comparison.rows, key=lambda row: -row.average)
    assert ordered[0].against == ordered[1].method
    assert [row.against for row in ordered[1:]] == [ordered[0].method] * 2
    assert all(row.p_value is not None and 0 < row.p_value <= 1 for row in ordered)


def test_one_method_alone_has_nothing_to_be_tested_against(data: PairedFeatures) -> None:
    (row,) = compared(data, methods=("MsAlg",), pca=(False,)).rows
    assert row.against is None
    assert row.p_value is None


def test_the_same_seed_gives_the_same_table_whatever_the_processes(
    data: PairedFeatures, usual: Comparison
) -> None:
    assert figures(compared(data, n_jobs=2)) == figures(usual)


def test_an_interrupted_comparison_goes_on_where_it_was(data: PairedFeatures, usual: Comparison) -> None:
    store = MemoryStore()
    seen: list[bool] = []

    def stop_after_two(done: int, total: int, outcome: CellOutcome, was_stored: bool) -> None:
        if done == 2:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        compared(data, store=store, on_outcome=stop_after_two)
    assert len(store.stored) == 2
    before = dict(store.stored)
    comparison = compared(data, store=store, on_outcome=lambda *facts: seen.append(facts[3]))
    assert seen == [True, True, False, False]
    assert all(store.stored[key] is outcome for key, outcome in before.items())
    assert figures(comparison) == figures(usual)


def test_nothing_is_stored_for_other_data_methods_options_or_grids(
    data: PairedFeatures, garbled: PairedFeatures
) -> None:
    method = METHODS["CCA"]
    narrower = Method(method.estimator, method.grid[:1])
    keys = [
        cell.key
        for found in (
            cells(data, [method], [False, True], 3, 0),
            cells(garbled, [method], [False], 3, 0),
            cells(data, [narrower], [False], 3, 0),
            cells(data, [METHODS["PLS"]], [False], 3, 0),
            cells(data, [method], [False], 4, 0),
            cells(data, [method], [False], 3, 1),
        )
        for cell in found
    ]
    assert len(set(keys)) == len(keys)
    assert cells(data, [method], [False], 3, 0)[0].key == keys[0]


class OwnMethod(MsAlg):
    """What a user of the library might bring."""


def test_a_method_of_ones_own_takes_part(data: PairedFeatures) -> None:
    comparison = compared(data, methods=(Method(OwnMethod), "CCA"), pca=(False,))
    assert [row.method for row in comparison.rows] == ["OwnMethod", "CCA"]


def test_a_method_named_twice_has_one_row(data: PairedFeatures) -> None:
    comparison = compared(data, methods=("MsAlg", METHODS["MsAlg"], "MsAlg"), pca=(False,))
    assert [row.method for row in comparison.rows] == ["MsAlg"]


def test_two_methods_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="one method for each name, got 'MsAlg'"):
        chosen_methods(["MsAlg", Method(MsAlg)])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"methods": ("Nearest",)}, "Nearest"),
        ({"methods": ()}, "methods"),
        ({"pca": ()}, "pca"),
        ({"n_folds": 1}, "n_folds"),
        ({"random_state": -1}, "random_state"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_bad_options_are_refused_by_name(
    data: PairedFeatures, options: dict[str, object], named: str
) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        compared(data, **options)


def test_a_set_without_test_rows_is_refused(data: PairedFeatures) -> None:
    everything = PairedFeatures(
        data.X, data.Z, data.labels, np.ones(len(data.labels), np.bool), data.x_ids, data.z_ids
    )
    with pytest.raises(InvalidInputError, match="test rows"):
        compared(everything)


@pytest.mark.data
def test_semantic_matching_beats_msalg_on_spoken_digits(test_data: Path) -> None:
    """A smaller comparison on real data: what is ahead by 25 points stays ahead."""
    found = load_npz(test_data / "audio_digits" / "audio_digits.npz", "I", "A")
    methods = [Method(METHODS[name].estimator) for name in ("SemanticMatching", "MsAlg")]
    comparison = compare(found, methods=methods, pca=(False,), n_jobs=1)
    first, second = sorted(comparison.rows, key=lambda row: -row.average)
    assert (first.method, second.method) == ("SemanticMatching", "MsAlg")
    assert first.average > 0.94
    assert first.p_value is not None
    assert first.p_value < 0.001
    assert first.intervals["average"][0] > second.intervals["average"][1]


def test_every_row_has_the_measures_of_its_test_split(data: PairedFeatures) -> None:
    n_rows = len(data.labels)
    colours = [("red",) if row % 2 else ("blue",) for row in range(n_rows)]
    labels = [(label,) for label in data.labels.tolist()]
    annotations = annotate_rows({"label": (labels, labels), "colour": (colours, colours)})
    comparison = compared(data, annotations=annotations)
    test = np.flatnonzero(~data.is_train)
    for row, outcome, quality in zip(comparison.rows, comparison.outcomes, comparison.qualities, strict=True):
        assert quality == measure_quality(
            outcome.x_test, outcome.z_test, annotations.subset(test, test), label="label"
        )
        assert quality.mean.map == pytest.approx(row.average, abs=1e-3)  # single against double precision
        assert set(quality.x_to_z.facet_precision) == {"label", "colour"}


def test_without_annotations_label_and_partner_are_measured(data: PairedFeatures) -> None:
    quality = compared(data, methods=("CCA",), pca=(False,)).qualities[0].x_to_z
    assert list(quality.facet_map) == ["label"]
    assert quality.median_rank >= 1


def test_annotations_of_other_rows_are_refused(data: PairedFeatures) -> None:
    values = [("a",), ("b",)]
    with pytest.raises(InvalidInputError, match="annotations of"):
        compared(data, annotations=annotate_rows({"label": (values, values)}))
