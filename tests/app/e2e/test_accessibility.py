"""axe-core finds no violation on any page, in light and in dark."""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

COLOURS = {"runOnly": {"type": "tag", "values": ["cat.color"]}, "resultTypes": ["violations"]}
"""Rules about what the styles of a scheme change: its colours, and nothing else."""
POINTS = 30
"""Of each gallery on the map, which draws ten times as many: enough for each of its colours."""
TABLE = b"id,text,label\n1,a boat,sea\n"


def states(page: Page, url: str) -> Iterator[str]:
    """Bring a page into one state after the other; yield the name of each."""
    page.goto(url)
    expect(page.locator(".thumbnails img").first).to_be_visible()
    yield "search"
    page.goto(f"{url}/?collection=sample&from=text&to=image&q=boats")
    expect(page.locator("#hits .partner").first).to_be_visible()
    page.get_by_text("Filters", exact=True).click()
    page.get_by_role("group", name="Label", exact=True).get_by_role("button").first.click()
    expect(page.locator("#chosen")).to_be_visible()
    page.get_by_label("Reasons").check()
    page.get_by_text("Emphasis", exact=True).click()
    expect(page.locator("#emphasis")).to_be_visible()
    yield "results"
    page.get_by_role("button", name="Less like this: result 1", exact=True).click()
    expect(page.locator("#parts .is-less")).to_be_visible()
    expect(page.locator("#results-title")).to_contain_text("−")  # until then the results before it are dimmed
    yield "a composed query"
    page.goto(f"{url}/collection?collection=sample&label=cats")
    page.get_by_text("New collection", exact=True).click()
    expect(page.get_by_role("group", name="kind")).to_have_count(2)
    page.get_by_text("Options", exact=True).last.click()
    page.get_by_text("Add items", exact=True).click()
    page.locator("#add-files").set_input_files({"name": "table.csv", "mimeType": "text/csv", "buffer": TABLE})
    expect(page.get_by_role("button", name="Add them")).to_be_visible()
    yield "a new collection"
    page.get_by_role("button", name="Change all that pass").click()
    page.route("**/map?*", lambda route: route.continue_(url=re.sub(r"\d+$", str(POINTS), route.request.url)))
    page.get_by_text("Map", exact=True).click()
    page.get_by_text("As a table", exact=True).click()
    expect(page.locator("#map-rows a")).to_have_count(2 * POINTS)
    expect(page.locator("#map-legend")).to_contain_text("other labels")
    page.locator("#hits .edit").first.click()
    page.locator("#hits .delete").nth(1).click()
    yield "map and items"
    page.goto(f"{url}/models?collection=sample")
    page.wait_for_load_state("networkidle")
    yield "models"
    page.goto(f"{url}/model?collection=sample")
    expect(page.locator("#plots img").last).to_be_visible()
    page.get_by_text("Numbers", exact=True).first.click()
    page.get_by_text("Worst: text to image", exact=True).click()
    expect(page.locator("#queries .example").first).to_be_visible()
    yield "model"


def test_axe_finds_no_violation_in_light_and_in_dark(page: Page, demo_server: str, demo_key: str) -> None:
    page.add_init_script(f"sessionStorage.setItem('lrbs-key', '{demo_key}')")
    axe, reports = Axe(), {}
    for name in states(page, demo_server):
        page.emulate_media(color_scheme="light")
        reports[name, "light"] = axe.run(page).generate_report()
        page.emulate_media(color_scheme="dark")
        reports[name, "dark"] = axe.run(page, options=COLOURS).generate_report()
    assert {state: told for state, told in reports.items() if not told.startswith("Found 0 ")} == {}
