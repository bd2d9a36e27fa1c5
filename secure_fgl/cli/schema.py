"""``secure-fgl schema``: the JSON Schemas of our files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.verb import verb

if TYPE_CHECKING:
    from pydantic import BaseModel

SUBJECTS = ("policy", "config", "plan", "report")


@verb
def schema(
    subject: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(SUBJECTS)}.")],
) -> int:
    """Print the JSON Schema of a kind of file, from which editors complete it.

    Written to a file, name it in the first line of your YAML:

    # yaml-language-server: $schema=policy.schema.json
    """
    from secure_fgl.cli._shared.inputs import choose
    from secure_fgl.cli._shared.output import print_json
    from secure_fgl.schemas import json_schema

    print_json(json_schema(model(choose("schema", subject, SUBJECTS))))
    return 0


def model(subject: str) -> type[BaseModel]:
    """Return the class whose schema describes a kind of file, one of `SUBJECTS`."""
    if subject == "policy":
        from protocols.policy.policy import PrivacyPolicy

        return PrivacyPolicy
    if subject == "config":
        from secure_fgl.config import Config

        return Config
    if subject == "plan":
        from protocols.plan.plan import Plan

        return Plan
    from audits.report.build import Report

    return Report
