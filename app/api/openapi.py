"""The OpenAPI document: what FastAPI finds out, and the schemas of bodies and problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.schemas.base import Problem

_COMPONENT = "#/components/schemas/{model}"
_described: set[type[BaseModel]] = {Problem}
"""Models whose schemas the document holds although FastAPI knows nothing of them."""


def describe(application: FastAPI) -> None:
    """Complete the document that an application serves."""
    generate = application.openapi

    def complete() -> dict[str, Any]:
        if application.openapi_schema is None:
            document = generate()
            wanted = sorted(_described, key=lambda model: model.__name__)
            _, found = models_json_schema(
                [(model, "validation") for model in wanted], ref_template=_COMPONENT
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(found["$defs"])
            application.openapi_schema = document
        return application.openapi_schema

    application.openapi = complete  # type: ignore[method-assign]


def json_body(model: type[BaseModel], required: bool = True) -> dict[str, Any]:
    """Return a route's OpenAPI entry of a JSON body."""
    return {"requestBody": {"required": required, "content": {"application/json": _of_model(model)}}}


def two_forms(
    model: type[BaseModel],
    parts: Mapping[str, Any],
    example: Mapping[str, Any],
    encoding: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a route's OpenAPI entry of a body that is JSON of a model, or a form with a picture.

    Parameters
    ----------
    model : type of BaseModel
        Of the JSON body; shown with its first example.
    parts : mapping
        Schemas of the form's parts other than `picture`.
    example : mapping
        Values of these parts.
    encoding : mapping
        OpenAPI's encoding object of the form.
    """
    # Beside the example of the whole form each part has its own: Swagger UI fills the fields in with these.
    shown = {
        name: {**part, "examples": [example[name]]} if name in example else part
        for name, part in parts.items()
    }
    picture = {"type": "string", "format": "binary", "description": "a picture file"}
    whole = {"picture": "(the file)", **example}
    form = {
        "type": "object",
        "required": ["picture"],
        "properties": {"picture": picture, **shown},
        "additionalProperties": False,
        "examples": [whole],
    }
    json_entry = {**_of_model(model), "example": schema_of(model)["examples"][0]}
    form_entry = {"schema": form, "example": whole, "encoding": encoding}
    content = {"application/json": json_entry, "multipart/form-data": form_entry}
    return {"requestBody": {"required": True, "content": content}}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema, whose parts stand among the document's components."""
    _described.add(model)
    schema = model.model_json_schema(ref_template=_COMPONENT)
    schema.pop("$defs", None)
    return schema


def _of_model(model: type[BaseModel]) -> dict[str, Any]:
    _described.add(model)
    return {"schema": {"$ref": _COMPONENT.format(model=model.__name__)}}
