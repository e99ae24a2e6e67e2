"""Pages of the public names of solver and client, in the groups in which their modules list them."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from sphinx.pycode import ModuleAnalyzer

MODULES = (
    "solver",
    "solver.comparison",
    "solver.plots",
    "solver.datasets",
    "solver.benchmark",
    "app.client",
    "app.client.operations",
    "app.answers",
)
"""What is public; the first of these that has a name describes it."""
FOREIGN_BASES = "BaseEstimator, BaseException, object, tuple"
"""Members that these bring are described elsewhere."""


def write_python_pages(folder: Path) -> None:
    """Write a page for each public module, which describes every name that no page before it does."""
    folder.mkdir(parents=True)
    described: dict[int, str] = {}
    for number, name in enumerate(MODULES, start=1):
        module = importlib.import_module(name)
        parts = [f"{name}\n{'=' * len(name)}\n", f".. automodule:: {name}\n   :no-index:\n"]
        for title, exported in groups_of(module):
            if title:
                parts.append(f"{title}\n{'-' * len(title)}\n")
            parts += [describe(module, one, described) for one in exported]
        (folder / f"{number}-{name}.rst").write_text("\n".join(parts), encoding="utf-8")


def groups_of(module: ModuleType) -> Iterator[tuple[str, list[str]]]:
    """Yield the comments in a module's list of names or of imports, each with the names below it."""
    lists = (r"^__all__ = \[\n(.*?)^\]", r"^if TYPE_CHECKING:\n(.*?)^else:")
    parts = (re.search(one, inspect.getsource(module), re.DOTALL | re.MULTILINE) for one in lists)
    listed = next(filter(None, parts), None)
    if listed is None:  # it is made of the names of something else
        yield "", list(module.__all__)
        return
    for part in re.split(r"^ *# ", "\n" + listed[1], flags=re.MULTILINE):
        title, _, rest = part.partition("\n")
        exported = re.findall(r'"(\w+)"', rest) or re.findall(r"(\w+) as \1\b", rest)
        if exported:
            yield title.strip(), exported


def describe(module: ModuleType, name: str, described: dict[int, str]) -> str:
    """Return the directive that describes a name, or a reference to where its value is described."""
    value, path = getattr(module, name), f"{module.__name__}.{name}"
    is_code = inspect.isclass(value) or inspect.isfunction(value)
    if is_code and id(value) in described:
        return f".. py:attribute:: {name}\n\n   The same as :py:obj:`{described[id(value)]}`.\n"
    described[id(value)] = path
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
        options = f"   :members:\n   :inherited-members: {FOREIGN_BASES}\n   :show-inheritance:\n"
        return f".. auto{kind}:: {path}\n{options}"
    if inspect.isfunction(value):
        return f".. autofunction:: {path}\n"
    lines = [f"   {line}" for line in comment_of(module.__name__, name)]
    return "\n".join([f".. py:data:: {name}", "", *lines, ""])


def comment_of(module: str, name: str) -> list[str]:
    """Return the lines that describe a value that is no code, where it is assigned."""
    origin = module
    while (before := imports_of(origin).get(name)) is not None:
        origin = before
    return ModuleAnalyzer.for_module(origin).find_attr_docs().get(("", name), [])


def imports_of(module: str) -> dict[str, str]:
    """Return from which module each imported name comes, by name."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    ours = [node for node in imports if str(node.module).startswith(("app", "solver"))]
    return {alias.asname or alias.name: str(node.module) for node in ours for alias in node.names}
