"""Archives of features with labels, facets and partners."""

import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from solver import DatasetError, make_low_rank_pairs
from solver.datasets import PairedFeatures, annotate_rows, draw_split, load_annotated, load_npz
from solver.validation import InvalidParameterError


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


def _header(text: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


NPY = _header(b"{'descr':'<f8','fortran_order':False,'shape':(1,)}\n") + bytes(8)


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


@pytest.mark.parametrize("content", [None, b"", b"plain text", NPY])
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
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


def test_npz_without_the_wanted_modality_lists_those_it_has(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no modality 'video'; it has \['I', 'T', 'A'\]"):
        load_npz(_save(tmp_path / "pairs.npz"), x="video")
    with pytest.raises(DatasetError, match=r"no modality 'T'; it has \['I', 'T', 'A'\]"):
        load_npz(_save(tmp_path / "pairs.npz", T_te=None))


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
        ({"y_tr": None}, r"lacks \['y_tr'\].*'A_te', 'A_tr', 'I_te'"),
        ({"y_te": None}, r"lacks \['y_te'\].*'A_te', 'A_tr', 'I_te'"),
        (dict.fromkeys(("T_tr", "T_te", "A_tr", "A_te")), "lacks two modalities"),
        ({"T_te": np.zeros((1, 4))}, "different lengths"),
        ({"y_te": np.array([{"a": 1}, None], dtype=object)}, "not a readable array 'y_te'"),
        ({"y_te": np.array([7, 0])}, r"3 names, labels lie in 0\.\.7"),
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
        ({"I_te": np.full((2, 3), np.inf)}, "I_te contains infinity: column 0 does in row 0"),
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


ARRAYS: dict[str, Any] = {
    "x": np.arange(12.0).reshape(6, 2),
    "z": np.arange(18.0).reshape(6, 3),
    "labels": np.array([0, 1, 0, 1, 0, 1]),
    "split": np.array(["train", "train", "Train", "train", "test", "test"]),
    "facet_colour": np.array(["red", "", "blue", "red", "red", "blue"]),
    "facet_year": np.array([2020, -1, 2021, 2020, 2020, 2021]),
    "pairs": np.array(["a", "a", "b", "", "c", "c"]),
    "notes": np.array([1.5]),  # not read
}


def _write(folder: Path, **changes: Any) -> Path:
    file = folder / "set.npz"
    arrays = {name: array for name, array in {**ARRAYS, **changes}.items() if array is not None}
    np.savez(file, **arrays)
    return file


def test_an_archive_gives_rows_split_facets_and_partners(tmp_path: Path) -> None:
    loaded = load_annotated(_write(tmp_path))
    features, annotations = loaded.features, loaded.annotations
    np.testing.assert_array_equal(features.X, ARRAYS["x"])
    np.testing.assert_array_equal(features.Z, ARRAYS["z"])
    assert features.labels.tolist() == ["0", "1", "0", "1", "0", "1"]
    assert features.is_train.tolist() == [True] * 4 + [False] * 2
    assert list(annotations.facets) == ["label", "colour", "year"]
    assert annotations.facets["colour"].values == ("blue", "red")
    assert annotations.facets["year"].x_indicators[1].tolist() == [False, False]
    assert annotations.pairs.tolist() == [
        [0, 0], [0, 1], [1, 0], [1, 1], [2, 2], [4, 4], [4, 5], [5, 4], [5, 5],
    ]  # fmt: skip


def test_without_pairs_the_samples_of_a_row_are_partners(tmp_path: Path) -> None:
    annotations = load_annotated(_write(tmp_path, pairs=None)).annotations
    assert annotations.pairs.tolist() == [[row, row] for row in range(6)]


def test_without_labels_partners_are_the_classes_and_without_these_a_facet(tmp_path: Path) -> None:
    loaded = load_annotated(_write(tmp_path, labels=None))
    assert (loaded.class_name, loaded.features.labels.tolist()) == ("partner", ["a", "a", "b", "c", "c"])
    assert list(loaded.annotations.facets) == ["colour", "year"]
    assert loaded.annotations.pairs.tolist()[-1] == [4, 4]
    np.testing.assert_array_equal(loaded.features.X, ARRAYS["x"][[0, 1, 2, 4, 5]])
    rows = load_annotated(_write(tmp_path, pairs=None), use_labels=False)
    assert len(set(rows.features.labels.tolist())) == 6
    facet = load_annotated(_write(tmp_path), use_labels=False, use_pairs=False)
    assert (facet.class_name, facet.features.labels.tolist()) == (
        "colour",
        ["red", "blue", "red", "red", "blue"],
    )
    assert len(facet.annotations.pairs) == 0


def test_partners_are_drawn_to_the_test_by_chance(tmp_path: Path) -> None:
    names = np.arange(6)
    changes = {"labels": None, "split": None, "pairs": names, "facet_colour": None, "facet_year": None}
    splits = {tuple(load_annotated(_write(tmp_path, **changes), seed).features.is_train) for seed in range(8)}
    assert len(splits) > 1


def test_a_mask_can_stand_for_the_split(tmp_path: Path) -> None:
    mask = np.array([1, 0, 0, 0, 0, 1])
    loaded = load_annotated(_write(tmp_path, split=None, is_test=mask))
    assert loaded.features.is_train.tolist() == [not flag for flag in mask]


def test_without_a_split_a_fifth_of_each_class_is_drawn_and_partners_stay_together() -> None:
    labels = np.repeat(["a", "b"], 50)
    partners = [f"{row // 2}" for row in range(100)]
    is_train = draw_split(labels, partners, 0)
    assert [int((~is_train[labels == label]).sum()) for label in ("a", "b")] == [10, 10]
    np.testing.assert_array_equal(is_train[::2], is_train[1::2])
    assert (is_train != draw_split(labels, partners, 1)).any()
    assert int((~draw_split(labels)).sum()) == 20


def test_names_of_classes_are_no_partners() -> None:
    values = [("a",)] * 200
    with pytest.raises(DatasetError, match="more than 64 partners on average"):
        annotate_rows({"label": (values, values)}, ["one"] * 200)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"labels": None, "pairs": np.full(6, -1), "facet_colour": None, "facet_year": None},
            "no labels, pairs",
        ),
        ({"x": None, "z": None}, "lacks x and z"),
        ({"x": np.arange(6.0)}, "x must be a numeric matrix"),
        (
            {"z": np.full((6, 2), np.nan)},
            r"z contains missing values \(NaN\): column 0 does in row 0; so do 1 more",
        ),
        ({"z": np.ones((5, 2))}, "different lengths"),
        ({"labels": np.array([0, 1])}, "labels has 2 rows, x has 6"),
        ({"labels": np.array([0, 1, -1, 0, 1, 0])}, "labels: row 2 has none"),
        ({"facet_colour": np.ones((6, 2))}, "facet_colour must be a vector"),
        ({"facet_label": np.arange(6)}, "facet_label: another name"),
        ({"pairs": np.arange(6) + 0.5}, "pairs holds numbers that are no integers"),
        ({"split": np.array(["train"] * 5 + ["fold"])}, "split: row 5 has 'fold'"),
        ({"split": np.array(["train"] * 6)}, "split: all rows are 'train'"),
        ({"is_test": np.zeros(6)}, "has both split and is_test"),
        ({"split": None, "is_test": np.arange(6)}, "is_test must be 6 booleans"),
        ({"labels": np.array([None] * 6)}, "not a readable array 'labels'"),
    ],
)
def test_bad_archives_are_refused_with_the_name_of_the_array(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        load_annotated(_write(tmp_path, **changes))


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "set.npz").write_text("x,z")
    with pytest.raises(DatasetError, match=r"no archive of arrays, or a damaged one: \.npz, \.mat"):
        load_annotated(tmp_path / "set.npz")
    np.save(tmp_path / "one.npy", np.eye(2))
    with pytest.raises(DatasetError, match="single array"):
        load_annotated(tmp_path / "one.npy")


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
