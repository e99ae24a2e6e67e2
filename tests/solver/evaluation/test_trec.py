from pathlib import Path

import numpy as np
import pytest

from solver import mean_average_precision
from solver.comparison import write_qrels, write_run
from solver.validation import InvalidInputError


def test_ir_measures_finds_our_map_in_the_files_with_ties(tmp_path: Path) -> None:
    import ir_measures  # here: a run without the developers' tools loses this test only
    from ir_measures import AP

    rng = np.random.default_rng(0)
    queries, gallery = rng.integers(-1, 2, (30, 2)), rng.integers(-1, 2, (41, 2))  # scores from -2 to 2
    query_labels, gallery_labels = rng.integers(0, 4, 30), rng.integers(0, 4, 41)
    query_ids, gallery_ids = [f"q{i}" for i in range(30)], [f"d{i}" for i in range(41)]
    write_run(
        tmp_path / "run",
        queries,
        gallery,
        query_labels=query_labels,
        gallery_labels=gallery_labels,
        query_ids=query_ids,
        gallery_ids=gallery_ids,
        tag="ours",
    )
    write_qrels(tmp_path / "qrels", query_labels, gallery_labels, query_ids, gallery_ids)
    found = ir_measures.calc_aggregate(
        [AP],
        list(ir_measures.read_trec_qrels(str(tmp_path / "qrels"))),
        list(ir_measures.read_trec_run(str(tmp_path / "run"))),
    )
    expected = mean_average_precision(queries, gallery, query_labels, gallery_labels)
    assert found[AP] == pytest.approx(expected, abs=1e-6)


def test_a_run_lists_the_whole_gallery_of_each_query_in_order(tmp_path: Path) -> None:
    file = tmp_path / "run"
    write_run(
        file,
        [[1.0], [-1.0]],
        [[1.0], [3.0], [2.0]],
        query_labels=[0, 1],
        gallery_labels=[0, 1, 1],
        query_ids=["a", "b"],
        gallery_ids=["u", "v", "w"],
        tag="m",
    )
    assert file.read_text().splitlines() == [
        "a Q0 v 0 3 m",
        "a Q0 w 1 2 m",
        "a Q0 u 2 1 m",
        "b Q0 u 0 3 m",
        "b Q0 w 1 2 m",
        "b Q0 v 2 1 m",
    ]


def test_names_that_would_break_a_line_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="white space"):
        write_qrels(tmp_path / "qrels", [0], [0], ["a b"], ["c"])
    assert not (tmp_path / "qrels").exists()
