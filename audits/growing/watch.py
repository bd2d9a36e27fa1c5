"""What the ledgers of a run say while they grow: each entry once, held against the plan.

Chain and facts of every entry are checked as `audits.evidence` does for a finished run, so a watch
refuses the same ledgers. It sees what is recorded, and nothing of receipts between parties, heads
or signatures: for these there is ``audit verify`` after the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from audits.checks import documents
from audits.evidence.drift import Counted
from audits.evidence.entries import check_facts
from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case
from protocols.errors import EvidenceError
from protocols.evidence.ledger import ENTRY_LIMIT, Chain, Entry
from protocols.plan.steps import Service, Step

__all__ = ["Seen", "Tally", "Watch"]

_ANSWERS = (Step.UP, Step.ACK)
_UNKNOWN = "no planned item"


@dataclass(frozen=True, repr=False)
class Seen:
    """One entry that was read.

    Attributes:
        party: whose ledger it stands in.
        entry: its facts.
        unplanned: why the plan does not hold it; empty: it does.
    """

    party: str
    entry: Entry
    unplanned: str = ""


@dataclass
class Tally:
    """How many envelopes left, and their bytes."""

    count: int = 0
    bytes: int = 0

    def add(self, size: int) -> None:
        """Count one envelope."""
        self.count, self.bytes = self.count + 1, self.bytes + size


@dataclass
class _Ledger:
    """One ledger: its chain, and bytes of a line that is not complete yet."""

    chain: Chain = field(default_factory=Chain)
    rest: bytes = b""
    closed: bool = False


@dataclass
class _Asked:
    """One exchange, as its asker's ledger tells it: who was asked, and who answered."""

    round: int
    asked: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)


class Watch:
    """Adds up what ledgers say as they grow.

    Args:
        view: of the run's documents; its ledgers are not read. Raises EvidenceError (``files``,
            ``plan``, ``roster``) unless plan, policy and roster belong together.

    Attributes:
        entries: how many were read.
        sent: (item, round) -> what left.
        refusals: each entry with which somebody refused a request, with its party.
        budgets: party -> its last entry of a budget.
        unplanned: what the plan does not hold.
    """

    def __init__(self, view: RunView) -> None:
        self._bare = replace(view, ledgers={}, config_text=None)
        self._case = Case(self._bare)
        documents.plan(self._case)
        # Ledgers may not be there yet; each is held to the roster when its first entry is read.
        one = next(iter(self._case.yardstick.roles))
        documents.roster(self._case.with_files(replace(self._bare, side=one)))
        self._yardstick = self._case.yardstick
        self._counted, self._ledgers = Counted(self._yardstick), dict[str, _Ledger]()
        self._asks: dict[str, dict[int, _Asked]] = {}
        self.entries = 0
        self.sent: dict[tuple[str, int], Tally] = {}
        self.refusals: list[tuple[str, Entry]] = []
        self.budgets: dict[str, Entry] = {}
        self.unplanned: list[Seen] = []

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties whose ledgers are watched: all on the roster, or that of one side."""
        return (self._bare.side,) if self._bare.side else tuple(self._yardstick.roles)

    @property
    def planned(self) -> Mapping[str, tuple[int, int]]:
        """Item -> how many envelopes may leave in the whole run, and how many bytes, at most."""
        routes, items = self._yardstick.routes, self._yardstick.items.values()
        most = {item.id: routes(item) * item.times for item in items}
        return {item.id: (most[item.id], most[item.id] * item.bytes) for item in items}

    @property
    def rounds(self) -> int:
        """Rounds of the plan."""
        return self._yardstick.plan.rounds

    @property
    def over(self) -> bool:
        """Tell whether every ledger was closed by its party."""
        return all(p in self._ledgers and self._ledgers[p].closed for p in self.parties)

    def take(self, party: str, data: bytes) -> Iterator[Seen]:
        """Yield the entries that are complete with these bytes, which follow the last ones.

        Raises:
            EvidenceError: at step ``chain`` or ``files``: an entry does not follow from the one
                before it, or is none. At ``plan`` or ``roster``: the ledger was begun otherwise, or
                the entry was made under another plan or policy.
        """
        ledger = self._ledgers.setdefault(party, _Ledger())
        *lines, ledger.rest = (ledger.rest + data).split(b"\n")
        for line in lines:
            yield self._entry(party, ledger, line + b"\n")
        if ledger.closed and ledger.rest:
            raise EvidenceError("chain", f"ledger of {party}: something follows the ledger's end")
        if len(ledger.rest) > ENTRY_LIMIT:
            raise EvidenceError("chain", f"ledger of {party}: a line has no end")

    def _entry(self, party: str, ledger: _Ledger, line: bytes) -> Seen:
        number = ledger.chain.size
        try:
            if ledger.closed:
                raise EvidenceError("chain", f"entry {number} follows the ledger's end")
            entry = ledger.chain.take(line)
            check_facts(number, entry)
            if entry["party"] != party or entry["run"] != self._case.roster_file.run:
                raise EvidenceError("chain", f"entry {number} is another party's, or run's")
            if not number:
                self._begun(party, line)
            self._under_this_plan(number, entry)
        except EvidenceError as error:
            raise EvidenceError(error.step, f"ledger of {party}: {error.what}") from None
        self.entries += 1
        ledger.closed = entry["kind"] == "close"
        seen = Seen(party, entry, self._judge(party, entry))
        if seen.unplanned:
            self.unplanned.append(seen)
        return seen

    def _begun(self, party: str, line: bytes) -> None:
        """See that a ledger was begun under this plan, policy and roster, by this party."""
        case = self._case.with_files(replace(self._bare, ledgers={party: line}, side=party))
        documents.plan(case)
        documents.roster(case)

    def _under_this_plan(self, number: int, entry: Entry) -> None:
        """See that an entry that names plan and policy names the run's, wherever it stands."""
        ours = {"plan": self._case.plan_digest, "policy": self._case.policy.digest}
        for name, digest in ours.items():
            if "plan" in entry and entry.get(name) != digest:
                raise EvidenceError("plan", f"entry {number} was made under another {name}")

    def _judge(self, party: str, entry: Entry) -> str:
        kind = entry["kind"]
        if kind == "release":
            item = self._yardstick.items.get(entry["item"])
            sent = Sent(party, entry["seq"], entry["prev"], entry, item)
            self.sent.setdefault((sent.item, sent.round), Tally()).add(entry["bytes"])
            if sent.step is Step.DOWN and sent.part is Service.ASK:
                self._exchange(party, entry).asked.add(sent.recipient)
            return self._counted.objection(sent) or ""
        if kind == "receipt":
            item = self._yardstick.items.get(entry["item"])
            if item is None:
                return f"was received though it is {_UNKNOWN}"
            if item.step in _ANSWERS and item.part is not Service.HEADS:
                self._exchange(party, entry).answered.add(entry["sender"])
        elif kind == "refusal":
            self.refusals.append((party, entry))
        elif kind == "budget":
            self.budgets[party] = entry
        return ""

    def _exchange(self, party: str, entry: Entry) -> _Asked:
        found = self._asks.setdefault(party, {})
        return found.setdefault(entry["exchange"], _Asked(entry["round"]))

    @property
    def away(self) -> dict[str, int]:
        """Client -> the round in which it was last asked in vain, if it did not answer since.

        By the ledger of who asks; the exchange that goes on now does not count. Where
        answers come by another way, nobody is named.
        """
        found: dict[str, int] = {}
        for asks in self._asks.values():
            for number, ask in sorted(asks.items()):
                for client in ask.answered:
                    found.pop(client, None)
                if ask.answered and (number < max(asks) or self.over):
                    found |= dict.fromkeys(ask.asked - ask.answered, ask.round)
        return found
