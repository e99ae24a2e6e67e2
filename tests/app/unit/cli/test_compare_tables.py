"""Tables of pictures and texts, as `lrbs compare --table` reads them."""

from pathlib import Path

import pytest

from app.cli.compare.own_data import read_table
from solver import DatasetError
from solver.datasets.files import read_cells


def _table(folder: Path, text: str) -> Path:
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_bytes(b"picture")
    (folder / "items.csv").write_text(text, encoding="utf-8")
    return folder / "items.csv"


HEADER = "id,image,text,label,colour,split\n"


def test_table_rows_come_back_as_written(tmp_path: Path) -> None:
    path = _table(tmp_path, HEADER + '1,a.jpg,"red, small",shoe,red,Train\n2,b.jpg,über,hat,,test\n')
    first, second = read_table(path, label_columns=("label", "colour"))
    assert (first.id, first.text, first.labels) == ("1", "red, small", ("shoe", "red"))
    assert first.picture == tmp_path / "a.jpg"
    assert (second.text, second.labels) == ("über", ("hat",))
    assert (first.other, second.other) == ({"split": "Train"}, {"split": "test"})


def test_labels_that_are_not_named_stand_in_their_usual_column_and_other_columns_are_kept(
    tmp_path: Path,
) -> None:
    (row,) = read_table(_table(tmp_path, HEADER + "1,a.jpg,shoe,shoe,red,test\n"))
    assert (row.labels, row.other) == (("shoe",), {"colour": "red", "split": "test"})
    assert row.without("split") == {"colour": "red"}


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
        read_table(path)


def test_table_without_a_column_lists_those_it_has(tmp_path: Path) -> None:
    path = _table(tmp_path, "id,image,label\n")
    with pytest.raises(DatasetError, match="no column 'text'; it has 'id', 'image', 'label'"):
        read_table(path)


def test_a_table_that_names_its_separator_counts_that_line(tmp_path: Path) -> None:
    path = _table(tmp_path, "sep=;\r\n" + HEADER.replace(",", ";") + "1;absent.jpg;shoe;shoe;red;train\n")
    with pytest.raises(DatasetError, match="line 3: picture"):
        read_table(path)


def test_a_named_encoding_is_used(tmp_path: Path) -> None:
    path = _table(tmp_path, "")
    path.write_bytes((HEADER + "1,a.jpg,łódź,hat,red,train\n").encode("cp1250"))
    ((_, cells),) = read_cells(path, (), "cp1250").rows()
    assert cells[2] == "łódź"
    with pytest.raises(DatasetError, match=r"line 2: the byte 0x\w\w is not utf-8: name the file's encoding"):
        read_cells(path, (), "utf-8")
    with pytest.raises(DatasetError, match="no encoding 'utf-9'"):
        read_cells(path, (), "utf-9")


def test_unreadable_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a readable CSV table"):
        read_table(tmp_path / "absent.csv")
    (tmp_path / "odd.csv").write_bytes(HEADER.encode() + b"1,a.jpg,\x81ber,hat,red,train\n")
    with pytest.raises(DatasetError, match="line 2: the byte 0x81 is neither UTF-8 nor Windows-1252"):
        read_table(tmp_path / "odd.csv")


def test_table_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    path = _table(tmp_path, "id,image,text,label,label\n1,a.jpg,shoe,shoe,hat\n")
    with pytest.raises(DatasetError, match="columns 'label' more than once"):
        read_table(path)


@pytest.mark.parametrize("picture", ["a" * 5000, "a\0b"])
def test_table_with_an_impossible_picture_name_names_the_line(tmp_path: Path, picture: str) -> None:
    path = _table(tmp_path, HEADER + f"1,{picture},shoe,shoe,red,train\n")
    with pytest.raises(DatasetError, match=r"items\.csv, line 2"):
        read_table(path)


def test_a_cell_beyond_the_limit_is_named_and_the_other_rows_are_read(tmp_path: Path) -> None:
    lines = [
        "1,a.jpg,one,a,red,train",
        "2,a.jpg," + "x" * 200_000 + ",a,red,train",
        "3,b.jpg,three,a,red,train",
    ]
    path = _table(tmp_path, HEADER + "\n".join(lines))
    first, beyond, last = read_cells(path, ()).rows()
    assert (first[1][0], last[1][0]) == ("1", "3")
    assert beyond == ("line 3", "field larger than field limit (131072)")
    with pytest.raises(DatasetError, match="line 3: field larger"):
        read_table(path)
