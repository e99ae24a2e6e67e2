from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from solver.datasets import PROTOCOLS, load_protocol
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
