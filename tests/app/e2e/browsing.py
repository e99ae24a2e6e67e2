"""What a page in a browser says and asks, for the tests of every page."""

from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request


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
