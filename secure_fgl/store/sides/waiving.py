"""A client's signed word that a model may be used though an attack was not answered."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from audits.evidence.steps import Case
from audits.findings.release import ReleaseWaiver
from protocols.strict import problems
from protocols.wire.roster import Identity
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.store.sides.release import PLACE, today

__all__ = ["waive"]


def waive(
    party: str | Path,
    me: Identity,
    *,
    attack: str,
    owner: str,
    reason: str,
    until: str,
    run: str | None = None,
) -> Path:
    """Sign a waiver of one attack for this party's run, and return its file.

    Args:
        party: the party's folder.
        me: its keys.
        attack: which one; the policy must ask for it.
        owner: who answers for it.
        reason: why it is accepted.
        until: the last day on which it holds, YYYY-MM-DD.
        run: the run's name; None: the one run that the party joined.

    Raises:
        UsageError: it is no client's folder, the client never joined that run, the policy does not
            ask for that attack, or the waiver cannot be written.
        EvidenceError: at step ``release``: these keys are not the party's on the roster.
    """
    home = place_of(party, run)
    found = Run(home)
    case = Case(found.view())
    release = case.policy.release
    if release is None or attack not in release.requires:
        asked = ", ".join(release.requires) if release is not None else "nothing"
        raise UsageError(
            f"The policy does not hold models back for {attack}.", why=f"it asks for {asked}"
        )
    if me.party.name not in case.roster.clients:
        raise UsageError(
            f"{me.party.name} holds no data in this run.",
            why="a waiver is signed by those whose records are in the model",
            fix="ask every client to sign",
        )
    facts = {"attack": attack, "owner": owner, "reason": reason, "until": until}
    about = {"run": found.name, "party": me.party.name, "signed": today().isoformat()}
    try:
        waiver = ReleaseWaiver.model_validate({**about, **facts}).signed_by(me.signing)
    except ValidationError as error:
        raise UsageError("This waiver cannot be signed.", why=problems(error)) from None
    waiver.check(case.roster, found.name)
    place = f"{PLACE}/{attack}.{me.party.name}.json"
    try:
        Folder(home).write(place, waiver.text())
    except OSError as error:
        raise UsageError(f"{home / place} cannot be written ({error.strerror}).") from error
    return home / place
