"""The OpenAPI document: what FastAPI finds out, and the schemas of bodies and problems."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.bodies import DESCRIBED
from app.api.schemas import Problem

_REFERENCE = "#/components/schemas/{model}"


def describe(application: FastAPI) -> None:
    """Complete the document that an application serves."""
    generate = application.openapi

    def complete() -> dict[str, Any]:
        if application.openapi_schema is None:
            document = generate()
            models: set[type[BaseModel]] = {*DESCRIBED, Problem}
            wanted = sorted(models, key=lambda model: model.__name__)
            _, found = models_json_schema(
                [(model, "validation") for model in wanted], ref_template=_REFERENCE
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(found["$defs"])
            application.openapi_schema = document
        return application.openapi_schema

    application.openapi = complete  # type: ignore[method-assign]
