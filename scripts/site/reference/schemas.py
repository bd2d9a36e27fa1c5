"""Kinds of files, from the JSON Schemas that ``secure-fgl schema`` prints."""

from __future__ import annotations

import json
from typing import Any

from scripts.site.links import slug
from scripts.site.reference.words import attributes, plain, table
from secure_fgl.cli.schema import model

_SAID = {
    "config": (
        "Configuration",
        "What `secure-fgl run CONFIG` reads, as YAML. Every key has a default, `--set KEY=VALUE` "
        "changes one, with dots between the levels: `--set algorithm.rounds=5`.",
    ),
    "policy": (
        "Policy",
        "What may leave a client, as YAML: the file that `policy:` of a configuration names. What "
        "no rule names is refused. The [presets](catalogue.md#policies) have names in place of "
        "files.",
    ),
    "plan": (
        "Plan",
        "What `secure-fgl plan --out` writes, as JSON: every message of a run, before it begins.",
    ),
    "report": (
        "Report",
        "What `secure-fgl audit report --format json` writes: what left, to whom, how protected, "
        "and what attacks found.",
    ),
}


def schema(name: str) -> str:
    """Return the page of one kind of file."""
    title, said = _SAID[name]
    found = model(name).model_json_schema()
    parts = [f"# {title}\n", f"{said}\n"]
    parts.append(f"`secure-fgl schema {name}` prints the JSON Schema, for editors and programs.\n")
    kinds = found.get("$defs", {})
    parts += ["## The file\n", _fields(found, kinds)]
    for one, inner in sorted(kinds.items()):
        words, _ = attributes(inner.get("description", ""))
        parts += [f"## {one}\n", words + "\n", _fields(inner, kinds)]
    return "\n".join(parts)


def _fields(one: dict[str, Any], kinds: dict[str, Any]) -> str:
    if "properties" not in one:
        return f"{_type(one)}\n"
    duty, said = one.get("required", ()), attributes(one.get("description", ""))[1]
    rows = [
        (
            f"`{name}`",
            _type(field),
            "needed" if name in duty else _default(field),
            plain(field.get("description", "")) or said.get(name, "") or _meaning(field, kinds),
        )
        for name, field in one["properties"].items()
    ]
    return table(("key", "value", "if absent", "meaning"), rows)


def _meaning(field: dict[str, Any], kinds: dict[str, Any]) -> str:
    """Return the first sentence of the one kind that a field without words of its own holds."""
    inner = field.get("items") or field
    found = [one for one in (inner, *inner.get("anyOf", ())) if "$ref" in one]
    if len(found) != 1:
        return "which kind this is" if "const" in field and isinstance(field["const"], str) else ""
    kind = kinds.get(found[0]["$ref"].rpartition("/")[2], {})
    paragraph = attributes(kind.get("description", ""))[0].partition("\n\n")[0]
    return " ".join(paragraph.split()).partition(". ")[0]


def _default(field: dict[str, Any]) -> str:
    return f"`{json.dumps(field['default'], ensure_ascii=False)}`" if "default" in field else ""


def _type(field: dict[str, Any]) -> str:
    """Return the words for a schema's type, with links to the page's own headings."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{slug(name)})"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in field:
            return " or ".join(dict.fromkeys(_type(one) for one in field[word]))
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{one}`" for one in field["enum"])
    kind = field.get("type", "any")
    if kind == "array":
        inner = field.get("items") or {}
        return f"list of {_type(inner)}" if inner else "list"
    if kind == "object":
        inner = field.get("additionalProperties")
        return f"map to {_type(inner)}" if isinstance(inner, dict) and inner else "map"
    return str(kind) + _bounds(field)


def _bounds(field: dict[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    found = [f"{sign} {field[word]:g}" for word, sign in words.items() if word in field]
    return f" ({', '.join(found)})" if found else ""
