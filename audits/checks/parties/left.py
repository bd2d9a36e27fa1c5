"""A ledger without a signed head: its party left and never ended it.

Others received what it sent, each envelope under a head of its ledger, and wrote these heads down
in ledgers that they signed. To the last of them its ledger is held, so that it cannot be cut below.
What stands after it nobody signed: whoever hands the files on can cut it, and write it.
"""

from __future__ import annotations

from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from protocols.plan.steps import Service


def may_lack_head(case: Case, party: str) -> bool:
    """Tell whether a ledger may be without a signed head.

    A simulation ends all sessions, and so does the aggregator, whose ledger binds all others. Whose
    ledger says that it was closed had signed its head.
    """
    if case.roster_file.simulated or party not in case.ledger_index.entries:
        return False
    if party == case.exchanges.aggregator and not case.view.side:
        return False
    return not any(entry["kind"] == "close" for entry in case.ledger_index.entries[party])


def held_by_others(case: Case, party: str) -> str:
    """Hold a ledger without a head to what others received of it, and say where it left.

    Raises:
        EvidenceError: at step ``tree``: it ends below a head that others hold, or is another one.
    """
    own = [s for s in case.ledger_index.releases() if s.party == party]
    by_commitment, received = {s.commitment: s for s in own}, list[Sent]()
    for other, entry in case.ledger_index.of_kind("receipt"):
        if entry["sender"] != party or other not in case.view.checkpoints:
            continue  # only a ledger whose party signed it holds anything of another's
        sent = by_commitment.get(entry["commitment"])
        if sent is None or sent.prev != entry["sender_head"]:
            fail(
                "tree",
                f"the ledger of {party} has no signed head, and does not reach the head under "
                f"which {other} received an envelope of exchange {entry['exchange']}",
            )
        received.append(sent)
    size, reached = len(case.ledger_index.entries[party]), max((s.seq for s in received), default=0)
    if not received:
        return f"{party} left before others received anything of it, and nobody signed its ledger"
    rest = f"nobody signed the {size - reached} after them"
    where = _where(case, party, own, received)
    return f"{party} {where}: its ledger is held to a head over {reached} entries; {rest}"


def _where(case: Case, party: str, own: list[Sent], received: list[Sent]) -> str:
    if any(sent.part is Service.HEADS for sent in received):
        return "was there at the end, and no signed head of its ledger is here"
    last = max(sent.exchange for sent in received)
    unanswered = [
        sent.round
        for sent in case.ledger_index.releases()
        if sent.exchange >= last
        and party in sent.addressees(case.roster)
        and case.ledger_index.receipt(sent, party) is None
    ]
    unheard = [s.round for s in own if s.exchange >= last and s not in received]
    rounds = [*unanswered, *unheard]
    if not rounds:  # it was asked nothing more, so nobody missed it
        return f"left after round {max(s.round for s in received)}"
    return f"left at round {min(rounds)}"
