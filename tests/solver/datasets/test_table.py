import re
from pathlib import Path

import pytest

from solver.datasets import read_picture_text_table
from solver.validation.errors import DatasetError


def _table(folder: Path, text: str) -> Path:
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_bytes(b"picture")
    (folder / "items.csv").write_text(text, encoding="utf-8")
    return folder / "items.csv"


HEADER = "id,image,text,label,colour,split\n"


def test_table_rows_come_back_as_written(tmp_path: Path) -> None:
    path = _table(tmp_path, HEADER + '1,a.jpg,"red, small",shoe,red,Train\n2,b.jpg,über,hat,,test\n')
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
    with pytest.raises(DatasetError, match="no column 'text'; it has 'id', 'image', 'label'"):
        read_picture_text_table(path)


@pytest.mark.parametrize("sign", [";", "\t"])
def test_table_with_other_separators_is_refused_with_a_hint(tmp_path: Path, sign: str) -> None:
    path = _table(tmp_path, HEADER.replace(",", sign))
    with pytest.raises(DatasetError, match=re.escape(f"expected commas between cells, not {sign!r}")):
        read_picture_text_table(path)


def test_unreadable_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="not a readable CSV table"):
        read_picture_text_table(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes((HEADER + "1,a.jpg,\xfcber,hat,red,train\n").encode("latin-1"))
    with pytest.raises(DatasetError, match="not a readable CSV table"):
        read_picture_text_table(tmp_path / "latin.csv")


def test_table_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    path = _table(tmp_path, "id,image,text,label,label\n1,a.jpg,shoe,shoe,hat\n")
    with pytest.raises(DatasetError, match="columns 'label' more than once"):
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
