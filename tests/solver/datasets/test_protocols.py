from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from solver.datasets import PROTOCOLS, load_npz, load_protocol, load_wikipedia
from solver.validation import DatasetError, InvalidParameterError


def arrays(n_train: int = 6, n_test: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "I_tr": rng.random((n_train, 5)),
        "I_te": rng.random((n_test, 5)),
        "T_tr": rng.random((n_train, 3)),
        "T_te": rng.random((n_test, 3)),
    }


def with_classes(**parts: Any) -> dict[str, Any]:
    return {**arrays(), "y_tr": np.arange(6) % 2, "y_te": np.arange(4) % 2, **parts}


def store(folder: Path, name: str, suffix: str, parts: dict[str, Any]) -> None:
    if suffix == ".npz":
        np.savez(folder / f"{name}.npz", **parts)
    else:
        scipy.io.savemat(folder / f"{name}.mat", parts)


@pytest.mark.parametrize("name", ["wikipedia", "voc2007", "nus-wide"])
@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_rows_and_split_come_from_the_file(tmp_path: Path, name: str, suffix: str) -> None:
    parts = with_classes()
    store(tmp_path, name, suffix, parts)
    data = load_protocol(name, tmp_path)
    np.testing.assert_array_equal(data.X, np.concatenate([parts["I_tr"], parts["I_te"]]))
    np.testing.assert_array_equal(data.Z, np.concatenate([parts["T_tr"], parts["T_te"]]))
    assert data.labels.tolist() == ["0", "1"] * 5
    assert data.is_train.tolist() == [True] * 6 + [False] * 4


@pytest.mark.parametrize("suffix", [".npz", ".mat"])
def test_voc2007_keeps_pictures_of_a_single_class(tmp_path: Path, suffix: str) -> None:
    train = np.eye(3, dtype=np.uint8)[[0, 1, 2, 0, 1, 2]]
    train[1, 2] = 1
    test = np.eye(3, dtype=np.uint8)[[0, 1, 2, 0]]
    test[3] = 0
    parts = {**arrays(), "L_tr": train, "L_te": test}
    store(tmp_path, "voc2007", suffix, parts)
    data = load_protocol("voc2007", tmp_path)
    assert data.is_train.sum() == 5
    kept = [0, 2, 3, 4, 5]
    np.testing.assert_array_equal(data.X[data.is_train], parts["I_tr"][kept])
    np.testing.assert_array_equal(data.Z[~data.is_train], parts["T_te"][:3])
    same = data.labels[:, None] == data.labels[None, :]
    truth = np.concatenate([train[kept].argmax(axis=1), test[:3].argmax(axis=1)])
    np.testing.assert_array_equal(same, truth[:, None] == truth[None, :])


def test_nus_wide_keeps_rows_with_exactly_one_of_the_ten_most_frequent_training_classes(
    tmp_path: Path,
) -> None:
    n_classes = 12
    rng = np.random.default_rng(0)
    counts = rng.permutation(np.arange(2, 2 + n_classes))  # no two classes equally frequent
    train = np.repeat(np.eye(n_classes, dtype=np.uint8), counts, axis=0)
    frequent = np.argsort(-counts)[:10]
    rare = np.setdiff1d(np.arange(n_classes), frequent)
    test = np.eye(n_classes, dtype=np.uint8)[[frequent[0], frequent[1], rare[0], frequent[2]]]
    test[1, rare[1]] = 1  # a rare class besides does not count
    test[3, frequent[0]] = 1  # two of the ten do
    store(tmp_path, "nus-wide", ".npz", {**arrays(len(train)), "L_tr": train, "L_te": test})
    data = load_protocol("nus-wide", tmp_path)
    assert data.is_train.sum() == counts[frequent].sum()
    assert len(set(data.labels[data.is_train])) == 10
    assert data.labels[~data.is_train].tolist() == [str(frequent[0]), str(frequent[1])]


def test_what_was_published_with_other_features_says_so(tmp_path: Path) -> None:
    store(tmp_path, "wikipedia", ".npz", with_classes())
    found = PROTOCOLS["wikipedia"].differences(load_protocol("wikipedia", tmp_path))
    assert [line.split(":")[0] for line in found] == ["other features"] * 2 + ["another split"] * 2
    assert "5-d pictures, published: 4096-d CNN" in found[0]


def test_features_and_split_of_the_published_kind_leave_nothing_to_say(tmp_path: Path) -> None:
    parts = {
        "I_tr": np.ones((2173, 4096), np.uint8),
        "I_te": np.ones((693, 4096), np.uint8),
        "T_tr": np.ones((2173, 200), np.uint8),
        "T_te": np.ones((693, 200), np.uint8),
        "y_tr": np.arange(2173) % 10,
        "y_te": np.arange(693) % 10,
    }
    store(tmp_path, "wikipedia", ".npz", parts)
    assert PROTOCOLS["wikipedia"].differences(load_protocol("wikipedia", tmp_path)) == []


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (arrays(), "no classes"),
        (with_classes(y_tr=np.arange(5)), "I_tr has 6 rows for 5"),
        (with_classes(T_te=np.ones((4, 2))), "T_tr and T_te"),
        ({**arrays(), "L_tr": np.full((6, 2), 2), "L_te": np.ones((4, 2))}, "L_tr"),
        ({**arrays(), "L_tr": np.ones((6, 2)), "L_te": np.ones((4, 3))}, "different numbers of classes"),
        ({"y_tr": np.arange(6), "y_te": np.arange(4)}, "I_tr"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, parts: dict[str, Any], named: str) -> None:
    store(tmp_path, "voc2007", ".npz", parts)
    with pytest.raises(DatasetError, match=named):
        load_protocol("voc2007", tmp_path)


def test_an_empty_folder_and_an_unknown_protocol_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"voc2007\.npz nor voc2007\.mat"):
        load_protocol("voc2007", tmp_path)
    with pytest.raises(InvalidParameterError, match="protocol"):
        load_protocol("coco", tmp_path)


@pytest.mark.data
def test_the_release_files_of_wikipedia_are_its_protocol(test_data: Path) -> None:
    data = load_protocol("wikipedia", test_data / "wikipedia")
    assert (int(data.is_train.sum()), int((~data.is_train).sum())) == (2173, 693)
    differences = PROTOCOLS["wikipedia"].differences(data)
    assert len(differences) == 2
    assert all(line.startswith("other features") for line in differences)


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
