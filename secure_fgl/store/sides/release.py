"""What a policy holds back at the end of a run: models, until attacks are answered or accepted.

Waivers of the clients lie in the party's own folder, ``PARTY/waivers/``: its own, and copies of the
others'. The verdicts are those of ``attacks.json`` in the run; of one party's side, on which most
attacks cannot be run, of the run that all sides were gathered into.
"""

from __future__ import annotations

import hmac
from datetime import UTC, date, datetime
from pathlib import Path

from audits.evidence.roster_file import read_roster
from audits.evidence.run_files import read_plan, read_policy
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from audits.findings.release import ReleaseWaiver, held_back, read_waiver, verdict_of
from protocols.errors import EvidenceError
from protocols.policy.policy import PrivacyPolicy
from protocols.policy.release import Release
from protocols.wire.roster import Identity, run_id
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.party_side import check_name

__all__ = ["HeldBack", "check_released", "waive"]

_PLACE = "waivers"
_LIMIT = 16_384  # bytes of a waiver


class HeldBack(UsageError):
    """The policy holds the run's models back."""


def today() -> date:
    """Return the day (UTC)."""
    return datetime.now(UTC).date()


def check_released(run: Run, audited: Run | None = None) -> None:
    """See that the policy lets a run's models out.

    Args:
        run: whose models; a whole run, or one party's side.
        audited: the run that all sides were gathered into and attacks were run on; None: `run`.

    Raises:
        HeldBack: an attack that the policy asks for has no verdict that counts, and not every
            client signed a waiver; or the policy cannot be read.
        EvidenceError: policy, plan or roster is not the run's, a waiver is no good, or the audited
            run is broken or another one.
    """
    release = _own_policy(run).release
    if release is None:
        return
    case = Case((audited or run).view())
    if audited is not None:
        _check_audited(run, audited)
    verdicts = {attack: verdict_of(case, attack) for attack in release.requires}
    waivers = _waivers(run, case)
    clients = case.roster.clients
    if why := held_back(release.requires, verdicts, waivers, clients, today()):
        raise _held(run, release, why)


def _own_policy(run: Run) -> PrivacyPolicy:
    """Return the policy that the run's name follows from: a client's model opens by that name."""
    policy, plan = read_policy(run.folder.read("policy.json")), run.folder.read("plan.json")
    file = read_roster(run.folder.read("roster.json"))
    name = run_id(file.nonce, file.roster, read_plan(plan).digest, policy.digest)
    if not hmac.compare_digest(name, file.run):
        raise EvidenceError("roster", "the run's name does not follow from its policy and plan")
    return policy


def _held(run: Run, release: Release, why: list[str]) -> HeldBack:
    attacks = ",".join(release.requires)
    signing = "let every client sign: secure-fgl site waive PARTY --attack ID --owner NAME"
    fix = f"secure-fgl audit attack {run.path} --attacks {attacks}"
    if run.party is not None:
        fix = f"run the attacks where all sides are, and name that run with --audited; or {signing}"
    return HeldBack(
        "The policy holds this run's models back until attacks are answered or accepted.",
        why="; ".join(why),
        fix=fix,
    )


def _check_audited(run: Run, audited: Run) -> None:
    """See that the audited run is whole, and holds this party's ledger as it is here."""
    check_name(audited.name, run.name)
    found = verify(audited.view())
    if found.failed is not None:
        raise EvidenceError(found.failed.name, f"{found.failed.detail}; in {audited.path}")
    for name in run.folder.names("ledger", ".jsonl"):
        here, there = (one.folder.read(f"ledger/{name}") for one in (run, audited))
        if not hmac.compare_digest(here, there):
            raise EvidenceError("release", f"{audited.path} holds another ledger of this party")


def _waivers(run: Run, case: Case) -> list[ReleaseWaiver]:
    if run.party is None:
        return []  # keys of a simulation's parties are gone: nobody could sign
    folder, found = Folder(run.party), []
    for name in folder.names(_PLACE, ".json"):
        waiver = read_waiver(folder.read(f"{_PLACE}/{name}", _LIMIT))
        waiver.check(case.roster, case.roster_file.run)
        found.append(waiver)
    return found


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
        run: the name that the run must have; None: any.

    Raises:
        UsageError: it is no client's folder, the policy does not ask for that attack, a waiver is
            there already, or it cannot be written.
        EvidenceError: at step ``release``: these keys are not the party's on the roster.
    """
    from pydantic import ValidationError

    from protocols.strict import problems

    found = Run(party)
    if found.party is None:
        raise UsageError(f"{party} is not a party's folder with a run in it.")
    check_name(found.name, run)
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
    try:
        waiver = ReleaseWaiver(
            run=found.name, party=me.party.name, signed=today().isoformat(), **facts
        ).signed_by(me.signing)
    except ValidationError as error:
        raise UsageError("This waiver cannot be signed.", why=problems(error)) from None
    waiver.check(case.roster, found.name)
    place = f"{_PLACE}/{attack}.{me.party.name}.json"
    try:
        Folder(found.party).write(place, waiver.text())
    except OSError as error:
        raise UsageError(f"{found.party / place} cannot be written ({error.strerror}).") from error
    return found.party / place
