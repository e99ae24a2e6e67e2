import io
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from app.client import Client
from tests.app.e2e.browsing import (
    Watch,
    check_widths,
    drop,
    hold_first,
    visit,
    wait_for_held,
    wait_for_images,
)
from tests.app.phone_pictures import picture_of

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def opened(page: Page, watch: Watch, demo_server: str) -> Page:
    page.goto(demo_server)
    expect(text_box(page)).to_be_visible()
    return page


@pytest.fixture
def picture() -> bytes:
    stored = io.BytesIO()
    image = Image.linear_gradient("L").convert("RGB")
    image.save(stored, "PNG")
    return stored.getvalue()


@pytest.fixture
def empty_collection(demo_server: str, demo_key: str) -> Iterator[str]:
    name = "untrained"
    with Client(demo_server, demo_key, patience=0.0) as client:
        client.create_collection(name, {"image": {"type": "hog-color"}, "text": {"type": "tfidf"}})
        yield name
        client.delete_collection(name)


def text_box(page: Page) -> Locator:
    return page.get_by_role("searchbox")


def file_input(page: Page) -> Locator:
    return page.locator("input[type=file]")


def search_text(page: Page, text: str) -> None:
    text_box(page).fill(text)
    text_box(page).press("Enter")


def choose_picture(page: Page, content: bytes) -> None:
    expect(page.get_by_role("search")).to_be_visible()
    file_input(page).set_input_files({"name": "mine.png", "mimeType": "image/png", "buffer": content})


def clear(page: Page) -> None:
    page.get_by_role("button", name="Clear", exact=True).click()
    expect(page.locator("#parts li")).to_have_count(0)


def scores(page: Page) -> list[float]:
    return [float(text) for text in page.locator(".hit-score").all_inner_texts()]


def wait_for_pictures(page: Page) -> None:
    expect(page.locator("#hits .hit-picture img").first).to_be_visible()
    wait_for_images(page, "#hits img")


def test_a_text_finds_pictures_in_descending_order_and_more_as_one_scrolls(
    opened: Page, watch: Watch, demo_server: str
) -> None:
    search_text(opened, f"{MARKUP} boats")
    wait_for_pictures(opened)
    expect(opened.locator("#results-title")).to_contain_text(f"{MARKUP} boats")
    search_text(opened, "boats on the sea")
    expect(opened.locator("#results-title")).to_have_text("Pictures for “boats on the sea”")
    wait_for_pictures(opened)
    first, found = shown_ids(opened), scores(opened)
    assert opened.locator("#hits .hit-picture img").count() == len(found) == len(first) == 24
    assert found == sorted(found, reverse=True)
    opened.mouse.wheel(0, 10_000)
    expect(opened.locator("#hits > li").nth(24)).to_be_attached()
    more, found = shown_ids(opened), scores(opened)
    assert more[:24] == first
    assert len(set(more)) == len(more)
    assert found == sorted(found, reverse=True)
    assert watch.complaints == []
    assert watch.hosts == {urlsplit(demo_server).netloc}


def test_a_chosen_picture_finds_texts_and_is_shown(
    opened: Page, watch: Watch, picture: bytes, demo_server: str
) -> None:
    choose_picture(opened, picture)
    expect(opened.locator("#hits .hit-text").first).not_to_be_empty()
    expect(opened.locator("#hits .hit > .hit-picture")).to_have_count(0)  # those of partners are in .partner
    found = scores(opened)
    assert found == sorted(found, reverse=True)
    assert wait_for_images(opened, ".preview") == [256]
    clear(opened)
    choose_picture(opened, picture_of("TIFF", (20, 60, 200)))  # which browsers do not show
    expect(opened.locator("#parts")).to_contain_text("mine.png")
    expect(opened.locator(".preview")).to_be_hidden()
    expect(opened.locator("#results-title")).to_have_text("Texts for this picture")
    expect(opened.get_by_role("alert")).to_be_hidden()
    assert watch.complaints == []
    assert watch.hosts == {urlsplit(demo_server).netloc}


_COPY = """
async () => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 64;
  const picture = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
}
"""


def test_a_picture_is_dropped_or_pasted(opened: Page, watch: Watch, picture: bytes, tmp_path: Path) -> None:
    url = opened.url
    file = tmp_path / "dropped.png"
    file.write_bytes(picture)
    drop(opened, "#bar", file)
    expect(opened.locator("#results-title")).to_have_text("Texts for this picture")
    expect(opened.locator("#parts")).to_contain_text("dropped.png")
    assert wait_for_images(opened, ".preview") == [256]
    of_dropped = shown_ids(opened)
    drop(opened, "#bar", "no file")
    expect(opened.get_by_role("alert")).to_contain_text("That is not a file")
    expect_ids(opened, of_dropped)
    opened.context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened.evaluate(_COPY)
    opened.keyboard.press("Control+v")
    expect(opened.locator("#results-title")).to_have_text("Texts for this picture + this picture")
    expect(opened.get_by_role("alert")).to_be_hidden()
    assert wait_for_images(opened, ".preview") == [256, 64]
    opened.get_by_role("button", name="Remove dropped.png").click()
    expect(opened.locator("#results-title")).to_have_text("Texts for this picture")
    assert wait_for_images(opened, ".preview") == [64]
    assert shown_ids(opened) != of_dropped
    for _ in range(2):
        opened.go_back()
    expect(opened.locator("#parts")).to_contain_text("dropped.png")
    expect_ids(opened, of_dropped)
    drop(opened, "h1", file)  # beside the bar: nothing is lost
    expect_ids(opened, of_dropped)
    assert opened.url.startswith(url)
    assert watch.complaints == []


def test_a_result_searches_the_other_way_and_back(opened: Page, watch: Watch) -> None:
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    opened.locator("#hits button").first.click()
    expect(opened.locator("#hits .hit-text").first).not_to_be_empty()
    expect(opened.locator("#results")).to_be_focused()
    opened.locator("#hits button").first.press("Enter")
    wait_for_pictures(opened)
    assert watch.complaints == []


def shown_ids(page: Page) -> list[str]:
    return [
        str(name) for name in page.locator("#hits .hit").evaluate_all("cards => cards.map(c => c.dataset.id)")
    ]


def test_a_search_that_is_overtaken_is_cancelled_and_typing_shows_results_of_the_last_letters(
    opened: Page, watch: Watch
) -> None:
    failed: list[str] = []
    opened.on("requestfailed", lambda request: failed.append(request.post_data or ""))
    held = hold_first(opened, "**/search/**")
    search_text(opened, "a forest")
    wait_for_held(opened, held)
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    expect(opened.locator("#results-title")).to_have_text("Pictures for “boats on the sea”")
    assert any("a forest" in body for body in failed)
    clear(opened)
    asked: list[str] = []
    opened.on(
        "request", lambda request: asked.append(request.post_data or "") if "-to-" in request.url else None
    )
    text_box(opened).press_sequentially("boats on the sea", delay=10)
    expect(opened.locator("#results-title")).to_have_text("Pictures for “boats on the sea”")
    wait_for_pictures(opened)
    assert len(asked) < len("boats on the sea")
    expect(text_box(opened)).to_be_focused()
    found = shown_ids(opened)
    text_box(opened).press("Enter")
    expect(opened).to_have_url(re.compile("q=boats"))
    assert shown_ids(opened) == found
    opened.go_back()  # the letters share one entry of the history
    expect(opened.locator("#results")).to_be_hidden()
    expect(text_box(opened)).to_have_value("")
    assert watch.complaints == []


def test_similar_items_of_the_same_kind_are_found(opened: Page, watch: Watch, picture: bytes) -> None:
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    first = shown_ids(opened)[0]
    opened.get_by_role("button", name="Similar pictures: result 1", exact=True).click()
    expect(opened.locator("#results-title")).to_have_text("Pictures like this picture")
    expect(opened.locator(".hit-probability")).to_have_count(0)
    wait_for_pictures(opened)
    assert first not in shown_ids(opened)
    found = scores(opened)
    assert found == sorted(found, reverse=True)
    assert max(found) <= 1.0
    expect(text_box(opened)).to_have_value("")
    clear(opened)
    opened.get_by_role("radio", name="pictures", exact=True).check()
    choose_picture(opened, picture)
    expect(opened.locator("#hits .hit-picture").first).to_be_visible()
    expect(opened.locator("#results-title")).to_have_text("Pictures like this picture")
    opened.get_by_role("radio", name="texts", exact=True).check()
    expect(opened.locator("#results-title")).to_have_text("Texts for this picture")
    clear(opened)
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    expect(opened.locator(".preview")).to_have_count(0)
    opened.get_by_role("radio", name="texts", exact=True).check()
    expect(opened.locator("#results-title")).to_have_text("Texts like “boats on the sea”")
    expect(opened.locator("#hits .hit-text").first).not_to_be_empty()
    assert watch.complaints == []


def test_reasons_are_shown_where_they_are_wanted(opened: Page, watch: Watch, picture: bytes) -> None:
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    ids, reasons = shown_ids(opened), opened.locator("#hits .reasons")
    expect(reasons).to_have_count(0)
    opened.get_by_label("Reasons").check()
    expect(reasons).to_have_count(len(ids))
    bars = reasons.first.locator("span").all()
    assert 1 <= len(bars) <= 3
    for bar in bars:
        share = re.fullmatch(r"\w+[^:]*: -?(\d+) %", bar.inner_text())
        assert share is not None
        assert bar.get_attribute("style") == f"--share: {share[1]}%;"
    expect(opened.locator("#notices")).to_contain_text("the model knows “boats”")
    assert shown_ids(opened) == ids
    opened.get_by_role("button", name="Clear", exact=True).click()
    choose_picture(opened, picture)
    expect(opened.locator("#hits .hit-text").first).not_to_be_empty()
    expect(reasons.first).to_have_text(re.compile(r": -?\d+ %"))
    opened.get_by_label("Reasons").uncheck()
    expect(reasons).to_have_count(0)
    assert watch.complaints == []


def expect_ids(page: Page, ids: list[str]) -> None:
    """Wait until the results begin with these: more come where their end is in sight."""
    deadline = time.monotonic() + 30
    while (shown := shown_ids(page)[: len(ids)]) != ids:
        assert time.monotonic() < deadline, f"{shown} are shown, not {ids}"
        page.wait_for_timeout(20)


def test_the_address_carries_the_search(opened: Page, watch: Watch, picture: bytes) -> None:
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    pictures = shown_ids(opened)
    opened.locator("#hits .hit").first.click()
    expect(opened.locator("#hits .hit-text").first).not_to_be_empty()
    texts = shown_ids(opened)
    clear(opened)
    choose_picture(opened, picture)
    expect(opened).to_have_url(re.compile("from=image&to=text$"))
    expect(opened.locator("#parts")).to_contain_text("mine.png")
    of_picture = shown_ids(opened)
    opened.go_back()
    expect(opened.locator("#results")).to_be_hidden()
    opened.go_back()
    expect(opened.locator("#parts")).not_to_contain_text("mine.png")
    expect_ids(opened, texts)
    opened.go_back()
    expect_ids(opened, pictures)
    expect(text_box(opened)).to_have_value("boats on the sea")
    opened.go_forward()
    expect_ids(opened, texts)
    opened.go_forward()
    opened.go_forward()
    expect_ids(opened, of_picture)
    opened.go_back()
    opened.go_back()
    expect_ids(opened, texts)
    opened.reload()
    expect_ids(opened, texts)
    expect(opened.locator(".preview")).to_be_visible()
    opened.go_forward()
    opened.go_forward()
    expect(opened.get_by_role("alert")).to_contain_text("not part of its address")
    opened.reload()
    expect(opened.get_by_role("alert")).to_contain_text("not part of its address")
    # Its field takes no more than goes into an address; a program that fills it does.
    text_box(opened).evaluate("(field, text) => { field.value = text; }", "boats on the sea " * 1000)
    text_box(opened).press("Enter")
    expect(opened.locator("#results-title")).to_contain_text("the sea boats on the sea")
    assert len(opened.url) < 200
    opened.reload()
    wait_for_pictures(opened)
    assert len(text_box(opened).input_value()) > 15_000
    assert watch.complaints == []


def test_an_address_is_read_only_while_it_is_there_and_has_few_parts(opened: Page, demo_server: str) -> None:
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    pictures = shown_ids(opened)
    opened.locator("#hits .hit").first.click()
    expect(opened.locator("#hits .hit-text").first).not_to_be_empty()
    clear(opened)
    held = hold_first(opened, f"**/items/{pictures[0]}")
    opened.go_back()
    wait_for_held(opened, held)
    opened.go_back()
    expect_ids(opened, pictures)
    held[0].continue_()
    opened.wait_for_load_state("networkidle")
    expect(text_box(opened)).to_have_value("boats on the sea")
    assert shown_ids(opened) == pictures

    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    part = ("part", json.dumps({"from": "image", "item": "nothing"}))
    opened.goto(f"{demo_server}?{urlencode([part] * 17 + [('to', 'image')])}")
    expect(opened.get_by_role("alert")).to_contain_text("too many parts")
    expect(opened.locator("#offers li").first).to_be_visible()
    assert not [url for url in asked if url.endswith("/items/nothing")]
    numbers = urlencode([("part", json.dumps({"from": "text", "q": number})) for number in (1, 2)])
    visit(opened, f"{demo_server}?{numbers}&to=image")
    expect(opened.locator("#results-title")).to_have_text("Pictures for “1” + “2”")


@pytest.fixture
def item_of_markup(demo_server: str, demo_key: str) -> Iterator[str]:
    """Two texts whose content, label and metadata are HTML, in the demo's collection."""
    with Client(demo_server, demo_key, patience=0.0) as client:
        name = client.list_collections().collections[0].name
        facts = {"modality": "text", "labels": [MARKUP]}
        items = [
            {
                **facts,
                "id": f"markup-{n}",
                "text": f"{MARKUP} boats on the sea {n}",
                "metadata": {
                    "<b>k</b>": MARKUP,
                    "javascript:alert(1)": 1,
                    "price": n + 1,
                    "seen": 1_700_000_000.5 + 86_400 * n,
                },
            }
            for n in range(2)
        ]
        client.create_items(name, items)
        yield name
        for item in items:
            client.delete_item(name, str(item["id"]))


def test_results_are_filtered_by_labels_and_metadata(opened: Page, watch: Watch) -> None:
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    opened.get_by_text("Filters", exact=True).click()
    labels = opened.get_by_role("group", name="Label", exact=True)
    choice = labels.get_by_role("button").first
    label, count = choice.locator("span").all_inner_texts()
    choice.press("Enter")
    expect(opened.locator("#hits > li")).to_have_count(min(int(count), 24))
    expect(choice).to_have_attribute("aria-pressed", "true")
    expect(choice).to_be_focused()
    expect(opened.locator("#hits .labels")).to_contain_text([label] * min(int(count), 24))
    split = opened.get_by_role("group", name="split", exact=True).get_by_role("button", name="test").first
    split.click()
    expect(split).to_have_attribute("aria-pressed", "true")
    filtered = shown_ids(opened)
    assert 0 < len(filtered) < int(count)
    opened.reload()
    expect(opened.get_by_role("button", name=f"Remove the filter {label}")).to_be_visible()
    expect_ids(opened, filtered)
    search_text(opened, "a forest")  # of the same gallery: the filter stays
    expect(opened.locator("#results-title")).to_have_text("Pictures for “a forest”")
    assert sorted(shown_ids(opened)) == sorted(filtered)
    opened.get_by_role("button", name=f"Negate the filter {label}").click()
    expect(opened.get_by_role("button", name=f"Remove the filter not {label}")).to_be_visible()
    expect(opened.locator("#hits .labels", has_text=label)).to_have_count(0)
    assert not set(shown_ids(opened)) & set(filtered)
    opened.reload()
    opened.get_by_role("button", name=f"Negate the filter not {label}").click()
    expect(opened.locator("#hits > li")).to_have_count(len(filtered))
    assert sorted(shown_ids(opened)) == sorted(filtered)
    held = hold_first(opened, "**/search/**")
    opened.get_by_role("button", name=f"Remove the filter {label}").click()
    wait_for_held(opened, held)  # the second filter is removed before the results without the first are there
    opened.get_by_role("button", name="Remove the filter split: test").click()
    expect(opened.locator("#hits > li")).to_have_count(24)
    expect(opened.locator("#chosen")).to_be_hidden()
    assert watch.complaints == []


_SUM = """
([group, sum]) => [...document.querySelectorAll("#facets fieldset")]
  .filter((set) => set.querySelector("legend").textContent === group)
  .map((set) => [...set.querySelectorAll(".count")].reduce((all, one) => all + Number(one.textContent), 0))
  .includes(sum)
"""


def test_values_are_counted_by_the_other_filters_and_choices_stay_where_nothing_passes(
    opened: Page, watch: Watch
) -> None:
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    opened.get_by_text("Filters", exact=True).click()
    chosen = opened.locator("#chosen")
    labels = opened.get_by_role("group", name="Label", exact=True).get_by_role("button")
    names = labels.locator("span:first-child").all_inner_texts()
    counts = [int(text) for text in labels.locator(".count").all_inner_texts()]
    split = opened.get_by_role("group", name="split", exact=True)
    tops = {opened.locator("#hits").evaluate(_TOP)}
    texts = labels.all_inner_texts()
    labels.nth(1).click()
    expect(opened.get_by_role("button", name=f"Remove the filter {names[1]}")).to_be_visible()
    opened.wait_for_function(_SUM, arg=["split", counts[1]])
    assert labels.all_inner_texts() == texts  # by the other filters, of which there are none
    expect(labels.nth(1)).to_be_focused()
    opened.get_by_role("button", name=f"Remove the filter {names[1]}").click()
    opened.wait_for_function(_SUM, arg=["split", sum(counts)])
    labels.first.click()
    expect(chosen).to_contain_text(f"{counts[0]} of {sum(counts)} pass")
    tops.add(opened.locator("#hits").evaluate(_TOP))
    assert len(tops) == 1
    opened.get_by_role("button", name=f"Negate the filter {names[0]}").click()
    expect(labels.first).to_have_text(f"not {names[0]}{counts[0]}")
    expect(labels.first).to_have_attribute("aria-pressed", "true")
    expect(labels.first).to_have_class("value is-not")
    expect(chosen).to_contain_text(f"{sum(counts) - counts[0]} of {sum(counts)} pass")
    labels.first.click()
    expect(chosen).to_be_hidden()
    expect(labels.first).to_have_text(f"{names[0]}{counts[0]}")
    visit(opened, f"{opened.url}&label={names[0]}&meta.split=%22neither%22")
    expect(chosen).to_contain_text(f"0 of {sum(counts)} pass")
    expect(opened.locator("#hits > li")).to_have_count(0)
    expect(labels.locator("span:first-child")).to_have_text(names)
    expect(labels.first).to_have_attribute("aria-pressed", "true")
    expect(split.get_by_role("button").first).to_be_visible()
    opened.get_by_role("button", name="Remove the filter split: neither").click()
    expect(opened.locator("#hits .hit").first).to_be_visible()
    labels.first.click()
    expect(opened.locator("#chosen")).to_be_hidden()
    assert watch.complaints == []


def test_results_are_one_of_each_label_and_parts_of_the_score_are_emphasised(
    opened: Page, watch: Watch
) -> None:
    search_text(opened, "boats on the sea")
    wait_for_pictures(opened)
    plain = shown_ids(opened)
    opened.get_by_text("Filters", exact=True).click()
    opened.get_by_label("Group by").select_option("label")
    expect(opened).to_have_url(re.compile("group=label"))
    expect(opened.locator("#more")).to_be_hidden()
    labels = opened.locator("#hits .labels > span:not(.fact)").all_inner_texts()
    assert len(labels) == len(set(labels)) == opened.locator("#hits .hit").count()
    assert opened.locator("#hits .hit > .group").all_inner_texts() == labels
    size = opened.get_by_label("results of each, at most")
    size.fill("2")
    size.press("Enter")
    expect(opened).to_have_url(re.compile("group=label&size=2"))
    opened.reload()
    expect(size).to_have_value("2")
    pairs = Counter(opened.locator("#hits .labels > span:not(.fact)").all_inner_texts())
    assert {*pairs} == {*labels}
    assert {*pairs.values()} == {2}
    opened.get_by_text("Filters", exact=True).click()
    opened.get_by_label("Group by").select_option("pair")
    expect(opened).to_have_url(re.compile("group=pair_id"))
    expect_ids(opened, plain)  # of each pair there is one picture
    expect(opened.locator("#hits .hit > .group").first).to_have_text(plain[0].removeprefix("image-"))
    opened.get_by_label("Group by").select_option("–")
    expect(opened).not_to_have_url(re.compile("group="))
    expect(size).to_be_hidden()
    expect_ids(opened, plain)
    expect(opened.locator("#hits .group")).to_have_count(0)
    address, kind = opened.url, urlencode({"label": labels[0]})  # of which there are few pictures
    for wrong, shown in (("abc", "1"), ("2.9", "2"), ("-3", "1"), ("999999", "100")):
        visit(opened, f"{address}&{kind}&group=label&size={wrong}")
        expect(size).to_have_value(shown)
        expect(opened.locator("#hits .group").first).to_be_attached()
    visit(opened, f"{address}&{kind}&diversity=7&min_probability=no")
    expect(opened.get_by_label("Diversity")).to_have_value("1")
    expect(opened.get_by_label("Least probability")).to_have_value("0")
    visit(opened, f"{address}&{kind}&group=nothing")
    expect(opened.locator("#hits .group").first).to_have_text("no nothing")
    visit(opened, address)
    expect_ids(opened, plain)
    sliders = opened.locator("#emphasis input")
    expect(opened.locator("#emphasising")).to_be_hidden()
    opened.get_by_label("Reasons").check()
    opened.get_by_text("Emphasis", exact=True).click()
    expect(sliders.first).to_be_visible()
    order = opened.get_by_label("same kind (map)")
    order.fill("1")
    expect(opened).to_have_url(re.compile("emphasis=%7B%22map%22%3A1%7D"))
    expect(opened.locator(".hit-probability")).to_have_count(0)
    order.fill("0")
    expect(opened).not_to_have_url(re.compile("emphasis="))
    label = opened.locator("#emphasis label", has_text="label").locator("output")
    expect(label).to_have_text("1, as trained")
    opened.locator("#emphasis").get_by_label("label").fill("0")
    expect(label).to_have_text("0")
    expect(opened).to_have_url(re.compile("emphasis="))
    expect(opened.locator(".hit-probability")).to_have_count(0)
    expect(opened.locator("#hits .reasons", has_text="label")).to_have_count(0)
    emphasised = shown_ids(opened)
    opened.reload()
    expect_ids(opened, emphasised)
    expect(opened.locator("#emphasis").get_by_label("label")).to_have_value("0")
    visit(opened, f"{opened.url}&group=constructor")  # which no item has
    expect(opened.locator("#group-by")).to_have_value("constructor")
    opened.goto(f"{opened.url}&meta.constructor=%22x%22", wait_until="networkidle")
    expect(opened.get_by_role("button", name="Remove the filter constructor: x")).to_be_visible()
    expect(opened.locator("#error")).to_be_hidden()
    assert watch.complaints == []


def test_markup_of_an_item_stays_text(
    page: Page, watch: Watch, demo_server: str, item_of_markup: str
) -> None:
    page.goto(f"{demo_server}/?collection={item_of_markup}&from=text&to=text&q=boats+on+the+sea")
    card = page.locator("#hits .hit[data-id=markup-0]")
    expect(card).to_contain_text(f"{MARKUP} boats on the sea 0")
    expect(card.locator(".labels")).to_contain_text(MARKUP)
    expect(card.locator(".labels")).to_contain_text(f"<b>k</b>: {MARKUP}")
    page.get_by_text("Filters", exact=True).click()
    page.get_by_role("group", name="Label").get_by_role("button", name=MARKUP).click()
    expect(page.locator("#hits > li")).to_have_count(2)
    expect(page.get_by_role("button", name=f"Remove the filter {MARKUP}")).to_be_visible()
    assert page.locator("#results img[src=x]").count() == 0
    page.reload()
    expect(page.locator("#hits > li")).to_have_count(2)
    page.get_by_text("Filters", exact=True).click()
    page.get_by_label("From, price").fill("a lot")  # no number: the browser says so
    page.get_by_label("From, price").press("Enter")
    expect(page.locator("#hits > li")).to_have_count(2)
    page.get_by_label("From, price").fill("1,5")
    page.get_by_label("From, price").press("Enter")
    expect(page.locator("#hits > li")).to_have_count(1)
    page.reload()
    expect(page.locator("#hits .hit")).to_have_attribute("data-id", "markup-1")
    page.get_by_role("button", name="Remove the filter price ≥ 1.5").click()
    expect(page.locator("#hits > li")).to_have_count(2)
    page.get_by_text("Filters", exact=True).click()
    expect(page.get_by_label("From, price")).to_have_value("")
    page.get_by_label("Most price").fill("1")
    expect(page.locator("#hits > li")).to_have_count(1)
    expect(page.locator("#hits .hit")).to_have_attribute("data-id", "markup-0")
    expect(page.get_by_role("button", name="Remove the filter price ≤ 1")).to_be_visible()
    expect(page.get_by_label("Most price")).to_be_focused()
    expect(page.get_by_label("Up to, price")).to_have_value("1")
    page.keyboard.press("ArrowRight")  # to its end, where there is no filter
    expect(page.locator("#hits > li")).to_have_count(2)
    expect(page.get_by_role("button", name="Remove the filter price")).to_have_count(0)
    page.get_by_label("Most price").fill("1")
    expect(page.locator("#hits > li")).to_have_count(1)
    expect(page.get_by_role("button", name="Remove the filter price ≤ 1")).to_be_visible()
    page.get_by_label("Least price").fill("2")  # not beyond the other
    expect(page.get_by_label("Least price")).to_have_value("1")
    page.get_by_role("button", name="Remove the filter price ≤ 1").click()
    expect(page.locator("#hits > li")).to_have_count(2)
    expect(page.get_by_label("From, seen")).to_have_attribute("placeholder", "from 1700000000.5")
    page.get_by_label("Least seen").fill("1700000600.5")  # far from zero, beside how far apart they are
    expect(page.get_by_role("button", name="Remove the filter seen ≥ 17000006")).to_be_visible()
    expect(page.locator("#hits .hit")).to_have_attribute("data-id", "markup-1")
    assert watch.complaints == []


def test_an_untrained_collection_is_explained(page: Page, demo_server: str, empty_collection: str) -> None:
    page.goto(demo_server)
    page.get_by_label("Collection").select_option(empty_collection)
    expect(page.locator("#model-state")).to_contain_text("Not trained yet")
    search_text(page, "boats")
    expect(page.get_by_role("alert")).to_contain_text(
        "it takes items of both modalities to find one by the other"
    )
    page.get_by_role("link", name="Train it").click()
    expect(page).to_have_url(f"{demo_server}/models?collection={empty_collection}")
    expect(page.get_by_label("Models need a key")).to_be_focused()


def use_key(page: Page, key: str) -> None:
    page.evaluate("key => sessionStorage.setItem('lrbs-key', key)", key)


def judge_first_result(page: Page, client: Client, collection: str) -> None:
    """Say that the first result is relevant, then that it is not, then nothing."""
    up = page.get_by_role("button", name="Relevant: result 1", exact=True)
    down = page.get_by_role("button", name="Not relevant: result 1", exact=True)
    for button, other, stored in ((up, down, [True]), (down, up, [False]), (down, up, [])):
        button.press("Enter")
        expect(button).to_have_attribute("aria-pressed", "true" if stored else "false")
        expect(other).to_have_attribute("aria-pressed", "false")
        expect(button).to_be_focused()
        feedback = client.list_feedback(collection).feedback
        assert [entry.relevant for entry in feedback] == stored


def test_thumbs_are_for_keys_that_may_write(
    opened: Page, demo_server: str, demo_key: str, picture: bytes
) -> None:
    thumbs = opened.locator("#hits .thumbs")
    with Client(demo_server, demo_key, patience=0.0) as client:
        key = client.create_key("search")
        assert key.secret is not None
        use_key(opened, key.secret)
        opened.reload()
        with opened.expect_response("**/feedback?limit=1") as answer:
            search_text(opened, "boats on the sea")
        assert answer.value.status == 403
        expect(opened.locator("#hits li").first).to_be_visible()
        expect(thumbs).to_have_count(0)
        opened.get_by_role("button", name="Forget the key").click()
        opened.get_by_role("button", name="Use a key").click()
        opened.get_by_label("Your key").fill(demo_key)
        opened.get_by_role("button", name="Use key").click()
        expect(opened.get_by_role("button", name="Forget the key")).to_be_visible()
        expect(thumbs.first).to_be_visible()  # the search is repeated with the new key
        clear(opened)
        choose_picture(opened, picture)
        expect(opened.locator("#results-title")).to_have_text("Texts for this picture")
        expect(thumbs.first).to_be_visible()
        expect(opened.locator("#hits > li:not(:has(.thumbs))")).to_have_count(0)
        collection = urlsplit(answer.value.url).path.split("/")[3]
        judge_first_result(opened, client, collection)
        opened.get_by_role("button", name="Relevant: result 2", exact=True).click()
        expect(opened.locator("#status")).to_contain_text("Stored: result 2 is relevant.")
        (entry,) = client.list_feedback(collection).feedback
        assert (entry.query.form, entry.source, entry.target) == ("image_base64", "image", "text")
        client.delete_feedback(collection, entry.id)


def test_a_text_a_picture_and_results_are_one_query(opened: Page, watch: Watch, picture: bytes) -> None:
    title, chips = opened.locator("#results-title"), opened.locator("#parts li")
    search_text(opened, "boats")
    wait_for_pictures(opened)
    assert opened.locator("#hits .hit").nth(13).evaluate("card => card.getBoundingClientRect().bottom") <= 900
    liked, disliked = shown_ids(opened)[1], shown_ids(opened)[8]
    opened.get_by_role("button", name="More like this: result 2", exact=True).press("Enter")
    expect(title).to_have_text("Pictures for “boats” + this picture")
    expect(opened.locator("#results")).to_be_focused()
    expect(chips).to_have_count(2)
    expect(opened.locator("#hits > li:not(:has(.partner))")).to_have_count(0)  # which move what is below them
    number = shown_ids(opened).index(disliked) + 1
    opened.get_by_role("button", name=f"Less like this: result {number}", exact=True).click()
    expect(title).to_have_text("Pictures for “boats” + this picture − this picture")
    assert not {liked, disliked} & set(shown_ids(opened))
    weight = opened.get_by_label("Weight of “boats”")
    weight.fill("-2")
    weight.press("Enter")
    expect(title).to_have_text("Pictures for this picture − “boats” − this picture")
    expect(weight).to_be_focused()
    away = shown_ids(opened)
    assert not [shown for shown in away[:5] if "boats" in shown]
    opened.get_by_role("button", name=f"Remove picture {disliked}").click()
    expect(title).to_have_text("Pictures for this picture − “boats”")
    expect(chips).to_have_count(2)
    expect(text_box(opened)).to_be_focused()
    opened.keyboard.type("at night")
    expect(title).to_have_text("Pictures for this picture + “at night” − “boats”")
    expect(text_box(opened)).to_have_value("at night")
    opened.keyboard.press("Enter")
    expect(chips).to_have_text(["boats×", "×", "at night×"])
    of_three = shown_ids(opened)
    opened.reload()
    expect_ids(opened, of_three)
    expect(opened.get_by_label("Weight of “boats”")).to_have_value("-2")
    opened.get_by_role("radio", name="texts", exact=True).check()
    expect(title).to_have_text("Texts for this picture + “at night” − “boats”")
    for _ in range(3):
        opened.go_back()
    expect_ids(opened, away)
    clear(opened)
    expect(opened.locator("#results")).to_be_hidden()

    choose_picture(opened, picture)
    expect(title).to_have_text("Texts for this picture")
    search_text(opened, "blue")
    expect(title).to_have_text("Pictures for this picture + “blue”")
    choose_picture(opened, b"no picture")
    expect(opened.get_by_role("alert")).to_be_visible()
    expect(opened.get_by_role("alert")).not_to_contain_text("{")
    expect(chips).to_have_count(2)
    opened.get_by_role("button", name="Remove mine.png").click()
    expect(title).to_have_text("Pictures for “blue”")
    expect(text_box(opened)).to_have_value("blue")
    expect(opened).to_have_url(re.compile("from=text&q=blue&to=image"))
    opened.get_by_role("button", name="Add another text").click()
    opened.keyboard.type("umbrellas")
    expect(title).to_have_text("Pictures for “blue” + “umbrellas”")
    (complaint,) = watch.complaints  # the browser's own about the answer to what is no picture
    assert "422" in complaint


_TYPE_AND_ADD = """
() => {
  const field = document.getElementById("text");
  field.value = "boats at night";
  field.dispatchEvent(new Event("input", { bubbles: true }));
  document.querySelector("[aria-label='More like this: result 2']").click();
}
"""


def test_letters_of_a_moment_ago_count_and_a_text_that_is_deleted_leaves_no_results(opened: Page) -> None:
    title, results = opened.locator("#results-title"), opened.locator("#results")
    search_text(opened, "boats")
    wait_for_pictures(opened)
    opened.evaluate(_TYPE_AND_ADD)
    expect(title).to_have_text("Pictures for “boats at night” + this picture")
    clear(opened)
    search_text(opened, "boats")
    expect(title).to_have_text("Pictures for “boats”")
    text_box(opened).fill("")
    expect(results).to_be_hidden()
    expect(opened).to_have_url(re.compile(r"\?collection=\w+$"))
    expect(text_box(opened)).to_be_focused()
    opened.go_back()
    expect(title).to_have_text("Pictures for “boats”")
    expect(text_box(opened)).to_have_value("boats")


def test_a_part_too_many_is_refused_and_leaves_the_others(page: Page, demo_server: str) -> None:
    parts = urlencode([("part", json.dumps({"from": "text", "q": f"boats {n}"})) for n in range(16)])
    page.goto(f"{demo_server}?{parts}&to=image")
    expect(page.locator("#results-title")).to_contain_text("“boats 15”")
    address, ids = page.url, shown_ids(page)
    page.get_by_role("button", name="More like this: result 1", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("A query has 16 parts at most")
    expect(page.locator("#parts li")).to_have_count(16)
    assert (page.url, shown_ids(page)) == (address, ids)
    page.get_by_role("button", name="Remove “boats 15”").click()
    expect(page.locator("#results-title")).not_to_contain_text("“boats 15”")
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.locator("#offers li")).to_have_count(0)  # beside results nothing asks for them

    page.route(re.compile(r"/(values|items)\?"), lambda route: route.abort())  # the service is away
    clear(page)
    expect(page.locator("#offers > *")).to_have_count(0)
    page.unroute_all()
    search_text(page, "boats")
    expect(page.locator("#results-title")).to_contain_text("“boats”")
    clear(page)
    expect(page.locator("#offers li").first).to_be_visible()


def test_without_texts_and_pictures_the_focus_stays_in_the_bar(
    page: Page, demo_server: str, demo_key: str
) -> None:
    with Client(demo_server, demo_key, patience=0.0) as client:
        client.create_collection("numbers", {"left": {"type": "vector"}, "right": {"type": "vector"}})
        rows = [[float(n == m) for m in range(6)] for n in range(6)]
        items = [
            {"id": f"{side}{n}", "modality": side, "vector": row, "pair_id": str(n)}
            for side in ("left", "right")
            for n, row in enumerate(rows)
        ]
        client.create_items("numbers", items)
        page.goto(f"{demo_server}/?collection=numbers&from=left&item=left1&to=left")
        expect(page.locator("#hits .hit").first).to_be_visible()
        page.get_by_role("button", name="Remove “left1”").click()
        expect(page.locator("#results")).to_be_hidden()
        expect(page.locator("#targets input").first).to_be_focused()
        client.delete_collection("numbers")


def test_results_are_probable_enough_and_differ(opened: Page, watch: Watch) -> None:
    search_text(opened, "sailing boats")
    wait_for_pictures(opened)
    plain, least = shown_ids(opened), opened.get_by_label("Least probability")
    opened.get_by_text("Filters", exact=True).click()
    least.fill("30")
    least.press("Enter")
    expect(opened).to_have_url(re.compile("min_probability=0.3"))
    expect(opened.locator("#more")).to_be_hidden()
    probable = shown_ids(opened)
    assert 0 < len(probable) < len(plain)
    assert plain[: len(probable)] == probable
    opened.get_by_label("Diversity").fill("0.9")
    opened.get_by_label("Diversity").press("Enter")
    expect(opened).to_have_url(re.compile("min_probability=0.3&diversity=0.9"))
    expect(opened.locator("#hits .hit").nth(1)).not_to_have_attribute("data-id", probable[1])
    differing = shown_ids(opened)
    opened.reload()
    expect(least).to_have_value("30")
    assert shown_ids(opened) == differing
    opened.get_by_text("Filters", exact=True).click()
    with_given = opened.get_by_label("Items of the query, too")
    expect(with_given).to_be_hidden()
    opened.get_by_role("button", name="More like this: result 1", exact=True).click()
    expect(opened.locator(".hit-probability")).to_have_count(0)
    expect(least).to_be_hidden()  # nor is it asked for, which would be refused
    expect(opened.locator(f"#hits [data-id='{differing[0]}']")).to_have_count(0)
    with_given.check()
    expect(opened).to_have_url(re.compile("given=true"))
    expect(opened.locator("#hits .hit").first).to_have_attribute("data-id", differing[0])
    opened.reload()
    expect(opened.locator("#hits .hit").first).to_have_attribute("data-id", differing[0])
    opened.get_by_text("Filters", exact=True).click()
    with_given.uncheck()
    expect(opened.locator(f"#hits [data-id='{differing[0]}']")).to_have_count(0)
    expect(opened.locator("#error")).to_be_hidden()
    assert watch.complaints == []


_TOP = "node => node.getBoundingClientRect().top"
_PLACES = "nodes => nodes.map(node => [node.getBoundingClientRect().top, node.offsetHeight])"


def test_nothing_moves_when_partners_come_and_parts_are_added(opened: Page, watch: Watch) -> None:
    bar, cards, partners = (
        opened.locator("#bar"),
        opened.locator("#hits > li"),
        opened.locator("#hits .partner"),
    )
    tops = {bar.locator("#targets").evaluate(_TOP)}
    held = hold_first(opened, "**/partners?**")
    search_text(opened, "boats")
    wait_for_pictures(opened)
    wait_for_held(opened, held)
    before = cards.evaluate_all(_PLACES)
    expect(partners).to_have_count(0)
    held[0].continue_()
    expect(partners).to_have_count(24)
    assert cards.evaluate_all(_PLACES) == before
    height = bar.evaluate("bar => bar.offsetHeight")
    for number in (2, 5, 8, 11):
        button = opened.get_by_role("button", name=f"More like this: result {number}", exact=True)
        with opened.expect_response("**/partners?**"):
            button.click()
        assert bar.evaluate("bar => bar.offsetHeight") == height
        tops.add(bar.locator("#targets").evaluate(_TOP))
    expect(opened.locator("#parts li")).to_have_count(5)
    expect(opened.locator("#parts li").last).to_be_in_viewport()
    assert len(tops) == 1
    assert watch.complaints == []


def test_the_header_leaves_a_phone_its_room(page: Page, demo_server: str, demo_key: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.add_init_script(f"sessionStorage.setItem('lrbs-key', '{demo_key}')")
    for path in ("", "collection", "models"):
        page.goto(f"{demo_server}/{path}")
        expect(page.get_by_label("Collection", exact=True)).to_be_enabled()
        assert page.locator(".top").evaluate("header => header.offsetHeight") <= 100
        expect(page.get_by_role("heading", name="LRBS")).to_be_attached()


def test_the_api_reference_asks_no_other_host(page: Page, watch: Watch, demo_server: str) -> None:
    page.goto(f"{demo_server}/docs")
    operation = page.locator(".opblock", has_text="/v1/collections/{collection}/items").first
    operation.click(timeout=120_000)  # the list of all operations takes a busy machine that long
    expect(operation).to_contain_text("all of the request or none of it")
    assert watch.hosts == {urlsplit(demo_server).netloc}
    assert watch.complaints == []


def test_words_that_the_model_does_not_know_are_named(opened: Page, watch: Watch) -> None:
    notices = opened.locator("#notices li")
    search_text(opened, "boats xyzzy")
    wait_for_pictures(opened)
    expect(notices).to_have_text(["the model does not know 'xyzzy': the other words decide the ranking"])
    search_text(opened, "xyzzy")
    expect(notices).to_contain_text(["the model knows no word of the query"])
    expect(opened.locator("#hits li")).to_have_count(0)
    search_text(opened, "two baots")
    expect(notices.last).to_contain_text("did you mean two boats")
    notices.get_by_role("button", name="two boats").click()
    expect(text_box(opened)).to_have_value("two boats")
    expect(notices).to_have_count(0)
    assert watch.complaints == []


def test_buttons_of_two_rows_are_on_the_screen_and_nothing_is_wider_than_it(
    opened: Page, demo_key: str
) -> None:
    use_key(opened, demo_key)
    search_text(opened, "boats")
    wait_for_pictures(opened)
    expect(opened.locator("#hits .thumbs")).to_have_count(24)
    high = "nodes => nodes.forEach(node => { node.style.minHeight = getComputedStyle(node).maxHeight; })"
    opened.locator("#hits .labels").evaluate_all(high)  # as of items with many labels and values
    places = opened.locator("#hits .actions").evaluate_all("rows => rows.map(r => r.getBoundingClientRect())")
    firsts = [place for place in places if place["y"] == places[0]["y"]]
    assert places[len(firsts)]["bottom"] <= 900
    assert {place["height"] for place in places} == {places[0]["height"]}
    buttons = opened.locator("#hits .actions").first.get_by_role("button")
    tops = buttons.evaluate_all("buttons => buttons.map(button => button.getBoundingClientRect().top)")
    assert len(tops) == 5
    assert len(set(tops)) == 1
    check_widths(opened)
    opened.locator("#add-text").click()
    chips = opened.locator("#parts li")
    for number, text in enumerate(("at night, with a moon that is far away", "blue"), 2):
        search_text(opened, text)
        expect(chips).to_have_count(number)
    for chip in chips.all():  # on a wider screen they scroll in one line
        expect(chip).to_be_in_viewport(ratio=1.0)
