import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

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
    with pytest.raises(DatasetError, match="3 names, labels reach 7"):
        load_npz(_save(tmp_path / "pairs.npz", y_te=np.array([7, 0])))


def test_npz_with_rows_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="different lengths"):
        load_npz(_save(tmp_path / "pairs.npz", T_te=np.zeros((1, 4))))


def test_npz_with_features_missing_in_one_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"pairs\.npz"):
        load_npz(_save(tmp_path / "pairs.npz", T_te=np.zeros((2, 3))))


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
    with pytest.raises(DatasetError, match="cannot be read"):
        read_picture_text_table(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes((HEADER + "1,a.jpg,\xfcber,hat,red,train\n").encode("latin-1"))
    with pytest.raises(DatasetError, match="cannot be read"):
        read_picture_text_table(tmp_path / "latin.csv")


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
    ],
)
def test_synthetic_pairs_of_too_few_are_refused(parameters: dict[str, int], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"^{name} must be"):
        make_low_rank_pairs(**parameters)  # type: ignore[arg-type]
