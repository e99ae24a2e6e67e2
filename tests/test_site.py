"""The documentation builds without a warning, is complete, and needs nothing from outside."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

from app.bootstrap import build
from app.main import create_app
from app.settings import Settings
from tests.test_language import PUBLIC

ROOT = Path(__file__).parents[1]
LOADING = {"src", "srcset", "data", "poster"}
"""Attributes whose address a browser loads by itself; a link does so in a `<link>` only."""
OUTSIDE = re.compile(r"""(^|[\s,('"])(https?:)?//""")
OUTSIDE_IN_STYLES = re.compile(r"""(url\(|@import)\s*["']?(https?:)?//""")
OUTSIDE_IN_SCRIPTS = re.compile(r"""(fetch|import|importScripts|open|\.src\s*=)\s*\(?\s*["'`](https?:)?//""")


class Site(HTMLParser):
    """What the pages of a site are made of."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.ids: set[str] = set()
        self.loaded: list[str] = []
        self.links: list[tuple[Path, str]] = []
        self.pages = sorted(folder.rglob("*.html"))
        for page in self.pages:
            self._page = page
            self.reset()
            self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            text = value or ""
            if name == "id":
                self.ids.add(text)
            is_loaded = name in LOADING or (name, tag) == ("href", "link")
            if is_loaded or (name == "style" and OUTSIDE_IN_STYLES.search(text)):
                self.loaded.append(text)
            if name in ("href", "src"):
                self.links.append((self._page, text))

    def broken(self) -> Iterator[str]:
        """Yield the links to files of the site that are not there."""
        for page, link in self.links:
            parts = urlsplit(urldefrag(link).url)
            if not parts.scheme and not parts.netloc and not (page.parent / unquote(parts.path)).exists():
                yield f"{page.relative_to(self.folder)}: {link}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, str(ROOT / ".ci" / "docs" / "build.py"), str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return Site(folder / "html")


def test_every_notebook_is_a_page_with_its_text_and_its_code(site: Site) -> None:
    for script in sorted(ROOT.glob("*/examples/*.py")):
        page = (site.folder / script.relative_to(ROOT)).with_suffix(".html").read_text(encoding="utf-8")
        text = script.read_text(encoding="utf-8")
        title = re.search(r"^# # (.+)$", text, re.MULTILINE)
        assert title is not None
        assert title[1] in page
        assert page.count('class="highlight-python') == len(re.findall(r"^# %%$", text, re.MULTILINE))


def test_every_public_name_of_solver_and_client_is_described(site: Site) -> None:
    names = {f"{module}.{name}" for module in PUBLIC for name in importlib.import_module(module).__all__}
    assert len(names) > 100
    assert names - site.ids == set()


def test_every_route_and_model_is_described(site: Site, tmp_path: Path) -> None:
    services = build(Settings(data_dir=tmp_path, database_url=""))
    document = create_app(services).openapi()
    services.database.engine.dispose()
    routes = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    anchors = [
        *(f"route-{name}" for name in routes),
        *(f"schema-{name}" for name in document["components"]["schemas"]),
    ]
    assert len(anchors) > 50
    assert {anchor.lower().replace("_", "-") for anchor in anchors} - site.ids == set()


def test_no_page_loads_anything_from_outside(site: Site) -> None:
    assert len(site.pages) > 25
    assert len(site.loaded) > len(site.pages)
    assert [address for address in site.loaded if OUTSIDE.search(address)] == []
    for pattern, name in ((OUTSIDE_IN_STYLES, "*.css"), (OUTSIDE_IN_SCRIPTS, "*.js")):
        files = list(site.folder.rglob(name))
        assert files
        assert [file.name for file in files if pattern.search(file.read_text(encoding="utf-8"))] == []


def test_every_link_inside_the_site_leads_to_a_file(site: Site) -> None:
    assert list(site.broken()) == []


def test_the_picture_of_the_readme_is_there_and_small() -> None:
    (address,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert 10_000 < (ROOT / address).stat().st_size <= 150_000
