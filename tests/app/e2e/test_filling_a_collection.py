"""A collection is made and filled in a browser, from a folder, a ZIP file and a table, then searched."""

import io
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import xlsxwriter
from PIL import Image, ImageDraw
from playwright.sync_api import Page, expect

from app.cli.sources.rows import identifier_of
from app.cli.sources.tables import TableColumns, open_table
from app.client import Client
from app.services.catalogue.preparation import NewItem
from tests.app.e2e.browsing import Watch, check_widths, drop, hold_first, wait_for_held, wait_for_images
from tests.app.phone_pictures import picture_of

pytestmark = pytest.mark.browser

NAME = "mine"
MARKUP = "<img src=x onerror=alert(1)>"
COLOURS = {"sea": "#2060c0", "wood": "#208030"}
N_PAIRS = 6


@pytest.fixture
def client(demo_server: str, demo_key: str) -> Iterator[Client]:
    with Client(demo_server, demo_key, patience=0.0) as client:
        yield client
        client.delete_collection(NAME)


def png(colour: str, number: int = 0) -> bytes:
    stored = io.BytesIO()
    image = Image.new("RGB", (32, 32), colour)
    ImageDraw.Draw(image).line((number, 0, 31, 31 - number), "white")
    image.save(stored, "PNG")
    return stored.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures beside their texts in folders of two classes; one picture is damaged."""
    root = tmp_path / "pictures"
    for kind, colour in COLOURS.items():
        (root / kind).mkdir(parents=True)
        for number in range(N_PAIRS):
            (root / kind / f"{number}.png").write_bytes(png(colour, number))
            (root / kind / f"{number}.txt").write_text(f"a {kind} number {number}", encoding="utf-8")
    (root / "sea" / f"{MARKUP}.txt").write_text(f"{MARKUP} at sea", encoding="utf-8")
    (root / "wood" / "damaged.png").write_bytes(png("red")[:40])
    (root / "wood" / "notes.odt").write_bytes(b"")
    (root / ".hidden").write_bytes(b"")
    return root


def test_a_newcomer_makes_a_collection_drops_a_folder_trains_and_searches(
    page: Page, demo_server: str, demo_key: str, client: Client, folder: Path
) -> None:
    page.goto(f"{demo_server}/collection")
    page.get_by_text("New collection", exact=True).press("Enter")
    sides = page.get_by_role("group", name="kind")
    expect(sides).to_have_count(2)
    expect(sides.first).to_contain_text("oriented gradients and colours")
    sides.nth(1).get_by_label("Encoder").select_option("onnx-text")
    expect(sides.nth(1).get_by_label("tokenizer_path")).to_be_visible()
    sides.nth(1).get_by_label("Encoder").select_option("tfidf")
    sides.first.get_by_label("Name").fill("photo")
    sides.nth(1).get_by_text("Options").click()
    sides.nth(1).get_by_label("ngrams").fill("1")
    page.locator("#new-name").fill("not a name")
    page.get_by_role("button", name="Create").click()
    page.get_by_label("This needs a key").fill(demo_key)
    page.get_by_role("button", name="Use key").click()
    expect(page.get_by_role("alert")).to_contain_text("not a name")
    page.locator("#new-name").fill(NAME)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_label("Collection", exact=True)).to_have_value(NAME)
    modalities = client.get_collection(NAME).modalities
    assert modalities["photo"].encoder["type"] == "hog-color"
    assert modalities["text"].encoder["ngrams"] == 1

    expect(page.get_by_text("Add items", exact=True)).to_be_focused()
    drop(page, "#drop", folder)
    expect(page.locator("#found")).to_have_text(
        "13 pictures · 13 texts · 1 other file (.odt), left out · 1 hidden file, left out"
    )
    expect(page.get_by_role("button", name="Add them")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#add-state")).to_have_text("25 new items, 0 changed, 0 unchanged; 1 refused")
    expect(page.locator("#refused-list li")).to_have_count(1)
    expect(page.locator("#refused-list")).to_contain_text("wood/damaged.png: is not a picture")
    expect(page.locator("#results-title")).to_have_text("12 “photo” items")
    stored = client.get_item(NAME, "photo-sea:0.png")
    assert (stored.labels, stored.pair_id, stored.train) == (["sea"], "sea:0", True)
    assert client.list_items(NAME, pair_id="sea:0", modality="text").items[0].text

    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.locator("#training-state")).to_contain_text("made version 1", timeout=120_000)
    page.get_by_role("link", name="Search").click()
    page.get_by_role("searchbox").fill("wood")
    expect(page.locator("#hits .labels").first).to_contain_text("wood")
    expect(page.locator("#hits .partner")).to_have_count(12)
    expect(page.locator("#hits .hit").filter(has_text="photo-sea:3.png")).to_contain_text("a sea number 3")
    page.get_by_role("radio", name="texts", exact=True).check()
    expect(page.locator("#results-title")).to_have_text("Texts like “wood”")
    expect(page.locator("#hits .partner img")).to_have_count(12)  # the text named by HTML has no partner
    assert page.locator("img[src=x]").count() == 0
    page.goto(f"{demo_server}/model?collection={NAME}")
    expect(page.locator("#remarks")).to_contain_text(
        "too few items are held out for figures, 2 of photo and 2 of text"
    )


def open_form(page: Page, client: Client, demo_server: str, demo_key: str) -> None:
    """Make a collection, and open the form that adds items to it."""
    client.create_collection(NAME, {"image": {"type": "hog-color"}, "text": {"type": "tfidf"}})
    page.goto(f"{demo_server}/collection?collection={NAME}")
    page.evaluate("key => sessionStorage.setItem('lrbs-key', key)", demo_key)
    page.get_by_text("Add items", exact=True).click()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stored.getvalue()


def use_files(page: Page, **files: bytes) -> None:
    page.locator("#add-files").set_input_files(
        [
            {"name": name.replace("_", "."), "mimeType": "application/octet-stream", "buffer": content}
            for name, content in files.items()
        ]
    )


def test_files_chosen_before_the_collections_are_known_wait_for_them(
    page: Page, watch: Watch, demo_server: str, client: Client
) -> None:
    client.create_collection(NAME, {"image": {"type": "hog-color"}, "text": {"type": "tfidf"}})
    held = hold_first(page, "**/v1/collections")
    page.goto(f"{demo_server}/collection?collection={NAME}")
    page.get_by_text("Add items", exact=True).click()
    use_files(page, table_csv=b"id,text\na,sea\n")
    page.wait_for_function("document.getElementById('add-files').files.length === 0")
    wait_for_held(page, held)
    expect(page.locator("#found")).to_be_hidden()
    held[0].continue_()
    expect(page.locator("#found")).to_have_text("table.csv with 1 row")
    expect(page.get_by_label("Texts", exact=True)).to_have_value("text")
    expect(page.get_by_role("button", name="Add them")).to_be_visible()
    assert watch.complaints == []


def test_a_zip_and_a_table_are_added_and_what_cannot_be_is_named(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client
) -> None:
    open_form(page, client, demo_server, demo_key)
    state, refused = page.locator("#add-state"), page.locator("#refused-list")

    # A table as a spreadsheet in German writes it.
    first = f'a;a.png;"ein; ""Grün"" {MARKUP}";x| y,z |x;1;Test'
    table = f"id;image;text;label;size;split\r\n{first}\r\nb;gone.png;blau;;2;train \r\nc;a.png\r\n"
    use_files(page, table_csv=table.encode("cp1252"), a_png=png("green"))
    expect(page.locator("#found")).to_have_text(
        "1 picture · table.csv with 3 rows · not in UTF-8: read as Windows-1252"
    )
    expect(page.get_by_label("Pictures or sounds")).to_have_value("image")
    page.get_by_label("Labels", exact=True).select_option("label")
    page.get_by_label("Several labels in a cell").select_option("|")
    expect(page.get_by_label("Split (train or test)")).to_have_value("split")
    page.get_by_role("button", name="Add them").click()
    expect(state).to_have_text("3 new items, 0 changed, 0 unchanged; 2 refused")
    expect(refused).to_contain_text("table.csv, line 3, gone.png: is not among the chosen files")
    expect(refused).to_contain_text("table.csv, line 4: has 2 cells, the header 6")
    item = client.get_item(NAME, "text-a")
    assert item.text == f'ein; "Grün" {MARKUP}'
    assert (item.labels, item.pair_id) == (["x", "y,z"], "a")
    assert (item.metadata, item.train) == ({"size": 1, "split": "test"}, False)
    item = client.get_item(NAME, "text-b")
    assert (item.labels, item.metadata, item.train) == ([], {"size": 2, "split": "train"}, True)
    page.get_by_role("radio", name="texts").check()
    expect(page.locator("#hits")).to_contain_text(f'ein; "Grün" {MARKUP}')

    bomb = bytes(65 << 20)
    small = zipped({"shop/sea/1.png": png("blue"), "shop/sea/1.txt": b"a sea", "shop/wood/big.txt": bomb})
    # A member that is larger than its entry says, whose end only its unpacking shows.
    lying = small.replace(len(bomb).to_bytes(4, "little"), (9).to_bytes(4, "little"))
    for archive, outcome in (
        (small, "2 new items, 0 changed, 0 unchanged; 1 refused"),
        (lying, "0 new items, 0 changed, 2 unchanged; 1 refused"),
    ):
        use_files(page, shop_zip=archive)
        expect(page.locator("#found")).to_have_text("1 picture · 2 texts")
        page.get_by_role("button", name="Add them").click()
        expect(state).to_have_text(outcome)
        expect(refused).to_have_text("wood/big.txt: is larger than 64 MiB")
    assert client.get_item(NAME, "image-sea:1.png").labels == ["sea"]

    flipped = zipped({"shop/a.txt": b"a sea", "shop/b.txt": b"wood"}, zipfile.ZIP_STORED).replace(
        b"a sea", b"a tea"
    )
    use_files(page, shop_zip=flipped)
    page.get_by_role("button", name="Add them").click()
    expect(state).to_have_text("1 new item, 0 changed, 0 unchanged; 1 refused")
    expect(refused).to_have_text("a.txt: is damaged")

    splits = {"train/Red.png": png("red"), "train/red.txt": b"a red", "valid/blue.txt": b"a blue", "._x": b""}
    use_files(page, splits_zip=zipped({f"mine/{name}": content for name, content in splits.items()}))
    expect(page.locator("#found")).to_have_text("1 picture · 2 texts · 1 hidden file, left out")
    expect(page.get_by_label("folders are splits (train: learned from; valid: held out)")).to_be_checked()
    page.get_by_role("button", name="Add them").click()
    expect(state).to_have_text("3 new items, 0 changed, 0 unchanged")
    red, blue = (client.get_item(NAME, f"text-{name}.txt") for name in ("train:red", "valid:blue"))
    assert (red.labels, red.train, red.pair_id) == (
        [],
        True,
        client.get_item(NAME, "image-train:Red.png").pair_id,
    )
    assert (blue.labels, blue.train, blue.metadata) == (
        [],
        False,
        {"source": "valid/blue.txt", "split": "test"},
    )

    use_files(page, shop_zip=small[:200])
    expect(page.get_by_role("alert")).to_contain_text("shop.zip is no ZIP file, or damaged")
    assert watch.complaints == []


def test_tables_as_people_write_them_and_a_price_list_are_added(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client
) -> None:
    open_form(page, client, demo_server, demo_key)
    state, refused, found = (page.locator(name) for name in ("#add-state", "#refused-list li", "#found"))

    for name, content, said in (
        ("items_xls", b"PK", "items.xls is a spreadsheet of another kind"),
        ("items_xlsx", b"PK", "items.xlsx is no ZIP file, or damaged"),
        ("items_xlsx", zipped({"1.jpg": b""}), "items.xlsx is no readable workbook"),
        ("items_xlsx", zipped({"xl/workbook.xml": b"<a"}), "items.xlsx is no readable workbook"),
    ):
        use_files(page, **{name: content})
        expect(page.get_by_role("alert")).to_contain_text(said)
    watch.complaints.clear()  # of the style that Chromium gives its own note in damaged XML
    use_files(page, items_tar=b"tar")
    expect(page.get_by_role("alert")).to_contain_text("items.tar is a tar file")
    expect(page.get_by_role("alert")).to_contain_text("lrbs ingest tar")

    lines = [
        "sep=;",
        "SKU;Foto;Beschreibung, kurz;Preis;seit;code;",
        'A 1;bilder\\1.PNG;"27 inch;9,50 €;1.2.2024;007;',
        ";;;;;;",
        'A 2;\u202aC:\\fotos\\2.png;"two',
        'lines";1.200,00 €;31.12.2024;008;',
        *(f"B{number};none{number}.png;;1,00 €;1.1.2024;009;" for number in range(4)),
        "A 1;1.png;again;1,00 €;1.1.2024;009;",
    ]
    pictures = {"bilder/1.png": png("red"), "bilder/2.png": png("blue")}
    table = "\r\n".join(lines).encode("utf-16")
    use_files(
        page, shop_zip=zipped({"shop/items.csv": table, **{f"shop/{n}": c for n, c in pictures.items()}})
    )
    expect(found).to_have_text(
        "2 pictures · items.csv with 7 rows · 1 empty rows, left out · "
        "quotes that do not pair, taken as signs of the text: line 3"
    )
    for label, value in (("Ids", "SKU"), ("Pictures or sounds", "Foto"), ("Texts", "Beschreibung, kurz")):
        expect(page.get_by_label(label, exact=True)).to_have_value(value)
    expect(page.get_by_label("numbers: Preis (€); dates: seit")).to_be_checked()
    page.get_by_role("button", name="Add them").click()
    expect(state).to_have_text("4 new items, 0 changed, 0 unchanged; 6 refused")
    expect(refused).to_have_count(3)
    expect(refused.first).to_contain_text(
        "4 rows: is not among the chosen files: items.csv, line 7, none0.png;"
    )
    expect(refused.nth(1)).to_contain_text("of items.csv, line 3, bilder\\1.PNG, which differs")
    stored = client.list_items(NAME, modality="text").items
    assert [(item.text, item.metadata) for item in stored] == [
        ('"27 inch', {"SKU": "A 1", "Preis": 9.5, "seit": "2024-02-01", "code": "007"}),
        ("two\r\nlines", {"SKU": "A 2", "Preis": 1200, "seit": "2024-12-31", "code": "008"}),
    ]

    kilos = "".join(f"A {number},{number}.5\n" for number in range(3, 8))
    use_files(page, weights_csv=f"sku,kilos\nA 1,light\n{kilos}".encode())
    expect(page.get_by_text("kilos is text: “light” is no number, as most cells are")).to_be_visible()

    use_files(page, days_csv=b"sku,day\nA 1,1.2.2024\nA 2,3/4/2024\n")
    expect(page.get_by_text("day is text: day or month may come first")).to_be_visible()

    # Found by its id, whatever its pair.
    client.create_items(NAME, [{"id": "text-other", "modality": "text", "text": "a", "pair_id": "p"}])
    use_files(page, prices_csv=b"sku,Preis,label\nA 1,$8,sale\nA 2,$1,\nA 3,$2,\nother,$3,\n")
    expect(page.get_by_label("Pictures or sounds")).to_have_value("")
    page.get_by_role("button", name="Add them").click()
    expect(state).to_have_text("0 new items, 5 changed, 0 unchanged; 1 refused")
    expect(refused).to_have_text(
        "prices.csv, line 4: has neither a file nor a text, and there is no item of its id to change"
    )
    changed = client.list_items(NAME, modality="text").items
    assert [(item.labels, item.metadata) for item in changed] == [
        (["sale"], {**stored[0].metadata, "Preis": 8}),
        ([], {**stored[1].metadata, "Preis": 1}),
        ([], {"Preis": 3}),
    ]

    # With a comma as delimiter, too, each row has two cells, but not the header.
    use_files(page, prices_csv=b"id;Preis\nother;45,76\nA 1;9,50\n")
    expect(found).to_have_text("prices.csv with 2 rows")
    expect(page.get_by_label("numbers: Preis")).to_be_checked()
    page.get_by_role("button", name="Add them").click()
    expect(state).to_have_text("0 new items, 3 changed, 0 unchanged")
    assert client.get_item(NAME, "text-other").metadata == {"Preis": 45.76}
    found_by_id = client.list_items(NAME, item_id=["text-other", "none"], modality="text").items
    assert [item.id for item in found_by_id] == ["text-other"]
    assert client.list_items(NAME, item_id=["text-other"], label=["sale"]).items == []
    assert watch.complaints == []


def test_rows_without_ids_take_the_place_of_no_others_and_have_the_ids_of_the_command(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client, tmp_path: Path
) -> None:
    open_form(page, client, demo_server, demo_key)
    (tmp_path / "1.png").write_bytes(picture := png("red"))
    file, ids = tmp_path / "items.csv", set[str]()
    lines = [
        ",image,text,price",
        "0,1.png,ein grünes,9",
        "1,,cafe\u0301 ,8",
        "2,,words,7",
        "3,,words,7",
        "4,,,6",
        "5,,blanks \ufeff\x1f,8",
        "6,gone.png,alone,8",
    ]
    moved = ["Nr,image,text,price", "1,,more words,5", "2,1.png,ein grünes,4"]
    moved += [f"{number}{lines[number - 1][1:]}" for number in (3, 4, 5)]
    for rows, said in (
        (lines, "7 new items, 0 changed, 0 unchanged; 2 refused"),
        ([lines[0], "0,,other words,1"], "1 new item, 0 changed, 0 unchanged"),
        (moved, "1 new item, 2 changed, 3 unchanged"),
    ):
        file.write_text("\n".join(rows), encoding="utf-8")
        use_files(page, items_csv=file.read_bytes(), **{"1_png": picture})
        expect(page.get_by_label("Ids", exact=True)).to_have_value("")
        page.get_by_role("button", name="Add them").click()
        expect(page.locator("#add-state")).to_have_text(said)
        table = open_table(file, TableColumns(), ("image", "text"), ("picture", "text"))
        ids |= {row.id for row in table.rows() if isinstance(row, NewItem) and row.id}
        assert {item.id for item in client.iter_items(NAME)} == ids
    assert {item.metadata["price"] for item in client.iter_items(NAME)} == {1, 4, 5, 7, 8}
    # No card shows the file of an item as if the table had such a column.
    expect(page.locator("#hits .hit")).to_have_count(1)
    expect(page.locator("#hits .fact")).to_have_text(["price: 4"])
    assert watch.complaints == []


def write_workbook(file: Path) -> None:
    """Write prices below a title, and what spreadsheets have that a text file has not."""
    with xlsxwriter.Workbook(str(file)) as book:
        book.add_worksheet("empty")
        sheet = book.add_worksheet("shop")
        formats = {
            code: book.add_format({"num_format": code})
            for code in ("0000", "dd/mm/yy", "yyyy-mm-dd hh:mm", "0.00_d", "00000;-00000", "0;-0")
        }
        sheet.write(0, 0, "Our spring list")
        sheet.write_row(
            2,
            0,
            ["image", "text", "price", "shelf", "since", "changed", "remark", "sold", "mixed", "zip", "gain"],
        )
        for number, price in enumerate((9.5, 1.234, 1200, 7)):
            line = 3 + number
            sheet.write_row(line, 0, [f"{number}.png" if number < 2 else "", f"thing <{number}> & more"])
            sheet.write(line, 2, price, formats["0.00_d"])  # beside a gap as wide as a letter
            sheet.write(line, 3, 7 + number // 2, formats["0000"])
            sheet.write_datetime(line, 4, datetime(2024, 2, 1 + number), formats["dd/mm/yy"])
            sheet.write_datetime(line, 5, datetime(2024, 2, 1, 10, 30, number), formats["yyyy-mm-dd hh:mm"])
            sheet.write_boolean(line, 7, number % 2 == 0)
            sheet.write(line, 8, f"note {number}" if number else 0.1 + 0.2)
            sheet.write(line, 9, (4109, -7, 0, -12345)[number], formats["00000;-00000"])
            sheet.write(line, 10, (1, -7, 0, -0.5)[number], formats["0;-0"])
        sheet.merge_range(3, 6, 4, 6, "red thing")
        sheet.write_rich_string(5, 6, "blue ", book.add_format({"bold": True}), "thing")
        sheet.write_formula(6, 6, '="green"', None, "green")
        sheet.write_blank(20, 0, None, formats["0000"])


def test_a_workbook_is_added_as_by_the_command(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client, tmp_path: Path
) -> None:
    open_form(page, client, demo_server, demo_key)
    pictures = {f"{number}.png": png("red", number) for number in range(2)}
    for name, content in pictures.items():
        (tmp_path / name).write_bytes(content)
    write_workbook(tmp_path / "shop.xlsx")
    page.locator("#add-files").set_input_files([tmp_path / name for name in ("shop.xlsx", *pictures)])
    expect(page.locator("#found")).to_have_text(
        "2 pictures · shop.xlsx with 4 rows · 1 rows before the header, left out · "
        "sheet “shop” is read, not “empty”"
    )
    page.get_by_role("button", name="Add them").click()
    expect(page.locator("#add-state")).to_have_text("6 new items, 0 changed, 0 unchanged")
    table = open_table(tmp_path / "shop.xlsx", TableColumns(), ("image", "text"), ("picture", "text"))
    rows = {row.id: row for row in table.rows() if isinstance(row, NewItem)}
    items = {item.id: item for item in client.iter_items(NAME)}
    assert items.keys() == rows.keys()
    for item_id, item in items.items():
        row = rows[item_id]
        assert (item.text, item.pair_id) == (row.content.text, row.pair_id)
        assert item.metadata == {
            key: str(v).upper() if key == "sold" else v for key, v in row.metadata.items()
        }
    assert watch.complaints == []


def test_pictures_of_phones_cameras_and_scanners_are_added_and_shown(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client, tmp_path: Path
) -> None:
    open_form(page, client, demo_server, demo_key)
    forms = {
        "phone_jpg": "MPO",
        "apple_HEIC": "HEIF",
        "scan_tif": "TIFF",
        "new_avif": "AVIF",
        "old_jp2": "JPEG2000",
    }
    use_files(page, **{name: picture_of(form, (20, 160, 40)) for name, form in forms.items()})
    expect(page.locator("#found")).to_have_text("5 pictures")
    page.get_by_role("button", name="Add them").click()
    expect(page.locator("#add-state")).to_have_text("5 new items, 0 changed, 0 unchanged")
    shown = page.locator("#hits img")
    expect(shown).to_have_count(5)
    for with_key in (True, False):
        if not with_key:  # the <img> itself asks
            page.evaluate("sessionStorage.clear()")
            page.reload()
            expect(shown).to_have_count(5)
        assert set(wait_for_images(page, "#hits img")) <= {24, 32}
    assert watch.complaints == []


def test_nothing_is_wider_than_the_window(page: Page, demo_server: str) -> None:
    page.goto(f"{demo_server}/collection")
    page.get_by_text("New collection", exact=True).click()
    page.get_by_text("Add items", exact=True).click()
    expect(page.get_by_role("group", name="kind")).to_have_count(2)
    use_files(page, a_csv=b"id,a_long_name_of_a_column_for_the_texts\n1,b\n")
    expect(page.get_by_label("Labels", exact=True)).to_be_visible()
    check_widths(page)


def test_files_of_an_unpacked_tar_get_the_ids_of_the_commands_and_their_labels(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client
) -> None:
    open_form(page, client, demo_server, demo_key)
    name = f"caf\u00e9 {'long ' * 20}"
    files = {f"{name}.png": png("red"), f"{name}.txt": b"a red", f"{name}.cls": b"Bags\r\n red \n\n"}
    use_files(page, shop_zip=zipped(files))
    expect(page.locator("#found")).to_have_text("1 picture \u00b7 1 text")
    page.get_by_role("button", name="Add them").click()
    expect(page.locator("#add-state")).to_have_text("2 new items, 0 changed, 0 unchanged")
    for modality, ending in (("image", "png"), ("text", "txt")):
        item = client.get_item(NAME, f"{modality}-{identifier_of(f'{name}.{ending}')}")
        assert (item.labels, item.pair_id) == (["Bags", "red"], identifier_of(name))
    page.reload()
    expect(page.locator("#results-title")).to_have_text("1 picture")
    assert watch.complaints == []
