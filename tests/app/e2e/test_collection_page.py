"""The page of a collection, in a browser: its items, their labels, their deletion."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from app.client import Client, NotFoundError
from tests.app.e2e.browsing import Watch, check_widths, drop
from tests.app.e2e.refusals import png
from tests.app.sounds import tone
from tests.conftest import import_extra

pytestmark = pytest.mark.browser

NAME = "shelf"
MARKUP = "<img src=x onerror=alert(1)>"
N_TEXTS = 50
DURATION = """player => new Promise((resolve, reject) => {
  player.addEventListener("loadedmetadata", () => resolve(player.duration));
  player.addEventListener("error", () => reject(player.error.message));
  player.load();
  player.preload = "metadata";
})"""
"""Load a sound and return its seconds."""
TOP = "element => element.getBoundingClientRect().top"


@pytest.fixture
def shelf(client: Client) -> Iterator[str]:
    """A collection without a model, whose texts and labels are HTML."""
    client.create_collection(NAME, {"image": {"type": "hog-color"}, "text": {"type": "tfidf"}})
    items: list[dict[str, Any]] = [
        {"id": f"t{n:02d}", "modality": "text", "text": f"{MARKUP} number {n}", "labels": [MARKUP]}
        for n in range(N_TEXTS)
    ]
    client.create_items(NAME, items)
    yield f"/collection?collection={NAME}&modality=text"
    client.delete_collection(NAME)


def card_of(page: Page, item_id: str) -> Locator:
    return page.locator("#hits > li").filter(has=page.locator(f".hit[data-id='{item_id}']"))


def download(page: Page, button: str) -> list[str]:
    """Download items; return their ids."""
    with page.expect_download() as downloading:
        page.get_by_role("button", name=button).click()
    assert downloading.value.suggested_filename == f"{NAME}.ndjson"
    lines = Path(downloading.value.path()).read_text("utf-8").splitlines()
    return [json.loads(line)["id"] for line in lines]


def test_items_are_shown_page_by_page_and_as_text(
    page: Page, watch: Watch, demo_server: str, shelf: str, client: Client
) -> None:
    page.goto(f"{demo_server}{shelf}")
    expect(page.locator("#hits > li")).to_have_count(48)
    expect(page.locator("#results-title")).to_have_text(f"{N_TEXTS} texts")
    expect(card_of(page, "t00")).to_contain_text(f"{MARKUP} number 0")
    expect(card_of(page, "t00").locator(".labels")).to_have_text(MARKUP)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#hits > li")).to_have_count(N_TEXTS)
    expect(page.get_by_role("button", name="Show more")).to_be_hidden()
    page.get_by_role("radio", name="pictures").check()
    expect(page.locator("#results-title")).to_have_text("0 pictures")
    page.go_back()
    expect(page.locator("#results-title")).to_have_text(f"{N_TEXTS} texts")
    page.get_by_label("Collection", exact=True).select_option("sample")
    expect(page.locator("#hits .hit-picture img").first).to_be_visible()
    page.get_by_text("Filters", exact=True).click()
    choice = page.get_by_role("group", name="Label", exact=True).get_by_role("button").first
    label, count = choice.locator("span").all_inner_texts()
    choice.click()
    expect(page.locator("#hits > li")).to_have_count(int(count))
    expect(page.locator("#hits .labels")).to_contain_text([label] * int(count))
    page.get_by_role("group", name="split").get_by_role("button", name="test").click()
    expect(page.get_by_role("button", name="Remove the filter split: test")).to_be_visible()
    expect(page.locator("#hits .fact", has_text="split: train")).to_have_count(0)
    listed = client.iter_items("sample", modality="image", label=[label], where=['split="test"'], limit=100)
    n_left = len(list(listed))
    assert 0 < n_left < int(count)
    expect(page.locator("#hits > li")).to_have_count(n_left)
    page.reload()
    expect(page.locator("#hits > li")).to_have_count(n_left)
    page.get_by_role("button", name=f"Remove the filter {label}").click()
    page.get_by_role("button", name="Remove the filter split: test").click()
    expect(page.locator("#hits > li")).to_have_count(48)
    page.get_by_text("Map", exact=True).press("Enter")
    items = client.get_collection("sample").items
    assert items is not None
    points = {name: min(count, 300) for name, count in items.items()}
    expect(page.locator("#map-drawing circle")).to_have_count(points["image"])
    expect(page.locator("#map-drawing rect")).to_have_count(points["text"])
    expect(page.locator("#map-title")).to_contain_text(f"{sum(points.values())} items")
    page.get_by_text("As a table", exact=True).press("Enter")
    page.get_by_role("link", name="image-cats-000", exact=True).press("Enter")
    expect(page.locator("#results-title")).to_have_text("Texts for this picture")
    expect(page.locator("#hits > li").first).to_be_visible()
    assert watch.complaints == []


def test_what_passes_the_filters_is_relabelled_and_deleted_once_it_was_counted(
    page: Page, watch: Watch, demo_server: str, demo_key: str, shelf: str, client: Client
) -> None:
    client.update_items(NAME, filter={"ids": [f"t{n:02d}" for n in range(7)]}, add_labels=["seven"])
    page.goto(f"{demo_server}{shelf}")
    page.evaluate("key => sessionStorage.setItem('lrbs-key', key)", demo_key)
    delete, said = page.get_by_role("button", name="Delete all that pass"), page.locator("#bulk-said")
    expect(page.locator("#results-title")).to_have_text(f"{N_TEXTS} texts")
    expect(delete).to_be_hidden()
    assert download(page, "Download all") == [f"t{n:02d}" for n in range(N_TEXTS)]
    page.goto(f"{demo_server}{shelf}&label=seven")
    expect(page.locator("#hits > li")).to_have_count(7)
    assert download(page, "Download what passes") == [f"t{n:02d}" for n in range(7)]
    page.get_by_role("button", name="Change all that pass").click()
    page.get_by_label("Add labels, one a line").fill("new\n")
    held: list[Route] = []
    page.route("**/items:update", lambda route: held.append(route), times=1)
    with page.expect_request("**/items:update"):
        page.get_by_role("button", name="Count them").click()
    page.get_by_label("Add labels, one a line").fill("newer")  # before the answer is there
    with page.expect_response("**/items:update"):
        held[0].continue_()
    page.evaluate("new Promise((go) => setTimeout(go, 50))")
    expect(said).to_have_text("")
    page.get_by_label("Add labels, one a line").fill("new")
    page.get_by_role("button", name="Count them").click()
    expect(said).to_have_text("7 of 7 texts would change.")
    assert "new" not in client.get_item(NAME, "t00").labels
    page.get_by_role("button", name="Change 7").click()
    expect(page.locator("#status")).to_have_text("7 texts were changed")
    expect(page.get_by_text("7 texts were changed").and_(page.locator("#bulk-done"))).to_be_visible()
    expect(page.locator("#hits .labels").first).to_contain_text("new")
    expect(page.locator("#results-title")).to_have_text(f"7 of {N_TEXTS} texts")
    page.get_by_role("button", name="Change all that pass").click()
    page.get_by_label("Metadata, one a line").fill("price: 42\ntime : 10:30\nkey\ncode: 1e999")
    page.get_by_role("button", name="Count them").click()
    page.get_by_role("button", name="Change 7").click()
    expect(page.locator("#hits .labels").first).to_contain_text("time: 10:30")
    metadata = client.get_item(NAME, "t00").metadata
    assert metadata == {"price": 42, "time": "10:30", "code": "1e999"}
    page.get_by_role("button", name="Change all that pass").click()
    page.get_by_label("Metadata, one a line").fill("price\ntime:\ncode")
    page.get_by_role("button", name="Count them").click()
    page.get_by_role("button", name="Change 7").click()
    expect(page.locator("#hits .labels").first).not_to_contain_text("time")
    assert client.get_item(NAME, "t00").metadata == {}
    client.update_items(NAME, filter={"ids": ["t49"]}, metadata={"price": -5})  # not shown
    page.get_by_role("button", name="Change all that pass").click()
    page.get_by_label("Metadata, one a line").fill("price: cheap\nsize: 1,5")
    page.get_by_role("button", name="Count them").click()
    expect(page.get_by_role("alert")).to_contain_text("numbers as “price”, and “cheap” cannot be read as one")
    page.get_by_label("Metadata, one a line").fill("price: 9,99 €\nsize: 1,5")
    page.get_by_role("button", name="Count them").click()
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("button", name="Change 7").click()
    expect(page.locator("#hits .labels").first).to_contain_text("price: 9.99")
    assert client.get_item(NAME, "t00").metadata == {"price": 9.99, "size": "1,5"}
    delete.click()
    expect(said).to_have_text("Delete 7 texts for good?")
    page.get_by_role("button", name="Keep them as they are").click()
    expect(delete).to_be_focused()
    delete.click()
    expect(said).to_have_text("Delete 7 texts for good?")
    client.put_labels(NAME, "t07", ["seven"])  # in the meantime
    page.get_by_role("button", name="Delete 7", exact=True).click()
    expect(said).to_have_text("Delete 8 texts for good?")
    assert len(list(client.iter_items(NAME))) == N_TEXTS
    page.get_by_role("button", name="Delete 8", exact=True).click()
    expect(page.locator("#results-title")).to_have_text(f"0 of {N_TEXTS - 8} texts")
    expect(page.locator("#nothing")).to_be_visible()
    expect(page.locator("#bulk-done")).to_have_text("8 texts were deleted")
    page.get_by_role("button", name="Remove the filter seven").click()
    expect(page.locator("#results-title")).to_have_text(f"{N_TEXTS - 8} texts")
    expect(page.locator("#bulk-done")).to_be_hidden()
    assert len(list(client.iter_items(NAME))) == N_TEXTS - 8
    assert watch.complaints == []


def test_an_untrained_collection_is_filtered_and_items_go_with_the_partners_they_would_leave_alone(
    page: Page, watch: Watch, demo_server: str, demo_key: str, shelf: str, client: Client
) -> None:
    # The text of "b" has another picture, which stays; of "c" there are too many for partners.
    sizes = {"a": (1, 2), "b": (2, 1), "c": (1, 17)}
    for pair, numbers in sizes.items():
        for side, number in zip(("image", "text"), numbers, strict=True):
            facts = [{"id": f"{side}-{pair}{n}", "modality": side, "pair_id": pair} for n in range(number)]
            contents = [{"picture": png(32, 32)} if side == "image" else {"text": pair} for _ in facts]
            labels = [["one"] if side == "image" and n == 0 else ["other"] for n in range(number)]
            client.create_items(
                NAME,
                [
                    {**fact, **content, "labels": of_item}
                    for fact, content, of_item in zip(facts, contents, labels, strict=True)
                ],
            )
    page.goto(f"{demo_server}/collection?collection={NAME}&modality=image")
    page.evaluate("key => sessionStorage.setItem('lrbs-key', key)", demo_key)
    expect(page.get_by_role("link", name="Train it")).to_have_attribute("href", f"models?collection={NAME}")
    page.locator("#map > summary").press("Enter")  # a click may miss what moves as pictures come
    expect(page.locator("#map-title")).to_contain_text("items in the common space")
    page.locator("#map > summary").press("Enter")  # a click may miss what moves as pictures come
    page.get_by_text("Filters", exact=True).click()
    tops = [page.locator("#hits").evaluate(TOP)]
    page.get_by_role("button", name=re.compile("^one ?3$")).click()
    delete, said = page.get_by_role("button", name="Delete all that pass"), page.locator("#bulk-said")
    expect(delete).to_be_visible()
    expect(page.locator("#results-title")).to_have_text("3 of 4 pictures")
    tops.append(page.locator("#hits").evaluate(TOP))
    delete.click()
    expect(said).to_have_text("Delete 3 pictures for good? Partners among the texts stay.")
    page.get_by_label("Also the texts that would be left without a partner").check()
    expect(said).to_have_text("Delete 3 pictures and 2 texts for good?")
    page.get_by_role("button", name="Delete 5", exact=True).click()
    expect(page.locator("#bulk-done")).to_have_text("3 pictures and 2 texts were deleted")
    left = {item.id for item in client.iter_items(NAME)} - {f"t{n:02d}" for n in range(N_TEXTS)}
    assert left == {"image-b1", "text-b0", *(f"text-c{n}" for n in range(17))}
    page.get_by_role("button", name="Remove the filter one").click()
    expect(page.locator("#results-title")).to_have_text("1 picture")
    assert len(set(tops)) == 1
    assert watch.complaints == []


def test_without_a_collection_the_pages_lead_to_where_one_is_made(page: Page, demo_server: str) -> None:
    page.route("**/v1/collections", lambda route: route.fulfill(json={"collections": []}))
    for path in ("/", "/models"):
        page.goto(f"{demo_server}{path}")
        expect(page.get_by_role("alert")).to_contain_text("Make one on the page “Collection”")
        page.get_by_role("link", name="Collection", exact=True).click()
        expect(page.get_by_role("group", name="kind")).to_have_count(2)


def test_labels_are_changed_and_items_deleted_with_a_key_that_is_asked_for_once(
    page: Page, demo_server: str, demo_key: str, shelf: str, client: Client
) -> None:
    page.goto(f"{demo_server}{shelf}")
    page.get_by_role("button", name="Change the labels of t00").press("Enter")
    check_widths(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    box = page.get_by_label("Labels of t00, one a line")
    expect(box).to_be_focused()
    expect(box).to_have_value(MARKUP)
    box.fill(f"red\n {MARKUP} \n\nred")
    page.get_by_role("button", name="Save").click()
    page.get_by_label("This needs a key").fill(demo_key)
    page.get_by_role("button", name="Use key").click()
    expect(page.locator("#status")).to_contain_text("Stored: the labels of t00")
    expect(card_of(page, "t00").locator(".labels span")).to_have_text(["red", MARKUP])
    expect(page.get_by_role("button", name="Change the labels of t00")).to_be_focused()
    item = client.get_item(NAME, "t00")
    assert (item.labels, item.text) == (["red", MARKUP], f"{MARKUP} number 0")

    delete = page.get_by_role("button", name="Delete t00")
    delete.click()
    page.get_by_role("button", name="Keep").press("Enter")
    expect(delete).to_be_focused()
    assert client.get_item(NAME, "t00") == item
    delete.click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(card_of(page, "t00")).to_have_count(0)
    expect(page.get_by_role("button", name="Delete t01")).to_be_focused()
    with pytest.raises(NotFoundError):
        client.get_item(NAME, "t00")
    expect(page.locator("#results-title")).to_have_text(f"{N_TEXTS - 1} texts")

    client.delete_item(NAME, "t01")  # by somebody else
    page.get_by_role("button", name="Delete t01").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(card_of(page, "t01")).to_have_count(0)
    expect(page.locator("#results-title")).to_have_text(f"{N_TEXTS - 2} texts")
    expect(page.get_by_role("alert")).to_be_hidden()


@pytest.fixture
def calls(client: Client) -> Iterator[str]:
    """A trained collection of sounds and texts."""
    import_extra("soundfile")
    client.create_collection("calls", {"sound": {"type": "mfcc"}, "text": {"type": "tfidf"}})
    items: list[dict[str, Any]] = []
    for number in range(8):
        name = ("low", "high")[number % 2]
        sound = tone(300 + 3000 * (number % 2) + 10 * number)
        items.append({"id": f"s{number}", "modality": "sound", "sound": sound, "labels": [name]})
        items.append({"id": f"t{number}", "modality": "text", "text": f"a {name} tone", "labels": [name]})
    client.create_items("calls", items)
    job = client.retrain("calls", method="lrbs", alpha=0.001, scaling="l2")
    assert client.wait_for_job(job.id).state == "succeeded"
    yield "calls"
    client.delete_collection("calls")


def test_sounds_can_be_dropped_played_searched_for_and_searched_with(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client, calls: str, tmp_path: Path
) -> None:
    page.goto(f"{demo_server}/collection?collection={calls}&modality=sound")
    page.evaluate("key => sessionStorage.setItem('lrbs-key', key)", demo_key)
    player = card_of(page, "s3").locator("audio")
    expect(player).to_have_attribute("aria-label", "Sound s3")
    assert player.evaluate(DURATION) == pytest.approx(0.1)
    expect(page.locator("#hits img")).to_have_count(0)

    folder = tmp_path / "calls" / "low"
    folder.mkdir(parents=True)
    (folder / "owl.wav").write_bytes(tone(310, 0.2))
    (folder / "owl.txt").write_text("a low tone")
    (folder / "broken.wav").write_bytes(tone(310)[:50])
    page.get_by_text("Add items", exact=True).click()
    drop(page, "#drop", folder.parent)
    expect(page.locator("#found")).to_have_text("2 sounds · 1 text")
    page.get_by_role("button", name="Add them").click()
    expect(page.locator("#add-state")).to_have_text("2 new items, 0 changed, 0 unchanged; 1 refused")
    expect(page.locator("#refused-list")).to_contain_text("broken.wav")
    owl = card_of(page, "sound-low:owl.wav")
    assert owl.locator("audio").evaluate(DURATION) == pytest.approx(0.2)

    page.goto(f"{demo_server}/?collection={calls}")
    expect(page.locator("#offers")).to_contain_text("The items of “sound” are sounds: query with your own")
    expect(page.locator(".stored button")).to_have_count(2)
    page.get_by_role("searchbox").fill("a high tone")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#results-title")).to_have_text("“sound” items for “a high tone”")
    expect(page.locator("#hits audio")).to_have_count(9)  # with the one that was dropped
    expect(page.locator("#hits .hit-text").first).to_have_text(re.compile("s[1357]"))
    assert page.locator("#hits audio").first.evaluate(DURATION) == pytest.approx(0.1)
    page.locator("#hits button.hit").first.click()
    expect(page.locator("#results-title")).to_have_text(re.compile("^Texts for “s[1357]”$"))
    expect(page.locator("#hits .hit-text").first).to_have_text("a high tone")
    page.reload()
    expect(page.locator("#results-title")).to_have_text(re.compile("^Texts for “s[1357]”$"))

    client.create_items(
        calls,
        [{"id": "rare", "modality": "text", "text": "a rare tone", "labels": [f"l{n}" for n in range(60)]}],
    )
    page.goto(f"{demo_server}/collection?collection={calls}&modality=text")
    page.get_by_text("Filters", exact=True).click()
    group = page.get_by_role("group", name="Label", exact=True)
    expect(group.get_by_role("button", name="l59")).to_have_count(0)  # of fifty that are listed
    other = group.get_by_label("Another value of Label")
    other.fill(" l59 ")
    other.press("Enter")
    expect(page.locator("#hits > li")).to_have_count(1)
    expect(card_of(page, "rare")).to_be_visible()
    page.get_by_role("button", name="Remove the filter l59").click()
    expect(page.locator("#hits > li")).to_have_count(10)
    (complaint,) = watch.complaints  # the browser's own about the answer to the damaged file
    assert "422" in complaint
