"""Plan against actual: was everything that left foreseen, on its route, in its size and number?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from audits.evidence.ledger_index import Sent
from protocols.errors import SecureFglError
from protocols.plan.plan import Item, Plan, times_in_round
from protocols.policy.guard import describe
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE, Roster


@dataclass(frozen=True)
class Violation:
    """A release that the plan does not hold."""

    sent: Sent
    what: str


class Yardstick:
    """Measures releases against plan, policy and roster.

    Args:
        plan, policy, roster: of the run.
        side: the party whose own releases alone are at hand; empty: all parties'.
    """

    def __init__(
        self, plan: Plan, policy: PrivacyPolicy, roster: Roster, *, side: str = ""
    ) -> None:
        self.plan, self.policy, self.roster, self._side = plan, policy, roster, side
        self.items: Mapping[str, Item] = {item.id: item for item in plan.items}

    @cached_property
    def roles(self) -> dict[str, str]:
        """Party name -> role."""
        return {p["name"]: p["role"] for p in self.roster.document()}

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """The clients whose ledgers are looked at: all, or of one side that one, or nobody."""
        found = (name for name, role in self.roles.items() if role == Role.CLIENT)
        return tuple(name for name in found if self._side in ("", name))

    @cached_property
    def _instead_of(self) -> dict[str, tuple[str, ...]]:
        return {i.id: tuple(o.id for o in self.plan.instead_of(i)) for i in self.plan.items}

    def routes(self, item: Item) -> int:
        """Return on how many sender-recipient pairs an item may travel."""
        looked_at = (self._side,) if self._side else tuple(self.roles)
        senders = sum(self.roles.get(name) == item.sender for name in looked_at)
        if item.recipient == EVERYONE:
            return senders
        return senders * sum(role == item.recipient for role in self.roles.values())

    def violations(self, releases: Sequence[Sent]) -> Iterator[Violation]:
        """Yield every release that is not as planned, with the first reason why."""
        count = Counted(self)
        for sent in releases:
            if (what := count.objection(sent)) is not None:
                yield Violation(sent, what)

    def instead_of(self, item: str) -> tuple[str, ...]:
        """Return the items that may leave in an item's place."""
        return self._instead_of.get(item, ())

    def objection(self, sent: Sent, count: int, in_round: int) -> str | None:
        """Return why a release is not as planned, as the nth of its route and of its round."""
        item = self.items.get(sent.item)
        if item is None:
            return "is no planned item"
        if sent.facts["sender"] != sent.party:
            return "names another sender than the ledger's owner"
        if self.roles.get(sent.party) != item.sender:
            return "is not for this role to send"
        to = EVERYONE if sent.recipient == EVERYONE else self.roles.get(sent.recipient)
        if to != item.recipient:
            return "went to another role than planned"
        return self._extent(item, sent, count, in_round) or self._protection(item, sent)

    def _extent(self, item: Item, sent: Sent, count: int, in_round: int) -> str | None:
        if count > item.times:
            return f"left more often than the planned {item.times} times"
        if in_round > times_in_round(item, sent.facts["round"], self.plan.rounds):
            return "left more often in one round than planned"
        if sent.facts["bytes"] > item.bytes:
            return f"is larger than the planned {item.bytes} bytes"
        if sent.facts["round"] > self.plan.rounds:
            return "is of a round beyond the plan"
        return None

    def _protection(self, item: Item, sent: Sent) -> str | None:
        facts = sent.facts
        if facts["disclosure"] != str(item.disclosure):
            return "discloses something else than planned"
        if facts["messages"] != "+".join(message.name for message in item.messages):
            return "carries other messages than planned"
        if tuple(facts["protection"]) != item.guards or facts["unsafe"] != item.unsafe:
            return "was protected in another way than planned"
        try:
            chain = self.policy.chain(item.disclosure)
        except SecureFglError:
            return "discloses something that the policy does not name"
        unsafe = any(guard.guard == "unsafe_clear" for guard in chain)
        if item.guards != tuple(describe(guard) for guard in chain) or item.unsafe != unsafe:
            return "was planned with another protection than the policy's"
        return None


class Counted:
    """Releases as they come, one after the other: how often each item left so far.

    Args:
        yardstick: of the run.
    """

    def __init__(self, yardstick: Yardstick) -> None:
        self._yardstick = yardstick
        self._often: Counter[tuple[str, str, str]] = Counter()
        self._in_round: Counter[tuple[str, str, str, int]] = Counter()

    def objection(self, sent: Sent) -> str | None:
        """Count a release, and return why it is not as planned; None: it is."""
        party, to, round = sent.party, sent.recipient, sent.facts["round"]
        self._often[party, sent.item, to] += 1
        self._in_round[party, sent.item, to, round] += 1
        # Of one sum one way is taken, so what leaves in an item's place counts as the item.
        ids = self._yardstick.instead_of(sent.item)
        count = self._often[party, sent.item, to]
        count += max((self._often[party, id, to] for id in ids), default=0)
        inside = self._in_round[party, sent.item, to, round]
        inside += max((self._in_round[party, id, to, round] for id in ids), default=0)
        return self._yardstick.objection(sent, count, inside)
