"""Wire models of encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from app.encoders.options import names_file
from app.encoders.registry import OPTIONS


class EncoderIn(BaseModel):
    """An encoder: its type and its own options, which the encoders themselves check."""

    model_config = ConfigDict(extra="allow")

    type: str

    def options(self) -> dict[str, Any]:
        """Return type and options, whole numbers as integers."""
        return _with_integers(self.model_dump())

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe every type with its options."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        for keyword in ("properties", "required", "additionalProperties"):
            resolved.pop(keyword, None)
        types = OPTIONS.schemas()
        parts = [options for kind, options in types.items() if kind not in ("combine", "vector")]
        types["combine"]["properties"]["parts"]["items"] = {"oneOf": parts}
        resolved["oneOf"] = list(types.values())
        return schema


def _with_integers(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: [_with_integers(part) if isinstance(part, dict) else part for part in value]
        if name == "parts" and isinstance(value, list)
        else _with_integer(value)
        for name, value in options.items()
    }


def _with_integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def without_paths(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an encoder's options as clients see them: where the server has its files is left out."""
    shown = {name: value for name, value in options.items() if not names_file(name)}
    return {**shown, "parts": [without_paths(part) for part in shown["parts"]]} if "parts" in shown else shown
