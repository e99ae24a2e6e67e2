"""The page of one model version, in a browser: figures, plots with their numbers, worst and best queries."""

import contextlib
import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, Route, expect

from app.client import Client
from tests.app.e2e.browsing import Watch, check_widths, wait_for_images

pytestmark = pytest.mark.browser

KINDS = ["precision-recall", "precision-scope", "reliability"]
RELIABILITY = "figure[data-kind=reliability]"


def test_a_version_is_shown_in_figures_plots_and_queries(
    page: Page, watch: Watch, demo_server: str, demo_key: str
) -> None:
    headers = {"Authorization": f"Bearer {demo_key}"}
    address = f"{demo_server}/v1/admin/collections/sample/models/1"
    report = httpx.get(address, headers=headers, trust_env=False).raise_for_status().json()["report"]
    quality = report["held_out"]["directions"]["image-to-text"]

    page.goto(f"{demo_server}/models?collection=sample")
    page.get_by_label("Models need a key").fill(demo_key)
    page.get_by_role("button", name="Use key").click()
    page.get_by_role("link", name="Plots and queries of version 1").click()
    expect(page.get_by_role("heading", name="Version 1, live")).to_be_visible()
    expect(page.locator("#facts")).to_contain_text(f"rank {report['fit']['rank']}")
    row = page.get_by_role("row", name=re.compile("^MAP mean"))
    expect(row.get_by_role("cell").first).to_have_text(f"{quality['map']:.3f}")
    for kind in KINDS:
        expect(page.locator(f"figure[data-kind={kind}] img").first).to_be_visible()
        assert min(wait_for_images(page, f"figure[data-kind={kind}] img")) > 100, kind
    figure = page.locator("figure[data-kind=precision-recall][data-direction=image-to-text]")
    figure.get_by_text("Numbers", exact=True).press("Enter")
    shown = figure.locator("tbody tr td:nth-of-type(1)").all_inner_texts()
    assert shown == [f"{value:.3f}" for value in quality["curve"]["precision"]]
    methods = [report["method"], *quality["rivals"]]
    assert figure.locator("thead th").all_inner_texts() == ["recall", *methods]

    page.get_by_text("Worst: image to text", exact=True).press("Enter")
    examples = page.get_by_role("listitem", name="of image to text")
    expect(examples).to_have_count(len(quality["worst"]))
    worst = quality["worst"][0]
    first = examples.first
    expect(first.locator("> .hit img")).to_be_visible()
    expect(first.locator("> .hit")).to_contain_text(f"average precision {worst['average_precision']:.3f}")
    ids = first.locator("ul .hit").evaluate_all("cards => cards.map(card => card.dataset.id)")
    assert ids == [hit["id"] for hit in worst["hits"]]
    marks = ["✓ relevant" if hit["relevant"] else "✗ not relevant" for hit in worst["hits"]]
    expect(first.locator("ul .mark")).to_have_text(marks)
    check_widths(page)
    assert watch.complaints == []
    assert watch.hosts == {demo_server.removeprefix("http://")}

    page.goto(f"{demo_server}/model?collection=sample&version=99")
    expect(page.get_by_role("alert")).to_contain_text("no model version 99")


BUSY: dict[str, Any] = {"status": 503, "json": {"title": "Service overloaded"}}


def test_the_address_decides_what_is_shown_and_a_busy_service_is_asked_again_for_plots(
    page: Page, demo_server: str, demo_key: str
) -> None:
    page.add_init_script(f"sessionStorage.setItem('lrbs-key', '{demo_key}')")
    held: list[Route] = []
    page.route("**/models/1", lambda route: held.append(route), times=1)
    waits = iter(("0.01", "0.01", "3600"))
    page.route(
        "**/plots/reliability*",
        lambda route: route.fulfill(**BUSY, headers={"Retry-After": next(waits)}),
        times=3,
    )
    with page.expect_request("**/models/1"):
        page.goto(f"{demo_server}/model?collection=sample")
    page.evaluate("history.pushState(null, '', '/model?collection=sample&version=99')")
    page.evaluate("dispatchEvent(new PopStateEvent('popstate'))")
    expect(page.get_by_role("alert")).to_contain_text("no model version 99")
    with contextlib.suppress(PlaywrightError):  # of a request that the page gave up
        held[0].continue_()
    page.wait_for_load_state("networkidle")
    expect(page.locator("#report")).to_be_hidden()
    expect(page.get_by_role("alert")).to_contain_text("no model version 99")

    page.go_back()
    curves, reliability = page.locator("figure[data-kind=precision-recall]"), page.locator(RELIABILITY)
    expect(page.locator("#no-plots")).to_contain_text("Service overloaded")
    expect(reliability.get_by_role("table")).to_be_visible()
    expect(reliability.locator("img")).to_be_hidden()
    expect(curves.first.locator("img")).to_be_visible()
    page.emulate_media(color_scheme="dark")  # draws anew
    expect(reliability.locator("img")).to_be_visible()
    expect(page.locator("#no-plots")).not_to_contain_text("overloaded")


def test_columns_and_doubtful_labels_are_shown_as_text(
    page: Page, watch: Watch, demo_server: str, demo_key: str
) -> None:
    markup = "<img src=x onerror=alert(1)>"
    facts = {"id": "image-1", "modality": "image", "facet": "label", "carried": markup, "likely": "circle"}
    columns = [
        {"name": "colour", "weight": 0.5, "reason": "ranked better"},
        {"name": markup, "weight": None, "reason": "no better than by chance"},
    ]

    with Client(demo_server, demo_key) as client:
        stored = [client.list_items("sample", modality=name, limit=1).items[0] for name in ("image", "text")]

    def answer(route: Route) -> None:
        model = route.fetch().json()
        doubts = [{**facts, "probability": 0.987}]
        doubts += [{**doubts[0], "id": item.id, "modality": item.modality} for item in stored]
        model["report"]["data"] |= {"columns": columns, "doubtful": doubts}
        route.fulfill(json=model)

    page.add_init_script(f"sessionStorage.setItem('lrbs-key', '{demo_key}')")
    page.route("**/models/1", answer)
    page.goto(f"{demo_server}/model?collection=sample")
    rows = page.locator("#columns tbody tr")
    expect(rows).to_have_count(2)
    assert [row.split("\t") for row in rows.all_inner_texts()] == [
        ["colour", "0.500", "ranked better"],
        [markup, "out", "no better than by chance"],
    ]
    doubtful = page.get_by_role("table", name="Labels worth a look").locator("tbody tr")
    expect(doubtful.locator("td")).to_have_text(["label", markup, "circle", "0.987"] * 3)
    expect(doubtful.nth(1).locator("a img")).to_be_visible()
    expect(doubtful.nth(2).locator("a")).to_contain_text(stored[1].text or "none")
    expect(doubtful.get_by_role("link", name="image-1", exact=True)).to_have_attribute(
        "href", "./?collection=sample&from=image&to=text&item=image-1"
    )
    check_widths(page)
    assert watch.complaints == []
