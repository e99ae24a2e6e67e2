"""Pages of the HTTP interface, from the OpenAPI document of the application."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app.bootstrap import build
from app.main import create_app
from app.settings import Settings

Json = Mapping[str, Any]


def write_http_pages(folder: Path) -> None:
    """Write a page for each tag of the OpenAPI document, and one of all models."""
    folder.mkdir(parents=True)
    document = read_document()
    schemas = document["components"]["schemas"]
    for number, tag in enumerate(document["tags"], start=1):
        lines = [f"# HTTP: {tag['name']}", "", tag["description"], ""]
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    lines += describe_operation(method, path, operation, schemas)
        (folder / f"{number}-{tag['name']}.md").write_text("\n".join(lines), encoding="utf-8")
    lines = ["# HTTP: models", "", "What requests and answers consist of.", ""]
    for name, schema in schemas.items():
        lines += describe_model(name, schema)
    (folder / "9-models.md").write_text("\n".join(lines), encoding="utf-8")


def read_document() -> dict[str, Any]:
    """Return the OpenAPI document of an application over an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        services = build(Settings(data_dir=Path(folder), database_url=""))
        document: dict[str, Any] = create_app(services).openapi()
        services.database.engine.dispose()
    return document


def describe_operation(method: str, path: str, operation: Json, schemas: Json) -> Iterator[str]:
    """Yield the lines of one route: parameters, request, answers."""
    yield from (f"(route-{operation['operationId']})=", f"## {operation['summary']}", "")
    yield from (f"`{method.upper()} {path}`", "", operation.get("description", ""), "")
    parameters = operation.get("parameters", [])
    if parameters:
        yield from ("| parameter | in | type | meaning |", "|---|---|---|---|")
        for one in parameters:
            meaning = in_cell(one.get("description", ""))
            yield f"| `{one['name']}` | {one['in']} | {type_of(one['schema'])} | {meaning} |"
        yield ""
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        yield from (f"**Request** `{media}`: {type_of(content['schema'])}", "")
        yield from show_example(content, schemas)
    problems = []
    for status, answer in operation["responses"].items():
        for media, content in answer.get("content", {"": {}}).items():
            if media == "application/problem+json":
                problems.append(status)
                continue
            shape = f" `{media}`: {type_of(content.get('schema', {}))}" if media else ""
            yield from (f"**Answer {status}**{shape}", "")
            yield from show_example(content, schemas)
    if problems:
        yield from (f"**Problems** ([Problem](#schema-Problem)): {', '.join(problems)}", "")


def describe_model(name: str, schema: Json) -> Iterator[str]:
    """Yield the lines of one model: its fields and an example."""
    yield from (f"(schema-{name})=", f"## {name}", "", schema.get("description", ""), "")
    fields = schema.get("properties", {})
    if fields:
        yield from ("| field | type | needed | meaning |", "|---|---|---|---|")
        for field, value in fields.items():
            needed = "yes" if field in schema.get("required", []) else ""
            meaning = in_cell(value.get("description", ""))
            yield f"| `{field}` | {type_of(value)} | {needed} | {meaning} |"
        yield ""
    else:
        yield from (type_of(schema), "")
    yield from show_example({"schema": schema}, {})


def show_example(content: Json, schemas: Json) -> Iterator[str]:
    """Yield the first example of a body: its own, or that of its model."""
    schema = content.get("schema", {})
    model = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    examples = [content["example"]] if "example" in content else list(model.get("examples", []))
    if not examples:
        return
    example = examples[0]
    text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
    yield from ("```text" if isinstance(example, str) else "```json", text, "```", "")


def type_of(schema: Json) -> str:
    """Return the type of a value in a few words; models are links."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#schema-{name})"
    for word in ("anyOf", "oneOf"):
        if word in schema and "type" not in schema:
            return " or ".join(dict.fromkeys(type_of(one) for one in schema[word]))
    if "allOf" in schema:
        return type_of(schema["allOf"][0])
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {type_of(schema.get('items', {}))}"
    return f"{kind}{bounds_of(schema)}"


def bounds_of(schema: Json) -> str:
    """Return the limits of a value in brackets; nothing where it has none."""
    words = {
        "minimum": "at least {}",
        "exclusiveMinimum": "more than {}",
        "maximum": "at most {}",
        "maxLength": "{} characters at most",
        "default": "{} by default",
    }
    limits = [text.format(json.dumps(schema[key])) for key, text in words.items() if key in schema]
    return f" ({', '.join(limits)})" if limits else ""


def in_cell(text: str) -> str:
    """Return Markdown that a cell of a table may hold."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
