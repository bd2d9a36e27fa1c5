"""A whole run in one process: every party's session, the aggregator's loop, and no network.

What a carrier does stands in `Desk`: it takes the aggregator's own message apart, hands each party
its envelopes, and returns what they reply. Tests say what becomes of a request on its way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.sites.process import open_process
from secure_fgl.sites.session import Answerer, Callers, conduct_run
from secure_fgl.transports.broker.messages import TASK, Code, SiteReply, decode, encode
from tests.sites.stage import Parties

Way = Callable[["Desk", str, str, Sequence[bytes]], SiteReply | None]
"""What becomes of a request to a party; None: nothing comes back."""


def plainly(desk: Desk, party: str, task: str, envelopes: Sequence[bytes]) -> SiteReply:
    """Deliver a request once."""
    return desk.deliver(party, task, envelopes)


@dataclass
class Desk:
    """Answers for all parties but the aggregator, and stands for its carrier.

    Attributes:
        seats: by party.
        way: what becomes of a request.
        first: by party and envelopes, what was replied to them first.
        allowed: by request, seconds that it could take.
    """

    seats: dict[str, Answerer]
    way: Way = plainly
    first: dict[tuple[str, bytes], list[bytes]] = field(default_factory=dict)
    allowed: list[float] = field(default_factory=list)

    def asked(self, message: bytes, seconds: float) -> bytes:
        """Return what a carrier returns for the aggregator's message; see `session.Callers`."""
        head, envelopes = decode(message)
        self.allowed.append(seconds)
        bundles: dict[str, list[bytes]] = {}
        for party, count in head["parties"]:
            bundles[party], envelopes = envelopes[:count], envelopes[count:]
        replies = self.carry(head["task"], bundles, seconds, head["unhurried"])
        came = [[name, str(reply.code), len(reply.envelopes)] for name, reply in replies.items()]
        return encode({"replies": came}, [e for r in replies.values() for e in r.envelopes])

    def carry(
        self,
        task: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, SiteReply]:
        """Hand each party its envelopes, one after the other; see `waiting.Carrier`."""
        replies = {name: self.way(self, name, task, sent) for name, sent in bundles.items()}
        return {name: reply for name, reply in replies.items() if reply is not None}

    def deliver(self, party: str, task: str, envelopes: Sequence[bytes]) -> SiteReply:
        """Hand a request over; the very same envelopes must never get two answers."""
        answerer = self.seats[party]
        if answerer.over:  # its process is gone by then
            return SiteReply(Code.LEFT)
        reply = answerer.answer(task, envelopes)
        if task == TASK and reply.code is Code.DONE:
            came = [*reply.envelopes]
            assert self.first.setdefault((party, b"".join(envelopes)), came) == came
        return reply

    def close(self) -> None:
        """Let the system do to every process what it does when one ends."""
        for answerer in self.seats.values():
            answerer.process.files.close()


def seated(parties: Parties, way: Way = plainly) -> Desk:
    """Return what answers for every party but the aggregator, each with a session of its own."""
    return Desk({name: Answerer(open_process(parties.kit(name))) for name in parties.others}, way)


def conducted(parties: Parties, desk: Desk) -> None:
    """Run the rounds at the aggregator, and let all sites know that the run is over."""
    kit, callers = parties.kit(AGGREGATOR_NAME), cast(Callers, desk)
    process = open_process(kit)
    with contextlib.closing(process.files):
        conduct_run(kit, process, callers)


def played(parties: Parties, way: Way = plainly) -> Desk:
    """Play a run from its beginning to its end."""
    desk = seated(parties, way)
    try:
        conducted(parties, desk)
    finally:
        desk.close()
    return desk
