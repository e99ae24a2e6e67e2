"""Names, sentences and docstrings keep to the rules of the house: what crept in before is rejected here."""

import ast
import functools
import importlib
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

PUBLIC = (
    "app.answers",
    "app.client",
    "app.client.operations",
    "solver",
    "solver.benchmark",
    "solver.comparison",
    "solver.datasets",
    "solver.plots",
)
"""Modules whose `__all__` people outside read: numpydoc there, a line or two everywhere else."""
MODULE_LINES = 21
"""Of the docstring of a module, which may derive what the module computes."""
PUBLISHING = frozenset(["get", "put", "post", "patch", "delete", "command", "callback"])
"""Decorators of routes and of commands."""
REFERRING = re.compile(r"\b([Aa]s of|as in|those of) `")
"""A docstring that says so has its sections elsewhere."""

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


def docstrings(parent: Any, owner: Any = None, name: str = "") -> Iterator[tuple[Any, str, Any]]:
    """Yield each docstring, and those below names, with the class or function it is in, and its name."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from docstrings(node, node, f"{name}.{node.name}".lstrip("."))
        elif isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            yield owner or parent, name, node
        else:
            yield from docstrings(node, owner, name)


@functools.cache
def public_members() -> dict[str, object]:
    """Return the public classes and functions, and the methods that such classes have of any base here."""
    members = {}
    for module in map(importlib.import_module, PUBLIC):
        for value in (getattr(module, name) for name in module.__all__):
            if inspect.isclass(value) or inspect.isfunction(value):
                members[f"{value.__module__}.{value.__qualname__}"] = value
            for base in inspect.getmro(value) if inspect.isclass(value) else ():
                if base.__module__.startswith(("app.", "solver.")):
                    own = {name: one for name, one in vars(base).items() if not name.startswith("_")}
                    members |= {
                        f"{base.__module__}.{base.__qualname__}.{name}": getattr(value, name)
                        for name, one in own.items()
                        if callable(one) or isinstance(one, property | classmethod | staticmethod)
                    }
    return members


def is_published(node: ast.AST, module: str) -> bool:
    """Say whether a docstring is a description of the OpenAPI document, or the help of a command."""
    if isinstance(node, ast.ClassDef):
        return module.startswith(
            ("app.api.schemas.", "app.domain.entities", "app.domain.reports", "app.domain.searches")
        )
    calls = (one.func for one in getattr(node, "decorator_list", ()) if isinstance(one, ast.Call))
    return any(isinstance(call, ast.Attribute) and call.attr in PUBLISHING for call in calls)


def test_docstrings_have_a_line_or_two_but_of_public_names() -> None:
    lines = []
    for path in [*SOURCES, *(ROOT / "tests").rglob("*.py")]:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for owner, name, node in docstrings(ast.parse(path.read_text(encoding="utf-8"))):
            length = node.end_lineno - node.lineno + 1
            is_of_module = isinstance(owner, ast.Module) and owner.body[0] is node
            is_longer = length > (MODULE_LINES if is_of_module else 2)
            if is_longer and f"{module}.{name}" not in public_members() and not is_published(owner, module):
                lines.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name or 'module'}")
    assert lines == []


def test_public_names_are_described_by_numpydoc() -> None:
    missing = []
    for name, value in public_members().items():
        description = inspect.getdoc(value) or ""
        summary, _, rest = description.partition("\n\n")
        if not summary or "\n" in summary:
            missing.append(f"{name}: no first line, or no empty one after it")
        is_made = inspect.isroutine(value) or (inspect.isclass(value) and "__init__" in vars(value))
        if is_made and not name.startswith("app.answers."):  # the OpenAPI document describes those fields
            arguments = set(inspect.signature(value).parameters) - {"self"}
            has_section = re.search(r"^(Parameters|Attributes)\n---", rest, re.MULTILINE)
            if len(arguments) > 3 and not has_section and not REFERRING.search(description):
                missing.append(f"{name}: no section of its {len(arguments)} parameters")
    assert missing == []
