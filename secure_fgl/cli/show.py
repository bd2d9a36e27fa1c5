"""``secure-fgl charter show``: what a site is asked to agree to, and what is new in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.charters import CharterArgument
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from secure_fgl.charters.charter import Charter


@verb
def show(
    file: CharterArgument,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The last charter, or a plan that was approved."),
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Show a charter on two pages: parties, what is in force, policy, what leaves, spec.yaml.

    Compare each fingerprint with the one that the party reads out to you. With
    --against, what is new since another charter or plan; then exits 6.

    Exits 5 if the charter contradicts itself or a signature is none.
    """
    import yaml

    from secure_fgl.cli._shared.charters import facts_of, helpers, load_charter, models_of, parties
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.errors import DRIFT, OK

    charter = load_charter(file)
    charter.check_content()
    fresh = _new(charter, against) if against is not None else []
    if format is Format.json:
        spec = charter.spec.model_dump(mode="json") if charter.spec is not None else None
        print_json(
            {
                **facts_of(charter),
                "parties": parties(charter),
                "helpers": helpers(charter),
                "broker": charter.broker.document(),
                "plan": charter.plan.document(),
                "policy": charter.policy.document(),
                "config": yaml.safe_load(charter.config.agreed_text()),
                "models": models_of(charter),
                "spec": spec,
                "spec_digest": charter.plan.data.spec,
                "new": fresh,
            }
        )
    else:
        from secure_fgl.cli._shared.charter_table import print_charter

        print_charter(charter)
    if against is None:
        return OK
    if not fresh:
        say(f"Nothing beyond {against}.", style="green")
        return OK
    say(f"{len(fresh)} difference(s) beyond {against}:", style="bold red")
    for difference in fresh:
        say(f"  {difference}")
    return DRIFT


def _new(charter: Charter, against: Path) -> list[str]:
    """List what is new since another charter, or since a plan."""
    from protocols.errors import EvidenceError
    from protocols.plan.plan import drift
    from secure_fgl.charters.charter import changes
    from secure_fgl.cli._shared.charters import load_charter
    from secure_fgl.cli._shared.inputs import load_plan

    try:
        other = load_charter(against)
    except EvidenceError:
        return drift(load_plan(against), charter.plan)
    return changes(other, charter)
