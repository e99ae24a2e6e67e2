"""The page of a collection's models, in a browser: its key, trainings, versions, activation, comparison."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from app.answers import Job, RetrainingPolicy
from app.client import Client
from tests.app.e2e.browsing import Watch, check_widths

pytestmark = pytest.mark.browser

NAME = "drawings"
VECTORS = {"sound": "vector", "sketch": "vector"}
MARKUP = "<img src=x onerror=alert(1)>"
BUSY: dict[str, Any] = {
    "status": 503,
    "headers": {"Retry-After": "1"},
    "json": {"title": "Service overloaded"},
}


def items(side: str, encoder: str, start: int, stop: int) -> list[dict[str, Any]]:
    """Items of two classes, whose label, metadata and text are HTML."""
    contents: dict[str, Callable[[int], dict[str, Any]]] = {
        "vector": lambda n: {"vector": [n % 2, 1 - n % 2, n / 100]},
        "tfidf": lambda n: {"text": f"{MARKUP} {('red', 'blue')[n % 2]} number {n}"},
        "hog-color": lambda n: {"picture": picture(n)},
    }
    facts = [{"labels": [f"{MARKUP} {n % 2}"], "metadata": {MARKUP: n // 2 % 2}} for n in range(start, stop)]
    return [
        {"id": f"{side}-{n}", "modality": side, **fact, **contents[encoder](n)}
        for n, fact in enumerate(facts, start)
    ]


def picture(number: int) -> bytes:
    """A red or a blue picture, the higher the number the darker."""
    stored = io.BytesIO()
    shade = 250 - 5 * number
    Image.new("RGB", (32, 32), (0, 0, shade) if number % 2 else (shade, 0, 0)).save(stored, "PNG")
    return stored.getvalue()


def add_items(client: Client, name: str, encoders: dict[str, str], start: int, stop: int) -> None:
    for side, encoder in encoders.items():
        client.create_items(name, items(side, encoder, start, stop))


@contextmanager
def collection(client: Client, name: str, encoders: dict[str, str]) -> Iterator[str]:
    """Make a collection with 40 items of each modality, of which 8 are held out; yield its address."""
    client.create_collection(name, {side: {"type": encoder} for side, encoder in encoders.items()})
    add_items(client, name, encoders, 0, 40)
    yield f"/models?collection={name}"
    client.delete_collection(name)


def train(client: Client, **options: Any) -> None:
    job = client.wait_for_job(client.retrain(NAME, **options).id)
    assert job.state == "succeeded", job.error


@pytest.fixture(scope="module")
def trained(client: Client) -> Iterator[str]:
    """The address of a collection with two versions, of which the second is live."""
    with collection(client, NAME, {"image": "hog-color", "text": "tfidf"}) as address:
        train(client, method="lrbs", alpha=0.001)
        train(client, method="composite", reason="<b>new prices</b>")
        yield address


@pytest.fixture
def untrained(client: Client) -> Iterator[str]:
    with collection(client, "pupils", VECTORS) as address:
        yield address


def version(page: Page, number: int) -> Locator:
    return page.locator(f".version[data-version='{number}']")


def give_key(page: Page, key: str) -> None:
    page.get_by_label("Models need a key").fill(key)
    page.get_by_role("button", name="Use key").click()


def test_nothing_is_shown_without_a_key_which_is_asked_for_once(
    page: Page, watch: Watch, demo_server: str, demo_key: str, trained: str, client: Client
) -> None:
    page.goto(f"{demo_server}{trained}")
    expect(page.get_by_label("Models need a key")).to_be_focused()
    expect(page.locator("#managed")).to_be_hidden()
    give_key(page, demo_key)
    expect(page.get_by_role("heading", name="2 versions; version 2 is live")).to_be_visible()
    expect(page.locator("#key-form")).to_be_hidden()
    expect(page.locator("#retraining")).to_have_text("Trained when somebody asks for it")
    page.get_by_label("Collection", exact=True).select_option("sample")
    expect(page.get_by_role("heading", name="One version; version 1 is live")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="2 versions; version 2 is live")).to_be_visible()
    expect(version(page, 2).locator("p.facts")).to_contain_text("· <b>new prices</b>")
    client.set_retraining(NAME, changed_items=500, hours=24.0, quiet_hours=(22, 6))
    page.reload()
    expect(page.locator(".version")).to_have_count(2)
    shown = "Trained by itself after 500 changed items or 24 hours with changes, from 22:00 to 6:00 UTC"
    expect(page.locator("#retraining")).to_have_text(shown)
    page.locator("#retraining").click()
    expect(page.get_by_label("changed items")).to_have_value("500")
    page.get_by_label("changed items").fill("")
    page.get_by_label("judgements").fill("7")
    page.get_by_role("spinbutton", name="to", exact=True).fill("")
    page.get_by_role("button", name="Store").click()
    expect(page.get_by_role("alert")).to_contain_text("One of the two hours is missing")
    page.get_by_role("spinbutton", name="from", exact=True).fill("")
    page.get_by_role("button", name="Store").click()
    expect(page.locator("#retraining")).to_have_text(
        "Trained by itself after 7 judgements or 24 hours with changes"
    )
    policy = client.get_collection(NAME).retraining
    assert policy == RetrainingPolicy(judgements=7, hours=24.0)
    for field in ("judgements", "hours with changes"):
        page.get_by_label(field).fill("")
    page.get_by_role("button", name="Store").click()
    expect(page.locator("#retraining")).to_have_text("Trained when somebody asks for it")
    assert client.get_collection(NAME).retraining == RetrainingPolicy()
    page.get_by_role("link", name="Search").click()
    expect(page.locator("#model-state")).to_have_text("Model 2 is live.")
    page.get_by_role("link", name="Models").click()
    expect(page.locator(".version")).to_have_count(2)
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_label("Models need a key")).to_be_focused()
    expect(page.locator("#managed")).to_be_hidden()
    assert watch.complaints == []


def test_a_key_that_may_not_train_is_refused_readably(
    page: Page, demo_server: str, client: Client, trained: str
) -> None:
    key = client.create_key("write")
    page.goto(f"{demo_server}{trained}")
    give_key(page, "none")
    expect(page.get_by_role("alert")).to_contain_text("refused this key")
    assert key.secret is not None
    give_key(page, key.secret)
    expect(page.get_by_role("alert")).to_contain_text("scope")
    expect(page.locator("#managed")).to_be_hidden()
    expect(page.get_by_label("Models need a key")).to_be_visible()
    client.revoke_key(key.id)


def test_versions_show_their_quality_and_are_activated_and_rolled_back(
    page: Page, watch: Watch, demo_server: str, demo_key: str, trained: str, client: Client
) -> None:
    page.goto(f"{demo_server}{trained}")
    give_key(page, demo_key)
    expect(version(page, 2)).to_contain_text("compares what labels, facets and pairs have taught")
    expect(version(page, 2).get_by_text("live", exact=True)).to_be_visible()
    for number in (1, 2):
        report = client.get_model(NAME, number).report
        quality = report["held_out"]["directions"]["image-to-text"]
        row = version(page, number).get_by_role("row", name=re.compile("^MAP "))
        expect(row.first.get_by_role("cell").first).to_have_text(f"{quality['map']:.3f}")
    expect(version(page, 2).get_by_role("row", name=f"P@10 {MARKUP}")).to_be_visible()

    activate = version(page, 1).get_by_role("button", name="Activate version 1")
    activate.press("Enter")
    expect(version(page, 1)).to_contain_text("in the place of version 2")
    version(page, 1).get_by_label("Reason").press("Escape")
    expect(activate).to_be_focused()
    activate.click()
    version(page, 1).get_by_label("Reason").fill(f"{MARKUP} better")
    version(page, 1).get_by_role("button", name="Activate", exact=True).click()
    expect(page.get_by_role("heading", name="2 versions; version 1 is live")).to_be_visible()
    expect(page.locator("#status")).to_have_text("Version 1 is live")
    expect(page.locator("#versions")).to_be_focused()
    page.get_by_text("History", exact=True).click()
    expect(page.locator("#activations li").first).to_contain_text(f"{MARKUP} better")

    page.get_by_role("button", name="Roll back to version 2").click()
    page.get_by_role("button", name="Roll back", exact=True).click()
    expect(page.get_by_role("heading", name="2 versions; version 2 is live")).to_be_visible()
    assert client.get_collection(NAME).active_version == 2
    assert watch.complaints == []

    client.activate_model(NAME, 1)  # by another, meanwhile
    page.get_by_role("button", name="Roll back to version 1").click()
    page.get_by_role("button", name="Roll back", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("version 1")
    expect(page.get_by_role("heading", name="2 versions; version 1 is live")).to_be_visible()
    client.activate_model(NAME, 2)

    version(page, 1).get_by_role("link", name="Plots and queries of version 1").click()
    for kind in ("singular-values", "convergence"):
        expect(page.locator(f"figure[data-kind={kind}] img")).to_be_visible()
    expect(page.locator("#quality")).to_contain_text(f"P@10 {MARKUP}")
    page.get_by_text("Worst: text to image", exact=True).press("Enter")
    expect(page.locator("#queries .example").first).to_contain_text(MARKUP)
    assert page.locator("img[src=x]").count() == 0
    report = Axe().run(page).generate_report()  # of the figures that the sample's model does not have
    assert report.startswith("Found 0 "), report


def test_an_encoder_is_changed_by_a_training(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client
) -> None:
    with collection(client, "recoded", {"image": "hog-color", "text": "tfidf"}) as address:
        page.goto(f"{demo_server}{address}")
        give_key(page, demo_key)
        page.route("**/v1/encoders", lambda route: route.fulfill(**BUSY), times=1)
        page.get_by_role("button", name="Train", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("Service overloaded")
        watch.complaints.clear()  # the browser tells of every refusal
        page.get_by_role("button", name="Train", exact=True).click()
        page.get_by_text("More options", exact=True).click()
        side = page.get_by_role("group", name="Encoder of “text”")
        choice = side.get_by_label("Encoder", exact=True)
        expect(choice.locator("option").first).to_have_text("as now: tfidf")
        expect(choice).not_to_contain_text("hog-color")
        choice.select_option("word-frequency")
        expect(side).to_contain_text("frequencies of words")
        choice.select_option("combine")
        parts = side.get_by_label("parts")
        parts.fill('[{"type": "tfidf"')
        assert parts.evaluate("field => field.validationMessage") == "parts: no list in JSON"
        parts.fill('[{"type": "tfidf"}, {"type": "word-frequency", "max_words": 50}]')
        assert parts.evaluate("field => field.validationMessage") == ""
        side.get_by_text("Options", exact=True).click()
        side.get_by_label("steps").fill("sqrt, l2")
        page.get_by_label("alpha").fill("0.001")
        page.get_by_role("button", name="Continue").click()
        expect(page.locator("#chosen-options")).to_contain_text("“text” items again, by combine")
        page.get_by_role("button", name="Start the training").click()
        expect(page.get_by_role("heading", name="One version; version 1 is live")).to_be_visible(
            timeout=180_000
        )
        text = client.get_collection("recoded").modalities["text"]
        words = {"type": "word-frequency", "max_words": 50}
        assert text.encoder == {
            "type": "combine",
            "parts": [{"type": "tfidf", "characters": 5}, words],
            "steps": ["sqrt", "l2"],
        }
        page.get_by_role("button", name="Retrain", exact=True).click()
        expect(choice.locator("option").first).to_have_text("as now: combine")
        expect(choice).to_have_value("")
        page.set_viewport_size({"width": 360, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert watch.complaints == []


def expect_sides(block: Locator, client: Client, direction: str, query: dict[str, Any]) -> None:
    """Check that both versions' answers to a query are shown, beside each other and as text."""
    for number in (2, 1):
        hits = client.search_version(NAME, number, *direction.split("-to-"), **query).hits
        shown = block.get_by_role("group", name=f"Version {number}").locator("li")
        expect(shown).to_have_count(len(hits))
        for place in (0, len(hits) - 1):
            expect(shown.nth(place)).to_contain_text(f"#{place + 1} · {hits[place].score:.3f}")
            assert hits[place].labels
            expect(shown.nth(place)).to_contain_text(hits[place].text or hits[place].labels[0])


def test_two_versions_answer_the_same_queries_side_by_side(
    page: Page, watch: Watch, demo_server: str, demo_key: str, trained: str, client: Client
) -> None:
    page.goto(f"{demo_server}{trained}")
    give_key(page, demo_key)
    compared = page.locator("#compared > li")
    expect(page.get_by_label("Version", exact=True)).to_have_value("2")
    expect(page.get_by_label("and version")).to_have_value("1")
    expect(page.get_by_label("A picture as the query")).to_be_hidden()
    page.get_by_role("searchbox").fill("blue")
    page.get_by_role("searchbox").press("Enter")
    expect(compared).to_have_count(1)
    expect(compared.get_by_role("heading", level=3)).to_have_text("Pictures for “blue”")
    expect(compared.locator("img:not([src])")).to_have_count(0)
    expect_sides(compared, client, "text-to-image", {"text": "blue"})

    page.get_by_label("find").select_option("texts for pictures")
    expect(page.get_by_role("searchbox")).to_be_hidden()
    file = {"name": f"{MARKUP}.png", "mimeType": "image/png", "buffer": picture(4)}
    page.get_by_label("A picture as the query").set_input_files(file)
    expect(compared).to_have_count(2)
    expect(compared.first.get_by_role("heading", level=3)).to_have_text(f"Texts for {MARKUP}.png")
    expect_sides(compared.first, client, "image-to-text", {"item_id": "image-4"})

    page.get_by_role("button", name="Take 5 pictures of the collection").press("Enter")
    expect(compared).to_have_count(7)
    expect(page.locator("#status")).to_have_text("Compared by 5 queries")
    query = compared.first.get_by_role("heading", level=3).inner_text().split()[-1]
    expect_sides(compared.first, client, "image-to-text", {"item_id": query})
    page.get_by_label("and version").select_option("2")
    page.get_by_role("button", name="Take 5").click()
    expect(compared).to_have_count(12)
    expect(compared.first).to_contain_text("10 of the first 10 are the same")
    assert watch.complaints == []


def open_options(page: Page, name: str) -> Locator:
    page.get_by_role("button", name=name, exact=True).press("Enter")
    expect(page.get_by_role("heading", name="Training options")).to_be_focused()
    return page.locator("#options")


def last_job(client: Client) -> Job:
    return client.list_jobs("pupils").jobs[0]


def test_a_training_is_chosen_confirmed_followed_and_cancelled(
    page: Page, watch: Watch, demo_server: str, demo_key: str, untrained: str, client: Client
) -> None:
    state, confirmation = page.locator("#training-state"), page.locator("#confirmation")
    page.goto(f"{demo_server}{untrained}")
    give_key(page, demo_key)
    expect(page.get_by_role("heading", name="Not trained yet")).to_be_visible()
    expect(state).to_have_text("There was no training yet.")

    options = open_options(page, "Train")
    options.get_by_label("feedback").uncheck()
    options.get_by_label("metadata").select_option("chosen keys")
    options.get_by_label(MARKUP).check()
    options.get_by_label("Judge models by").select_option("map")
    options.get_by_text("More options").click()
    options.get_by_label("method").select_option("semantic")
    expect(options.get_by_label("alpha")).to_be_disabled()
    options.get_by_label("method").select_option("lrbs")
    options.get_by_label("alpha").fill("0.001")
    options.get_by_role("button", name="Continue").click()
    expect(confirmation.locator("li")).to_have_text(
        [f"learns from labels, pairs, {MARKUP}", re.compile("judged by MAP"), "method lrbs", "alpha 0.001"]
    )
    confirmation.get_by_role("button", name="Back").press("Escape")
    expect(page.get_by_role("button", name="Train", exact=True)).to_be_focused()
    open_options(page, "Train").get_by_role("button", name="Continue").click()
    confirmation.get_by_role("button", name="Start the training").press("Enter")
    expect(state).to_have_text("The last training made version 1, which is live.", timeout=120_000)
    expect(page.locator("#status")).to_contain_text("made version 1")
    expect(page.get_by_role("heading", name="One version; version 1 is live")).to_be_visible()
    expect(page.get_by_role("button", name="Retrain")).to_be_focused()
    expect(page.get_by_role("heading", name="Ended: learning from all items", exact=True)).to_be_visible()
    fit = client.get_model("pupils", 1).report["fit"]["convergence"]
    for name in ("Objective", "Relative duality gap", "Rank"):
        curve = page.get_by_role("img", name=re.compile(f"^{name}: .* at iteration {fit['iteration']}$"))
        expect(curve.locator("polyline")).to_have_attribute("points", re.compile(r"^[\d.]+,[\d.]+( |$)"))
    parameters = last_job(client).parameters
    assert (parameters["method"], parameters["alpha"], parameters["objective"]) == ("lrbs", 0.001, "map")
    supervision = {"labels": True, "facets": [MARKUP], "pairs": True, "feedback": False}
    assert parameters["supervision"] == supervision
    page.get_by_role("link", name="Search").click()
    page.locator(".chips button", has_text="sound-").first.click()
    expect(page.locator("#hits button").first).to_contain_text("sketch-")
    page.get_by_role("link", name="Models").click()
    expect(state).to_have_text("The last training made version 1, which is live.")
    assert watch.complaints == []

    for start in range(40, 3040, 500):  # so many take long enough to be cancelled
        add_items(client, "pupils", VECTORS, start, start + 500)
    options = open_options(page, "Retrain")
    for name in ("labels", "pairs", "feedback"):
        options.get_by_label(name).uncheck()
    options.get_by_label("metadata").select_option("nothing")
    options.get_by_role("button", name="Continue").click()
    expect(confirmation).to_contain_text("learns from nothing")
    confirmation.get_by_role("button", name="Start the training").click()
    expect(page.get_by_role("alert")).to_contain_text("all of it is left out")
    watch.complaints.clear()  # the browser tells of every refusal
    confirmation.get_by_role("button", name="Back").click()
    for name in ("labels", "pairs"):
        options.get_by_label(name).check()
    options.get_by_label("Judge models by").select_option("weights")
    weights = page.get_by_role("group", name="Weights")
    weights.get_by_label("nDCG@10").fill("2.5")
    weights.get_by_label("MAP").fill("")
    options.get_by_role("button", name="Continue").click()
    confirmation.get_by_role("button", name="Start the training").click()
    page.get_by_role("button", name="Cancel the training").click()
    expect(state).to_have_text("The last training was cancelled; it changed nothing.")
    expect(page.get_by_role("button", name="Retrain")).to_be_focused()
    assert last_job(client).parameters["objective"] == {"ndcg": 2.5, "map": 0.0, "recall": 1.0}

    client.retrain("pupils", method="semantic")  # asked for elsewhere
    page.route("**/events", lambda route: route.abort(), times=1)
    page.route("**/events", lambda route: route.fulfill(**BUSY), times=1)  # comes first
    page.reload()
    expect(state).to_contain_text("The service is busy; the training goes on")
    expect(state).to_contain_text("The connection was lost")
    expect(state).to_contain_text(" %")
    watch.complaints.clear()  # the browser tells of the lost connection
    expect(page.get_by_role("progressbar", name="Training")).to_be_visible()
    page.get_by_role("button", name="Cancel the training").click()
    expect(state).to_have_text("The last training was cancelled; it changed nothing.")
    client.retrain("pupils", method="squared", alpha=0.001, scaling="none")  # learns fast from so many
    page.reload()
    expect(state).to_contain_text("The last training made version 2", timeout=180_000)
    choices = client.get_model("pupils", 2).report["index"]["choices"]
    for side in ("sound", "sketch"):
        kind, reason = choices[side]["spec"]["kind"], choices[side]["reason"]
        expect(version(page, 2)).to_contain_text(
            f"{side} is searched exactly: {reason}."
            if kind == "exact"
            else f"{side} is searched by inverted lists, which found "
        )
    assert watch.complaints == []


def test_a_version_of_few_items_is_shown_with_a_warning_its_fit_and_markup_as_text(
    page: Page, watch: Watch, demo_server: str, demo_key: str, client: Client, trained: str
) -> None:
    report = client.get_model(NAME, 1).report
    fit, held_out = report["fit"], report["held_out"]
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(f"{demo_server}{trained}")
    give_key(page, demo_key)
    page.get_by_role("link", name="Plots and queries of version 1").click()
    expect(page.get_by_role("heading", name="Version 1", exact=True)).to_be_visible()
    counts = " and ".join(f"{count} of {side}" for side, count in held_out["items"].items())
    expect(page.locator("#remarks li").first).to_contain_text(f"rest on few held-out items, {counts}")
    numbers = {
        "singular-values": [[str(row), float(value)] for row, value in enumerate(fit["singular_values"], 1)],
        "convergence": [[str(step["iteration"]), step["objective"]] for step in fit["history"]],
    }
    for kind, expected in numbers.items():
        figure = page.locator(f"figure[data-kind={kind}]")
        expect(figure.locator("img")).to_be_visible()
        figure.get_by_text("Numbers", exact=True).press("Enter")
        rows = figure.locator("tbody tr").evaluate_all(
            "rows => rows.map(({ cells }) => [...cells].map(cell => cell.innerText))"
        )
        shown = [[name, float(value)] for name, value, *_ in rows]
        assert [name for name, _ in shown] == [name for name, _ in expected]
        assert [value for _, value in shown] == pytest.approx([value for _, value in expected], rel=1e-3)
    expect(page.locator("#no-plots")).to_be_hidden()

    page.get_by_text("Worst: image to text", exact=True).press("Enter")
    example = page.get_by_role("listitem", name="of image to text").first
    expect(example.locator("ul .hit-text").first).to_contain_text(MARKUP)
    expect(example.locator("> .hit .labels")).to_contain_text(MARKUP)
    assert page.locator("img[src=x], [onerror]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360

    page.get_by_label("Version", exact=True).select_option("2")
    expect(page.get_by_role("heading", name="Version 2, live")).to_be_visible()
    expect(page.locator("#no-plots")).to_contain_text("composite is no single matrix M")
    client.create_collection("few", {side: {"type": "vector"} for side in VECTORS})
    add_items(client, "few", VECTORS, 0, 4)
    client.wait_for_job(client.retrain("few").id)
    for address in ("models?collection=few", "model?collection=few&version=1"):
        page.goto(f"{demo_server}/{address}")
        expect(page.locator("#remarks, .remarks")).to_contain_text("too few items are held out for figures")
        expect(page.locator("main").get_by_text("too few items").filter(visible=True)).to_have_count(1)
    client.delete_collection("few")
    assert watch.complaints == []


def test_nothing_is_wider_than_the_window(page: Page, demo_server: str, demo_key: str, trained: str) -> None:
    page.goto(f"{demo_server}{trained}")
    give_key(page, demo_key)
    version(page, 1).get_by_role("button", name="Activate version 1").click()
    open_options(page, "Retrain").get_by_text("More options").click()
    expect(page.get_by_label("max_iter")).to_be_visible()
    check_widths(page)
