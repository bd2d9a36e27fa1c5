"""One Ask of a run as its ledgers tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from audits.evidence.ledger_index import Sent
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Step


@dataclass(frozen=True, eq=False)
class Asked:
    """One Ask.

    Attributes:
        number: of the exchange.
        name: of the Ask.
        round: of the run.
        members: to whom it went.
        arrived: whose whole answer the aggregator received before it went on; who is not among
            them has vanished from this Ask, and nothing of it counts.
        answered: these, and who vanished only while items were matched.
        sents: every release of this exchange but keys and refusals.
        opens: (party, entry) of every opening.
        listed, voted, shown, gave: holder -> the survivor list that went to it, its vote, the votes
            that went to it, and its shares; empty for sums without masks.
        whole, served: holder -> what told it that nobody is missing, and its vote with its shares
            of self-masks; such a sum has no list, votes and shares beside (ADR 0035).
        summed: a SUM was asked back.
        masked, protected: the SUM carried masks; it could not be read without an opening.
        awaited: disclosure of every result that had to be opened of its answers, beside sums.
        results: disclosure of every result of it that was opened and came back: its cosines, or
            the rows that it hands out.
        rows: it was to hand out rows, which are opened before it goes out.
        relayed, pooled: a relay was to take the senders off its mixtures; they came back from it.
        matched, celled: its items were to be matched by tags; cells of it were added up.
        by: the aggregator.
        cut: the run ended here, before the Ask was through.
        reader: the client whose turn it was to read its total; empty: the aggregator read it.
    """

    number: int
    name: str
    round: int
    members: frozenset[str]
    arrived: frozenset[str]
    answered: frozenset[str]
    sents: tuple[Sent, ...]
    opens: tuple[tuple[str, Entry], ...]
    listed: Mapping[str, Sent]
    voted: Mapping[str, Sent]
    shown: Mapping[str, Sent]
    gave: Mapping[str, Sent]
    whole: Mapping[str, Sent]
    served: Mapping[str, Sent]
    summed: bool
    masked: bool
    protected: bool
    awaited: frozenset[str]
    results: frozenset[str]
    rows: bool
    relayed: bool
    pooled: bool
    matched: bool
    celled: bool
    by: str
    cut: bool
    reader: str = ""

    @property
    def downs(self) -> list[Sent]:
        """The requests that went to its members."""
        return [sent for sent in self.sents if sent.step is Step.DOWN]

    def of(self, part: str, step: Step) -> list[Sent]:
        """Return its releases of one step."""
        wanted = (self.name, part, step)
        return [sent for sent in self.sents if (sent.ask, sent.part, sent.step) == wanted]

    @property
    def told(self) -> Mapping[str, Sent]:
        """Holder -> the survivor list that went to it, be it that nobody is missing."""
        return {**self.whole, **self.listed}

    @property
    def vanished(self) -> frozenset[str]:
        """Who was asked and whose answer does not count."""
        return self.members - self.arrived

    def unused(self, part: str, request: Step) -> bool:
        """Tell whether the aggregator did nothing after a request."""
        asked = [s.seq for s in self.of(part, request)]
        mine = [s.seq for s in self.sents if s.party == self.by]
        return bool(asked) and max(mine) <= max(asked)

    def lost(self, smallest: int) -> bool:
        """Tell whether it came to nothing, because too few clients were left for it."""
        unopened = self.protected and not self.opens
        unopened = unopened or not self.awaited <= self.results
        unopened = unopened or (self.rows and not self.downs)
        unopened = unopened or (self.relayed and not self.pooled)
        unopened = unopened or (self.matched and not self.celled)
        return not self.cut and (unopened or len(self.arrived) < smallest)
