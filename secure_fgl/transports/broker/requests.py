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

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Protocol

from protocols.plan.plan import Plan
from protocols.plan.steps import Service
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.transports.broker.messages import (
    END,
    TASK,
    Assembly,
    Code,
    Kind,
    Malformed,
    Part,
    SiteReply,
    decode,
    encode,
    split,
)

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


# --- At the aggregator's carrier: one request to one site, and its reply, part by part ---
#
# Every message of a site answers one of ours: the server lets it publish one reply for each message
# that it received, and nothing else (`rights`). So a site that floods, answers twice or never
# finishes delays its own reply alone. Each request has a subject of its own for its reply, below
# the party's name and with a random end, so that no site can reply for another, not even one behind
# a leaf node, which may publish below its own name (`config`). A site that computes for hours is
# asked again every `_HOLD_SECONDS` whether it is done; what is lost on the way is asked again under
# the same name, and a site works on one name once.

_FIRST_HOLD_SECONDS = 0.5  # below the second in which a site that missed a deadline takes the next
_HOLD_SECONDS = 20.0
_PATIENCE_SECONDS = 10.0  # for a part to cross, beyond what the site may hold
_LOST_SECONDS = 60.0  # in which nothing came of a site
_RETURN_SECONDS = 5.0  # in which a carrier that lost its connection is back
_GRACE_SECONDS = 1.0  # in which a site that missed its last deadline takes this request, if it can
_ENVELOPES = 64  # of one reply, beside eight for each party
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1.0)


class _Anew(Exception):
    """The connection was made anew; a reply to what was asked before does not come any more."""


class Requests:
    """Sends the aggregator's requests to the sites of one run.

    Args:
        client: connected to the server (`nats.aio.client.Client`).
        subjects: by party, where its carrier listens.
        limits: by party, bytes of a reply that are taken.
    """

    def __init__(self, client: Any, subjects: Mapping[str, str], limits: Mapping[str, int]) -> None:
        self._client, self._subjects, self._limits = client, subjects, limits
        self._inbox = str(client.new_inbox())
        self._subscribed: dict[str, asyncio.Task[Any]] = {}
        self._awaited: dict[str, asyncio.Future[Any]] = {}

    async def reconnected(self) -> None:
        """Ask again at once whatever was under way: the server has forgotten who asked."""
        for reply in self._awaited.values():
            if not reply.done():
                reply.set_exception(_Anew())

    async def carry(
        self,
        task: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, SiteReply]:
        """Send each party its envelopes; return what came by the time that nobody is awaited.

        Args:
            task: see `replies`.
            bundles: by party.
            seconds: how long to wait at most.
            unhurried: parties that are waited for only if they take the request within a second.
        """
        began, awaited, slow = time.monotonic(), dict[asyncio.Task[SiteReply], str](), {*unhurried}
        for party, envelopes in bundles.items():
            message = encode({"do": task, "seconds": seconds}, envelopes)
            asked = self._ask(party, message, began + seconds, slow)
            awaited[asyncio.create_task(asked)] = party
        replies: dict[str, SiteReply] = {}
        try:
            while awaited and (passed := time.monotonic() - began) < seconds:
                late = {*awaited.values()} <= slow
                if late and passed > _GRACE_SECONDS:
                    break
                wait = min(seconds - passed, 0.2 if slow else 5.0)
                done, _ = await asyncio.wait(
                    awaited, timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                for task_done in done:
                    reply = task_done.result()
                    party = awaited.pop(task_done)
                    if reply.code is not Code.SILENT:
                        replies[party] = reply
            return replies
        finally:
            for left in awaited:
                left.cancel()

    async def _ask(self, party: str, message: bytes, end: float, slow: set[str]) -> SiteReply:
        """Put the request to a site, wait until it is done, and fetch the reply."""
        parts = split(Kind.PUT, os.urandom(16), message)
        index, taken, anew = 0, False, 0
        while True:
            due, asked = _next(parts[index], taken, end), time.monotonic()
            answer = await self._answered(party, due, end)
            if isinstance(answer, SiteReply):
                return answer
            # Of a reply's megabytes no word is made.
            word = str(answer.data, "ascii", "replace") if answer.kind is Kind.CODE else ""
            if answer.kind is Kind.MORE and answer.index == index + 1 < len(parts):
                index += 1
            elif answer.kind is Kind.REPLY:
                return await self._fetched(party, answer, end)
            elif answer.kind is Kind.CODE and word == "taken":
                taken = True
                slow.discard(party)
                if time.monotonic() - asked < due.hold / 2000:  # it does not hold: no race with it
                    await asyncio.sleep(_PAUSES[0])
            elif answer.kind is Kind.CODE and word == "unknown":  # its carrier was started anew
                index, taken = 0, False
                await asyncio.sleep(_PAUSES[min(anew, len(_PAUSES) - 1)])
                anew += 1
            else:
                return SiteReply(next((c for c in Code if c == word), Code.FAILED))

    async def _fetched(self, party: str, first: Part, end: float) -> SiteReply:
        """Return the reply of which this is the first part."""
        try:
            reply = Assembly(first, self._limits[party])
            message = reply.add(first)
            while message is None:
                wanted = Part(Kind.GET, first.name, reply.next)
                answer = await self._answered(party, wanted, end)
                if isinstance(answer, SiteReply):
                    return answer
                message = reply.add(answer)
            head, envelopes = decode(message)
            if len(envelopes) > _ENVELOPES + 8 * len(self._subjects):
                return SiteReply(Code.FAILED)
            return SiteReply(Code(str(head.get("code"))), envelopes)
        except ValueError:  # Malformed, or a code that is none
            return SiteReply(Code.FAILED)

    async def _request(self, party: str, data: bytes, seconds: float) -> bytes:
        """Publish once and return the reply; raises what `nats` raises, NoRespondersError too."""
        from nats.errors import NoRespondersError

        if party not in self._subscribed:  # each its own: a leaf node hears only of these
            made = self._client.subscribe(f"{self._inbox}.{party}.*", cb=self._arrived)
            self._subscribed[party] = asyncio.ensure_future(made)
        await asyncio.shield(self._subscribed[party])
        subject = f"{self._inbox}.{party}.{os.urandom(12).hex()}"
        self._awaited[subject] = asyncio.get_running_loop().create_future()
        try:
            await self._client.publish(self._subjects[party], data, reply=subject)
            message = await asyncio.wait_for(self._awaited[subject], seconds)
        finally:
            del self._awaited[subject]
        if message.headers and message.headers.get("Status") == "503":
            raise NoRespondersError
        return bytes(message.data)

    async def _arrived(self, message: Any) -> None:
        reply = self._awaited.get(message.subject)
        if reply is not None and not reply.done():
            reply.set_result(message)

    async def _answered(self, party: str, part: Part, end: float) -> Part | SiteReply:
        """Publish a part until the site answers it; return the answer, or that there is none."""
        from nats.errors import Error, NoRespondersError

        lost, began = 0, time.monotonic()
        while (left := end - time.monotonic()) > 0:
            patience = part.hold / 1000 + _PATIENCE_SECONDS * 2 ** min(lost, 3)
            gone, data = False, part.encode()
            try:
                answer = Part.decode(await self._request(party, data, min(left, patience)))
                return answer if answer.name == part.name else SiteReply(Code.FAILED)
            except Malformed:
                return SiteReply(Code.FAILED)
            except NoRespondersError:
                gone = True
            except _Anew:
                began = time.monotonic()  # the site may need as long to be back
            except (Error, OSError, TimeoutError):  # the connection, or this message, is lost
                pass
            if time.monotonic() - began > (_RETURN_SECONDS if gone else _LOST_SECONDS):
                return SiteReply(Code.AWAY if gone else Code.SILENT)
            await asyncio.sleep(_PAUSES[min(lost, len(_PAUSES) - 1)])
            lost += 1
        return SiteReply(Code.SILENT)


def _next(due: Part, taken: bool, end: float) -> Part:
    """Return the part that is due, with how long the site may hold its answer."""
    left = max(0.0, end - time.monotonic())
    hold = int(1000 * min(left, _HOLD_SECONDS if taken else _FIRST_HOLD_SECONDS))
    if taken:
        return Part(Kind.WAIT, due.name, hold=hold)
    return replace(due, hold=hold)
