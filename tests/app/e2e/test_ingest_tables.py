"""Tables as people bring them, by the command: what it says, what it stores, and how it ends."""

import io
import json
import shlex
from pathlib import Path

import pytest
from PIL import Image

from app.bootstrap import build
from app.domain.entities import Content
from app.domain.names import Scope
from app.main import create_app
from app.services.catalogue.service import NewItem
from app.settings import Settings
from tests.app.e2e.conftest import LrbsInside
from tests.app.e2e.refusals import check_problem, client_of

LINES = [
    "id,image,text,label,size,price",
    "1,1.png,one,a,42,9.5",
    "2,2.png,two,b,43,10.5",
    "3,3.png,three,a,42,11",
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for number in range(1, 4):
        Image.new("RGB", (8, 8), (80 * number, 0, 0)).save(tmp_path / f"{number}.png")
    return write(tmp_path / "items.csv", *LINES)


def write(file: Path, *lines: str) -> Path:
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_numbers_are_found_and_compared_as_numbers(lrbs_inside: LrbsInside, table: Path) -> None:
    done = lrbs_inside("ingest", "table", str(table), "-c", "shop")
    assert done.stdout == "6 items stored in 'shop': 6 new, 0 changed, 0 unchanged\n"
    assert "taken as number: size, price" in done.stderr
    listed = lrbs_inside("items", "list", "shop", "--where", "size=42", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in listed] == ["image-1", "text-1", "image-3", "text-3"]
    shown = json.loads(lrbs_inside("items", "show", "shop", "image-3", "--json").stdout)
    assert shown["metadata"] == {"size": 42, "price": 11.0, "source": "3.png"}


def test_numbers_and_dates_in_ranges_are_refused_as_they_were_in_the_table(
    lrbs_inside: LrbsInside, tmp_path: Path
) -> None:
    file = write(tmp_path / "t.csv", "id;text;Price;day", "1;one;9,50;31.5.2024", "2;two;24,50;15.6.2024")
    assert "taken as date: day" in lrbs_inside("ingest", "table", str(file), "-c", "shop").stderr
    services = build(Settings(data_dir=tmp_path / "data", database_url=""))
    _, secret = services.access.create(Scope.ADMIN)
    bounds = {
        'day<"1.6.2024"': ({"day": {"lt": "1.6.2024"}}, "metadata.day.lt: expected 2024-06-01 for a date"),
        "Price<20,00": ({"Price": {"lt": "20,00"}}, "metadata.Price.lt: expected 20.00 for a number"),
    }
    with client_of(create_app(services), {"Authorization": f"Bearer {secret}"}) as client:
        items = "/v1/collections/shop/items"
        for condition, (metadata, message) in bounds.items():
            for command in ("list", "delete"):
                refused = lrbs_inside("items", command, "shop", "--where", condition)
                assert (refused.returncode, refused.stdout, message in refused.stderr) == (1, "", True)
            body = {"filter": {"metadata": metadata}}
            check_problem(client.get(items, params={"where": condition}), 422, f"where.all.0.{message}")
            check_problem(client.get(items, params={"filter": json.dumps(body["filter"])}), 422, message)
            check_problem(client.post(f"{items}:delete", json=body), 422, f"filter.{message}")
            check_problem(client.post("/v1/collections/shop/search/text-to-text", json=body), 422, message)
        typed = client.get(items, params={"filter": '{"metadata": {"Price": {"lt": "20"}}}'}).json()
        assert typed["notices"][0]["message"].endswith("; the values, which are numbers, are 9.5 and 24.5")
        assert len(client.get(items, params={"where": "day<2024-06-01"}).json()["items"]) == 1
        notices = client.get(items, params={"where": "Price!=24,99"}).json()["notices"]
        assert notices[0]["code"] == "filter-excludes-nothing"
    listed = lrbs_inside("items", "list", "shop", "--where", "Price!=24,99")
    assert len(listed.stdout.splitlines()) == 2
    assert listed.stderr.startswith(
        "a part of the filter leaves nothing out: no item has under 'Price' '24,99' (did you mean 24.99"
    )


def test_a_header_that_does_not_fit_is_answered_with_a_command_to_copy(
    lrbs_inside: LrbsInside, table: Path
) -> None:
    write(table, "sku,file,title,category,size,price", *LINES[1:])
    refused = lrbs_inside("ingest", "table", str(table), "-c", "shop")
    assert refused.returncode == 1
    (command,) = [line.strip() for line in refused.stderr.splitlines() if line.startswith("  lrbs ")]
    assert "error: " in refused.stderr
    done = lrbs_inside(*shlex.split(command)[1:])
    assert done.stdout.startswith("6 items stored in 'shop'"), done.stderr
    assert lrbs_inside("items", "show", "shop", "image-2", "--json").stdout.count('"labels":["b"]') == 1


def test_a_run_that_stores_nothing_leaves_no_collection(lrbs_inside: LrbsInside, table: Path) -> None:
    lines = ["id,image", *(f"{number},none-{number}.png" for number in range(305))]
    write(table, *lines)
    for options in ((), ("--strict",)):
        done = lrbs_inside("ingest", "table", str(table), "-c", "shop", *options)
        assert (done.returncode, done.stdout) == (1, "")
        assert lrbs_inside("collections", "list").stdout == ""
    done = lrbs_inside("ingest", "table", str(table), "-c", "shop")
    told = [line for line in done.stderr.splitlines() if line.startswith("refused: ")]
    reason = f"is not found in {table.parent}; --pictures names the folder in which the files are"
    assert told == [
        *(f"refused: items.csv, line {number + 2}, none-{number}.png: {reason}" for number in range(3)),
        f"refused: and 302 more (--json names them): {reason}",
    ]
    assert "nothing is stored in 'shop'; 305 refused" in done.stderr
    counted = json.loads(lrbs_inside("ingest", "table", str(table), "-c", "shop", "--json").stdout)
    assert [(each["reason"], each["count"]) for each in counted["reasons"]] == [(reason, 305)]
    assert len(counted["reasons"][0]["places"]) == 305


def test_a_repeated_id_is_named_with_both_lines(lrbs_inside: LrbsInside, table: Path) -> None:
    write(table, *LINES, "1,1.png,one,a,42,9.5", "2,2.png,other,b,43,10.5")
    done = lrbs_inside("ingest", "table", str(table), "-c", "shop")
    assert (done.returncode, done.stdout.split("; ")[1]) == (3, "3 refused\n")
    said = "another row before it has the id"
    assert f"line 5: {said} 'image-1': items.csv, line 2, which is the same" in done.stderr
    assert f"line 6: {said} 'text-2': items.csv, line 3, which differs" in done.stderr


def test_the_same_content_under_another_id_is_said(lrbs_inside: LrbsInside, table: Path) -> None:
    for number, word in ((1, "one"), (2, "two")):
        write(table.with_name(f"{number}.txt"), word)
    assert lrbs_inside("ingest", "folder", str(table.parent), "-c", "shop").returncode == 0
    done = lrbs_inside("ingest", "table", str(table), "-c", "shop")
    assert "5 of the new items have the content of one that was there under another id" in done.stderr
    assert "under another id" not in lrbs_inside("ingest", "table", str(table), "-c", "shop").stderr


def test_a_price_list_changes_what_is_stored(lrbs_inside: LrbsInside, table: Path) -> None:
    prices = write(
        table.with_name("prices.csv"), "id;price;label", "1;19,90 €;", "3;5,00 €;sale", "9;1,00 €;x"
    )
    refused = lrbs_inside("ingest", "table", str(prices), "-c", "shop")
    assert refused.returncode == 1
    assert "has neither a column of pictures nor one of texts, and there is no collection" in refused.stderr
    assert lrbs_inside("ingest", "table", str(table), "-c", "shop").returncode == 0
    done = lrbs_inside("ingest", "table", str(prices), "-c", "shop")
    assert (done.returncode, done.stdout) == (
        3,
        "4 items stored in 'shop': 0 new, 4 changed, 0 unchanged; 1 refused\n",
    )
    assert "taken as number: price (€, decimal comma)" in done.stderr
    assert (
        "prices.csv, line 4: it has no content, and there is no item of its id to change: '9'" in done.stderr
    )
    for item_id, price, labels in (
        ("image-1", 19.9, ["a"]),
        ("text-3", 5, ["sale"]),
        ("image-2", 10.5, ["b"]),
    ):
        shown = json.loads(lrbs_inside("items", "show", "shop", item_id, "--json").stdout)
        assert (shown["metadata"]["price"], shown["labels"]) == (price, labels)
        assert shown["metadata"]["size"] in (42, 43)
    assert "4 unchanged" in lrbs_inside("ingest", "table", str(prices), "-c", "shop").stdout
    lines = ['{"id": "image-1", "metadata": {"price": null, "new": true}}', '{"id": "gone", "labels": []}']
    done = lrbs_inside("ingest", "ndjson", str(write(prices, *lines)), "-c", "shop")
    assert done.stdout == "1 items stored in 'shop': 0 new, 1 changed, 0 unchanged; 1 refused\n"
    shown = json.loads(lrbs_inside("items", "show", "shop", "image-1", "--json").stdout)
    assert shown["metadata"] == {"size": 42, "source": "1.png", "new": True}


def test_what_a_table_has_no_longer_is_deleted_where_that_is_wanted(
    lrbs_inside: LrbsInside, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answer(io.StringIO):
        def readline(self, size: int | None = -1, /) -> str:  # meanwhile another item is stored
            services = build(Settings(data_dir=table.parent / "data", database_url=""))
            services.catalogue.add_items("shop", [NewItem("text", Content(text="late"), "late")])
            services.database.engine.dispose()
            return "y\n"

    def ingest(*options: str) -> tuple[int, str, str]:
        done = lrbs_inside("ingest", "table", str(table), "-c", "shop", *options)
        return done.returncode, done.stdout, done.stderr

    def listed() -> list[str]:
        lines = lrbs_inside("items", "list", "shop", "--json").stdout.splitlines()
        return [json.loads(line)["id"] for line in lines]

    assert ingest("--dry-run")[0] == ingest("--prune", "--json")[0] == 2
    assert ingest()[0] == 0
    before = listed()
    write(table, LINES[0], "1,none.png,one,a,42,9.5", "2,2.png,changed,b,43,10.5")
    assert "nothing is deleted: 1 rows are no items" in ingest("--prune", "--yes")[2]
    assert listed() == before
    (table.parent / "damaged.png").write_bytes(b"no picture")
    write(table, LINES[0], "4,damaged.png,one,a,42,9.5")
    assert "nothing is deleted: 1 rows are no items" in ingest("--prune", "--yes")[2]
    lrbs_inside("items", "delete", "shop", "text-4")
    assert listed() == before
    write(table, *LINES[:2], "2,2.png,again,b,43,10.5")
    status, said, noted = ingest("--prune", "--dry-run")
    assert (status, said) == (0, "")
    assert "2 items of 'shop' are gone from the source: image-3, text-3" in noted
    assert listed() == before
    assert ingest("--prune")[0] == 1  # asked, and not answered
    assert listed() == before
    monkeypatch.setattr("sys.stdin", Answer())
    assert "2 items deleted from 'shop'" in ingest("--prune")[2]
    assert listed() == ["image-1", "text-1", "image-2", "text-2", "late"]
    counted = json.loads(ingest("--prune", "--yes", "--json")[1])
    assert (counted["unchanged"], counted["deleted"]) == (4, 1)


def test_rows_that_only_change_items_keep_them(lrbs_inside: LrbsInside, table: Path) -> None:
    assert lrbs_inside("ingest", "table", str(table), "-c", "shop").returncode == 0
    prices = write(table.with_name("prices.csv"), "id,price", "1,19.9", "2,5")
    done = lrbs_inside("ingest", "table", str(prices), "-c", "shop", "--prune", "--yes")
    assert done.returncode == 0
    assert "2 items of 'shop' are gone from the source: image-3, text-3" in done.stderr
    listed = lrbs_inside("items", "list", "shop", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in listed] == ["image-1", "text-1", "image-2", "text-2"]
