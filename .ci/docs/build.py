"""Build the documentation: documents and notebooks of the repository, the docstrings, the HTTP interface.

    python .ci/docs/build.py FOLDER

writes the site into FOLDER/html, from pages collected in FOLDER/source. A warning fails it.
"""

from __future__ import annotations

import gc
import re
import shutil
import sys
from pathlib import Path

from http_pages import write_http_pages
from python_pages import write_python_pages
from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    "README.md",
    "CHANGELOG.md",
    "app/README.md",
    "app/ARCHITECTURE.md",
    "app/decisions/*.md",
    "app/tutorials/*.md",
    "solver/README.md",
    "tests/README.md",
    ".github/CONTRIBUTING.md",
    ".github/page.webp",
)
CONTENTS = {
    "Tutorials": (
        "app/tutorials/shop-owner",
        "app/tutorials/researcher",
        "app/tutorials/operator",
        "app/tutorials/encoder-author",
    ),
    "Notebooks": ("solver/examples/learn_a_similarity", "app/examples/search_a_shelf"),
    "Manuals": ("app/README", "solver/README"),
    "Reference": ("reference/python/*", "reference/http/*"),
    "The project": (
        "app/ARCHITECTURE",
        "app/decisions/README",
        ".github/CONTRIBUTING",
        "tests/README",
        "CHANGELOG",
    ),
}
HOME = '<!doctype html><meta charset="utf-8"><title>LRBS</title>\
<meta http-equiv="refresh" content="0; url=README.html"><a href="README.html">LRBS</a>\n'


def collect_documents(source: Path) -> None:
    """Copy the documents to the same places under a folder, so that the links between them hold."""
    for pattern in DOCUMENTS:
        for document in sorted(ROOT.glob(pattern)):
            copy = source / document.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(document, copy)
    add_contents(source / "README.md", CONTENTS)
    decisions = sorted(path.stem for path in (source / "app" / "decisions").glob("[0-9]*.md"))
    add_contents(source / "app" / "decisions" / "README.md", {"Decisions": tuple(decisions)})


def write_notebooks(source: Path) -> None:
    """Write the notebooks, which are scripts of cells, as documents at the same places under a folder."""
    for page in CONTENTS["Notebooks"]:
        script = f"{page}.py"
        cells = re.split(r"^# %%", (ROOT / script).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        parts = []
        for cell in cells:
            mark, _, body = cell.partition("\n")
            if mark.strip() == "[markdown]":
                parts.append(
                    "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.splitlines())
                )
            else:
                parts.append(f"```python\n{body.strip()}\n```")
        copy = source / f"{page}.md"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf-8")


def add_contents(document: Path, contents: dict[str, tuple[str, ...]]) -> None:
    """Add pages, by their captions, to what the sidebar shows below a document."""
    with document.open("a", encoding="utf-8") as stream:
        for caption, pages in contents.items():
            options = f":caption: {caption}\n:hidden:\n:glob:\n"
            stream.write("\n```{toctree}\n" + options + "\n" + "\n".join(pages) + "\n```\n")


def build(folder: Path) -> int:
    """Collect all pages and build the site; return the exit status of Sphinx."""
    shutil.rmtree(folder, ignore_errors=True)
    source, site = folder / "source", folder / "html"
    collect_documents(source)
    write_notebooks(source)
    write_python_pages(source / "reference" / "python")
    write_http_pages(source / "reference" / "http")
    here = str(Path(__file__).parent)
    strict = ["--fail-on-warning", "--keep-going", "--quiet"]
    status = build_main(
        ["-b", "html", *strict, "-c", here, "-d", str(folder / "cache"), str(source), str(site)]
    )
    if status == 0:
        (site / "index.html").write_text(HOME, encoding="utf-8")
    return status


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    gc.disable()  # a quarter of the time: pages are many small objects, of which hardly any are garbage
    sys.exit(build(Path(sys.argv[1]).absolute()))
