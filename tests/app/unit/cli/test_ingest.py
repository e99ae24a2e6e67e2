"""Tables as people, spreadsheets and programs write them, as sources of items."""

from pathlib import Path
from typing import Any

import pytest

from app.cli.sources.rows import Refusal
from app.cli.sources.tables import Table, TableColumns, open_table
from app.domain.errors import InvalidFieldError
from app.services.catalogue.preparation import ItemChange, NewItem

NAMES, FORMS = ("image", "text"), ("picture", "text")


def write_table(folder: Path, *lines: str, encoding: str = "utf-8") -> Path:
    (folder / "a.png").write_bytes(b"picture")
    file = folder / "items.csv"
    file.write_text("\n".join(lines), encoding=encoding)
    return file


def table_of(folder: Path, *lines: str, columns: TableColumns | None = None, **options: Any) -> Table:
    return open_table(write_table(folder, *lines), columns or TableColumns(), NAMES, FORMS, **options)


def items_of(table: Table) -> list[NewItem]:
    rows = list(table.rows())
    items = [row for row in rows if isinstance(row, NewItem)]
    assert (len(items), table.total) == (len(rows), len(rows))
    return items


def refused(table: Table) -> list[tuple[str, str]]:
    return [(row.place, row.reason) for row in table.rows() if isinstance(row, Refusal)]


def types_of(folder: Path, **columns: list[str]) -> dict[str, list[Any]]:
    """Return what the values of other columns become, by the column's name."""
    names = list(columns)
    cells = ["\t".join([str(n), "word", *row]) for n, row in enumerate(zip(*columns.values(), strict=True))]
    table = table_of(folder, "\t".join(["id", "text", *names]), *cells)
    metadata = [item.metadata for item in items_of(table)]
    return {name: [each.get(name) for each in metadata] for name in names}


def test_a_table_brings_labels_pairs_and_facets(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        "id,image,text,label,kind,colour,product,split",
        "1,a.png,one,shoe,boot,red,p1,train",
        "2,a.png,two,shoe,,blue,,test",
        columns=TableColumns(pair="product", labels=("label", "kind"), split="split"),
    )
    first, text, second, _ = items_of(table)
    assert (first.id, first.labels, first.pair_id, first.train) == ("image-1", ("shoe", "boot"), "p1", True)
    assert (first.metadata, text.pair_id) == ({"source": "a.png", "colour": "red", "split": "train"}, "p1")
    assert (second.labels, second.pair_id, second.train) == (("shoe",), None, False)
    assert "1 rows to learn from, 1 held out: 'test'" in table.notes


def test_without_labels_and_pairs_each_row_is_a_pair(tmp_path: Path) -> None:
    table = table_of(tmp_path, "id,image,text", "1,a.png,one")
    assert [(item.labels, item.pair_id) for item in items_of(table)] == [((), "1")] * 2


def test_a_missing_pair_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidFieldError, match="no column 'product'; it has 'id', 'image', 'text' and 'colour'"
    ):
        table_of(tmp_path, "id,image,text,colour", "1,a.png,one,red", columns=TableColumns(pair="product"))


def test_a_column_of_splits_is_no_metadata_to_learn_from(tmp_path: Path) -> None:
    table = table_of(tmp_path, "id,text,split", "1,one,Training", "2,two,valid", "3,three,test")
    assert [item.train for item in items_of(table)] == [True, False, False]
    # A column of that name with something else in it is metadata.
    table = table_of(tmp_path, "id,text,split", "1,one,left", "2,two,right")
    assert [(item.train, item.metadata["split"]) for item in items_of(table)] == [
        (True, "left"),
        (True, "right"),
    ]


@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("sku,file,title,category", "--id-column sku --picture-column file --text-column title"),
        ("Artikel-Nr;Bild;Bezeichnung;Warengruppe", "--id-column Artikel-Nr --picture-column Bild"),
        ("key,which one,words,kind", "--id-column key --picture-column 'which one' --text-column words"),
    ],
)
def test_a_header_that_does_not_fit_is_answered_by_options(tmp_path: Path, header: str, options: str) -> None:
    mark = ";" if ";" in header else ","
    rows = [mark.join([str(n), "a.png", "A red shoe to run in", "shoes"]) for n in range(3)]
    with pytest.raises(InvalidFieldError, match="has no column 'id', 'image', 'text'; it has") as found:
        table_of(tmp_path, header, *rows)
    (note,) = found.value.__notes__
    assert note.startswith(options)
    assert "--label-column" in note
    # As the line says, it is read.
    words = note.replace("'which one'", "which-one").split()
    given = {
        words[n][2:].replace("-column", ""): words[n + 1].replace("which-one", "which one") for n in (0, 2, 4)
    }
    assert len(items_of(table_of(tmp_path, header, *rows, columns=TableColumns(**given)))) == 6


def test_the_one_column_of_words_that_is_left_is_named_for_the_texts(tmp_path: Path) -> None:
    for header, words in (("nr,bild,wort", "wort"), ("nr,bild,wort,farbe", None)):
        rows = [",".join([str(n), "a.png", "Ball", "rot"][: header.count(",") + 1]) for n in (7, 5, 6)]
        with pytest.raises(InvalidFieldError, match="has no column 'id', 'image'; it has") as found:
            table_of(tmp_path, header, *rows)
        text = "" if words is None else f" --text-column {words}"
        assert found.value.__notes__ == [f"--id-column nr --picture-column bild{text}"]


def test_a_header_in_capitals_or_with_the_index_of_pandas_fits(tmp_path: Path) -> None:
    table = table_of(tmp_path, " ID ,IMAGE,Text,Label", "1,a.png,one,x")
    assert [(item.id, item.labels) for item in items_of(table)] == [("image-1", ("x",)), ("text-1", ("x",))]
    plain = [item.id for item in items_of(table_of(tmp_path, "image,text", "a.png,one"))]
    for header in (",image,text", "Unnamed: 0,image,text"):
        assert [item.id for item in items_of(table_of(tmp_path, header, "7,a.png,one"))] == plain
        named = items_of(table_of(tmp_path, header, "shoe-7,a.png,one"))
        assert [item.id for item in named] == ["image-shoe-7", "text-shoe-7"]


def test_rows_without_ids_are_the_same_items_wherever_they_stand_and_no_others(tmp_path: Path) -> None:
    lines = ["a.png,one,9", "a.png,two\ufeff\x1c,8", "a.png,one,7", ",two,6"]
    first = items_of(table_of(tmp_path, "image,text,price", *lines))
    ids = [item.id for item in first]
    assert len(set(ids)) == 7
    assert all(item.id == f"{item.modality}-{item.pair_id}" for item in first)
    # Rows that are added, moved or changed beside their content are those of before.
    lines = [",two,5", "a.png,three,1", *lines[1:3], lines[0]]
    second = items_of(table_of(tmp_path, "image,text,price", *lines))
    assert {item.id for item in second} > set(ids)
    assert len(second) == len({item.id for item in second}) == 9
    # Another picture of the same name is another row.
    (other := tmp_path / "other").mkdir()
    (other / "a.png").write_bytes(b"another")
    moved = items_of(table_of(tmp_path, "image,text,price", "a.png,two,8", pictures=other))
    assert set(ids).isdisjoint(item.id for item in moved)


def test_a_row_without_an_id_changes_nothing_and_without_its_picture_is_its_text(tmp_path: Path) -> None:
    lines = ["b.png,one,9", ",,8", ",two,7", "b.png,,6"]
    table = table_of(tmp_path, "image,text,price", *lines)
    items = [row for row in table.rows() if isinstance(row, NewItem)]
    assert [item.content.text for item in items] == ["one", "two"]
    assert [place.removeprefix("items.csv, ") for place, _ in refused(table)] == [
        "line 2, b.png",
        "line 3",
        "line 5, b.png",
    ]
    reasons = [reason for _, reason in refused(table)]
    assert ["its text is added alone" in reason for reason in reasons] == [
        True,
        False,
        False,
    ]
    assert "no id that names an item to change" in reasons[1]
    alone = items_of(table_of(tmp_path, "text", "one"))
    assert items[0].id == alone[0].id  # whatever file was missing


@pytest.mark.parametrize("name", ["Nr", "No.", "#", "index"])
def test_numbers_of_rows_are_no_ids(tmp_path: Path, name: str) -> None:
    plain = [item.id for item in items_of(table_of(tmp_path, "image,text", "a.png,one", "a.png,two"))]
    for first in (0, 1):
        table = table_of(tmp_path, f"{name},image,text", f"{first},a.png,one", f"{first + 2},a.png,two")
        assert [item.id for item in items_of(table)] == plain
        assert all(not item.metadata.keys() - {"source"} for item in items_of(table))
        assert f"the numbers of rows in '{name}' are left out" in table.notes
    asked = table_of(tmp_path, f"{name},text", "1,one", "2,two", columns=TableColumns(id=name))
    assert [item.id for item in items_of(asked)] == ["text-1", "text-2"]
    assert [item.id for item in items_of(table_of(tmp_path, "id,text", "1,one", "2,two"))] == [
        "text-1",
        "text-2",
    ]


def test_titles_before_the_header_and_the_index_of_pandas_are_left_out(tmp_path: Path) -> None:
    table = table_of(tmp_path, "Export 2024;;;", "", ";id;text;size", "0;a;one, two;42", "1;b;three;43")
    assert [(item.id, item.metadata["size"]) for item in items_of(table)] == [("text-a", 42), ("text-b", 43)]
    assert {"size"} == set(items_of(table)[0].metadata)
    assert "1 rows before the header are left out" in table.notes
    assert "pandas" not in " ".join(table_of(tmp_path, ";id;text", ";a;one").notes)
    with pytest.raises(InvalidFieldError, match="its first line seems to be no header"):
        table_of(tmp_path, "1,a.png,one", "2,a.png,two")


def test_a_header_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFieldError, match="columns 'colour' more than once"):
        table_of(tmp_path, "id,text,colour,colour", "1,one,red,blue")


def test_empty_rows_and_cells_are_left_out_and_others_are_named_by_their_line(tmp_path: Path) -> None:
    table = table_of(
        tmp_path,
        "id,image,text,label,,",
        "1,a.png,,x,,",
        ",,,,,",
        "",
        '2,,"two',
        'lines",,,',
        "3,a.png",
        "4,a.png,four,x,,more",
        "5,,,x,,",
        "6,b.png,six,x",
    )
    rows = list(table.rows())
    assert len(rows) == table.total
    assert [row.id for row in rows if isinstance(row, NewItem)] == ["image-1", "text-2", "text-6"]
    assert [row.metadata for row in rows if isinstance(row, NewItem)] == [{"source": "a.png"}, {}, {}]
    assert [place for place, _ in refused(table)] == [
        "items.csv, line 7",
        "items.csv, line 8",
        "items.csv, line 10, b.png",
    ]
    (change,) = [row for row in rows if isinstance(row, ItemChange)]
    assert (change.ids, change.labels, change.metadata) == (("image-5", "text-5", "5"), ("x",), {})
    assert "1 empty rows are left out" in table.notes


def test_a_quote_that_is_not_closed_swallows_no_row(tmp_path: Path) -> None:
    lines = ['2,a.png,"27 inch, blue', "3,a.png,three", '4,a.png,"four, 4"', '5,a.png,19" screen']
    table = table_of(tmp_path, "id,image,text", "1,a.png,one", *lines)
    found = [row.content.text for row in table.rows() if isinstance(row, NewItem) and row.modality == "text"]
    assert found == ["one", "three", "four, 4", '19" screen']
    assert [place for place, _ in refused(table)] == ["items.csv, line 3"]
    table = table_of(tmp_path, "id, image, text", '1, a.png, "one, two"', '"2" ,"a.png" ,"two"')
    assert [item.content.text for item in items_of(table)[1::2]] == ["one, two", "two"]
    # Where the cells of the line fit, the row is kept; where a quote closes lines later, all are named.
    table = table_of(tmp_path, "id,image,text", '1,a.png,"27 inch', "2,a.png,two", "3,a.png,three")
    assert [item.content.text for item in items_of(table)[1::2]] == ['"27 inch', "two", "three"]
    assert "quotes that do not pair are taken as signs of the text: line 2" in table.notes
    table = table_of(
        tmp_path, "id,image,text", '1,a.png,"27 inch', "2,a.png,two", '3,a.png,19"', "4,a.png,four"
    )
    assert [place for place, _ in refused(table)] == ["items.csv, lines 2 to 4"]


def test_files_are_found_by_what_other_machines_and_people_write(tmp_path: Path) -> None:
    pictures = tmp_path / "elsewhere"
    (pictures / "bilder").mkdir(parents=True)
    (pictures / "other").mkdir()
    for name in ("bilder/1.jpg", "2.JPG", "other/twice.jpg", "bilder/twice.jpg", "caf\u00e9.jpg"):
        (pictures / name).write_bytes(b"picture")
    names = [
        "bilder\\1.JPG",
        " 2.jpg ",
        "C:\\Users\\Anna\\Fotos\\1.jpg",
        "\u202aC:\\Users\\Anna\\Fotos\\1.jpg",
        "cafe\u0301.jpg",
        "./other//TWICE.jpg",
    ]
    rows = [f"{n},{name}" for n, name in enumerate(names)]
    table = table_of(tmp_path, "id,image", *rows, pictures=pictures)
    assert len(items_of(table)) == len(names)
    names = ["twice.jpg", "https://example.org/1.jpg", "data:image/jpeg;base64", "shoes/1.jpg", "a" * 5000]
    rows = [f"{n},{name}" for n, name in enumerate(names)]
    reasons = [reason for _, reason in refused(table_of(tmp_path, "id,image", *rows, pictures=pictures))]
    assert [reason.split(",")[0].split(":")[0] for reason in reasons] == [
        f"may be one of several files below {pictures}",
        "is an address",
        "is an address",
        f"is not found in {pictures}; --pictures names the folder in which the files are",
        "can be no name of a file",
    ]


def test_columns_of_numbers_are_numbers_and_codes_are_text(tmp_path: Path) -> None:
    found = types_of(
        tmp_path,
        size=["42", "", "43"],
        price=["1.234,50 €", "9,90 €", "-3 €"],
        dollars=["$1,299", "$5", "n/a"],
        minus=["-$3", "$-4", "\u22125 $"],
        swiss=["1'000", "12.5", "-"],
        floats=["42.0", "43.0", "44.0"],
        science=["1e3", "2.5E-1", ".5"],
        zip_code=["10115", "80331", "50667"],
        leading=["007", "12", "13"],
        phone=["+49 30 1234", "030 5678", "1"],
        barcodes=["4006381333931", "4006381333948", "4006381333955"],
        mixed=["40", "41", "XL"],
        version=["1.2.3", "1.2.4", "2.0.0"],
        two=["1.234", "2.345", "3.456"],
        both=["5 €", "6 $", "7 €"],
    )
    assert found == {
        "size": [42, None, 43],
        "price": [1234.5, 9.9, -3],
        "dollars": [1299, 5, None],
        "minus": [-3, -4, -5],
        "swiss": [1000, 12.5, None],
        "floats": [42, 43, 44],
        "science": [1000.0, 0.25, 0.5],
        "zip_code": ["10115", "80331", "50667"],
        "leading": ["007", "12", "13"],
        "phone": ["+49 30 1234", "030 5678", "1"],
        "barcodes": ["4006381333931", "4006381333948", "4006381333955"],
        "mixed": ["40", "41", "XL"],
        "version": ["1.2.3", "1.2.4", "2.0.0"],
        "two": ["1.234", "2.345", "3.456"],
        "both": ["5 €", "6 $", "7 €"],
    }
    assert [type(value) for value in found["floats"]] == [int] * 3


def test_columns_of_dates_are_iso_dates_unless_day_and_month_may_be_either(tmp_path: Path) -> None:
    found = types_of(
        tmp_path,
        german=["1.2.2024", "31.12.2024"],
        american=["01/31/2024 1:05 PM", "2/3/2024 12:00 AM"],
        iso=["2024-1-5", "2024-02-29 10:20"],
        either=["01/02/2024", "03/04/2024"],
        none=["31.02.2024", "01.02.2024"],
    )
    assert found == {
        "german": ["2024-02-01", "2024-12-31"],
        "american": ["2024-01-31T13:05:00", "2024-02-03T00:00:00"],
        "iso": ["2024-01-05", "2024-02-29T10:20:00"],
        "either": ["01/02/2024", "03/04/2024"],
        "none": ["31.02.2024", "01.02.2024"],
    }


def test_what_the_user_says_of_a_column_overrules(tmp_path: Path) -> None:
    lines = ("id;text;size;kilos;when;code", "1;one;42;1,250;01/02/2024;12")
    kinds = {"size": "text", "kilos": "decimal-comma", "when": "day-first", "code": "number"}
    (item,) = items_of(table_of(tmp_path, *lines, kinds=kinds))
    facts = {
        "size": "42",
        "kilos": 1.25,
        "when": "2024-02-01",
        "code": 12,
    }
    assert item.metadata == facts
    (item,) = items_of(table := table_of(tmp_path, *lines))
    assert item.metadata == {**facts, "size": 42, "kilos": "1,250", "when": "01/02/2024", "code": "12"}
    assert "column 'kilos' is text: its points or commas may mark thousands or decimals" in str(table.notes)
    assert "column 'when' is text: day or month may come first: --type when=day-first" in str(table.notes)
    # What another column says of points and commas holds for this one.
    (item,) = items_of(table_of(tmp_path, f"{lines[0]};price", f"{lines[1]};9,5"))
    assert item.metadata["kilos"] == 1.25
    with pytest.raises(InvalidFieldError, match="--type: not every cell of column 'text2' is a number: 'b'"):
        table_of(tmp_path, "id,text,text2", "1,a,b", kinds={"text2": "number"})


@pytest.mark.parametrize(
    ("slips", "remark"),
    [(["ask us"], "'ask us' is no number, as most cells are"), (["ask us", "soon"], None), ([], None)],
)
def test_a_cell_that_makes_numbers_text_is_named(
    tmp_path: Path, slips: list[str], remark: str | None
) -> None:
    prices = [*slips[:1], "1.50", "2.50", "2.50", "3,000.00", "4", "5", "$6", *slips[1:]]
    rows = [f'{number},text,"{price}"' for number, price in enumerate(prices)]
    table = table_of(tmp_path, "id,text,price", *rows)
    assert {type(item.metadata["price"]) is str for item in items_of(table)} == {bool(slips)}
    assert (f"column 'price' is text: {remark}" in str(table.notes)) == (remark is not None)
    assert ("column 'price' is text" in str(table.notes)) == (remark is not None)


def test_several_labels_in_a_cell_are_said(tmp_path: Path) -> None:
    lines = ("id,text,labels", "1,one,red|shoe", "2,two,blue|shoe|")
    table = table_of(tmp_path, *lines)
    assert [item.labels for item in items_of(table)] == [("red|shoe",), ("blue|shoe|",)]
    assert "2 cells of labels have '|' in them" in str(table.notes)
    table = table_of(tmp_path, *lines, columns=TableColumns(label_separator="|"))
    assert [item.labels for item in items_of(table)] == [("red", "shoe"), ("blue", "shoe")]


def test_an_id_that_can_be_none_is_kept_beside_one_that_can(tmp_path: Path) -> None:
    (item,) = items_of(table_of(tmp_path, "id,text", "A 12/34 ä,one"))
    assert item.id.startswith("text-A_12")
    assert item.metadata == {"id": "A 12/34 ä"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "items.csv: is empty"),
        (b"id,image,text,label\n", "items.csv: has a header line and nothing else"),
        (b"PK\x03\x04junk", "a damaged workbook or another ZIP file"),
        (b"\xff\xd8\xff\xe0\x00\x10\x81\n", "a picture: lrbs ingest folder"),
        (b"a.txt".ljust(257, b"\0") + b"ustar\x0000\x81\n", "a tar file: lrbs ingest tar"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"an old Excel file \(\.xls\): save it as CSV"),
        (b"id,text\n1,f\xc3\xbcr\n2,f\xfcr\n", "line 3: the byte 0xfc is not utf-8"),
    ],
)
def test_what_is_no_table_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "items.csv"
    file.write_bytes(content)
    with pytest.raises(Exception, match=said):
        open_table(file, TableColumns(), NAMES, FORMS)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_a_table_as_programs_write_it_is_read(tmp_path: Path, encoding: str, mark: str) -> None:
    lines = ["id,image,text", '1,a.png,"für 5 €', 'zweite ""Zeile"""', "2,a.png,zwei"]
    file = write_table(tmp_path)
    declared = f"sep={mark}\r\n" if encoding == "cp1252" else ""
    file.write_bytes((declared + "\r\n".join(lines).replace(",", mark)).encode(encoding))
    table = open_table(file, TableColumns(), NAMES, FORMS)
    assert [item.content.text for item in items_of(table)[1::2]] == ['für 5 €\r\nzweite "Zeile"', "zwei"]
    assert ("read as cp1252" in str(table.notes)) == (encoding == "cp1252")
