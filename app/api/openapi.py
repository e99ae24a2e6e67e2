"""The OpenAPI document: what FastAPI derives, completed by the schemas of bodies and problems."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from fastapi import APIRouter, FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from app.api.problems import OF_BODIES, responses
from app.api.schemas.base import Problem
from app.domain.reports import TrainingReport

FilePart = Literal["picture", "sound"]
FILE_PARTS: tuple[FilePart, ...] = get_args(FilePart)
"""Parts of a form that are files, of which it has one."""
_EXAMPLES: dict[str, Any] = json.loads(Path(__file__).with_name("examples.json").read_text(encoding="utf-8"))
"""Of bodies and answers, by the names of their schemas."""
_COMPONENT = "#/components/schemas/{model}"
_MARK = "request_body"
_Reader = TypeVar("_Reader", bound=Callable[..., Any])
_TAGS = {
    "collections": "Pairs of galleries, each side with its encoder.",
    "items": "What is searched: pictures, texts, sounds or own features, with labels and metadata.",
    "search": "Queries of one modality, answered with ranked items of the other, or of the same one.",
    "feedback": "Which items are relevant to which queries, for retrains; needs a key of scope `write`.",
    "admin": "Retrains, jobs, model versions and keys; needs a key of scope `admin`.",
    "health": "Liveness, readiness and metrics; need no key, unless `/metrics` is closed.",
}
_PARAMETERS: dict[str, tuple[str, Any]] = {
    "collection": ("Name of a collection.", "products"),
    "item_id": ("Id of an item.", "t1"),
    "source": ("Modality of the query.", "text"),
    "target": ("Modality of the results, usually the other of the two.", "image"),
    "feedback_id": ("Id of feedback.", 1),
    "version": ("Number of a model version.", 1),
    "job_id": ("Id of a job.", "0123456789abcdef"),
    "key_id": ("Id of a key, not its secret.", "0123456789abcdef"),
    "kind": ("What to plot.", "singular-values"),
    "modality": ("Only items of this modality.", "text"),
    "cursor": ("`next_cursor` of the previous page; omit it for the first page.", None),
    "limit": ("Most entries in one answer.", 100),
}
"""Description and example of parameters that many routes share; the example is None if none always works."""

JOB_QUEUED = {
    "description": "Queued",
    "headers": {
        "Location": {
            "description": "URL of the job",
            "required": True,
            "schema": {"type": "string", "examples": ["/v1/admin/jobs/0123456789abcdef"]},
        }
    },
}
"""The answer to work that is queued."""


@dataclass(frozen=True, slots=True)
class RequestBody:
    """What a route reads, for the OpenAPI document."""

    models: tuple[type[BaseModel], ...]  # become components of the document, since FastAPI does not know them
    entry: Mapping[str, Any]  # OpenAPI's request body object


def reads(body: RequestBody) -> Callable[[_Reader], _Reader]:
    """Mark an endpoint or a dependency by the body that it reads."""

    def mark(read: _Reader) -> _Reader:
        setattr(read, _MARK, body)
        return read

    return mark


def request_body_of(route: APIRoute) -> RequestBody | None:
    """Return the body that a route or its dependencies read; None if they read none."""
    readers = (route.endpoint, *(dependency.call for dependency in route.dependant.dependencies))
    bodies = (getattr(reader, _MARK, None) for reader in readers)
    return next((body for body in bodies if body is not None), None)


def describe(application: FastAPI, routers: Iterable[APIRouter], open_paths: Collection[str] = ()) -> None:
    """Complete the OpenAPI document of an application that has all its routes; `open_paths` need no key."""
    generate = application.openapi
    bodies = [(route, body) for route in _routes(routers) if (body := request_body_of(route)) is not None]
    for route in _routes(routers):
        route.operation_id = route.name  # of its function, by which generated clients call it
        if route.path.startswith("/v1/"):
            answers = responses(*_refusals_of(route)) | route.responses
            route.responses = dict(sorted(answers.items(), key=lambda answer: str(answer[0])))

    def complete() -> dict[str, Any]:
        if application.openapi_schema is None:
            document = generate()
            for route, body in bodies:
                # As FastAPI writes the rest of the document: a default of null is left out.
                entry = jsonable_encoder(body.entry, exclude_none=True)
                for method in route.methods or ():
                    document["paths"][route.path_format][method.lower()]["requestBody"] = entry
            _add_components(document, {Problem, *(model for _, body in bodies for model in body.models)})
            _describe_reports(document["components"]["schemas"])
            for name, examples in _EXAMPLES.items():
                document["components"]["schemas"][name]["examples"] = examples
            document["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
            for operation in (one for of_path in document["paths"].values() for one in of_path.values()):
                _remove_item_schemas(operation)
                for parameter in operation.get("parameters", ()):
                    _describe_parameter(parameter)
            for path in open_paths:
                for operation in document["paths"][path].values():
                    _open(operation)
            application.openapi_schema = document
        return application.openapi_schema

    application.openapi = complete  # type: ignore[method-assign]


def _routes(routers: Iterable[APIRouter]) -> Iterator[APIRoute]:
    for router in routers:
        yield from (route for route in router.routes if isinstance(route, APIRoute))


def _refusals_of(route: APIRoute) -> Iterator[int]:
    """Yield the statuses with which a route refuses a key, what its path names, and a body."""
    yield from (401, 403)
    if "{" in route.path:
        yield 404
    if request_body_of(route) is not None:
        yield from OF_BODIES


def _add_components(document: dict[str, Any], models: Collection[type[BaseModel]]) -> None:
    """Add the schemas of models that FastAPI does not know."""
    by_name = sorted(models, key=lambda model: model.__name__)
    _, definitions = models_json_schema([(model, "validation") for model in by_name], ref_template=_COMPONENT)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(definitions["$defs"])


def _describe_reports(schemas: dict[str, Any]) -> None:
    """Say what the report of a version holds, which clients take as it is."""
    adapter = TypeAdapter(TrainingReport)
    _, definitions = TypeAdapter.json_schemas(
        [(TrainingReport, "serialization", adapter)], ref_template=_COMPONENT
    )
    for name, schema in definitions["$defs"].items():
        schemas[name] = {**schema, "required": list(schema["properties"])}
    schemas["Model"]["properties"]["report"] = {"$ref": _COMPONENT.format(model="TrainingReport")}


def _open(operation: dict[str, Any]) -> None:
    """Remove from an operation what it says of keys."""
    operation.pop("security")
    for status in ("401", "403"):
        operation["responses"].pop(status, None)


def _remove_item_schemas(operation: dict[str, Any]) -> None:
    """Remove the schema that FastAPI gives to events: the keyword is of OpenAPI 3.2, the document of 3.1."""
    for answer in operation["responses"].values():
        for content in answer.get("content", {}).values():
            content.pop("itemSchema", None)


def _describe_parameter(parameter: dict[str, Any]) -> None:
    description, example = _PARAMETERS.get(parameter["name"], (None, None))
    if description is not None:
        parameter.setdefault("description", description)
    if example is not None:
        parameter.setdefault("example", example)


def json_body(model: type[BaseModel], required: bool = True) -> RequestBody:
    """Return a body that is JSON of a model."""
    return RequestBody(
        (model,), {"required": required, "content": {"application/json": {"schema": _reference(model)}}}
    )


def two_forms(
    model: type[BaseModel],
    form_model: type[BaseModel],
    parts: Mapping[str, Any],
    example: Mapping[str, Any],
    encoding: Mapping[str, Any],
) -> RequestBody:
    """Return a body: JSON of a model (shown with its first example), or a form with a picture or sound."""
    # `parts` are schemas, `example` values, and `encoding` OpenAPI's object of the form's parts other than
    # the file.
    # Beside the example of the whole form each part has its own, which Swagger UI fills in.
    properties = {
        name: {**part, "examples": [example[name]]} if name in example else part
        for name, part in parts.items()
    }
    files: dict[str, Any] = {
        name: {"type": "string", "format": "binary", "description": f"a {name} file"} for name in FILE_PARTS
    }
    whole = {"picture": "(the file)", **example}
    form = {
        "type": "object",
        "properties": {**files, **properties},
        "oneOf": [{"required": [name]} for name in FILE_PARTS],
        "additionalProperties": False,
        "examples": [whole],
    }
    content = {
        "application/json": {"schema": _reference(model), "example": _EXAMPLES[model.__name__][0]},
        "multipart/form-data": {"schema": form, "example": whole, "encoding": encoding},
    }
    return RequestBody((model, form_model), {"required": True, "content": content})


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema, whose nested models are components of the document."""
    schema = model.model_json_schema(ref_template=_COMPONENT)
    schema.pop("$defs", None)
    return schema


def _reference(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": _COMPONENT.format(model=model.__name__)}
