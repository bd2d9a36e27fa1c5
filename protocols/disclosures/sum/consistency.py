"""Votes and lists by which all clients of a sum see the same survivors (O7)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter

import numpy as np

from crypto.errors import CryptoError
from crypto.signing import SIGNATURE_BYTES, canonical
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.messages import AllHere, Survivors, Votes
from protocols.errors import BadEnvelope
from protocols.keys.groups import Group, Slot, slot_of
from protocols.messages import Vector
from protocols.plan.steps import Step
from protocols.wire.envelope import NONE, OWN_BYTES, SIGNED, Header, Where
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role
from protocols.wire.roster import Roster, as_set, within
from protocols.wire.run_context import RunContext

# What clients sign about a sum that is being opened, and the check of what others signed.
#
# Before a holder votes for a survivor list it sees, for every survivor whose shares it holds, what
# that client signed over its upload: the header of exactly this item, exchange, cohort, model,
# epoch, slot and set of agreed keys. A list for a sum that never was, or under another name, finds
# no such signature (O5, O7). The vote signs the list; `client` beside this file counts the votes.

EVIDENCE_BYTES = OWN_BYTES + SIGNATURE_BYTES
"""Of a signed header what differs between clients: body 32, head 32, nonce 16, signature 64."""
_NO_VOTE = bytes(SIGNATURE_BYTES)


def evidence_of(header: Header, signature: bytes) -> bytes:
    """Return what differs between the signed upload headers of one sum."""
    return header.encode()[:OWN_BYTES] + signature


def vote_text_of(
    context: RunContext, name: str, where: Where, survivors: Sequence[str], pairs: str
) -> bytes:
    """Return what a vote signs: one survivor list of one sum.

    Args:
        context: run and plan.
        name: of the exchange.
        where: round, exchange, cohort, digest of what was given, slot.
        survivors: sorted.
        pairs: digest of what the masks rest on.
    """
    facts = [context.run, context.plan_digest, context.cohort(where), name, pairs]
    return vote_text(facts, where, context.roster.mask(survivors))


def vote_text(facts: Sequence[str], where: Where, survivors: bytes) -> bytes:
    """Return what a vote signs, for who has documents and no session.

    Args:
        facts: run, digests of its plan and of the cohort, name of the exchange, and `pairs`.
        where: as of a session; its members are in the cohort's digest.
        survivors: as bits of the roster.
    """
    run, plan, cohort, name, pairs = facts
    place = [run, plan, where.round, where.exchange, where.attempt]
    return canonical([*place, cohort, where.given, where.slot, name, pairs, survivors.hex()])


def check_evidence(
    context: RunContext, name: str, where: Where, pairs: str, owners: Sequence[str], rows: Vector
) -> None:
    """See that each of `owners` signed an upload of exactly this sum.

    Args:
        context: of the holder.
        name: of the exchange.
        where: as the survivor list says.
        pairs: digest of what the masks rest on, as this holder knows it.
        owners: survivors whose shares it holds.
        rows: shape (len(owners), `EVIDENCE_BYTES`).

    Raises:
        BadEnvelope: one of them did not.
    """
    item = context.find(name, Disclosure.SUM, Step.UP).id
    aggregator = context.roster.one(Role.AGGREGATOR).name
    cohort, key = context.cohort(where), context.sum_key(aggregator)
    common = Header(
        run=context.run,
        plan=context.plan_digest,
        policy=context.policy_digest,
        round=where.round,
        exchange=where.exchange,
        attempt=where.attempt,
        cohort=cohort,
        item=item,
        schema=context.schemas[item],
        sender=aggregator,  # `siblings` leaves out this and what is NONE here
        recipient=aggregator,
        key=key,
        given=where.given,
        body=NONE,
        head=NONE,
        nonce=NONE[:32],
        pairs=pairs,
    )
    encoded, known = _siblings(common, context.roster.digest)
    for owner, raw in set(zip(owners, _cut(rows, EVIDENCE_BYTES), strict=True)) - known:
        own, signature = raw[:OWN_BYTES], raw[OWN_BYTES:]
        try:
            context.roster.party(owner).verify.verify(SIGNED, signature, encoded(owner, own))
        except CryptoError as error:
            raise BadEnvelope(
                "A survivor list counts a client that did not upload in this sum (O7).",
                why="the aggregator made the sum up, or told that client another story",
            ) from error
        known.add((owner, raw))


def check_vote(context: RunContext, vote_text: bytes, holder: str, signature: bytes) -> None:
    """See, at the aggregator, that a holder signed the list that it was sent.

    Raises:
        BadEnvelope: it signed another one, which would make every other holder refuse.
    """
    try:
        context.roster.party(holder).verify.verify("survivors", signature, vote_text)
    except CryptoError as error:
        raise BadEnvelope(f"{holder} signed another survivor list than it was sent.") from error


def check_votes(
    context: RunContext, vote_text: bytes, voters: Sequence[str], signatures: Vector
) -> set[str]:
    """See that every vote that is there is for exactly this text; return who voted.

    Args:
        context: of the holder.
        vote_text: what it signed itself.
        voters: whose votes these would be.
        signatures: shape (len(voters) or more, 64); zeros for who did not vote.

    Raises:
        BadEnvelope: one of them is for another list.
    """
    votes = set(zip(voters, _cut(signatures, SIGNATURE_BYTES), strict=False))
    known, voted = _true(vote_text, context.roster.digest), {*map(itemgetter(0), votes)}
    for voter, signature in votes - known:
        if signature == _NO_VOTE:
            voted.discard(voter)
            continue
        try:
            context.roster.party(voter).verify.verify("survivors", signature, vote_text)
        except CryptoError as error:
            raise BadEnvelope("A client did not vote for this survivor list (O7).") from error
        known.add((voter, signature))
    return voted


def table_of(said: Mapping[str, bytes], names: Sequence[str], size: int, rows: int) -> Vector:
    """Return what each of `names` said, shape (rows, size); zeros for who said nothing."""
    nothing = bytes(size)
    found = b"".join([said.get(name, nothing) for name in names])
    return np.frombuffer(found.ljust(rows * size, b"\0"), dtype=np.uint8).reshape(-1, size)


def _cut(rows: Vector, size: int) -> list[bytes]:
    table = rows.tobytes()
    return [table[start : start + size] for start in range(0, len(table), size)]


# What was found true once need not be found again by every holder of a process: it follows from
# what is signed, who is said to have signed it, the signature and the roster's keys alone.


@lru_cache(maxsize=8)
def _true(said: bytes, roster: str) -> set[tuple[str, bytes]]:
    """Return the names and bytes that were found true beside `said` under a roster's digest."""
    return set()


@lru_cache(maxsize=8)
def _siblings(
    common: Header, roster: str
) -> tuple[Callable[[str, bytes], bytes], set[tuple[str, bytes]]]:
    """Return what encodes headers that share `common`, and whose of them were found true."""
    return common.siblings(), set()


# What the aggregator tells each holder of shares while the masks of one sum are taken off.


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


# Survivor lists as a client is told them: of which sum they are, and what they must leave.


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
