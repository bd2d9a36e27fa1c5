"""Clients' own models: each ledger names the locked pieces that its client kept, by their digests.

Only a party's own side has the pieces; they stay there, and a party may destroy them at any time.
"""

from __future__ import annotations

import hmac

from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural
from protocols.wire.roles import Role


def own_models(case: Case) -> str:
    """Return a clause on the models that one side holds; empty where none is named or looked at.

    Raises:
        EvidenceError: at step ``result``: a party that is no client names a model, one names it
            twice, or a piece that lies here is another one than its ledger names.
    """
    named: dict[str, dict[str, str]] = {}
    for party, entry in case.ledger_index.of_kind("model"):
        if case.roster.party(party).role is not Role.CLIENT:
            fail("result", f"{party} names a model of its own and is no client")
        pieces = named.setdefault(party, {})
        if entry["piece"] in pieces:
            fail("result", f"the ledger of {party} names a model twice")
        pieces[entry["piece"]] = entry["digest"]
    side = case.view.side
    if not side or case.view.models is None:
        return ""
    closed = any(party == side for party, _ in case.ledger_index.of_kind("close"))
    return _here(side, named.get(side, {}), case) if closed else ""


def _here(side: str, named: dict[str, str], case: Case) -> str:
    there = dict(case.view.models().get(side, {})) if case.view.models is not None else {}
    for piece, digest in there.items():
        if not hmac.compare_digest(named.get(piece, ""), digest):
            fail("result", f"the model of {side} that lies here is not one that its ledger names")
    if not named:
        return ""
    if not there:
        return f"the model of {side} that its ledger names is not here any more; "
    return f"{plural(len(there), 'model')} of {side} as its ledger names; "
