"""An aggregator that follows no rule: what it can collect, and what that opens.

`haul` runs one exchange and shows every holder a survivor list of its own, with all votes that
there are for that very list. `unveil` then does with the shares whatever they allow, for any set of
clients: it needs the self-mask of each of them, and every pair that leaves the set, from either
end's row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import stats

from crypto.aead import unlock
from crypto.masks import MaskSum, container
from crypto.sharing import combine
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.consistency import EVIDENCE_BYTES, evidence_of
from protocols.disclosures.sum.messages import AllHere, SelfShares, Shares, Survivors, Vote, Votes
from protocols.disclosures.sum.view import Summands
from protocols.keys.groups import Slot, slot_of
from protocols.keys.pairs import SEED_BYTES, pair_key, row_info, row_key, self_key
from protocols.sessions.part import Collection, State
from protocols.wire.codec import encode
from protocols.wire.envelope import Envelope, Where
from protocols.wire.roster import AGGREGATOR_NAME
from tests.protocols.toys import Update
from tests.protocols.wire import World, refused, unplaced, where_of

ITEM = "train.up.SUM"
LEVEL = 1e-13  # false alarms per statistic; a suite asks some 600 times
Lists = Callable[[str], Iterable[str] | None]


class NotEnough(Exception):
    """The shares do not rebuild what this set needs."""


@dataclass
class Haul:
    """What one exchange brought.

    Attributes:
        where: of each client's own Ask (they may have been given different models).
        bodies: of the uploads, by client.
        evidence: what their senders signed over them.
        agreed: by client, what its masks rest on, where it was lied to.
        votes: by holder, for the list it was shown.
        told: by holder, the survivors it was told; without those that refused.
        given: by holder, one share per client that it holds shares for.
        refused: holders that refused.
        paired: by client, the only neighbours it knows of, where it was lied to.
        beside: what else holders gave, as `told` and `given`: in one answer, or both ways.
    """

    slot: Slot
    where: dict[str, Where] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    evidence: dict[str, bytes] = field(default_factory=dict)
    agreed: dict[str, str] = field(default_factory=dict)
    votes: dict[str, bytes] = field(default_factory=dict)
    told: dict[str, frozenset[str]] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    paired: dict[str, Sequence[str]] = field(default_factory=dict)
    beside: list[tuple[dict[str, frozenset[str]], dict[str, Any]]] = field(default_factory=list)


def haul(
    world: World,
    lists: Lists,
    *,
    members: Sequence[str] | None = None,
    asked: Sequence[str] | None = None,
    weights: Mapping[str, Any] | None = None,
    round: int = 1,
    exchange: int = 1,
    slot: int = 0,
) -> Haul:
    """Ask the cohort `members`, and show every holder the survivors that `lists` names for it.

    A holder for which it names None is shown none. With `asked`, only these get the Ask.
    """
    chosen = tuple(members or world.names)
    found = Haul(slot_of(world.plan.item(ITEM), round, slot))
    for name in asked or chosen:
        facts = {} if weights is None else {"weights": weights[name]}
        places = {"round": round, "exchange": exchange, "slot": slot}
        ask = world.evil_ask(name, chosen, **places, **facts)
        (answer,) = world.clients[name].receive(ask)
        assert not refused([answer]), world.clients[name].last_error
        found.where[name] = replace(where_of(answer.data, chosen), slot=slot)
        found.bodies[name] = world.aggregator._inbox.open(answer.data).body
        found.evidence[name] = evidence(answer.data)
    show(world, found, lists)
    return found


def show(world: World, found: Haul, lists: Lists, where: Where | None = None) -> None:
    """Show every holder its list and then the votes for it; keep what it gives.

    Args:
        where: which sum the lists are said to be of; that of the uploads if None.
    """
    votes: dict[tuple[frozenset[str], str], dict[str, bytes]] = {}
    for holder in world.names:
        told = lists(holder)
        if told is None:
            continue
        place, listed = where or place_of(found, holder), frozenset(told)
        message = Survivors(
            members=world.roster.mask(place.members),
            survivors=world.roster.mask(tuple(listed)),
            slot=place.slot,
            evidence=evidence_for(world, found, holder),
        )
        vote = tell(world, "survivors", holder, message, place, Vote)
        if vote is None:
            found.refused.add(holder)
        else:
            found.votes[holder] = vote.signature
            votes.setdefault((listed, place.given), {})[holder] = vote.signature
    for (listed, _), signed in votes.items():
        for holder in signed:
            certify(world, found, holder, signed, where, listed)


def all_here(world: World, found: Haul, holders: Iterable[str]) -> None:
    """Tell holders that nobody is missing; keep the shares of self-masks that they give at once."""
    told: dict[str, frozenset[str]] = {}
    given: dict[str, Any] = {}
    for holder in holders:
        place = place_of(found, holder)
        message = AllHere(
            members=world.roster.mask(place.members),
            slot=place.slot,
            evidence=evidence_for(world, found, holder),
        )
        served = tell(world, "all_here", holder, message, place, SelfShares)
        if served is None:
            found.refused.add(holder)
        else:
            told[holder], given[holder] = frozenset(place.members), served.shares
    found.beside.append((told, given))


def evidence(upload: bytes) -> bytes:
    """Return what a client signed over an upload."""
    envelope = Envelope.decode(upload)
    return evidence_of(envelope.header, envelope.signature)


def evidence_for(world: World, found: Haul, holder: str) -> Any:
    """Return what the holder's neighbours signed over their uploads, as far as there are any."""
    group, width = world.aggregator.keys.agreed.group, world.aggregator.keys.agreed.width
    blank = bytes(EVIDENCE_BYTES)
    rows = [found.evidence.get(name, blank) for name in group.holders(holder)]
    rows += [blank] * (width + 1 - len(rows))
    return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, EVIDENCE_BYTES)


def certify(
    world: World,
    found: Haul,
    holder: str,
    signed: Mapping[str, bytes],
    where: Where | None,
    listed: frozenset[str],
) -> None:
    """Show one holder these votes and keep the shares that it gives."""
    rows = [
        signed.get(name, bytes(64)) for name in world.aggregator.keys.agreed.group.voters(holder)
    ]
    rows += [bytes(64)] * (world.plan.item("train.votes").dims["voters"] - len(rows))
    message = Votes(signatures=np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 64))
    shares = tell(world, "votes", holder, message, where or place_of(found, holder), Shares)
    if shares is None:
        found.refused.add(holder)
    else:
        found.told[holder], found.given[holder] = listed, shares.shares


def tell(world: World, item: str, to: str, message: Any, where: Where, kind: Any) -> Any:
    """Say something to a client as the aggregator; return its answer, None for a refusal."""
    client = world.clients[to]
    if client.state is State.DEAD:
        return None
    dims = world.context(to).dims(world.plan.item(f"train.{item}"))
    data = world.forge(AGGREGATOR_NAME, f"train.{item}", to, encode([message], dims), where)
    (answer,) = client.receive(data)
    if refused([answer]):
        return None
    unplaced(world.aggregator)  # a liar reads whatever it gets
    incoming = world.aggregator._inbox.open(answer.data)
    return world.aggregator._inbox.read(incoming, (kind,))[0]


def place_of(found: Haul, holder: str) -> Where:
    """Return the exchange as a client was asked it; clients outside are told a member's."""
    return found.where.get(holder) or next(iter(found.where.values()))


def seed(world: World, found: Haul, owner: str, kind: str) -> bytes:
    """Rebuild the seed `b` or `e` of a client from whatever shares of it were given."""
    group, held = world.aggregator.keys.agreed.group, {}
    answers = ((found.told, found.given), *found.beside)
    for told, holder, rows in ((t, h, r) for t, given in answers for h, r in given.items()):
        owners = group.holders(holder)
        if owner in owners and ("b" if owner in told[holder] else "e") == kind:
            share = rows[owners.index(owner)].tobytes()
            held[group.holders(owner).index(holder)] = [share]
    if len(held) < group.threshold:
        raise NotEnough(f"{len(held)} shares of {kind} of {owner}; {group.threshold} are needed")
    return combine(held, group.threshold)[0]


def _pair(world: World, found: Haul, one: str, other: str) -> bytes:
    """Return a pair's secret of the slot from the row of either end."""
    setup = world.aggregator.keys.agreed
    for name, peer in ((one, other), (other, one)):
        try:
            key = row_key(seed(world, found, name, "e"))
        except NotEnough:
            continue
        info = row_info(world.run, setup.epoch, name, found.slot)
        row = unlock(key, info, setup.rows_of(found.slot, [name])[name])
        place = setup.group.neighbours(name).index(peer)
        return row[place * SEED_BYTES : (place + 1) * SEED_BYTES]
    raise NotEnough(f"neither row of the pair {one}, {other} opens")


def unveil(world: World, found: Haul, left: Sequence[str]) -> Update:
    """Return the total of the clients `left`.

    Raises:
        NotEnough: the shares do not allow it.
        OutOfRange: masks are still on it.
    """
    integers = collection(world, found)._ring().integers(stripped(world, found, left))
    return collection(world, found)._summed()[0].decode(integers, len(left))[Update]


def stripped(
    world: World, found: Haul, left: Sequence[str], pairs: bool = True, selves: bool = True
) -> Any:
    """Return the sum of some uploads without the masks of pairs that leave them and self-masks.

    Raises:
        NotEnough: the shares do not allow it.
    """
    context, group = world.context(AGGREGATOR_NAME), world.aggregator.keys.agreed.group
    agreed = world.aggregator.keys.agreed.agreement(found.slot)
    ring, minus, plus = collection(world, found)._ring(), [], []
    total = MaskSum(ring.modulus, ring.size)
    for name in left:
        total.add(plain(world, found.bodies[name]))
        where = found.where[name]
        rests_on = found.agreed.get(name, agreed)
        label = context.mask_label(
            context.item(ITEM), where, context.sum_key(AGGREGATOR_NAME), rests_on
        )
        if selves:
            minus.append(self_key(seed(world, found, name, "b"), label))
        peers = set(found.paired.get(name, group.neighbours(name))) & set(where.members)
        for peer in peers - set(left) if pairs else ():
            side = minus if name < peer else plus
            side.append(pair_key(_pair(world, found, name, peer), label))
    total.take(minus, plus)
    return total.values


def collection(world: World, found: Haul) -> Summands:
    where = next(iter(found.where.values()))
    return _summands(world, where)


def _summands(world: World, where: Where) -> Summands:
    context, exchange = world.context(AGGREGATOR_NAME), world.form.exchanges[0]
    return Collection(context, exchange, where).of(Disclosure.SUM, Summands)


def plain(world: World, body: bytes) -> Any:
    """Return what an upload holds inside its encryption, as if the secret key were stolen."""
    if world.scheme is not None:
        return world.scheme.decrypt(world.authority.keys.held.get("SUM"), body)
    ring = _summands(world, world.where())._ring()
    return np.frombuffer(body, dtype=container(ring.modulus))


def looks_uniform(values: Any, modulus: int) -> bool:
    """Tell by chi square whether values are uniform mod `modulus`, in their high and low bits."""
    exact = np.asarray(values).astype(object)
    cells = ((exact * 64 // modulus).astype(int), (exact % 64).astype(int))
    pvalues = [stats.chisquare(np.bincount(c, minlength=64)).pvalue for c in cells]
    return bool(min(pvalues) > LEVEL)


def modulus_of(world: World) -> int:
    """Return what a world's uploads are taken mod."""
    return _summands(world, world.where())._ring().modulus


def is_sum_of(world: World, found: Update, members: Sequence[str]) -> bool:
    """Tell whether a total is that of these clients: counts exactly, values within rounding."""
    truth = sum(np.clip(world.sites[n].delta, -5.0, 5.0) for n in members)
    step = 5.0 / (2**15 - 1)
    return found.count == world.count(members) and bool(
        np.max(np.abs(found.delta - truth)) <= len(members) * step
    )
