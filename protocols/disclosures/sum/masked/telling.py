"""What the aggregator tells each holder of shares while the masks of one sum are taken off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from crypto.signing.signatures import SIGNATURE_BYTES
from protocols.disclosures.sum.consistency_votes import EVIDENCE_BYTES, table_of
from protocols.disclosures.sum.messages import AllHere, Survivors, Votes
from protocols.keys.groups import Group
from protocols.wire.roster import Roster
from protocols.wire.where import Where


def who_is_here(
    roster: Roster,
    group: Group,
    where: Where,
    survivors: Sequence[str],
    signed: Mapping[str, bytes],
    width: int,
    *,
    at_once: bool,
) -> Callable[[str], AllHere | Survivors]:
    """Return what each holder is told of a sum, with what the clients it knows signed.

    Args:
        roster: of the run.
        group: of the epoch.
        where: of the sum.
        survivors: whose uploads are there.
        signed: by client, the evidence of its upload.
        width: neighbours for which a message has room.
        at_once: nobody is missing, and the holders serve that in one answer.
    """
    members, there = roster.mask(where.members), roster.mask(survivors)

    def told(holder: str) -> AllHere | Survivors:
        evidence = table_of(signed, group.holders(holder), EVIDENCE_BYTES, width + 1)
        if at_once:
            return AllHere(members=members, slot=where.slot, evidence=evidence)
        return Survivors(members=members, survivors=there, slot=where.slot, evidence=evidence)

    return told


def who_voted(group: Group, votes: Mapping[str, bytes], width: int) -> Callable[[str], Votes]:
    """Return what each holder is shown of the votes; see `Group.voters`."""

    def shown(holder: str) -> Votes:
        return Votes(signatures=table_of(votes, group.voters(holder), SIGNATURE_BYTES, width))

    return shown
