"""``secure-fgl approve``: sign a plan before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import verb


@verb
def approve(
    key: Annotated[Path, typer.Option(metavar="KEY.pem", help="Your Ed25519 key (PEM, mode 600).")],
    plan: Annotated[
        Path | None, typer.Argument(metavar="PLAN", help="The plan that you read.")
    ] = None,
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="As the policy calls you.")
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="DATE", help="Last day (UTC) on which a run may begin with it.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="By default NAME.approval.json.")
    ] = None,
) -> int:
    """Approve PLAN: sign its digest, which holds policy, data, model and all that leaves.

    Give the file to whoever runs it: secure-fgl run CONFIG --approvals FILE.
    A run whose policy names approvers refuses to begin without all of them.

    Without PLAN: print the public half of KEY.pem, which a policy names:
    approvals: {dpo: PUBLIC}.
    """
    from audits.checks.parties import PlanApproval, approvals_text
    from secure_fgl.cli._shared.inputs import load_plan
    from secure_fgl.cli._shared.output import print_pairs
    from secure_fgl.errors import UsageError
    from secure_fgl.run.clock import clock
    from secure_fgl.store.bundles import load_key
    from secure_fgl.store.files import create

    signer = load_key(key)
    if plan is None:
        typer.echo(signer.public.raw.hex())
        return 0
    if not name:
        raise UsageError("An approval needs a name.", fix="--as NAME, as the policy calls you")
    read = load_plan(plan)
    made = PlanApproval.of(signer, name, read.digest, clock(), _day(until))
    path = out or Path(f"{name}.approval.json")
    try:
        create(path, approvals_text([made]))
    except OSError as error:
        raise UsageError(
            f"The approval cannot be written to {path} ({error.strerror}).",
            fix="choose another --out",
        ) from error
    print_pairs(
        [
            ("approved", f"{read.algorithm} under policy {read.policy}"),
            ("plan", read.digest),
            ("as", f"{name}, until {until or 'any day'}"),
            ("signed with", signer.public.raw.hex()),
        ]
    )
    typer.echo(str(path))
    return 0


def _day(until: str) -> str:
    """Return a day as it is signed; raises UsageError for what is none, or is over."""
    from datetime import date

    from secure_fgl.errors import UsageError
    from secure_fgl.run.clock import clock

    if not until:
        return ""
    try:
        found = date.fromisoformat(until).isoformat()
    except ValueError as error:
        raise UsageError(f"{until[:20]!r} is no day.", fix="write it as 2027-01-31") from error
    if found != until or found < clock()[:10]:
        raise UsageError(f"{until[:20]} is over, or not written as 2027-01-31.", fix="another day")
    return found
