"""The signed statement of a release: made of a run, and asked for before a model is taken out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audits.bundle.statements import PAYLOAD_TYPE, RELEASE, Statement, open_statement, statement
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case
from crypto.errors import CryptoError
from crypto.signing.merkle import root
from crypto.signing.signatures import SigningKey, VerifyKey
from protocols.errors import EvidenceError
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, content
from secure_fgl.store.sides.release import Looked, today

__all__ = ["check_statement", "released"]

_LIMIT = 4 << 20  # bytes of a statement; a row takes about 300
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
        data = content(path, _LIMIT)
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
