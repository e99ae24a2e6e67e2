"""What the comparison keeps, loads and says, apart from its page (see e2e/test_compare.py)."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from app.cli.compare.command import published_protocol
from app.cli.compare.own_data import ComparedSet, FileCache, PictureTextRow, SetLoader, resplit
from app.cli.compare.report import chosen_rows, verdict
from app.domain.errors import InvalidFieldError
from app.encoders.registry import ContentLimits, EncoderRegistry
from solver import compare, make_low_rank_pairs
from solver.comparison import Comparison
from solver.datasets import PairedFeatures


@pytest.fixture(scope="module")
def data() -> PairedFeatures:
    drawn = make_low_rank_pairs(
        90, 90, n_features_x=6, n_features_z=5, n_classes=3, noise=2.0, random_state=0
    )
    x, z = np.argsort(drawn.x_labels, kind="stable"), np.argsort(drawn.z_labels, kind="stable")
    ids = tuple(str(row) for row in range(90))
    labels = drawn.x_labels[x].astype(np.str_)
    return PairedFeatures(drawn.X[x], drawn.Z[z], labels, np.arange(90) % 3 > 0, ids, ids)


@pytest.fixture(scope="module")
def comparison(data: PairedFeatures) -> Comparison:
    return compare(data, methods=["CCA", "MsAlg"], n_jobs=1, n_resamples=100, n_permutations=100)


def test_an_outcome_comes_back_from_disk_as_it_was(comparison: Comparison, tmp_path: Path) -> None:
    kept = FileCache(tmp_path / "kept")
    for number, outcome in enumerate(comparison.outcomes):
        kept.save(str(number), outcome)
        loaded = FileCache(tmp_path / "kept").load(str(number))
        assert loaded is not None
        for name in outcome.__slots__:
            before, after = getattr(outcome, name), getattr(loaded, name)
            np.testing.assert_array_equal(after, before)
            assert type(after) is type(before)
    assert kept.load("another") is None
    assert sorted(path.suffix for path in (tmp_path / "kept").iterdir()) == [".npz"] * 4


def test_a_comparison_of_kept_outcomes_is_the_comparison(
    data: PairedFeatures, comparison: Comparison, tmp_path: Path
) -> None:
    options = {"methods": ["CCA", "MsAlg"], "n_jobs": 1, "n_resamples": 100, "n_permutations": 100}
    kept = FileCache(tmp_path)
    compare(data, store=kept, **options)
    told: list[bool] = []
    again = compare(data, store=kept, on_outcome=lambda *each: told.append(each[3]), **options)
    assert told == [True] * 4
    for first, second in zip(comparison.rows, again.rows, strict=True):
        seconds = {"fit_seconds", "tune_seconds"}
        facts = [{k: v for k, v in asdict(row).items() if k not in seconds} for row in (first, second)]
        assert facts[0] == facts[1]


def test_whatever_is_damaged_counts_as_missing(comparison: Comparison, tmp_path: Path) -> None:
    kept, path = FileCache(tmp_path), tmp_path / "key.npz"
    kept.save("key", comparison.outcomes[0])
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(400):
        place = int(rng.integers(len(whole)))
        damaged = [whole[:place], whole[:place] + rng.bytes(8) + whole[place + 8 :]]
        path.write_bytes(damaged[int(rng.integers(2))])
        kept.load("key")
    for facts in ("{", "{}", "[]", '{"n_features": 1, "notes": []}'):
        kept.store("key", {"facts": np.asarray(facts)})
        assert kept.load("key") is None
        np.testing.assert_array_equal(kept.get_or_compute("key", lambda: np.eye(2)), np.eye(2))
    np.save(path.with_suffix(".npy"), np.eye(2))
    path.with_suffix(".npy").replace(path)
    assert kept.load("key") is None
    for damage in (b"", b"PK", b"no archive at all", whole[: len(whole) // 2]):
        path.write_bytes(damage)
        assert kept.load("key") is None
    kept.save("key", comparison.outcomes[0])
    assert kept.load("key") is not None


def test_features_are_computed_once(tmp_path: Path) -> None:
    made = []

    def make() -> np.ndarray:
        made.append(1)
        return np.eye(2)

    for _ in range(2):
        np.testing.assert_array_equal(FileCache(tmp_path).get_or_compute("key", make), np.eye(2))
    assert made == [1]


def test_a_set_that_is_resplit_keeps_its_rows_and_each_class_its_share(data: PairedFeatures) -> None:
    found = ComparedSet("drawn", data, "drawn")
    first, again, other = (resplit(found, seed) for seed in (1, 1, 2))
    assert first.name == "drawn@1"
    np.testing.assert_array_equal(first.data.X, data.X)
    np.testing.assert_array_equal(first.data.is_train, again.data.is_train)
    assert (first.data.is_train != other.data.is_train).any()
    for label in np.unique(data.labels):
        assert first.data.is_train[data.labels == label].mean() == pytest.approx(2 / 3)


def test_words_of_a_set_that_is_resplit_are_learned_on_its_new_training_rows(tmp_path: Path) -> None:
    n_rows = 40
    rows = tuple(
        PictureTextRow(str(i), tmp_path, f"thing word{i}", ("even" if i % 2 else "odd",), {})
        for i in range(n_rows)
    )
    labels = np.asarray([row.labels[0] for row in rows])
    ids = tuple(row.id for row in rows)
    data = PairedFeatures(np.eye(n_rows), np.ones((n_rows, 3)), labels, np.arange(n_rows) < 20, ids, ids)
    split = resplit(ComparedSet("drawn", data, "drawn", rows=rows), 0).data
    n_words = (split.Z > 0).sum(axis=1)
    assert (
        n_words[split.is_train] > n_words[~split.is_train].max()
    ).all()  # a test row's own word is unknown


def test_unknown_sets_and_a_missing_folder_are_refused_by_name(tmp_path: Path) -> None:
    encoders = EncoderRegistry(ContentLimits(1, 1, 1))
    with pytest.raises(InvalidFieldError, match="products_colour") as refused:
        SetLoader(tmp_path, encoders, FileCache(tmp_path)).load("flickr")
    assert refused.value.field == "sets"
    with pytest.raises(InvalidFieldError) as refused:
        SetLoader(None, encoders, FileCache(tmp_path)).load("wikipedia")
    assert refused.value.field == "LRBS_TEST_DATA"


def test_every_set_is_looked_for_before_the_first_is_loaded(tmp_path: Path) -> None:
    loader = SetLoader(tmp_path, EncoderRegistry(ContentLimits(1, 1, 1)), FileCache(tmp_path))
    (tmp_path / "wikipedia").mkdir()
    (tmp_path / "wikipedia" / "wikipedia.npz").touch()
    loader.check(["wikipedia_tfidf", "wikipedia_tfidf@3"])
    for missing in ("wikipedia", "wikipedia_cnn@1", "products", "flickr"):
        with pytest.raises(InvalidFieldError, match=missing) as refused:
            loader.check(["wikipedia_tfidf", missing])
        assert refused.value.field == "sets"


def test_the_verdict_names_winner_lead_and_chance(comparison: Comparison) -> None:
    rows = [row for row in comparison.rows if not row.pca]
    first, second = sorted(rows, key=lambda row: -row.average)
    said = verdict(rows)
    lead = 100 * (first.average - second.average)
    assert said.startswith(f"{first.method} is first, {lead:.2f} points ahead of {second.method}")
    assert ("within what chance" in said) == (first.p_value is not None and first.p_value >= 0.05)
    assert verdict(rows[:1]) == f"Only {rows[0].method} was compared."


def test_the_variant_that_is_shown_is_chosen_without_the_test_split(comparison: Comparison) -> None:
    chosen = [comparison.rows[number] for number in chosen_rows(comparison)]
    assert [row.method for row in chosen] == ["CCA", "MsAlg"]
    for row in chosen:
        assert row.cv_score == max(each.cv_score for each in comparison.rows if each.method == row.method)


def test_sets_of_a_published_protocol_are_compared_with_it() -> None:
    for name in ("wikipedia", "wikipedia_cnn", "wikipedia_tfidf@3"):
        protocol = published_protocol(name)
        assert protocol is not None
        assert protocol.name == "wikipedia"
    assert published_protocol("products") is None
