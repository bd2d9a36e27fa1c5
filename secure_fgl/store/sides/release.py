"""What a policy holds back at the end of a run: models, until attacks are answered or accepted.

Waivers of the clients lie in the party's folder of the run, ``waivers/``: its own, and copies of
the others'. The verdicts are those of ``attacks.json`` in the run; of one party's side, on which
most attacks cannot be run, of the run that all sides were gathered into.
"""

from __future__ import annotations

import hmac
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Protocol

from audits.evidence.roster_file import read_roster
from audits.evidence.run_files import RunView, read_plan, read_policy
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from audits.findings.release import ReleaseWaiver, held_back, read_waiver, verdict_of
from protocols.errors import EvidenceError
from protocols.policy.policy import PrivacyPolicy
from protocols.policy.release import Release
from protocols.wire.roster import run_id
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder
from secure_fgl.store.sides.party_side import check_name

__all__ = ["PLACE", "HeldBack", "check_released", "own_policy", "today"]

PLACE = "waivers"
"""Folder beside one party's side in which the waivers of all clients lie."""
_LIMIT = 16_384  # bytes of a waiver


class Looked(Protocol):
    """A run that was looked into: a `secure_fgl.store.finished_run.Run`."""

    path: Path
    party: Path | None
    folder: Folder

    @property
    def name(self) -> str:
        """The run's name."""

    def view(self) -> RunView:
        """Read the folder for the auditors."""


class HeldBack(UsageError):
    """The policy holds the run's models back."""


def today() -> date:
    """Return the day (UTC)."""
    return datetime.now(UTC).date()


def check_released(run: Looked, audited: Looked | None = None) -> None:
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
    if (release := own_policy(run).release) is None:
        return
    case = Case((audited or run).view())
    if audited is not None:
        _check_audited(run, audited)
    verdicts = {attack: verdict_of(case, attack) for attack in release.requires}
    waivers = _waivers(run, case)
    clients = case.roster.clients
    if why := held_back(release.requires, verdicts, waivers, clients, today()):
        raise _held(run, release, why)


def own_policy(run: Looked) -> PrivacyPolicy:
    """Return the policy that the run's name follows from: a client's model opens by that name."""
    policy, plan = read_policy(run.folder.read("policy.json")), run.folder.read("plan.json")
    file = read_roster(run.folder.read("roster.json"))
    name = run_id(file.nonce, file.roster, read_plan(plan).digest, policy.digest)
    if not hmac.compare_digest(name, file.run):
        raise EvidenceError("roster", "the run's name does not follow from its policy and plan")
    return policy


def _held(run: Looked, release: Release, why: list[str]) -> HeldBack:
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


def _check_audited(run: Looked, audited: Looked) -> None:
    """See that the audited run is whole, and holds this party's ledger as it is here."""
    check_name(audited.name, run.name)
    found = verify(audited.view())
    if found.failed is not None:
        raise EvidenceError(found.failed.name, f"{found.failed.detail}; in {audited.path}")
    for name in run.folder.names("ledger", ".jsonl"):
        here, there = (one.folder.read(f"ledger/{name}") for one in (run, audited))
        if not hmac.compare_digest(here, there):
            raise EvidenceError("release", f"{audited.path} holds another ledger of this party")


def _waivers(run: Looked, case: Case) -> list[ReleaseWaiver]:
    if run.party is None:
        return []  # keys of a simulation's parties are gone: nobody could sign
    folder, found = Folder(run.party), []
    for name in folder.names(PLACE, ".json"):
        waiver = read_waiver(folder.read(f"{PLACE}/{name}", _LIMIT))
        waiver.check(case.roster, case.roster_file.run)
        found.append(waiver)
    return found
