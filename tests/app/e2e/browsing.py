"""What a page in a browser says and asks, for the tests of every page."""

import time
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request, Route


class Watch:
    """What a page said on its console and whom it asked."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._see)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _see(self, request: Request) -> None:
        if request.url.startswith(("http:", "https:", "ws:", "wss:")):
            self.hosts.add(urlsplit(request.url).netloc)


def check_widths(page: Page) -> None:
    """Check that nothing is wider than the window, on a desk and then on a phone."""
    for width in (1400, 360):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def visit(page: Page, address: str) -> None:
    """Go to another address of the open page, as forwards and backwards do: nothing is loaded again."""
    page.evaluate(
        "address => { history.pushState(null, '', address); dispatchEvent(new PopStateEvent('popstate')); }",
        address,
    )


def hold_first(page: Page, address: str) -> list[Route]:
    """Keep the first request of an address unanswered; it is in the list once the page has sent it."""
    held: list[Route] = []
    page.route(address, lambda route: route.continue_() if held else held.append(route))
    return held


def wait_for_held(page: Page, held: list[Route]) -> None:
    """Wait until a request is held: if it is cancelled before that, the next one is held instead."""
    deadline = time.monotonic() + 30
    while not held:
        assert time.monotonic() < deadline, "the page did not ask"
        page.wait_for_timeout(20)


def wait_for_images(page: Page, place: str) -> list[int]:
    """Wait until what a place shows is drawn, though the page may change it meanwhile; returns the widths."""
    deadline = time.monotonic() + 30
    script = "images => images.map(image => image.complete ? image.naturalWidth : 0)"
    while not (widths := page.locator(place).evaluate_all(script)) or min(widths) == 0:
        assert time.monotonic() < deadline, "the page does not draw its images"
        page.wait_for_timeout(20)
    return widths


def drop(page: Page, place: str, dropped: Path | str) -> None:
    """Drop a file or a folder of the disk, or a text, onto an element, as the window system does."""
    target = page.locator(place)
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    assert box is not None
    data = (
        {"items": [], "files": [str(dropped)], "dragOperationsMask": 1}
        if isinstance(dropped, Path)
        else {"items": [{"mimeType": "text/plain", "data": dropped}], "dragOperationsMask": 1}
    )
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2, "data": data}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, **at})
