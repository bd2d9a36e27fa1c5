"""Chain, tree and heads: is each ledger whole, and is it the one that others saw?"""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from audits.checks.parties import held_by_others
from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check, NotChecked
from crypto.errors import CryptoError
from crypto.merkle import Checkpoint, read, root
from protocols.evidence.ledger import origin_of


def chain(case: Case) -> str:
    """Every entry follows from the one before it, and belongs to this party and run."""
    for party, error in case.ledger_index.broken.items():
        fail("chain", f"ledger of {party}: {error.what}")
    run, count = case.roster_file.run, 0
    for party, entries in case.ledger_index.entries.items():
        for entry in entries:
            count += 1
            if entry["run"] != run:
                fail("chain", f"entry {entry['seq']} in the ledger of {party} is of another run")
            if entry["party"] != party:
                fail("chain", f"entry {entry['seq']} in the ledger of {party} is another party's")
            if entry["kind"] == "plan" and entry["seq"]:
                fail("chain", f"the ledger of {party} was begun twice")
    return f"{count} entries, each bound to the one before it"


def tree(case: Case) -> str:
    """Each ledger's signed head covers exactly the entries that are there."""
    open_ended: list[str] = []
    for party, leaves in case.ledger_index.leaves.items():
        if party not in case.view.checkpoints:
            if case.view.side:
                raise NotChecked(f"{party} did not end its ledger, so no head of it is signed")
            open_ended.append(held_by_others(case, party))
            continue
        head = _head(case, "tree", party, case.view.checkpoints[party])
        if head.size != len(leaves):
            fail(
                "tree",
                f"the signed head of {party} covers {head.size} entries; "
                f"the ledger holds {len(leaves)}",
            )
        _same_root("tree", party, head, leaves)
    signed = len(case.ledger_index.leaves) - len(open_ended)
    said = "1 signed head covers" if signed == 1 else f"{signed} signed heads cover"
    return "; ".join((f"{said} exactly these entries", *open_ended))


def heads(case: Case) -> str:
    """Each ledger extends (or is) what others hold a signed head of."""
    held = case.view.held_heads
    if not held:
        raise NotChecked(
            "no heads held by others were given; whoever holds all keys could have rewritten all"
        )
    later, compared = 0, 0
    parties = {party["name"] for party in case.roster.document()}
    for party, note in held.items():
        if party not in case.ledger_index.leaves:
            if case.view.side and party in parties:
                continue  # of a party whose ledger is not here
            fail("heads", "a head that others hold is of a party that is not on this roster")
        head, leaves = _head(case, "heads", party, note), case.ledger_index.leaves[party]
        if head.size > len(leaves):
            fail(
                "heads",
                f"others hold a head of {party} over {head.size} entries; "
                f"the ledger holds only {len(leaves)}",
            )
        _same_root("heads", party, head, leaves[: head.size])
        later, compared = later + len(leaves) - head.size, compared + 1
    rest = f"; {later} entries are later than those heads" if later else ""
    if missing := len(set(case.ledger_index.leaves) - set(held)):
        raise NotChecked(
            f"heads of {compared} parties agree{rest}; those of {missing} others were not given"
        )
    if later:
        raise NotChecked(f"all {compared} heads that others hold agree{rest}")
    return f"all {compared} heads that others hold agree with these ledgers"


def _head(case: Case, step: str, party: str, note: str) -> Checkpoint:
    try:
        head = read(note, name=party, key=case.roster.party(party).verify)
    except CryptoError:
        fail(step, f"a head of {party} is not signed with that party's key on the roster")
    if head.origin != origin_of(case.roster_file.run, party):
        fail(step, f"a head of {party} is of another run or ledger")
    return head


def _same_root(step: str, party: str, head: Checkpoint, leaves: Sequence[bytes]) -> None:
    if not hmac.compare_digest(head.root, root(leaves)):
        fail(step, f"the ledger of {party} is not the one that its head was made over")


CHECKS = (
    Check("chain", ("files", "roster"), chain),
    Check("tree", ("files", "roster", "chain"), tree),
)
HEADS = Check("heads", ("files", "roster", "chain"), heads)
