from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from solver.datasets import load_npz, load_wikipedia
from solver.validation import DatasetError


def _wikipedia(
    folder: Path, changes: dict[str, Any] | None = None, train: str = "t1 p1 1\nt2 p2 2\n", **options: Any
) -> Path:
    """Write a release of three pairs."""
    rng = np.random.default_rng(0)
    features = {
        "I_tr": rng.random((2, 3)), "T_tr": rng.random((2, 4)),
        "I_te": rng.random((1, 3)), "T_te": rng.random((1, 4)),
        **(changes or {}),
    }  # fmt: skip
    (folder / "categories.list").write_text("art\nbird\n", encoding="utf-8")
    (folder / "trainset_txt_img_cat.list").write_text(train, encoding="utf-8")
    (folder / "testset_txt_img_cat.list").write_text("t3 p3 1\n", encoding="utf-8")
    scipy.io.savemat(folder / "raw_features.mat", features, **options)
    return folder / "raw_features.mat"


def test_wikipedia_rows_come_back_as_the_lists_name_them(tmp_path: Path) -> None:
    _wikipedia(tmp_path)
    data = load_wikipedia(tmp_path)
    assert data.labels.tolist() == ["art", "bird", "art"]
    assert (data.x_ids, data.z_ids) == (("p1", "p2", "p3"), ("t1", "t2", "t3"))
    assert data.is_train.tolist() == [True, True, False]
    assert (data.X.shape, data.Z.shape) == ((3, 3), (3, 4))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"I_te": np.zeros((1, 5))}, "I_tr and I_te have different features"),
        ({"T_te": np.zeros((1, 5))}, "T_tr and T_te have different features"),
        ({"I_tr": scipy.sparse.csc_array(np.eye(2, 3))}, "I_tr must be a numeric matrix"),
        ({"I_tr": {"a": 1}}, "I_tr must be a numeric matrix"),
        ({"I_tr": np.zeros((2, 3)) * 1j}, "I_tr must be a numeric matrix"),
        ({"I_tr": np.zeros((2, 3, 2))}, "I_tr must be a numeric matrix"),
        ({"I_tr": "text"}, "I_tr must be a numeric matrix"),
        ({"I_tr": np.zeros((3, 3))}, "I_tr has 3 rows for 2"),
        ({"T_te": np.zeros((2, 4))}, "T_te has 2 rows for 1"),
        ({"I_te": np.full((1, 3), np.nan)}, r"I_te contains missing values \(NaN\): column 0"),
    ],
)
def test_wikipedia_features_that_do_not_fit_are_named(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    _wikipedia(tmp_path, changes)
    with pytest.raises(DatasetError, match=problem):
        load_wikipedia(tmp_path)


def test_wikipedia_without_one_of_the_features_names_it(tmp_path: Path) -> None:
    path = _wikipedia(tmp_path)
    scipy.io.savemat(path, {"I_tr": np.zeros((2, 3))})
    with pytest.raises(DatasetError, match="I_te must be a numeric matrix"):
        load_wikipedia(tmp_path)


@pytest.mark.parametrize("category", ["\u00b2", "9" * 5000, "-1", "+1", "1_0", "\u0661", "0", "3", "1.0"])
def test_wikipedia_category_that_is_no_number_of_one_is_refused(tmp_path: Path, category: str) -> None:
    _wikipedia(tmp_path, train=f"t1 p1 {category}\nt2 p2 2\n")
    with pytest.raises(DatasetError, match=r"trainset_txt_img_cat\.list: expected") as caught:
        load_wikipedia(tmp_path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:124] + b"\x00\x02IM" + whole[128:],  # version 7.3
        lambda whole: whole[:200] + b"\xff" * 10 + whole[210:],  # of zlib
        lambda whole: whole[:128] + b"\xff" * 60 + whole[188:],  # tags
        *(lambda whole, size=size: whole[:size] for size in (0, 50, 130, 150, 200, 300, 400)),
        lambda _: b"not a MATLAB file\n" * 50,
    ],
)
def test_damaged_wikipedia_features_are_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = _wikipedia(tmp_path, do_compression=True)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match=r"raw_features\.mat is not a readable MATLAB file"):
        load_wikipedia(tmp_path)


@pytest.mark.data
def test_wikipedia_agrees_with_its_archive(test_data: Path) -> None:
    data = load_wikipedia(test_data / "wikipedia")
    archive = load_npz(test_data / "wikipedia" / "wikipedia.npz", x="I", z="T")
    assert data.X.shape == (2866, 128)
    assert data.Z.shape == (2866, 10)
    assert int(data.is_train.sum()) == 2173
    assert len(np.unique(data.labels)) == 10
    np.testing.assert_array_equal(data.labels, archive.labels)
    np.testing.assert_array_equal(data.is_train, archive.is_train)
    np.testing.assert_allclose(data.X, archive.X, rtol=1e-6)  # the archive may be float32
    np.testing.assert_allclose(data.Z, archive.Z, rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["raw_features.mat", "categories.list", "trainset_txt_img_cat.list", "testset_txt_img_cat.list"]
)
def test_wikipedia_with_a_file_missing_is_refused(tmp_path: Path, name: str) -> None:
    _wikipedia(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DatasetError, match=name):
        load_wikipedia(tmp_path)


@pytest.mark.parametrize("line", ["only-two fields", "a b 11", "a b 0", "a b x", "a b 1 2"])
def test_wikipedia_with_a_broken_list_line_shows_it(tmp_path: Path, line: str) -> None:
    _wikipedia(tmp_path, train=f"{line}\nt2 p2 2\n")
    with pytest.raises(DatasetError, match=f"trainset_txt_img_cat.list.*{line}"):
        load_wikipedia(tmp_path)
