"""Take the picture of the page that the README shows, of a demo that is drawn and trained for it.

    python .ci/docs/picture.py

needs Chromium, and writes .github/page.webp.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

PICTURE = Path(__file__).parents[2] / ".github" / "page.webp"
LARGEST = 150_000
"""Bytes that a visitor of the README loads."""
QUERY = "sailing boats at sunset"
SIZE = {"width": 1280, "height": 1000}


def photograph(url: str) -> bytes:
    """Return a screenshot of the page with the results of a query."""
    browsers = ("chromium", "chromium-browser", "google-chrome")
    program = next(path for path in map(shutil.which, browsers) if path)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(url)
        page.get_by_role("searchbox").fill(QUERY)
        page.get_by_role("searchbox").press("Enter")
        expect(page.locator("#hits img:not([src])")).to_have_count(0)
        page.locator("#hits img").evaluate_all("images => Promise.all(images.map(image => image.decode()))")
        screenshot = page.screenshot()
        browser.close()
    return screenshot


def main() -> None:
    """Draw the demo, take the picture, and end the demo."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "app.cli", "demo", "--no-open"]
        settings = {"LRBS_DATA_DIR": folder, "LRBS_PORT": "0"}
        with subprocess.Popen(
            command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as demo:
            lines = iter(demo.stdout or [])
            url = next(found[1] for line in lines if (found := re.search(r"serves on (http://\S+)", line)))
            screenshot = photograph(url)
            demo.send_signal(signal.SIGINT)
    Image.open(io.BytesIO(screenshot)).save(PICTURE, "WEBP", quality=80, method=6)
    size = PICTURE.stat().st_size
    if size > LARGEST:
        sys.exit(f"{PICTURE.name} has {size} bytes, {LARGEST} are the most")


if __name__ == "__main__":
    main()
