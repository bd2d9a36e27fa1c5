"""What a policy holds back at the end of a run: models, until attacks are answered or accepted.

Waivers of the clients lie in the party's folder of the run, ``waivers/``: its own, and copies of
the others'. The verdicts are those of ``attacks.json`` in the run; of one party's side, on which
most attacks cannot be run, of the run that all sides were gathered into.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol

from audits.bundle.statements import PAYLOAD_TYPE, RELEASE, Statement, open_statement, statement
from audits.evidence.roster_file import read_roster
from audits.evidence.run_files import RunView, read_plan, read_policy
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from audits.findings.release import ReleaseWaiver, held_back, read_waiver, verdict_of
from crypto.errors import CryptoError
from crypto.merkle import root
from crypto.signing import SigningKey, VerifyKey
from protocols.errors import EvidenceError
from protocols.policy.policy import PrivacyPolicy, Release
from protocols.wire.roster import run_id
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, content
from secure_fgl.store.sides.party_side import check_name

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


# --- The signed statement of a release: made of a run, and asked for before a model is taken out
# ---

_LIMIT_RELEASED = 4 << 20  # bytes of a statement; a row takes about 300
_WEIGHTS = "secureFglWeights"
"""Of a subject: our digest over the arrays, which ledgers hold; ``sha256`` is of the file."""


def released(view: RunView, folder: Folder, found: Mapping[str, Any], key: SigningKey) -> bytes:
    """Return the statement that a run's models were released: in-toto, signed, in DSSE.

    Subjects are the last and the best model, which attacks were made on, by the digests that the
    ledgers hold, and their files as far as they are here; no model of a round is. Of a run without
    a shared model it is about the roster, which names the run.

    Args:
        view: of the run.
        folder: of the run.
        found: of `audits.findings.gate.predicate`.
        key: of whoever releases.
    """
    about = []
    looked_at = {n: w for n, w in view.weights.items() if n in ("best", "final")}
    for name, weights in sorted(looked_at.items()):
        digest, place = {_WEIGHTS: weights}, f"checkpoints/{name}.npz"
        if folder.holds(place):
            digest["sha256"] = folder.summed(place, 1)[0]
        about.append({"digest": digest, "name": place})
    if not about:
        digest = {"sha256": hashlib.sha256(view.roster_text).hexdigest()}
        about = [{"digest": digest, "name": "roster.json"}]
    return statement(RELEASE, found, about, signers=[key])


def check_statement(run: Looked, path: Path, trusted: Mapping[str, str]) -> None:
    """See that somebody trusted released the models of this run, with its ledgers as they are here.

    Args:
        run: whose models; a whole run, or one party's side.
        path: of the statement.
        trusted: public signing keys (hex), by name.

    Raises:
        UsageError: it cannot be read.
        EvidenceError: at step ``release``: it is none, not signed with a trusted key, or is about
            another run, plan or ledger, or rests on a waiver that is over.
    """
    one, case = _opened(path, trusted), Case(run.view())
    told = one.predicate
    if told.get("run") != run.name or told.get("planDigest") != {"sha256": case.plan_digest}:
        raise _bad("it is about another run")
    heads = told.get("heads")
    if not isinstance(heads, list):
        raise _bad("it names no heads of ledgers")
    for party, leaves in case.ledger_index.leaves.items():
        mine = {"entries": str(len(leaves)), "party": party, "root": root(leaves).hex()}
        if mine not in heads:
            raise _bad(f"it is about another ledger of {party} than the one that is here")
    _check_waivers(told)


def _check_waivers(told: Mapping[str, Any]) -> None:
    """See that each waiver that a release rests on holds today: nobody accepted for ever."""
    attacks = told.get("attacks")
    if not isinstance(attacks, list) or not attacks:
        raise _bad("it names no attacks")
    for answer in attacks:
        waiver = answer.get("waiver") if isinstance(answer, dict) else {}
        if waiver is None:
            continue
        until = waiver.get("until") if isinstance(waiver, dict) else None
        if not isinstance(until, str) or until < today().isoformat():
            raise _bad("a waiver that it rests on is over; have the run released anew")


def _opened(path: Path, trusted: Mapping[str, str]) -> Statement:
    try:
        data = content(path, _LIMIT_RELEASED)
    except OSError as error:
        raise UsageError(
            f"The statement {path} cannot be read ({error.strerror}).", fix="check the path"
        ) from error
    keys = {key.key_id: key for key in (VerifyKey(bytes.fromhex(k)) for k in trusted.values())}
    try:
        one = open_statement(data or b"", (RELEASE,))
        one.envelope.verify(PAYLOAD_TYPE, keys)
    except CryptoError:
        raise _bad("it is none, or is not signed with a key that is trusted") from None
    return one


def _bad(what: str) -> EvidenceError:
    return EvidenceError("release", f"the statement of release cannot be used: {what}")
