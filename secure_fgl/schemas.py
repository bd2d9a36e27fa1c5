"""JSON Schemas of our files, in which editors find what each key means."""

from __future__ import annotations

import inspect
import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

__all__ = ["json_schema"]

_NAMED = re.compile(r"    (\w+(?:, \w+)*): (.*)")


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a model, each key with what its class says of it.

    Args:
        model: for example `PrivacyPolicy`.
    """
    made = model.model_json_schema(schema_generator=_Described)
    return {"$schema": GenerateJsonSchema.schema_dialect, **made}


class _Described(GenerateJsonSchema):
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return a model's schema, with descriptions of its keys."""
        made = super().model_schema(schema)
        properties = made.get("properties", {})
        for name, text in _attributes(schema["cls"]).items():
            if name in properties:
                properties[name].setdefault("description", text)
        return made


def _attributes(kind: type) -> dict[str, str]:
    """Return what the docstring of a class says of its attributes, by name."""
    told = inspect.cleandoc(kind.__doc__ or "").partition("\nAttributes:\n")[2]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in told.splitlines():
        if line and not line.startswith("    "):
            break  # another section
        if start := _NAMED.fullmatch(line):
            names = start[1].split(", ")
            found |= dict.fromkeys(names, start[2])
        elif line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found
