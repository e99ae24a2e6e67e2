"""Configuration of Sphinx; `build.py` beside it collects the documents and starts it."""

import importlib.metadata
import re
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "LRBS"
release = importlib.metadata.version("lrbs")
root_doc = "README"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

html_theme = "furo"  # its styles, scripts and icons are files of the site; it has no fonts of its own
html_title = "LRBS"
html_copy_source = False
html_show_sourcelink = False

myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings describe types, in words and shapes
python_maximum_signature_line_length = 90
suppress_warnings = [
    "misc.highlighting_failure",  # a command may go on over lines inside its quotes
    "ref.python",  # a word of a type, such as "rank", may be the name of several attributes
]


_LITERAL = re.compile(r"(``.*?``|`[^`]+`)")


def adapt_docstring(app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Make the numbers of references those of one page, and bars of formulas plain characters."""
    label = name.rpartition(".")[2]
    for number, line in enumerate(lines):
        parts = _LITERAL.split(line)
        parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
        is_listed = line.lstrip().startswith(".. [")
        mark = "" if is_listed else "_"
        lines[number] = re.sub(rf"\[(\d+)\]{mark}", rf"[{label}-\1]{mark}", "".join(parts), count=is_listed)


def skip_member(app: Sphinx, what: str, name: str, value: object, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn gives every estimator to pass metadata on, which none here does."""
    return True if name == "get_metadata_routing" or re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> None:
    """Adapt docstrings before napoleon reads them; show diagrams as text, for what draws them is outside."""
    app.connect("autodoc-process-docstring", adapt_docstring, priority=400)
    app.connect("autodoc-skip-member", skip_member)
    app.add_lexer("mermaid", TextLexer)
