"""Names and sentences keep to the standard terms: what crept in before is rejected here."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("app", "solver", "migrations") for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted((ROOT / "tests" / "solver").rglob("*.py"))
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for name in ("app", "solver", "tests", ".github") for path in (ROOT / name).rglob("*.md")),
    ]
)

VARIABLES = frozenset(
    ["found", "each", "some", "held", "kept", "wanted", "told", "given", "known", "said", "asked", "meant"]
)
"""Words that say nothing of what a value is."""
PARTICIPLES = re.compile(r"_*(found|held|kept|told|given|known|shown|begun|sought|drawn|[a-z]+ed)")
"""A function is named by a verb; what is named by a participle alone is a property or a value."""
VERBS = frozenset(["embed", "feed", "seed", "need", "proceed", "speed", "exceed", "shed", "read"])
WORDS = re.compile(
    r"\b(tells?|told|anew|heed(s|ed)?|strove|speaks? of|so many|now and then|whoever|nobody)\b",
    re.IGNORECASE,
)


TEXT = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
"""Python 3.12 takes f-strings apart."""


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """Yield line number and text of every comment and string."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in TEXT:
            yield token.start[0], token.string


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line number and name of every variable and parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line number and name of every function that is not a property."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if not decorators & {"property", "cached_property", "setter"}:
                yield node.lineno, node.name


def report(path: Path, lines: Iterator[tuple[int, str]]) -> str:
    return "\n".join(f"{path.relative_to(ROOT)}:{number}: {text}" for number, text in lines)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_are_nouns_and_verbs(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    vague = report(path, ((line, name) for line, name in names(tree) if name.strip("_") in VARIABLES))
    participles = report(
        path,
        (
            (line, name)
            for line, name in functions(tree)
            if PARTICIPLES.fullmatch(name) and name.strip("_") not in VERBS
        ),
    )
    assert not vague + participles


@pytest.mark.parametrize("path", [*SOURCES, *TESTS, *DOCUMENTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_are_plain_english(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = sentences(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1)
    assert not report(path, ((number, line) for number, line in lines if WORDS.search(line)))
