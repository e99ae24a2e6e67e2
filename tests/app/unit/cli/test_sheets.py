"""Excel workbooks as sources of items: written by two programs, as spreadsheets write them."""

import sys
import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import openpyxl
import pytest
import xlsxwriter

from app.cli.sources.tables import Table, TableColumns, open_table
from app.domain.errors import InvalidFieldError
from app.services.catalogue.preparation import NewItem

HEADER = ["ID", "image", "text", "label", "price", "since", "moment", "size", "zip", "sold"]
ROWS: list[list[Any]] = [
    [1, "a.png", "one", 40, 12.5, date(2024, 1, 31), datetime(2024, 1, 31, 10, 30), 42, "00123", True],
    [None] * 10,
    ["2", None, "two\nlines", "x", 3, date(2024, 2, 1), None, "XL", "04109", False],
]


def write_with_openpyxl(file: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Items"
    for row in [HEADER, *ROWS]:
        sheet.append(row)
    book.create_sheet("Other").append(["nothing"])
    book.save(file)


def write_with_xlsxwriter(file: Path) -> None:
    with xlsxwriter.Workbook(str(file)) as book:
        days, moments = (book.add_format({"num_format": form}) for form in ("dd/mm/yy", "dd/mm/yy hh:mm"))
        sheet = book.add_worksheet("Items")
        for number, row in enumerate([HEADER, *ROWS]):
            for column, cell in enumerate(row):
                if isinstance(cell, date):
                    sheet.write_datetime(
                        number, column, cell, moments if isinstance(cell, datetime) else days
                    )
                elif column == 4 and number:
                    # A formula with the result that the spreadsheet computed.
                    sheet.write_formula(number, column, "=1+1", None, "" if cell is None else cell)
                else:
                    sheet.write(number, column, cell)
        book.add_worksheet("Other").write(0, 0, "nothing")


def open_book(file: Path, **options: Any) -> Table:
    return open_table(file, TableColumns(), ("image", "text"), ("picture", "text"), **options)


@pytest.mark.parametrize("write", [write_with_openpyxl, write_with_xlsxwriter])
def test_cells_have_the_types_of_the_workbook(tmp_path: Path, write: Any) -> None:
    (tmp_path / "a.png").write_bytes(b"picture")
    write(tmp_path / "items.xlsx")
    table = open_book(tmp_path / "items.xlsx")
    picture, first, second = table.rows()
    assert isinstance(first, NewItem)
    assert isinstance(second, NewItem)
    assert isinstance(picture, NewItem)
    assert (picture.id, first.id, second.id) == ("image-1", "text-1", "text-2")
    assert (first.labels, second.labels, second.content.text) == (("40",), ("x",), "two\nlines")
    facts = {"price": 12.5, "since": "2024-01-31", "moment": "2024-01-31T10:30:00", "size": "42"}
    assert first.metadata == {**facts, "zip": "00123", "sold": True}
    assert second.metadata == {
        "price": 3,
        "since": "2024-02-01",
        "size": "XL",
        "zip": "04109",
        "sold": False,
    }
    notes = "\n".join(table.notes)
    assert "sheet 'Items' is read, not 'Other'; --sheet names another" in notes
    assert "taken as number: price" in notes
    assert "taken as date: since, moment" in notes
    assert "1 empty rows are left out" in notes
    with pytest.raises(
        InvalidFieldError, match=r"--sheet: .* has no sheet 'Preise'; it has 'Items' and 'Other'"
    ):
        open_book(tmp_path / "items.xlsx", sheet="Preise")
    with pytest.raises(InvalidFieldError, match="has a header line and nothing else"):
        open_table(
            tmp_path / "items.xlsx",
            TableColumns(text="nothing"),
            ("image", "text"),
            ("picture", "text"),
            sheet="Other",
        )


def test_what_a_cell_shows_is_read_and_formulas_without_results_are_said(tmp_path: Path) -> None:
    file = tmp_path / "items.xlsx"
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (
        ["Prices"],
        [],
        ["id", "text", "plz", "price", "tax"],
        [1, "one", 4109, 5, "=D4*2"],
        [2, "two", 10115.0, "#DIV/0!"],
        [3, "three", -7, -7],
    ):
        sheet.append(row)
    for place, form in (("C4", "00000"), ("C5", "00000;[Red]-00000"), ("C6", "00000;-00000"), ("D6", "0;-0")):
        sheet[place].number_format = form
    book.save(file)
    table = open_book(file)
    facts = [row.metadata for row in table.rows() if isinstance(row, NewItem)]
    assert facts == [{"plz": "04109", "price": 5}, {"plz": "10115"}, {"plz": "-00007", "price": -7}]
    notes = "\n".join(table.notes)
    assert "formulas without results are empty cells" in notes
    assert "2 rows before the header are left out" in notes


def test_merged_cells_hold_for_each_of_their_rows_and_an_empty_sheet_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "items.xlsx"
    with xlsxwriter.Workbook(str(file)) as book:
        book.add_worksheet("Cover")
        sheet = book.add_worksheet("Items")
        sheet.merge_range("A1:D1", "Catalogue")
        rows = [
            ["id", "text", "label", "size"],
            [1, "one", "", 40],
            [2, "two", "", 41],
            [3, "three", "c", 42],
        ]
        for number, row in enumerate(rows, 2):
            sheet.write_row(f"A{number}", row)
        sheet.merge_range("C3:C4", "ab")
        sheet.merge_range("B6:D9", "the end")
    table = open_book(file)
    items = [row for row in table.rows() if isinstance(row, NewItem)]
    assert [(item.id, item.labels) for item in items] == [
        ("text-1", ("ab",)),
        ("text-2", ("ab",)),
        ("text-3", ("c",)),
    ]
    assert any("sheet 'Items' is read, not 'Cover'" in note for note in table.notes)


def test_other_workbooks_and_damaged_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {
        "content.xml": "an OpenDocument spreadsheet",
        "Index/Document.iwa": "a Numbers document",
        "xl/workbook.bin": "a binary workbook",
        "xl/workbook.xml": "no readable workbook",
        "1.jpg": "a workbook or another ZIP file",
    }
    file = tmp_path / "items.xlsx"
    for member, said in members.items():
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
            archive.writestr(member, b"?")
        with pytest.raises(Exception, match=said):
            open_book(file)
    write_with_openpyxl(file)
    content = bytearray(file.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 40] = bytes(40)
    file.write_bytes(content)
    with pytest.raises(InvalidFieldError, match=r"items\.xlsx: "):
        list(open_book(file).rows())
    of_another_version = bytearray(content)
    of_another_version[content.rfind(b"PK\x01\x02") + 6] = 99
    for damaged in (content[:-100], of_another_version):
        file.write_bytes(damaged)
        with pytest.raises(InvalidFieldError, match="is a damaged workbook"):
            open_book(file)
    write_with_openpyxl(file)
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(
        InvalidFieldError, match=r"is an Excel workbook, which needs the extra 'excel' \(pip install"
    ):
        open_book(file)
