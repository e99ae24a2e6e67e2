import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.io
import scipy.sparse

from solver import make_low_rank_pairs
from solver.datasets import PairedFeatures, load_npz, load_wikipedia, read_picture_text_table
from solver.errors import DatasetError, InvalidParameterError


def _arrays() -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(0)
    return {
        "I_tr": rng.random((5, 3)), "I_te": rng.random((2, 3)),
        "T_tr": rng.random((5, 4)), "T_te": rng.random((2, 4)),
        "A_tr": rng.random((5, 2)), "A_te": rng.random((2, 2)),
        "y_tr": np.array([0, 1, 1, 0, 2]), "y_te": np.array([2, 0]),
        "class_names": np.array(["art", "bird", "car"]),
    }  # fmt: skip


def _save(path: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {**_arrays(), **changes}
    np.savez_compressed(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_npz_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    arrays = _arrays()
    data = load_npz(_save(tmp_path / "pairs.npz"))
    np.testing.assert_array_equal(data.X, np.vstack([arrays["I_tr"], arrays["I_te"]]))
    np.testing.assert_array_equal(data.Z, np.vstack([arrays["T_tr"], arrays["T_te"]]))
    assert data.labels.tolist() == ["art", "bird", "bird", "art", "car", "car", "art"]
    assert data.is_train.tolist() == [True] * 5 + [False] * 2
    assert data.x_ids == data.z_ids
    assert len(set(data.x_ids)) == 7


def test_npz_modalities_can_be_chosen(tmp_path: Path) -> None:
    data = load_npz(_save(tmp_path / "pairs.npz"), x="A", z="I")
    np.testing.assert_array_equal(data.X[:5], _arrays()["A_tr"])
    np.testing.assert_array_equal(data.Z[:5], _arrays()["I_tr"])


def test_npz_second_modality_chosen_alone_is_paired_with_another(tmp_path: Path) -> None:
    data = load_npz(_save(tmp_path / "pairs.npz"), z="I")
    assert data.X.shape[1] != data.Z.shape[1]


def test_npz_without_class_names_keeps_labels_as_text(tmp_path: Path) -> None:
    data = load_npz(_save(tmp_path / "pairs.npz", class_names=None))
    assert data.labels.tolist() == ["0", "1", "1", "0", "2", "2", "0"]


def test_npz_with_pickled_objects_is_refused(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, None], dtype=object)
    with pytest.raises(DatasetError, match=r"not a readable \.npz archive"):
        load_npz(_save(tmp_path / "pairs.npz", y_te=objects))


@pytest.mark.parametrize("content", [b"", b"plain text"])
def test_damaged_npz_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pairs.npz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"pairs\.npz"):
        load_npz(tmp_path / "pairs.npz")


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7])
def test_npz_with_overwritten_bytes_is_refused(tmp_path: Path, share: float) -> None:
    path = _save(tmp_path / "pairs.npz", I_tr=np.random.default_rng(0).random((5, 400)))
    content = bytearray(path.read_bytes())
    begin = int(share * len(content))
    content[begin : begin + 40] = b"\xff" * 40
    path.write_bytes(bytes(content))
    with pytest.raises(DatasetError, match=r"pairs\.npz"):
        load_npz(path)


def test_npy_in_place_of_npz_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros((3, 2)))
    with pytest.raises(DatasetError, match=r"one\.npy"):
        load_npz(tmp_path / "one.npy")


def test_missing_npz_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"absent\.npz"):
        load_npz(tmp_path / "absent.npz")


@pytest.mark.parametrize("name", ["y_tr", "y_te"])
def test_npz_without_labels_names_them_and_lists_what_it_has(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match=rf"lacks \['{name}'\].*'A_te', 'A_tr', 'I_te'"):
        load_npz(_save(tmp_path / "pairs.npz", **{name: None}))


def test_npz_without_the_wanted_modality_lists_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no modality 'video'; it has \['I', 'T', 'A'\]"):
        load_npz(_save(tmp_path / "pairs.npz"), x="video")
    with pytest.raises(DatasetError, match=r"no modality 'T'; it has \['I', 'T', 'A'\]"):
        load_npz(_save(tmp_path / "pairs.npz", T_te=None))


def test_npz_with_one_modality_is_refused(tmp_path: Path) -> None:
    path = _save(tmp_path / "pairs.npz", T_tr=None, T_te=None, A_tr=None, A_te=None)
    with pytest.raises(DatasetError, match="lacks two modalities"):
        load_npz(path)


def test_npz_with_labels_beyond_the_class_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"3 names, labels lie in 0\.\.7"):
        load_npz(_save(tmp_path / "pairs.npz", y_te=np.array([7, 0])))


def test_npz_with_rows_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="different lengths"):
        load_npz(_save(tmp_path / "pairs.npz", T_te=np.zeros((1, 4))))


def test_npz_with_features_missing_in_one_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"pairs\.npz"):
        load_npz(_save(tmp_path / "pairs.npz", T_te=np.zeros((2, 3))))


Y_TR, Y_TE = np.array([0, 1, 1, 0, 2]), np.array([2, 0])
NAMED = ["art", "bird", "bird", "art", "car", "car", "art"]


@pytest.mark.parametrize(
    "change",
    [
        lambda y: y[:, None],
        lambda y: y[None, :],
        lambda y: y.astype(np.float64),
        lambda y: y.astype(np.float32)[:, None],
        lambda y: y.astype(np.uint8),
        lambda y: y.astype(np.uint64),
    ],
    ids=["column", "row", "float", "float column", "uint8", "uint64"],
)
def test_npz_labels_of_any_vector_form_are_named(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    path = _save(tmp_path / "pairs.npz", y_tr=change(Y_TR), y_te=change(Y_TE))
    assert load_npz(path).labels.tolist() == NAMED
    # MATLAB writes columns for one split as for the other, but a file may mix them.
    path = _save(tmp_path / "pairs.npz", y_tr=change(Y_TR))
    assert load_npz(path).labels.tolist() == NAMED


@pytest.mark.parametrize(
    "names", [np.array([["art"], ["bird"], ["car"]]), np.array([b"art", b"bird", b"car"])]
)
def test_npz_class_names_of_any_vector_form_are_taken(tmp_path: Path, names: Any) -> None:
    assert load_npz(_save(tmp_path / "pairs.npz", class_names=names)).labels.tolist() == NAMED


def test_npz_labels_that_are_strings_stand_for_themselves(tmp_path: Path) -> None:
    words = np.array(["x", "\u00fc"])
    for convert in (np.asarray, lambda each: np.strings.encode(each, "utf-8")):
        path = _save(tmp_path / "pairs.npz", y_tr=convert(words[Y_TR % 2]), y_te=convert(words[Y_TE % 2]))
        assert load_npz(path).labels.tolist() == words[np.concatenate([Y_TR, Y_TE]) % 2].tolist()


def test_npz_whole_floats_without_class_names_are_named_as_integers(tmp_path: Path) -> None:
    path = _save(tmp_path / "pairs.npz", y_tr=Y_TR.astype(float), y_te=Y_TE.astype(float), class_names=None)
    assert load_npz(path).labels.tolist() == ["0", "1", "1", "0", "2", "2", "0"]


STRUCTURE = np.zeros((2, 3), [("a", int)])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"y_te": np.array([0.5, 1.0])}, "y_te holds numbers that are no integers"),
        ({"y_te": np.array([np.nan, 1.0])}, "y_te holds numbers that are no integers"),
        ({"y_te": np.array([1e300, 1.0])}, "y_te holds numbers that are no integers"),
        ({"y_te": np.array([2**63 + 1, 1], np.uint64)}, "y_te holds numbers that are no integers"),
        ({"y_te": np.zeros((2, 2), int)}, "y_te must be a vector"),
        ({"y_te": np.zeros((2, 1, 1), int)}, "y_te must be a vector"),
        ({"y_tr": np.array(1), "y_te": np.array(1)}, "y_tr must be a vector"),
        ({"y_te": np.array([1j, 2])}, "y_te must be a vector"),
        ({"y_te": np.array(["2020", "2021"], "M8[Y]")}, "y_te must be a vector"),
        ({"y_te": np.array(["a", "b"])}, "not of one kind"),
        ({"y_te": np.array([b"\xff", b"b"])}, "not a readable archive of UTF-8 strings"),
        ({"y_te": np.array([-1, 0])}, r"labels lie in -1\.\.2"),
        ({"class_names": np.array("art")}, "class_names must be a vector"),
        ({"class_names": np.array([["a", "b"], ["c", "d"], ["e", "f"]])}, "class_names must be a vector"),
        ({"class_names": np.zeros(0, np.str_)}, "class_names has 0 names"),
        ({"I_tr": np.array(1.0), "I_te": np.array(2.0)}, "I_tr must be a numeric matrix"),
        ({"I_tr": np.zeros((5, 3, 2)), "I_te": np.zeros((2, 3, 2))}, "I_tr must be a numeric matrix"),
        ({"I_te": np.zeros(2)}, "I_te must be a numeric matrix"),
        ({"I_te": np.array([["a", "b", "c"]] * 2)}, "I_te must be a numeric matrix"),
        ({"I_te": STRUCTURE}, "I_te must be a numeric matrix"),
        ({"I_tr": STRUCTURE[[0] * 5], "I_te": STRUCTURE}, "I_tr must be a numeric matrix"),
        ({"I_te": np.full((2, 3), 1j)}, "I_te must be a numeric matrix"),
        ({"I_te": np.zeros((2, 4))}, "I_tr and I_te have different features"),
        ({"I_tr": np.zeros((5, 0)), "I_te": np.zeros((2, 0))}, "different features or none"),
        ({"I_te": np.full((2, 3), np.inf)}, "X contains NaN or infinity"),
        # As many rows as labels in all, but not in each split.
        ({"y_tr": Y_TR[:4], "y_te": np.array([2, 0, 1])}, "I_tr has 5 rows for 4 labels"),
    ],
)
def test_npz_array_that_does_not_fit_is_named(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        load_npz(_save(tmp_path / "pairs.npz", **changes))


@pytest.mark.parametrize("class_names", [None, np.array(["art"])])
def test_npz_without_rows_is_refused(tmp_path: Path, class_names: Any) -> None:
    empty = {name: array[:0] for name, array in _arrays().items() if name != "class_names"}
    with pytest.raises(DatasetError, match="no rows"):
        load_npz(_save(tmp_path / "pairs.npz", **empty, class_names=class_names))


def test_npz_with_an_empty_test_split_is_read(tmp_path: Path) -> None:
    empty = {name: array[:0] for name, array in _arrays().items() if name.endswith("_te")}
    data = load_npz(_save(tmp_path / "pairs.npz", **empty))
    assert data.is_train.tolist() == [True] * 5
    assert data.labels.tolist() == NAMED[:5]


def _header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    "member",
    [
        b"raw bytes",
        b"",
        b"\x93NUMPY\x09\x09",
        _header(b"{'descr':'<f8','fortran_order':False,'shape':(1000000000000,3)}\n"),
        _header(b"{'descr':'<f8','fortran_order':False,'shape':(-5,3)}\n") + bytes(120),
        _header(b"{'descr':'<f8','fortran_order':False,'shape':(5,3\n"),
        _header(b"(" * 9000 + b"\n"),
        _header(b"{'descr':'<f8','fortran_order':False,'shape':(99999999999999999999999,3)}\n"),
        _header(b"{'descr':'no such','fortran_order':False,'shape':(5,3)}\n"),
        _header(b"{'descr':'<f8','fortran_order':False,'shape':(5,3)}\n") + bytes(100),
    ],
    ids=["no npy", "empty", "version", "huge", "negative", "unclosed", "deep", "overflow", "type", "cut"],
)
def test_npz_with_a_damaged_member_is_refused(tmp_path: Path, member: bytes) -> None:
    path = _save(tmp_path / "pairs.npz", I_tr=None)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("I_tr.npy", member)
    with pytest.raises(DatasetError, match=r"pairs\.npz"):
        load_npz(path, x="I")


def test_npz_members_that_are_not_asked_for_are_not_read(tmp_path: Path) -> None:
    path = _save(tmp_path / "pairs.npz")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("V_tr.npy", b"raw bytes")
        archive.writestr("V_te", b"raw bytes")
    assert load_npz(path).X.shape == (7, 3)
    with pytest.raises(DatasetError, match=r"pairs\.npz"):
        load_npz(path, x="V")


@pytest.mark.parametrize(("central", "local", "value"), [(8, 6, 1), (10, 8, 97)], ids=["encrypted", "method"])
def test_npz_of_another_zip_kind_is_refused(tmp_path: Path, central: int, local: int, value: int) -> None:
    path = _save(tmp_path / "pairs.npz")
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x01\x02", central), (b"PK\x03\x04", local)):
        for found in re.finditer(re.escape(signature), bytes(content)):
            content[found.start() + offset] = value
    path.write_bytes(bytes(content))
    with pytest.raises(DatasetError, match=r"pairs\.npz is not a readable"):
        load_npz(path)


def test_features_that_are_not_finite_are_refused() -> None:
    ids = ("a", "b")
    with pytest.raises(DatasetError, match="Z contains NaN"):
        PairedFeatures(
            np.zeros((2, 1)), np.full((2, 1), np.nan), np.array(["x", "y"]), np.array([True, True]), ids, ids
        )


def _table(folder: Path, text: str) -> Path:
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_bytes(b"picture")
    (folder / "items.csv").write_text(text, encoding="utf-8")
    return folder / "items.csv"


HEADER = "id,image,text,label,colour,split\n"


def test_table_rows_come_back_as_written(tmp_path: Path) -> None:
    path = _table(tmp_path, HEADER + '1,a.jpg,"red, small",shoe,red,train\n2,b.jpg,über,hat,,test\n')
    first, second = read_picture_text_table(path, label_columns=("label", "colour"), split_column="split")
    assert (first.id, first.text, first.labels, first.is_train) == ("1", "red, small", ("shoe", "red"), True)
    assert first.picture == tmp_path / "a.jpg"
    assert (second.text, second.labels, second.is_train) == ("über", ("hat",), False)
    assert first.other == {}


def test_table_without_split_trains_on_every_row_and_keeps_other_columns(tmp_path: Path) -> None:
    (row,) = read_picture_text_table(_table(tmp_path, HEADER + "1,a.jpg,shoe,shoe,red,test\n"))
    assert row.is_train
    assert row.other == {"colour": "red", "split": "test"}


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("2,absent.jpg,hat,hat,red,train", "absent.jpg does not exist"),
        ("2,,hat,hat,red,train", "does not exist"),
        ("2,b.jpg,  ,hat,red,train", "'text' is empty"),
        ("1,b.jpg,hat,hat,red,train", "id '1' is empty or repeated"),
        (",b.jpg,hat,hat,red,train", "id '' is empty or repeated"),
        ("2,b.jpg,hat", "expected 6 cells"),
        ("2,b.jpg,hat,hat,red,train,more", "expected 6 cells"),
    ],
)
def test_table_error_names_the_line(tmp_path: Path, row: str, problem: str) -> None:
    path = _table(tmp_path, HEADER + "1,a.jpg,shoe,shoe,red,train\n" + row + "\n")
    with pytest.raises(DatasetError, match=rf"items\.csv, line 3: .*{problem}"):
        read_picture_text_table(path)


def test_table_error_names_the_line_after_a_text_of_several_lines(tmp_path: Path) -> None:
    path = _table(tmp_path, HEADER + '1,a.jpg,"one\ntwo",shoe,red,train\n2,absent.jpg,hat,hat,red,train\n')
    with pytest.raises(DatasetError, match="line 4: "):
        read_picture_text_table(path)


def test_table_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = _table(tmp_path, "\ufeff" + HEADER + "1,a.jpg,shoe,shoe,red,train\n")
    assert [row.id for row in read_picture_text_table(path)] == ["1"]


def test_table_without_a_column_lists_those_it_has(tmp_path: Path) -> None:
    path = _table(tmp_path, "id,image,label\n")
    with pytest.raises(DatasetError, match=r"no column \['text'\]; it has \['id', 'image', 'label'\]"):
        read_picture_text_table(path)


def test_unreadable_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a readable CSV table"):
        read_picture_text_table(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes((HEADER + "1,a.jpg,\xfcber,hat,red,train\n").encode("latin-1"))
    with pytest.raises(DatasetError, match="not a readable CSV table"):
        read_picture_text_table(tmp_path / "latin.csv")


def test_table_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    path = _table(tmp_path, "id,image,text,label,label\n1,a.jpg,shoe,shoe,hat\n")
    with pytest.raises(DatasetError, match=r"columns \['label'\] more than once"):
        read_picture_text_table(path)


@pytest.mark.parametrize("picture", ["a" * 5000, "a\0b"])
def test_table_with_an_impossible_picture_name_names_the_line(tmp_path: Path, picture: str) -> None:
    path = _table(tmp_path, HEADER + f"1,{picture},shoe,shoe,red,train\n")
    with pytest.raises(DatasetError, match=r"items\.csv, line 2"):
        read_picture_text_table(path)


def test_table_with_a_cell_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = _table(tmp_path, HEADER + "1,a.jpg," + "x" * 200_000 + ",shoe,red,train\n")
    with pytest.raises(DatasetError, match="not a readable CSV table"):
        read_picture_text_table(path)


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
        ({"I_tr": np.zeros((3, 3))}, "I_tr must have the 2 rows"),
        ({"T_te": np.zeros((2, 4))}, "T_te must have the 1 rows"),
        ({"I_te": np.full((1, 3), np.nan)}, "X contains NaN"),
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
    ("begin", "content"),
    [(124, b"\x00\x02IM"), (200, b"\xff" * 10), (128, b"\xff" * 60)],
    ids=["version 7.3", "zlib", "tags"],
)
def test_damaged_wikipedia_features_are_refused(tmp_path: Path, begin: int, content: bytes) -> None:
    path = _wikipedia(tmp_path, do_compression=True)
    damaged = bytearray(path.read_bytes())
    damaged[begin : begin + len(content)] = content
    path.write_bytes(bytes(damaged))
    with pytest.raises(DatasetError, match=r"raw_features\.mat is not a readable MATLAB file"):
        load_wikipedia(tmp_path)


@pytest.fixture
def wikipedia(test_data: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "wikipedia"
    folder.mkdir()
    for source in (test_data / "wikipedia").iterdir():
        if source.suffix in (".mat", ".list"):
            shutil.copyfile(source, folder / source.name)
    return folder


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


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["raw_features.mat", "categories.list", "trainset_txt_img_cat.list", "testset_txt_img_cat.list"]
)
def test_wikipedia_with_a_file_missing_is_refused(wikipedia: Path, name: str) -> None:
    (wikipedia / name).unlink()
    with pytest.raises(DatasetError, match=name):
        load_wikipedia(wikipedia)


@pytest.mark.data
@pytest.mark.parametrize(
    "size",
    [
        0,
        50,
        130,
        300,
        5000,
        500_000,
    ],
)
def test_wikipedia_with_truncated_features_is_refused(wikipedia: Path, size: int) -> None:
    path = wikipedia / "raw_features.mat"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DatasetError, match=r"raw_features\.mat"):
        load_wikipedia(wikipedia)


@pytest.mark.data
def test_wikipedia_with_text_as_features_is_refused(wikipedia: Path) -> None:
    (wikipedia / "raw_features.mat").write_text("not a MATLAB file\n" * 50)
    with pytest.raises(DatasetError, match=r"raw_features\.mat"):
        load_wikipedia(wikipedia)


@pytest.mark.data
@pytest.mark.parametrize("line", ["only-two fields", "a b 11", "a b 0", "a b x", "a b 1 2"])
def test_wikipedia_with_a_broken_list_line_shows_it(wikipedia: Path, line: str) -> None:
    path = wikipedia / "testset_txt_img_cat.list"
    path.write_text(line + "\n" + path.read_text())
    with pytest.raises(DatasetError, match=f"testset_txt_img_cat.list.*{line}"):
        load_wikipedia(wikipedia)


@pytest.mark.data
def test_wikipedia_with_a_row_missing_from_a_list_is_refused(wikipedia: Path) -> None:
    path = wikipedia / "trainset_txt_img_cat.list"
    path.write_text("\n".join(path.read_text().splitlines()[1:]))
    with pytest.raises(DatasetError, match="I_tr must have the 2172 rows"):
        load_wikipedia(wikipedia)


def test_synthetic_pairs_are_seeded() -> None:
    first, second, other = (make_low_rank_pairs(random_state=seed) for seed in (0, 0, 1))
    for name in ("X", "Z", "x_labels", "z_labels", "M"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    assert not np.array_equal(first.X, other.X)
    by_generator = make_low_rank_pairs(random_state=np.random.default_rng(0))
    np.testing.assert_array_equal(by_generator.X, first.X)


def test_synthetic_truth_has_rank_classes_minus_one_and_matches_equal_classes() -> None:
    data = make_low_rank_pairs(30, 25, n_classes=4, noise=0.0, random_state=0)
    assert (data.X.shape, data.Z.shape, data.M.shape) == ((30, 20), (25, 15), (20, 15))
    np.testing.assert_allclose(
        np.linalg.svd(data.M, compute_uv=False), [1.0] * 3 + [0.0] * 12, atol=1e-14
    )  # a few eps
    similar = data.x_labels[:, None] == data.z_labels[None, :]
    np.testing.assert_allclose(data.X @ data.M @ data.Z.T, np.where(similar, 1.0, -1 / 3), atol=1e-14)


def test_synthetic_classes_are_nearly_equally_frequent() -> None:
    data = make_low_rank_pairs(32, 33, n_classes=5, random_state=0)
    for labels in (data.x_labels, data.z_labels):
        counts = np.bincount(labels, minlength=5)
        assert counts.max() - counts.min() <= 1


def test_synthetic_noise_has_the_stated_length() -> None:
    quiet = make_low_rank_pairs(4000, 4000, noise=0.0, random_state=0)
    noisy = make_low_rank_pairs(4000, 4000, noise=0.7, random_state=0)
    for name in ("X", "Z"):
        noise = getattr(noisy, name) - getattr(quiet, name)
        length = np.sqrt(np.mean(np.sum(noise**2, axis=1)))
        assert length == pytest.approx(0.7, rel=0.02)  # 60000 squares: 1/sqrt(2 * 60000) = 0.3 %


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"n_features_x": 4}, "n_features_x"),
        ({"n_features_z": 4}, "n_features_z"),
        ({"n_classes": 1}, "n_classes"),
        ({"n_samples_x": 4}, "n_classes"),
        ({"n_samples_z": 4}, "n_classes"),
        ({"noise": -0.1}, "noise"),
        ({"noise": np.nan}, "noise"),
    ],
)
def test_synthetic_pairs_of_unusable_parameters_are_refused(parameters: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{name} must be"):
        make_low_rank_pairs(**parameters)
