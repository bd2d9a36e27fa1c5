"""The ledgers of a run, read and sorted by what their entries say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from audits.evidence.entries import check_facts
from audits.report.words import plural
from crypto.errors import CryptoError
from crypto.merkle import leaf_hash
from crypto.signing import parse
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.evidence.ledger import ENTRY_LIMIT, Entry, read_lines
from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Part, Service, Step
from protocols.wire.roles import Role, takers
from protocols.wire.roster import EVERYONE, Roster


@dataclass(frozen=True, eq=False)
class Sent:
    """One release, with who recorded it and where.

    Attributes:
        party: whose ledger it stands in.
        seq, prev, facts: of its entry.
        planned: the plan's item of this id; None if there is none, and then it is of no part, step
            or Ask, whatever its id looks like.
    """

    party: str
    seq: int
    prev: str
    facts: Mapping[str, Any]
    planned: Item | None

    @property
    def item(self) -> str:
        """The id under which it left."""
        return str(self.facts["item"])

    @property
    def part(self) -> Part | None:
        """Which part plans it."""
        return self.planned.part if self.planned is not None else None

    @property
    def step(self) -> Step | None:
        """What it is for."""
        return self.planned.step if self.planned is not None else None

    @property
    def ask(self) -> str:
        """Name of the Ask that it belongs to; empty for what belongs to none."""
        return self.planned.exchange if self.planned is not None else ""

    @property
    def recipient(self) -> str:
        """A party's name, or ``roster``."""
        return str(self.facts["recipient"])

    @property
    def exchange(self) -> int:
        """Number of the Ask it belongs to; keys of an epoch carry the Ask before them."""
        return int(self.facts["exchange"])

    @property
    def round(self) -> int:
        """The round; of keys, the first of their epoch."""
        return int(self.facts["round"])

    @property
    def commitment(self) -> str:
        """What binds the envelope's bytes."""
        return str(self.facts["commitment"])

    @property
    def keying(self) -> bool:
        """Tell whether it belongs to the keys of an epoch or to the draw, and not to an Ask."""
        return self.part in (Service.KEYS, Service.PAIRS, Service.DRAW)

    def addressees(self, roster: Roster) -> tuple[str, ...]:
        """Return every party that should hold a receipt; who computes nothing takes no keys."""
        if self.recipient != EVERYONE:
            return (self.recipient,)
        there = set(takers(self.part, self.step)) or set(Role)  # not planned: everybody
        return tuple(
            p["name"] for p in roster.document() if p["name"] != self.party and p["role"] in there
        )


@dataclass
class LedgerIndex:
    """All ledgers that could be read, and why the others could not.

    Attributes:
        items: the plan's items by id; ledgers name items, and the plan says what they are for.
        entries: party -> its entries, chain and facts checked.
        leaves: party -> the Merkle leaf hash of each entry's line.
        first: party -> the first line as far as it can be read at all.
        broken: party -> what is wrong with its ledger.
    """

    items: Mapping[str, Item]
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    leaves: dict[str, list[bytes]] = field(default_factory=dict)
    first: dict[str, Entry] = field(default_factory=dict)
    broken: dict[str, EvidenceError] = field(default_factory=dict)

    @classmethod
    def read(cls, ledgers: Mapping[str, bytes], plan: Plan) -> LedgerIndex:
        """Read every ledger; a broken one is remembered, not raised."""
        ledger_index = cls({item.id: item for item in plan.items})
        for party in sorted(ledgers):
            data = ledgers[party]
            ledger_index._peek(party, data)
            try:
                lines = read_lines(data)
                for number, (entry, _) in enumerate(lines):
                    check_facts(number, entry)
            except EvidenceError as error:
                ledger_index.broken[party] = error
                continue
            ledger_index.entries[party] = [entry for entry, _ in lines]
            ledger_index.leaves[party] = [leaf_hash(line) for _, line in lines]
        return ledger_index

    def _peek(self, party: str, data: bytes) -> None:
        try:
            entry = parse(data.split(b"\n", 1)[0], limit=ENTRY_LIMIT)
        except CryptoError:
            return
        if isinstance(entry, dict):
            self.first[party] = entry

    def of_kind(self, kind: str) -> Iterator[tuple[str, Entry]]:
        """Yield (party, entry) for every entry of a kind, party by party, oldest first."""
        for party, entries in self.entries.items():
            for entry in entries:
                if entry["kind"] == kind:
                    yield party, entry

    def totals(self) -> Iterator[tuple[str, Entry]]:
        """Yield (party, entry) for every opened sum; cosines and rows are opened otherwise."""
        for party, entry in self.of_kind("open"):
            if "disclosure" not in entry:
                yield party, entry

    def by_exchange(self, kind: str) -> dict[int, list[tuple[str, Entry]]]:
        """Return (party, entry) of a kind whose entries name an exchange, by that exchange.

        Of ``open`` only sums.
        """
        found: dict[int, list[tuple[str, Entry]]] = {}
        for party, entry in self.totals() if kind == "open" else self.of_kind(kind):
            found.setdefault(entry["exchange"], []).append((party, entry))
        return found

    @cached_property
    def _releases(self) -> dict[int, list[Sent]]:
        found: dict[int, list[Sent]] = {}
        for party, entry in self.of_kind("release"):
            item = self.items.get(entry["item"])
            sent = Sent(party, entry["seq"], entry["prev"], entry, item)
            found.setdefault(sent.exchange, []).append(sent)
        return found

    def releases(self) -> list[Sent]:
        """Return every release, exchange by exchange."""
        return [sent for exchange in sorted(self._releases) for sent in self._releases[exchange]]

    @property
    def exchanges(self) -> list[int]:
        """Numbers of all exchanges in which something left, in order."""
        return sorted(self._releases)

    def releases_of(self, exchange: int) -> list[Sent]:
        """Return the releases of one exchange."""
        return self._releases.get(exchange, [])

    @cached_property
    def received(self) -> dict[tuple[str, str, str], int]:
        """(receiver, sender, commitment) -> number of the receipt's entry."""
        return {
            (party, entry["sender"], entry["commitment"]): entry["seq"]
            for party, entry in self.of_kind("receipt")
        }

    def receipt(self, sent: Sent, party: str) -> int | None:
        """Return the number of the entry with which a party received an envelope, or None."""
        return self.received.get((party, sent.party, sent.commitment))

    def in_cut(self, sent: Sent) -> bool:
        """Tell whether a release belongs to the step in which the run was cut short."""
        if self._cut is None or sent.exchange != self._cut[0]:
            return False
        return sent.part is Service.REFUSAL or sent.keying == self._cut[1]

    @cached_property
    def _cut(self) -> tuple[int, bool] | None:
        """The exchange in which the run ended before it was through, and whether keys were due.

        Only there may receipts be missing without a reason. A run that states a result was not cut.
        Its last Ask is through when the total was opened and came back; without an opening, when
        everyone answered and no session died.
        """
        if any("result" in entry for _, entry in self.of_kind("close")):
            return None
        last = max(self._releases, default=0)
        sents = [s for s in self.releases_of(last) if s.part is not Service.REFUSAL]
        keying = any(s.keying for s in sents)
        return None if not keying and self._through(last, sents) else (last, keying)

    def _through(self, last: int, sents: list[Sent]) -> bool:
        asked = {s.recipient for s in sents if s.step is Step.DOWN}
        answers = [s for s in sents if s.step in (Step.ACK, Step.UP)]
        guards = {guard for s in answers for guard in _guards(s)}
        left = Counter((s.part, s.step) for s in sents)
        opens, cosines = (
            [left[part, step] for step in (Step.OPEN, Step.OPENED)]
            for part in (Disclosure.SUM, Disclosure.SIMILARITY)
        )
        if "cosine" in guards and not 0 < cosines[0] == cosines[1]:
            return False
        relayed = {s.part for s in answers if "relay" in _guards(s)}
        if any(not left[part, Step.RELAYED] for part in relayed):
            return False
        if "match" in guards:
            return any(e["exchange"] == last and "clients" in e for _, e in self.of_kind("match"))
        if guards & {"he", "ckks"}:
            return 0 < opens[0] == opens[1]
        if "mask" in guards:
            return any(entry["exchange"] == last for _, entry in self.totals())
        return bool(asked) and asked <= {s.party for s in answers} and not self._died()

    @cached_property
    def ended(self) -> bool:
        """Tell whether any ledger records the end of its session."""
        return any(self.of_kind("close"))

    @property
    def so_far(self) -> str:
        """How far ledgers without an end reach."""
        rounds = len({sent.round for sent in self.releases() if sent.round and not sent.keying})
        count = sum(map(len, self.entries.values()))
        return f"no end recorded: {plural(rounds, 'round')}, {count} entries verified so far"

    def _died(self) -> bool:
        """Tell whether any session ended with an error."""
        return any(entry["state"] == "DEAD" for _, entry in self.of_kind("close"))


def _guards(sent: Sent) -> set[str]:
    """Return the names of the guards that a release states."""
    return {text.partition("(")[0] for text in sent.facts["protection"]}
