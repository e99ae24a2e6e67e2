"""Wire model of encoders, and what the document says of each type's options."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from app.api.schemas.base import STORABLE

_COUNT = {"type": "integer", "minimum": 1, "maximum": 1_000_000}
_NAME = {"type": "string", "minLength": 1, "pattern": STORABLE}


def _numbers(number: dict[str, Any], description: str) -> dict[str, Any]:
    three = {"type": "array", "items": number, "minItems": 3, "maxItems": 3}
    return {"anyOf": [number, three], "description": f"{description}; for all channels, or for each"}


ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "hog-color": ("pictures: oriented gradients and colours", {}),
    "onnx": (
        "pictures: an ONNX image model on the server",
        {
            "path": {**_NAME, "description": "the model file"},
            "sha256": {
                "type": "string",
                "pattern": "^[0-9a-f]{64}$",
                "description": "of the model file, taken from it when absent; no other is used afterwards",
            },
            "size": {**_COUNT, "maximum": 2048, "description": "side of its square input"},
            "mean": _numbers({"type": "number"}, "subtracted from each pixel"),
            "scale": _numbers({"type": "number", "not": {"const": 0}}, "then divides it"),
            "output": {**_NAME, "description": "name of the output; the first when absent"},
        },
    ),
    "tfidf": (
        "texts: words, then runs of words; learned at each retrain",
        {
            "max_features": {**_COUNT, "maximum": 200_000, "description": "terms kept at most"},
            "ngrams": {**_COUNT, "maximum": 5, "description": "longest run of words"},
        },
    ),
    "vector": (
        "features of your own",
        {"dim": {**_COUNT, "description": "taken from the first item when absent"}},
    ),
}
"""Description and options of each type; a test compares them with the encoders that there are."""


class EncoderIn(BaseModel):
    """An encoder: its type and its own options, which the encoders themselves check."""

    model_config = ConfigDict(extra="allow")

    type: str

    def options(self) -> dict[str, Any]:
        """Return type and options, whole numbers as integers."""
        given = self.model_dump()
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in given.items()
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe every type with its options."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        for keyword in ("properties", "required", "additionalProperties"):
            resolved.pop(keyword, None)
        resolved["oneOf"] = [
            {
                "title": name,
                "description": description,
                "type": "object",
                "required": ["type", "path"] if name == "onnx" else ["type"],
                "properties": {"type": {"type": "string", "const": name}, **options},
                "additionalProperties": False,
            }
            for name, (description, options) in ENCODERS.items()
        ]
        return schema
