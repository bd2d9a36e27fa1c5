"""For whom the aggregator waits: a site that is away costs a round at most.

An exchange goes out to all. Whose relay says that the party's process is away, is not waited for,
unless nothing could go on without it:

- a party that is no client: an authority, a witness, a relay, a matcher, a tag server;
- anybody, where an epoch's keys are agreed on: who misses pair secrets is out of the whole epoch;
- clients, as long as fewer than the policy's smallest cohort answered (O10); totals that a client
  missed go to it alone, and it is waited for where the others are fewer than that;
- who was not heard of in this run yet: it is just starting.

These are asked again, with the very bytes, until the deadline; the very bytes get the very answer
(O5). A site that is busy is asked again as well: it may still compute what it was asked. Whoever
missed a deadline is asked the next time, and nobody waits for it before it is there again. Who left
in order is waited for by nobody, but for a party that is no client.
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
from secure_fgl.transports.nvflare.charter import Charter
from secure_fgl.transports.nvflare.site.codes import END, TASK, Code, Heard

__all__ = ["Carrier", "SiteTransport"]

_AGREED = (Service.KEYS, Service.PAIRS, Service.DRAW)
_PAUSE_SECONDS = 0.5  # before who is away is asked again
_END_SECONDS = 30.0  # for closing a ledger; who is gone by then closes none


class Carrier(Protocol):
    """Carries bundles of envelopes to sites of the engine, once."""

    def carry(
        self,
        name: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, Heard]:
        """Return what came from each site by the time that nobody is waited for any more.

        Args:
            name: of the task.
            bundles: by site.
            seconds: how long to wait at most.
            unhurried: sites for which nobody waits unless they take the task.
        """


class SiteTransport:
    """Carries each delivery to the site where its party is, and waits for whom it needs.

    Args:
        carrier: carries the bytes.
        sites: the charter's: by party name, the engine's name of its site.
        deadline: says how many seconds an exchange may take; who has not answered by then has
            vanished.
        plan: says who is a client, and when keys are agreed on; None: all are, and none are.
        least: the policy's smallest cohort.
        heard: parties that were heard of before this process began.

    Attributes:
        seconds: how long each exchange took.
        heard: called with the name of each party that answered.
    """

    def __init__(
        self,
        carrier: Carrier,
        sites: Mapping[str, str],
        *,
        deadline: Callable[[], float],
        plan: Plan | None = None,
        least: int = 1,
        heard: Collection[str] = (),
    ) -> None:
        self._carrier, self._deadline, self._least = carrier, deadline, least
        self._sites = {n: s for n, s in sites.items() if n != AGGREGATOR_NAME}
        clients = plan.clients if plan is not None else self._sites
        self._clients = {self._sites[client] for client in clients}
        self._items = {item.id: item for item in plan.items} if plan is not None else {}
        # Sites that were heard of, or waited for in vain.
        self._known = {self._sites[name] for name in heard}
        self._missed: set[str] = set()  # that did not answer by their last deadline
        self._absent: set[str] = set()  # that had no answer when they were last asked
        self.seconds: list[float] = []
        self.heard: Callable[[str], None] = lambda party: None
        self._parties = {site: name for name, site in self._sites.items()}

    @classmethod
    def of(
        cls,
        charter: Charter,
        carrier: Carrier,
        *,
        deadline: Callable[[], float],
        heard: Collection[str] = (),
    ) -> SiteTransport:
        """Return the transport of a charter's run."""
        plan, least = charter.plan, charter.policy.smallest_cohort
        return cls(carrier, charter.sites, deadline=deadline, plan=plan, least=least, heard=heard)

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver `deliveries`; return what came back, in the order of sites."""
        start = time.monotonic()
        found = self._ask(TASK, deliveries, self._deadline(), self._agrees(deliveries))
        self.seconds.append(time.monotonic() - start)
        # An answer is addressed by its own signed header; this one is the only receiver here.
        return [Delivery(AGGREGATOR_NAME, data) for site in sorted(found) for data in found[site]]

    def end(self, note: bytes) -> None:
        """Tell every site that the run is over, so that it ends its ledger.

        Args:
            note: what `Charter.end` returns.
        """
        deliveries = [Delivery(party, note) for party in self._sites]
        self._ask(END, deliveries, min(self._deadline(), _END_SECONDS), needed=True)

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
        self, name: str, deliveries: Sequence[Delivery], seconds: float, needed: bool
    ) -> dict[str, list[bytes]]:
        bundles: dict[str, list[bytes]] = {}
        for delivery in deliveries:
            bundles.setdefault(self._sites[delivery.to], []).append(delivery.data)
        deadline, open_, found = time.monotonic() + seconds, bundles, dict[str, list[bytes]]()
        while open_:
            left = max(0.0, deadline - time.monotonic())
            unhurried = set() if needed else self._missed & self._clients & {*open_}
            heard = self._carrier.carry(name, open_, left, unhurried)
            found |= {site: [*h.envelopes] for site, h in heard.items() if h.code is Code.DONE}
            for site in {*heard} & {*found}:
                self.heard(self._parties[site])
            short = self._short(self._clients & {*bundles}, found)
            again = [s for s in open_ if self._is_awaited(s, heard.get(s), needed or short)]
            if not again or deadline - time.monotonic() <= _PAUSE_SECONDS:
                self._known.update(again)
                self._missed.update(again)
                break
            time.sleep(_PAUSE_SECONDS)
            open_ = {site: bundles[site] for site in again}
        return found

    def _short(self, asked: Set[str], found: Collection[str]) -> bool:
        """Tell whether the smallest cohort is not there without clients that have not answered.

        Where fewer than it are asked, what they missed goes to them alone, and the others count as
        there unless they had no answer when they were last asked.
        """
        if len(asked) >= self._least:
            return len(asked & {*found}) < self._least
        gone = (asked - {*found}) | (self._absent - asked)
        return bool(asked) and len(self._clients - gone) < self._least

    def _is_awaited(self, site: str, heard: Heard | None, needed: bool) -> bool:
        """Note how a site answered, and tell whether it is asked once more."""
        code = heard.code if heard is not None else Code.SILENT
        if code in (Code.DONE, Code.FAILED, Code.UNREADABLE):
            self._known.add(site)
            self._missed.discard(site)
            self._absent.discard(site)
            return False
        self._absent.add(site)
        if code is Code.SILENT:
            self._missed.add(site)
        if site not in self._clients or site not in self._known:
            return True
        if code is Code.LEFT:
            return False
        return needed or (code is Code.BUSY and site not in self._missed)
