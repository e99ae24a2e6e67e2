"""Request bodies that come in two forms: JSON, or a multipart form with a picture file."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile

from app.domain.errors import ContentTooLargeError, InvalidFieldError

_COMPONENT = "#/components/schemas/{model}"
_Model = TypeVar("_Model", bound=BaseModel)


def is_multipart(request: Request) -> bool:
    """Return whether the body is a multipart form; anything else is taken for JSON."""
    return request.headers.get("content-type", "").lower().startswith("multipart/form-data")


def parse_json(field: str, body: str | bytes) -> Any:
    """Return the value of a JSON text; raises InvalidFieldError."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidFieldError(field, f"is not valid JSON: {error}") from error


def validated(model: type[_Model], value: Any, *place: str) -> _Model:
    """Return a wire model; raises RequestValidationError with the fields below `place`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        for entry in found:
            entry["loc"] = (*place, *entry["loc"])
        raise RequestValidationError(found) from error


def check_parts(form: FormData, *known: str) -> None:
    """Refuse parts of another name, and parts that come twice."""
    for name in form:
        if name not in known:
            raise InvalidFieldError(name[:100], f"unknown part, expected some of {list(known)}")
        if len(form.getlist(name)) > 1:
            raise InvalidFieldError(name, "comes more than once")


def picture_part(form: FormData, max_bytes: int) -> bytes:
    """Return the bytes of the part `picture`; raises ContentTooLargeError as soon as it is too long."""
    upload = form.get("picture")
    if not isinstance(upload, UploadFile):
        raise InvalidFieldError("picture", "expected a multipart picture file")
    content = upload.file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ContentTooLargeError("picture", f"more than {max_bytes} bytes")
    return content


def json_part(form: FormData, name: str) -> Any:
    """Return the value of a JSON part, which browsers can only send as a file; None when it is absent."""
    part = form.get(name)
    if part is None:
        return None
    return parse_json(name, part if isinstance(part, str) else part.file.read())


def two_forms(
    model: type[BaseModel], parts: dict[str, Any], example: dict[str, Any], encoding: dict[str, Any]
) -> dict[str, Any]:
    """Return the OpenAPI entry of a body that is JSON of a model, or a form with a picture.

    Parameters
    ----------
    model : type of BaseModel
        Of the JSON body; shown with its first example.
    parts : dict
        Schemas of the form's parts other than `picture`.
    example : dict
        Values of these parts.
    encoding : dict
        OpenAPI's encoding object of the form.
    """
    schema = schema_of(model)
    json_body = {"schema": schema, "example": schema["examples"][0]}
    # Beside the example of the whole form each part has its own: Swagger UI fills the fields in with these.
    shown = {
        name: {**part, "examples": [example[name]]} if name in example else part
        for name, part in parts.items()
    }
    form = {
        "type": "object",
        "required": ["picture"],
        "properties": {"picture": {"type": "string", "format": "binary"}, **shown},
    }
    form_body = {"schema": form, "example": {"picture": "(the file)", **example}, "encoding": encoding}
    content = {"application/json": json_body, "multipart/form-data": form_body}
    return {"requestBody": {"required": True, "content": content}}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return a model's JSON schema, whose parts stand among the document's components."""
    schema = model.model_json_schema(ref_template=_COMPONENT)
    schema.pop("$defs", None)
    return schema
