"""JSON: the whole report; its schema is ``secure-fgl schema report``."""

from __future__ import annotations

import json
from typing import Any

from audits.report.models import Report

FORMAT = "json"
FILES = ("report.json",)


def render(report: Report) -> dict[str, bytes]:
    """Return ``report.json``: sorted keys, two spaces, ASCII only."""
    text = json.dumps(report.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
    return {FILES[0]: text.encode("ascii")}


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``report.json``."""
    found = Report.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}
