"""One set of rows in every kind of file that people keep features in."""

import csv
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

from solver import DatasetError
from solver.datasets import load_annotated, load_npz, read_array, read_arrays, read_labels, read_row_arrays

RNG = np.random.default_rng(0)
X, Z = RNG.normal(size=(12, 4)), (RNG.random((12, 3)) < 0.5).astype(float)
NAMES = np.array(["cat", "dög", "bird"])[np.arange(12) % 3]
IS_TEST = np.arange(12) >= 8


def save_npz(path: Path) -> None:
    np.savez(path, x=X, z=Z, labels=NAMES, is_test=IS_TEST, facet_Size=np.arange(12) % 2)


def save_mat(path: Path) -> None:
    cells = np.array(NAMES, object)[:, None]
    columns = {"is_test": IS_TEST[:, None], "facet_Size": np.arange(12.0)[:, None] % 2}
    scipy.io.savemat(path, {"X": X, "Z": scipy.sparse.csc_array(Z), "y": cells, "notes": {"a": 1}, **columns})


def save_mat_of_words(path: Path) -> None:
    columns = {"is_test": IS_TEST, "facet_Size": np.arange(12) % 2}
    scipy.io.savemat(path, {"x": X, "z": Z, "labels": NAMES, **columns})


def save_mat_73(path: Path) -> None:
    """As MATLAB writes it: columns first, words in cells as code units, and a header before HDF5."""
    with h5py.File(path, "w", userblock_size=512) as file:

        def put(name: str, array: np.ndarray, kind: bytes, **attributes: Any) -> Any:
            node = file.create_dataset(name, data=array.T)
            node.attrs["MATLAB_class"] = kind
            return node

        put("x", X, b"double")
        sparse = scipy.sparse.csc_array(Z)
        group = file.create_group("z")
        group.attrs["MATLAB_sparse"] = np.uint64(len(Z))
        group.attrs["MATLAB_class"] = b"double"
        for name, part in (("data", sparse.data), ("ir", sparse.indices), ("jc", sparse.indptr)):
            group.create_dataset(name, data=part)
        references = np.empty((12, 1), h5py.ref_dtype)
        for row, word in enumerate(NAMES):
            codes = np.array([[ord(character) for character in word]], np.uint16)
            references[row, 0] = put(f"#refs#/{row}", codes, b"char").ref
        put("labels", references, b"cell")
        put("is_test", IS_TEST[:, None].astype(np.uint8), b"logical")
        put("facet_Size", np.arange(12.0)[:, None] % 2, b"double")
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


def save_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"], file["z"], file["is_test"] = X, Z, IS_TEST
        file["labels"] = NAMES.tolist()
        file["facet_Size"] = np.arange(12) % 2


def save_csv(path: Path, delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream, delimiter=delimiter)
        names = [*(f"x{number}" for number in range(4)), *(f"Z_{number}" for number in range(3))]
        table.writerow([*names, "label", "is_test", "facet_Size", "remark"])
        for row in range(12):
            table.writerow([*X[row], *Z[row], NAMES[row], IS_TEST[row], row % 2, "none, yet"])


SAVED = {
    "set.npz": save_npz,
    "set.mat": save_mat,
    "words.mat": save_mat_of_words,
    "new.mat": save_mat_73,
    "hdf5.mat": save_hdf5,
    "set.h5": save_hdf5,
    "set.hdf5": save_hdf5,
    "set.csv": save_csv,
    "set.tsv": lambda path: save_csv(path, "\t"),
}


@pytest.mark.parametrize("name", SAVED)
def test_rows_are_the_same_from_every_kind_of_archive(name: str, tmp_path: Path) -> None:
    SAVED[name](tmp_path / name)
    loaded = load_annotated(tmp_path / name)
    np.testing.assert_allclose(loaded.features.X, X)
    np.testing.assert_array_equal(loaded.features.Z, Z)
    assert loaded.features.labels.tolist() == NAMES.tolist()
    assert loaded.features.is_train.tolist() == (~IS_TEST).tolist()
    assert set(loaded.annotations.facets) == {"label", "Size"}


@pytest.mark.parametrize("suffix", ["npz", "mat", "h5"])
def test_archives_of_two_splits_are_read_as_well(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"splits.{suffix}"
    codes = np.arange(12) % 3 + 1
    sides = {"I": X, "T": Z, "y": codes}
    parts = {
        f"{name}{end}": side[rows]
        for name, side in sides.items()
        for end, rows in (("_tr", ~IS_TEST), ("_te", IS_TEST))
    }
    if suffix == "h5":
        with h5py.File(file, "w") as opened:
            for name, part in parts.items():
                opened[name] = part
    else:
        scipy.io.savemat(file, parts) if suffix == "mat" else np.savez(file, **parts)
    for data in (load_npz(file, "I", "T"), load_annotated(file).features):
        np.testing.assert_allclose(data.X, X)
        assert data.labels.tolist() == codes.astype(str).tolist()
        assert data.is_train.tolist() == (~IS_TEST).tolist()


@pytest.mark.parametrize("suffix", ["npy", "csv", "txt", "mat", "h5"])
def test_files_of_one_array_each_make_a_set(suffix: str, tmp_path: Path) -> None:
    files = [tmp_path / f"{side}.{suffix}" for side in "xz"]
    for file, array in zip(files, (X, Z), strict=True):
        if suffix == "npy":
            np.save(file, array)
        elif suffix == "mat":
            scipy.io.savemat(file, {"features": array})
        elif suffix == "h5":
            with h5py.File(file, "w") as opened:
                opened["features"] = array
        else:
            delimiter, header = (";", "a;b;c;d") if suffix == "csv" else (" ", "")
            np.savetxt(file, array, delimiter=delimiter, header=header, comments="")
    (tmp_path / "labels.txt").write_text("\n".join(NAMES))
    loaded = load_annotated([*files, tmp_path / "labels.txt"])
    np.testing.assert_allclose(loaded.features.X, X)
    assert loaded.features.labels.tolist() == NAMES.tolist()
    assert load_annotated(files).class_name == "partner"


def test_only_what_is_asked_for_is_read_and_names_are_in_any_case(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=X, Z=Z, x=X[:, :2], notes=np.array([{}]))
    arrays = read_row_arrays(tmp_path / "a.npz")
    assert {name: array.shape for name, array in arrays.items()} == {"x": (12, 4), "z": (12, 3)}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "x0,z0,label\n1,2,a\n1,much,b\n", r"a.csv, line 3, column 'z0': 'much' is no number"),
        ("a.csv", "x0,z0,is_test\n1,2,maybe\n", r"line 2, column 'is_test': expected 0 or 1, got 'maybe'"),
        ("a.csv", "x0,z0,label\n1,2\n", r"line 2: expected 3 cells"),
        ("a.csv", "length,width\n1,2\n", r"lacks x and z, .* it has \['length', 'width'\]"),
        ("a.mat", "no MATLAB", r"a.mat is not a readable .mat file"),
        ("a.h5", "no HDF5", r"a.h5 is not a readable .h5 file"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match=message):
        load_annotated(tmp_path / name)


@pytest.mark.parametrize("suffix", ["npz", "mat", "h5", "csv"])
def test_a_missing_file_is_said_in_the_same_words(suffix: str, tmp_path: Path) -> None:
    words = rf"none\.{suffix} is not .*No such file or directory: '.*none\.{suffix}'"
    with pytest.raises(DatasetError, match=words):
        load_annotated(tmp_path / f"none.{suffix}")


def test_files_that_are_no_single_array_are_named(tmp_path: Path) -> None:
    save_hdf5(tmp_path / "set.h5")
    with pytest.raises(DatasetError, match=r"has the arrays \['facet_Size', .*: one is expected"):
        read_array(tmp_path / "set.h5")
    with h5py.File(tmp_path / "group.h5", "w") as file:
        file["a/b"] = X
    with pytest.raises(DatasetError, match="a is a group, not an array"):
        read_arrays(tmp_path / "group.h5")
    np.savetxt(tmp_path / "x.csv", X, delimiter=",")
    (tmp_path / "z.csv").write_text("1,2\n3,much\n")
    with pytest.raises(DatasetError, match=r"z.csv is not a readable .csv array: .*'much'"):
        load_annotated([tmp_path / "x.csv", tmp_path / "z.csv"])


@pytest.mark.parametrize("header", [True, False])
def test_tables_of_pandas_and_of_excel_hold_the_same_numbers(header: bool, tmp_path: Path) -> None:
    pd.DataFrame(X).to_csv(tmp_path / "index.csv", header=True)
    pd.DataFrame(X).to_csv(tmp_path / "plain.csv", header=header, index=False)
    pd.DataFrame(X).to_csv(tmp_path / "excel.csv", header=header, index=False, sep=";", decimal=",")
    np.savetxt(tmp_path / "blanks.txt", X, fmt="%9.6f", delimiter="   ")
    for name in ("index.csv", "plain.csv", "excel.csv", "blanks.txt"):
        np.testing.assert_allclose(read_array(tmp_path / name), X, atol=1e-6)
    names = [*(f"x{number}" for number in range(4)), *(f"z{number}" for number in range(3))]
    table = pd.DataFrame(np.hstack([X, Z]), columns=names).assign(Class=NAMES)
    table.to_csv(tmp_path / "set.csv", sep=";", decimal=",")
    loaded = load_annotated(tmp_path / "set.csv")
    np.testing.assert_allclose(loaded.features.X, X)
    assert loaded.features.labels.tolist() == NAMES.tolist()


def test_a_first_row_with_a_gap_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,,3\n4,5,6\n")
    with pytest.raises(DatasetError, match=r"x\.csv is not a readable \.csv array"):
        read_array(tmp_path / "x.csv")


def test_what_reads_hdf5_is_named_where_it_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_mat_73(tmp_path / "new.mat")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DatasetError, match=r"new\.mat is HDF5 and needs h5py, .*lrbs\[hdf5\]"):
        load_annotated(tmp_path / "new.mat")


def test_labels_are_read_as_people_save_them(tmp_path: Path) -> None:
    codes = np.arange(12) % 3
    np.savez(tmp_path / "a.npz", x=X, z=Z, labels=np.eye(3)[codes], split=["Training_Set"] * 6 + ["val"] * 6)
    loaded = load_annotated(tmp_path / "a.npz").features
    assert loaded.labels.tolist() == codes.astype(str).tolist()
    assert loaded.is_train.tolist() == [True] * 6 + [False] * 6
    np.savez(tmp_path / "b.npz", x=X, z=Z, labels=np.ones((12, 3)))
    with pytest.raises(DatasetError, match=r"b.npz: labels of shape \(12, 3\) .* single 1"):
        load_annotated(tmp_path / "b.npz")
    with h5py.File(tmp_path / "words.h5", "w") as file:
        file["x"], file["z"], file["labels"] = X, Z, [name.encode() for name in NAMES]  # bytes in UTF-8
    assert load_annotated(tmp_path / "words.h5").features.labels.tolist() == NAMES.tolist()
    words = pd.Series([f"{name}, old" for name in NAMES], name="class")
    words.to_csv(tmp_path / "index.csv")
    words.to_csv(tmp_path / "plain.csv", index=False)
    words.to_csv(tmp_path / "bare.csv", index=False, header=False)
    for name in ("index.csv", "plain.csv", "bare.csv"):
        assert read_labels(tmp_path / name, 12).tolist() == words.tolist()
    pd.DataFrame({"a": words, "b": words}).to_csv(tmp_path / "two.csv", index=False)
    with pytest.raises(DatasetError, match=r"two\.csv, line 1: expected one label"):
        read_labels(tmp_path / "two.csv", 12)
