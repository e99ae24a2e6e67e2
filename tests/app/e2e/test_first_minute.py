"""What somebody meets who knows nothing, in the order of a newcomer."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.app.e2e.browsing import Watch

pytestmark = pytest.mark.browser


def test_the_demo_offers_queries_of_different_kinds_and_the_kinds(
    page: Page, watch: Watch, demo_server: str
) -> None:
    page.goto(demo_server)
    kinds = page.locator(".kinds button")
    expect(kinds.first).to_be_visible()
    names = kinds.all_inner_texts()
    assert len(names) > 1
    clear = page.get_by_role("button", name="Clear", exact=True)
    for number in range(len(names)):
        kinds.nth(number).click()
        expect(page.locator("#results-title")).to_have_text(f"Pictures for “{names[number]}”")
        expect(page.locator("#hits .labels").first).to_contain_text(names[number])
        clear.click()
    examples = page.locator(".texts button")
    firsts = set()
    for number in range(examples.count()):
        title = page.locator("#results-title").inner_text()
        examples.nth(number).click()
        expect(page.locator("#results-title")).not_to_have_text(title)
        firsts.add(page.locator("#hits .labels").first.inner_text().splitlines()[0])
        clear.click()
    assert len(firsts) == min(examples.count(), len(names))
    for query, words in (
        (
            "car",
            "words that are spelled alike decide",
        ),  # there are "cars"; the parts of "car" are a cat's, too
        ("sailboat", "knows no word of the query"),
        ("two dogs", "does not know 'dogs'"),
        ("umbrela", "ranked by 'umbrella' instead"),
    ):
        page.get_by_role("searchbox").fill(query)
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator("#notices")).to_contain_text(words)
    page.locator("#notices button").first.click()
    expect(page.locator("#results-title")).to_contain_text("Pictures for “umbrella")
    assert watch.complaints == []


def refuse_lists(route: Route) -> None:
    """Let a collection be made, and refuse the key that asks for the list of them."""
    if route.request.method == "GET":
        route.fulfill(status=401, json={"title": "Key refused", "status": 401})
    else:
        route.continue_()


def test_whoever_opens_the_form_before_giving_a_key_can_go_on(
    page: Page, start_server: Callable[..., Any], create_admin_key: Callable[[], str]
) -> None:
    """The key, a lost connection and a training elsewhere each change the page without a reload."""
    key, name = create_admin_key(), "mine"
    server = start_server("--no-worker")
    page.goto(f"{server.url}/collection")
    expect(page.get_by_label("This needs a key")).to_be_visible()
    page.get_by_text("New collection", exact=True).click()
    expect(page.get_by_role("button", name="Create")).to_be_hidden()  # there is nothing to create yet
    page.get_by_label("This needs a key").fill("lrbs_wrong")
    page.get_by_role("button", name="Use key").click()
    expect(page.get_by_role("alert")).to_contain_text("The service refused this key")
    page.get_by_label("This needs a key").fill(key)
    page.get_by_role("button", name="Use key").click()
    expect(page.get_by_role("group", name="kind")).to_have_count(2)
    expect(page.get_by_role("alert")).to_be_hidden()
    page.locator("#new-name").fill(name)
    page.route("**/v1/collections", refuse_lists)
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_label("This needs a key")).to_be_visible()
    page.unroute("**/v1/collections", refuse_lists)
    page.get_by_label("This needs a key").fill(key)
    page.get_by_role("button", name="Use key").click()  # which does not make it a second time
    expect(page.get_by_label("Collection", exact=True)).to_have_value(name)
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.locator("#new-name")).to_be_hidden()
    expect(page.locator("#adding")).to_have_attribute("open", "")  # nothing is on its way any more
    page.evaluate("sessionStorage.clear()")
    page.get_by_text("New collection", exact=True).click()
    page.locator("#new-name").fill("once")
    for _ in range(2):  # as whoever misses the form for the key does
        with page.expect_response(lambda response: response.status == 401):
            page.get_by_role("button", name="Create").click()
    page.locator("#key").fill(key)
    page.get_by_role("button", name="Use key").click()
    expect(page.get_by_label("Collection", exact=True)).to_have_value("once")
    expect(page.get_by_role("alert")).to_be_hidden()

    with server.client(key) as client:
        client.delete_collection(name)
        client.create_collection(name, {"image": {"type": "vector"}, "text": {"type": "tfidf"}})
        items = [
            item
            for number in range(12)
            for item in (
                {"modality": "image", "vector": [number % 2, 1.0, number], "labels": ["ab"[number % 2]]},
                {"modality": "text", "text": f"word{number % 2}", "labels": ["ab"[number % 2]]},
            )
        ]
        client.create_items(name, items)
    page.goto(f"{server.url}/?collection={name}")
    expect(page.locator("#model-state")).to_contain_text("Not trained yet")
    port = re.search(r":(\d+)$", server.url)
    assert port is not None
    server.end()
    page.get_by_label("Collection", exact=True).dispatch_event("change")
    page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    again = start_server(LRBS_PORT=port[1])  # with a worker
    with again.client(key) as client:
        job = client.wait_for_job(client.retrain(name).id, timeout=120.0)
        assert job.state == "succeeded", job
    expect(page.locator("#model-state")).to_have_text("Model 1 is live.", timeout=30_000)
    expect(page.get_by_role("alert")).to_be_hidden()
    page.get_by_role("searchbox").fill("word1")
    page.get_by_role("searchbox").press("Enter")
    expect(page.locator("#hits > li")).to_have_count(12)
    again.end()
    page.get_by_role("searchbox").fill("word0")
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("The service does not answer")
    start_server("--no-worker", LRBS_PORT=port[1])
    expect(page.locator("#results-title")).to_contain_text("word0", timeout=30_000)
    expect(page.get_by_role("alert")).to_be_hidden()
    away = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"title": "Storage unavailable"}}
    page.route(re.compile("/search/|/readyz"), lambda route: route.fulfill(**away))
    page.get_by_role("searchbox").fill("word1")
    page.get_by_role("searchbox").press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Storage unavailable")
    page.unroute_all()
    expect(page.locator("#results-title")).to_contain_text("word1", timeout=30_000)
    expect(page.get_by_role("alert")).to_be_hidden()
