"""The contract of GalleryIndex, and the files of exact ones."""

import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from app.domain.errors import DamagedBundleError
from app.domain.ports import GalleryIndex
from app.index import ExactIndex

RANK = 5
Mask = npt.NDArray[np.bool]


def rows_of(count: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, RANK)).astype(np.float32)


def best_rows(
    index: GalleryIndex, query: npt.NDArray[np.float32], k: int, allowed: Mask | None = None
) -> list[int]:
    rows, scores = index.search(query, k, allowed)
    assert len(rows) == len(scores)
    assert (np.diff(scores) <= 0).all()
    np.testing.assert_allclose(scores, index.vectors[rows] @ query, rtol=1e-5, atol=1e-5)
    return [int(row) for row in rows]


@pytest.mark.parametrize("count", [1, 7, 300])
@pytest.mark.parametrize("k", [1, 5, 300, 1000])
def test_the_k_best_come_best_first(count: int, k: int) -> None:
    index, query = ExactIndex(rows_of(count)), rows_of(1, 9)[0]
    best = np.argsort(-(index.vectors @ query), kind="stable")[:k]
    assert best_rows(index, query, k) == best.tolist()
    assert index.size == count


@pytest.mark.parametrize("n_allowed", [0, 1, 3, 50])
def test_a_filter_gives_k_results_when_k_exist(n_allowed: int) -> None:
    index, query = ExactIndex(rows_of(300)), rows_of(1, 9)[0]
    # The worst ones: none of them is among the best of all.
    order = np.argsort(-(index.vectors @ query), kind="stable")
    allowed = np.zeros(300, np.bool)
    allowed[order[300 - n_allowed :]] = True
    assert best_rows(index, query, 5, allowed) == order[300 - n_allowed :][:5].tolist()


def test_all_that_tie_with_the_last_come_back() -> None:
    """Equal scores are ordered by id, which only the caller knows: it must see all of them."""
    rows = np.ones((40, RANK), np.float32)
    rows[7] *= 2.0
    index, query = ExactIndex(rows), np.ones(RANK, np.float32)
    for k in (1, 2, 10, 40):
        answer = best_rows(index, query, k)
        assert answer[0] == 7
        assert set(answer) == ({7} if k == 1 else set(range(40)))
    allowed = np.zeros(40, np.bool)
    allowed[[3, 30]] = True
    assert set(best_rows(index, query, 1, allowed)) == {3, 30}


def test_an_empty_gallery_and_an_empty_page_have_no_results() -> None:
    query = rows_of(1)[0]
    empty = ExactIndex(np.zeros((0, RANK), np.float32))
    assert empty.size == 0
    assert best_rows(empty, query, 3) == []
    assert best_rows(empty, query, 3, np.zeros(0, np.bool)) == []
    assert best_rows(ExactIndex(rows_of(4)), query, 0) == []


def test_a_model_that_learned_nothing_ranks_all_alike() -> None:
    index = ExactIndex(np.zeros((6, 0), np.float32))
    rows, scores = index.search(np.zeros(0, np.float32), 2, None)
    assert set(rows.tolist()) == set(range(6))
    assert (scores == 0).all()
    allowed = np.arange(6) > 3
    rows, _ = index.search(np.zeros(0, np.float32), 2, allowed)
    assert set(rows.tolist()) == {4, 5}


@pytest.mark.parametrize("rank", [0, RANK])
@pytest.mark.parametrize("n_alive", [0, 1, 37, 38, 250, 300])
def test_a_search_prepared_for_a_filter_is_that_with_its_mask(rank: int, n_alive: int) -> None:
    """Few rows are copied, many are looked up."""
    rows = rows_of(300)[:, :rank]
    rows[5:25] = rows[4]
    index, alive = ExactIndex(rows), np.zeros(300, np.bool)
    alive[np.random.default_rng(n_alive).permutation(300)[:n_alive]] = True
    prepared = index.restrict(alive)
    assert prepared.size == n_alive
    assert prepared.n_bytes < 40 * max(n_alive, 8)
    for query in (rows_of(1, 9)[0][:rank], rows[4]):
        for k in (0, 1, 10, 300):
            expected, expected_scores = index.search(query, k, alive)
            answer, scores = prepared.search(query, k)
            assert dict(zip(answer.tolist(), scores.tolist(), strict=True)) == dict(
                zip(expected.tolist(), expected_scores.tolist(), strict=True)
            )
            assert len(answer) >= min(k, n_alive)


def test_the_rows_of_an_index_outlive_it() -> None:
    rows = rows_of(10_000)
    vectors = ExactIndex(rows).vectors
    others = [ExactIndex(rows_of(10_000, seed)) for seed in range(1, 4)]
    np.testing.assert_array_equal(vectors, rows)
    assert not any(np.shares_memory(vectors, other.vectors) for other in others)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_no_number_disturbs_no_other(value: float) -> None:
    rows = rows_of(50)
    rows[[0, 20]] = value
    query = rows_of(1, 9)[0]
    good = np.delete(np.arange(50), [0, 20])
    best = good[np.argsort(-(rows[good] @ query), kind="stable")]
    answer, _ = ExactIndex(rows).search(query, 50, np.isin(np.arange(50), good))
    assert answer.tolist() == best.tolist()
    answer, scores = ExactIndex(rows).search(query, 50, None)
    assert not np.isnan(scores).any()
    assert [row for row in answer.tolist() if row in set(good.tolist())] == best.tolist()


def test_a_query_that_is_no_number_finds_nothing() -> None:
    rows, scores = ExactIndex(rows_of(50)).search(np.full(RANK, np.nan, np.float32), 5, None)
    assert (len(rows), len(scores)) == (0, 0)


@pytest.mark.parametrize("count", [0, 1, 100])
def test_a_stored_index_comes_back(tmp_path: Path, count: int) -> None:
    rows, query = rows_of(count), rows_of(1, 9)[0]
    ExactIndex(rows).save(tmp_path / "index")
    index = ExactIndex.load(tmp_path / "index", RANK)
    np.testing.assert_array_equal(index.vectors, rows)
    assert best_rows(index, query, 10) == np.argsort(-(rows @ query), kind="stable")[:10].tolist()


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "foreign"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "index"
    ExactIndex(rows_of(10)).save(path)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": content[:-8], "foreign": b"garbage" * 100}[damage])
    with pytest.raises(DamagedBundleError):
        ExactIndex.load(path, RANK)


def test_an_index_of_another_rank_is_refused(tmp_path: Path) -> None:
    ExactIndex(rows_of(10)).save(tmp_path / "index")
    with pytest.raises(DamagedBundleError, match="dimension"):
        ExactIndex.load(tmp_path / "index", RANK + 1)


@pytest.mark.parametrize(
    ("n_rows", "rank", "step"),
    [(20_001, 1, 1 << 12), (20_001, 17, 1 << 12), (20_001, 40, None), (110_001, 40, None)],
)
def test_many_queries_get_the_rows_and_scores_of_each_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, n_rows: int, rank: int, step: int | None
) -> None:
    if step is not None:
        monkeypatch.setattr("app.index._ROWS_AT_ONCE", step)
        monkeypatch.setattr("app.index._NUMBERS_WORTH_A_PRODUCT", 0)
    rng = np.random.default_rng(rank)
    rows = rng.lognormal(size=(n_rows, 1)) * rng.standard_normal((n_rows, rank)) + 1.0
    rows[100:140] = rows[-30:] = rows[7]
    queries = np.concatenate([rows[7:8], rng.standard_normal((5, rank))]).astype(np.float32)
    index = ExactIndex(rows.astype(np.float32))
    for dead_share, ks in itertools.product((None, 0.05, 0.995), ([1, 3, 10, 25, 50, 100], [10] * 6)):
        alive = None
        if dead_share is not None:
            alive = np.ones(n_rows, np.bool)
            alive[rng.permutation(n_rows)[: int(dead_share * n_rows)]] = False
        answers = index.search_many(queries, ks, alive)
        for query, k, (best, scores) in zip(queries, ks, answers, strict=True):
            expected, expected_scores = index.search(query, k, alive)
            assert sorted(zip(scores.tolist(), best.tolist(), strict=True)) == sorted(
                zip(expected_scores.tolist(), expected.tolist(), strict=True)
            )


def test_all_that_tie_with_the_last_come_back_to_each_of_many_queries() -> None:
    index = ExactIndex(np.repeat(np.eye(3, dtype=np.float32), 7, axis=0))
    queries, ks = np.eye(3, dtype=np.float32), (2, 7, 9)
    for number, (found, _) in enumerate(index.search_many(queries, ks, None)):
        best = set(range(7 * number, 7 * number + 7))
        assert set(found.tolist()) == (set(range(21)) if ks[number] > 7 else best)
