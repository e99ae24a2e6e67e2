"""The contract of inverted lists: recall, filters, ties, other rows, and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.domain.errors import DamagedBundleError
from app.index import ExactIndex, InvertedLists, build_candidates, load_index, save_index
from tests.app.integration.index_recall import index_recall
from tests.benchmarks.index import made_gallery

ROWS, QUERIES = made_gallery(4000, 300, dim=12)
ASKED = QUERIES[:60]


@pytest.fixture(scope="module", params=[0, 1], ids=["flat", "sq8"])
def index(request: pytest.FixtureRequest) -> InvertedLists:
    return list(build_candidates(ROWS, QUERIES[60:]))[request.param].with_probes(40)


def recall(index: Any, alive: Any = None, k: int = 10) -> float:
    exact, n_hits = ExactIndex(index.vectors), 0
    for query in ASKED:
        best, _ = exact.search(query, k, alive)
        rows, _ = index.search(query, k, alive)
        assert len(rows) >= min(k, index.size if alive is None else alive.sum())
        assert alive is None or alive[rows].all()
        n_hits += len(set(best.tolist()) & set(rows.tolist()))
    return n_hits / (k * len(ASKED))


def test_more_probes_find_more(index: InvertedLists) -> None:
    assert not index.is_exact
    assert index.spec.lists > 40
    recalls = [index_recall(index.with_probes(probes), ASKED) for probes in (4, 12, 40)]
    assert recalls == sorted(recalls)
    assert recalls[0] < 0.9
    assert recalls[-1] > 0.98


def test_scores_are_those_of_the_exact_index_to_the_bit(index: InvertedLists) -> None:
    exact = ExactIndex(ROWS)
    for query in ASKED:
        rows, scores = exact.search(query, len(ROWS), None)
        by_row = dict(zip(rows.tolist(), scores.tolist(), strict=True))
        found, found_scores = index.search(query, 10, None)
        assert [by_row[row] for row in found.tolist()] == found_scores.tolist()
        assert (np.diff(found_scores) <= 0).all()


@pytest.mark.parametrize("share", [0.0, 0.003, 0.1, 0.6, 0.9])
def test_a_filter_gives_k_rows_when_k_exist(index: InvertedLists, share: float) -> None:
    by_chance = np.random.default_rng(1).random(len(ROWS)) < share
    along_the_clusters = ROWS[:, 0] >= np.quantile(ROWS[:, 0], 1.0 - share) if share else by_chance
    for alive in (by_chance, along_the_clusters):
        if n_alive := int(alive.sum()):
            assert recall(index, alive, min(n_alive, 10)) > 0.98
        else:
            assert len(index.search(ASKED[0], 10, alive)[0]) == 0


@pytest.mark.parametrize("share", [0.0, 0.01, 0.12, 0.2, 0.9])
def test_a_search_prepared_for_a_filter_finds_what_one_with_its_mask_finds(
    index: InvertedLists, share: float
) -> None:
    alive, exact = np.random.default_rng(1).random(len(ROWS)) < share, ExactIndex(ROWS)
    prepared = index.restrict(alive)
    assert prepared.size == alive.sum()
    n_hits, k = 0, min(10, prepared.size)
    for query in ASKED:
        rows, scores = prepared.search(query, 10)
        assert len(rows) == k
        best, best_scores = exact.search(query, 10, alive)
        by_row = dict(zip(best.tolist(), best_scores.tolist(), strict=True))
        assert all(by_row.get(row, score) == score for row, score in zip(rows.tolist(), scores, strict=True))
        n_hits += len(by_row.keys() & set(rows.tolist()))
    assert n_hits >= (1.0 if share < 0.2 else 0.98) * k * len(ASKED)


def test_a_prepared_search_takes_little_memory(index: InvertedLists) -> None:
    for share in (0.01, 0.1, 0.125, 0.2, 0.9):
        alive = np.random.default_rng(1).random(len(ROWS)) < share
        assert index.restrict(alive).n_bytes < index.vectors.nbytes / 5


def test_later_pages_are_as_complete(index: InvertedLists) -> None:
    assert recall(index, k=100) > 0.98
    assert recall(index, k=len(ROWS)) == 1.0


def test_where_few_rows_are_alive_the_answer_is_exact(index: InvertedLists) -> None:
    alive = np.zeros(len(ROWS), np.bool)
    alive[::100] = True
    assert recall(index.with_probes(1), alive) == 1.0


def test_lists_with_too_few_rows_are_no_reason_to_return_fewer() -> None:
    """The only rows alive are far from where the query leads."""
    rows = np.concatenate([np.full((900, 4), 5.0), np.full((900, 4), -5.0)]).astype(np.float32)
    rows += np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    index = next(build_candidates(rows, rows))
    alive = np.arange(1800) >= 900
    found, _ = index.search(np.ones(4, np.float32), 700, alive)
    assert len(found) == 700
    assert alive[found].all()


def test_all_that_tie_with_the_last_come_back(index: InvertedLists) -> None:
    rows = np.concatenate([ROWS, np.repeat(3.0 * ASKED[:1], 60, axis=0)]).astype(np.float32)
    answer, _ = index.rebuild(rows).search(ASKED[0], 5, None)
    assert set(answer.tolist()) == set(range(len(ROWS), len(rows)))


def test_an_index_of_other_rows_keeps_its_recall(index: InvertedLists) -> None:
    grown = np.concatenate([ROWS[1000:], made_gallery(8000, 1, dim=12)[0][4000:]])
    rebuilt = index.rebuild(grown)
    assert not rebuilt.is_exact
    assert rebuilt.size == len(grown)
    assert recall(rebuilt) > 0.97
    assert recall(index) > 0.98, "the first is as it was"
    assert index.rebuild(ROWS[:0]).size == 0


def test_rows_far_from_the_lists_cost_recall(index: InvertedLists) -> None:
    """What a gallery drifts by: rows like those that the lists were made for do no harm, others do."""
    rng = np.random.default_rng(1)
    alike = made_gallery(5500, 1, dim=12)[0][4000:]
    tight = (ROWS.mean(axis=0) + 0.1 * rng.normal(size=(1500, 12))).astype(np.float32)
    elsewhere = (3.0 * ROWS.std() * rng.normal(size=(1500, 12))).astype(np.float32)
    of_alike, of_tight, of_elsewhere = (
        recall(index.rebuild(np.concatenate([ROWS, rows]))) for rows in (alike, tight, elsewhere)
    )
    assert min(of_alike, of_tight) > 0.98
    assert of_elsewhere < 0.93


def test_a_query_that_is_no_number_finds_nothing(index: InvertedLists) -> None:
    rows, scores = index.search(np.full(12, np.nan, np.float32), 5, None)
    assert (len(rows), len(scores)) == (0, 0)


def test_a_stored_index_answers_the_same(index: InvertedLists, tmp_path: Path) -> None:
    assert save_index(index, tmp_path / "index")
    loaded: Any = load_index(tmp_path / "index", ROWS)
    assert loaded.spec == index.spec
    assert loaded.n_bytes == index.n_bytes > ROWS.nbytes
    for query in ASKED:
        for stored, kept in zip(loaded.search(query, 10, None), index.search(query, 10, None), strict=True):
            assert stored.tolist() == kept.tolist()
    assert recall(loaded.rebuild(ROWS[:3000])) > 0.97


def test_an_exact_index_needs_no_file(tmp_path: Path) -> None:
    assert not save_index(ExactIndex(ROWS), tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "foreign", "rows"])
def test_a_damaged_file_is_refused(index: InvertedLists, tmp_path: Path, damage: str) -> None:
    path, rows = tmp_path / "index", ROWS
    save_index(index, path)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "rows":
        rows = ROWS[1:]
    else:
        path.write_bytes({"empty": b"", "cut": content[:-8], "foreign": b"garbage" * 100}[damage])
    with pytest.raises(DamagedBundleError):
        load_index(path, rows)


def test_building_is_seeded() -> None:
    first, second = (next(build_candidates(ROWS, QUERIES)).with_probes(4) for _ in range(2))
    for query in ASKED:
        assert first.search(query, 10, None)[0].tolist() == second.search(query, 10, None)[0].tolist()
