"""Survivor lists as a client is told them: of which sum they are, and what they must leave."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.messages import AllHere, Survivors
from protocols.errors import BadEnvelope
from protocols.keys.groups import Group
from protocols.keys.slots import Slot, slot_of
from protocols.plan.steps import Step
from protocols.wire.cohorts import as_set, within
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


def listed_sum(
    context: RunContext, incoming: Incoming, found: Survivors | AllHere, listed: bytes
) -> tuple[Where, tuple[str, ...], Slot]:
    """Return which sum a list is of, whom it names, and the sum's slot.

    Args:
        context: of the client.
        incoming: what brought the list.
        found: what was in it.
        listed: who survived, as bits; of a list that lacks nobody the members again.

    Raises:
        BadEnvelope: it names clients outside its cohort.
    """
    header = incoming.header
    members, survivors = context.roster.unmask(found.members), context.roster.unmask(listed)
    where = Where(header.round, header.exchange, members, header.given, header.attempt, found.slot)
    refuse_unless(
        header.cohort == context.cohort(where) and within(survivors, as_set(members)),
        "A survivor list names clients outside its cohort.",
    )
    upload = context.find(incoming.item.exchange, Disclosure.SUM, Step.UP)
    return where, survivors, slot_of(upload, where.round, where.slot)


def check_left(group: Group, survivors: Sequence[str]) -> None:
    """See that a list leaves enough clients, and the graph in one piece (O7, O10)."""
    refuse_unless(
        len(survivors) >= group.least, "A survivor list holds too few beside the corrupt (O10)."
    )
    refuse_unless(
        group.thinnest(survivors) >= group.window,
        "A survivor list could cut the clients' graph in two.",
    )


def list_facts(
    cohort: str, where: Where, survivors: Sequence[str], vote_text: bytes
) -> dict[str, object]:
    """Return what a client records of a list before it says anything about it."""
    return {
        "cohort": cohort,
        "exchange": where.exchange,
        "list": hashlib.sha256(vote_text).hexdigest(),
        "members": len(where.members),
        "round": where.round,
        "survivors": len(survivors),
    }


def refuse_unless(holds: bool, what: str) -> None:
    """Raise BadEnvelope unless something holds."""
    if not holds:
        raise BadEnvelope(what, why="the aggregator lies about who is there, or is out of step")
