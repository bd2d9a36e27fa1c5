"""For whom the aggregator waits: a site that is away costs a round at most.

An exchange goes out to all. A site whose process or carrier is away is not waited for, unless
nothing could go on without it:

- a party that is no client: an authority, a witness, a relay, a matcher, a tag server;
- anybody, where an epoch's keys are agreed on: who misses pair secrets is out of the whole epoch;
- clients, as long as fewer than the policy's smallest cohort answered (O10); totals that a client
  missed go to it alone, and it is waited for where the others are fewer than that;
- a party of which nothing came in this run yet: it is just starting.

These are asked again, with the very bytes, until the deadline; the very bytes get the very answer
(O5). A site that is busy is asked again as well: it may still compute what it was asked. A party
that missed a deadline is asked the next time, and nobody waits for it before it is there again.
Nobody waits for a party that left in order, unless it is no client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Protocol

from protocols.plan.plan import Plan
from protocols.plan.steps import Service
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.transports.broker.replies import END, TASK, Code, SiteReply

__all__ = ["Carrier", "SiteTransport"]

_AGREED = (Service.KEYS, Service.PAIRS, Service.DRAW)
_PAUSE_SECONDS = 0.5  # before who is away is asked again
_END_SECONDS = 30.0  # for closing a ledger; who is gone by then closes none


class Carrier(Protocol):
    """Carries bundles of envelopes to parties, once."""

    def carry(
        self,
        task: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, SiteReply]:
        """Return what came from each party by the time that nobody is waited for any more.

        Args:
            task: see `replies`.
            bundles: by party.
            seconds: how long to wait at most.
            unhurried: parties for which nobody waits unless they take the request.
        """


class SiteTransport:
    """Carries each delivery to its party, and waits for those that it needs.

    Args:
        carrier: carries the bytes.
        parties: all of the run.
        deadline: seconds that an exchange may take; who has not answered by then has vanished.
        plan: says who is a client, and when keys are agreed on; None: all are, and none are.
        least: the policy's smallest cohort.
        known: parties of which something came before this process began.

    Attributes:
        seconds: how long each exchange took.
        heard: called with the name of each party that answered.
    """

    def __init__(
        self,
        carrier: Carrier,
        parties: Collection[str],
        *,
        deadline: float,
        plan: Plan | None = None,
        least: int = 1,
        known: Collection[str] = (),
    ) -> None:
        self._carrier, self._deadline, self._least = carrier, deadline, least
        self._parties = [name for name in parties if name != AGGREGATOR_NAME]
        self._clients = {*(plan.clients if plan is not None else self._parties)}
        self._items = {item.id: item for item in plan.items} if plan is not None else {}
        # Parties of which something came, or for which the aggregator waited in vain.
        self._known = {*known}
        self._missed: set[str] = set()  # that did not answer by their last deadline
        self._absent: set[str] = set()  # that had no answer when they were last asked
        self.seconds: list[float] = []
        self.heard: Callable[[str], None] = lambda party: None

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver `deliveries`; return what came back, in the order of parties."""
        start = time.monotonic()
        answers = self._ask(TASK, deliveries, self._deadline, self._agrees(deliveries))
        self.seconds.append(time.monotonic() - start)
        # An answer is addressed by its own signed header; this one is the only receiver here.
        return [Delivery(AGGREGATOR_NAME, d) for name in sorted(answers) for d in answers[name]]

    def end(self, note: bytes) -> None:
        """Tell every party that the run is over, so that it ends its ledger.

        Args:
            note: what `Charter.end` returns.
        """
        deliveries = [Delivery(party, note) for party in self._parties]
        self._ask(END, deliveries, min(self._deadline, _END_SECONDS), needed=True)

    def _agrees(self, deliveries: Sequence[Delivery]) -> bool:
        """Tell whether keys of an epoch are agreed on.

        All envelopes of an exchange are alike, but for public keys that are handed out again: these
        go before what rests on them.
        """
        if not self._items or not deliveries:
            return False
        item = self._items.get(Envelope.decode(deliveries[-1].data).header.item)
        return item is not None and item.part in _AGREED

    def _ask(
        self, task: str, deliveries: Sequence[Delivery], seconds: float, needed: bool
    ) -> dict[str, list[bytes]]:
        bundles: dict[str, list[bytes]] = {}
        for delivery in deliveries:
            bundles.setdefault(delivery.to, []).append(delivery.data)
        deadline, open_, answers = time.monotonic() + seconds, bundles, dict[str, list[bytes]]()
        while open_:
            left = max(0.0, deadline - time.monotonic())
            unhurried = set() if needed else self._missed & self._clients & {*open_}
            replies = self._carrier.carry(task, open_, left, unhurried)
            done = {n: [*r.envelopes] for n, r in replies.items() if r.code is Code.DONE}
            answers |= done
            for party in done:
                self.heard(party)
            short = self._short(self._clients & {*bundles}, answers)
            again = [n for n in open_ if self._is_awaited(n, replies.get(n), needed or short)]
            if not again or deadline - time.monotonic() <= _PAUSE_SECONDS:
                self._known.update(again)
                self._missed.update(again)
                break
            time.sleep(_PAUSE_SECONDS)
            open_ = {party: bundles[party] for party in again}
        return answers

    def _short(self, asked: Set[str], answered: Collection[str]) -> bool:
        """Tell whether the smallest cohort is not there without clients that have not answered.

        Where fewer than it are asked, what they missed goes to them alone, and the others count as
        there unless they had no answer when they were last asked.
        """
        if len(asked) >= self._least:
            return len(asked & {*answered}) < self._least
        gone = (asked - {*answered}) | (self._absent - asked)
        return bool(asked) and len(self._clients - gone) < self._least

    def _is_awaited(self, party: str, reply: SiteReply | None, needed: bool) -> bool:
        """Note how a party replied, and tell whether it is asked once more."""
        code = reply.code if reply is not None else Code.SILENT
        if code in (Code.DONE, Code.FAILED, Code.UNREADABLE):
            self._known.add(party)
            self._missed.discard(party)
            self._absent.discard(party)
            return False
        self._absent.add(party)
        if code is Code.SILENT:
            self._missed.add(party)
        if party not in self._clients or party not in self._known:
            return True
        if code is Code.LEFT:
            return False
        return needed or (code is Code.BUSY and party not in self._missed)
