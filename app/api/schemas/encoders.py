"""Wire model of encoders."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue

from app.encoders.registry import OPTIONS


class EncoderIn(BaseModel):
    """An encoder: its type and its own options, which the encoders themselves check."""

    model_config = ConfigDict(extra="allow")

    type: str

    def options(self) -> dict[str, Any]:
        """Return type and options, whole numbers as integers."""
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in self.model_dump().items()
        }

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe every type with its options."""
        schema = handler(core_schema)
        resolved = handler.resolve_ref_schema(schema)
        for keyword in ("properties", "required", "additionalProperties"):
            resolved.pop(keyword, None)
        resolved["oneOf"] = list(OPTIONS.schemas().values())
        return schema
