"""Who vanished when, which rounds were skipped, and which envelopes that explains.

Nobody can tell from ledgers whether an envelope was lost on its way or its addressee denies it. So
a missing receipt passes only if nothing that came later rests on that envelope, and every party
went on as if its client were gone.
"""

from __future__ import annotations

from collections.abc import Iterator

from audits.evidence.asked import Asked
from audits.evidence.exchanges import ANSWERS, Exchanges
from audits.evidence.ledger_index import LedgerIndex, Sent
from audits.evidence.openable import may_be_opened
from audits.evidence.steps import Case
from audits.report.models import Dropouts, LostRound, Moment, Vanished
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.plan.steps import Service, Step
from protocols.wire.roles import Role

_AFTER: dict[Step | None, Step] = {
    Step.WITNESS: Step.WITNESSED,
    Step.WITNESSED: Step.OPEN,
    Step.OPEN: Step.OPENED,
    Step.RELAY: Step.RELAYED,
}
_MATCHING = (
    *(Step.POINTS, Step.ANSWERS, Step.HALFWAY, Step.ONWARD),
    *(Step.SECOND_POINTS, Step.SECOND_ANSWERS, Step.TAGGED, Step.TAGS),
    *(Step.COMPARE, Step.COMPARED, Step.TOLD, Step.SPLIT, Step.MATES, Step.PART, Step.TAKEN),
)
"""The steps of matching, in order."""
_LAST: dict[Step | None, Step] = {Step.OPENED: Step.OPEN, Step.RELAYED: Step.RELAY}
"""The answer that an Ask goes on with -> its request."""
_PAIRING: dict[Step | None, Step] = {
    Step.CALL: Step.BOXES,
    Step.BOXES: Step.DOWN,
    Step.DOWN: Step.ROWS,
}
"""What follows on each step of pairing."""


class Losses:
    """Explains missing receipts.

    Args:
        case: the run.
    """

    def __init__(self, case: Case) -> None:
        self._ledger_index, self._exchanges = case.ledger_index, case.exchanges
        self._clients = frozenset(case.roster.clients)
        self._witnesses = frozenset(case.roster.names(Role.WITNESS))
        self._stated = [case.ledger_index.by_exchange(kind) for kind in ("open", "survivors")]

    def explained(self, sent: Sent, party: str) -> str | None:
        """Return the client whose absence explains that `party` has no receipt, or None.

        What passes between aggregator and key authority for a sum is never explained this way; a
        result that a witness, the relay or the authority did not answer for loses its round. A
        witness that signed nothing in an epoch may be without its keys.
        """
        client = sent.party if sent.party in self._clients else party
        if client not in self._clients:
            offered = (sent.part, sent.step) == (Service.KEYS, Step.OFFER)
            if offered and party in self._witnesses:
                return None if self._signed(party, sent) else party
            return self._unanswered(sent, party)
        if sent.keying:
            return client if self._left_keys(sent, client) else None
        if sent.part is Service.REFUSAL and sent.party == client:
            return client if self._last(sent) else None
        if sent.part in (Service.HEADS, Service.BUDGET):
            return client if self._left_silently(sent, client) else None
        if sent.part is Service.TOTALS:
            return client if self._left_behind(sent, client) else None
        ask = self._exchanges.all.get(sent.exchange)
        return client if ask is not None and self._left(sent, client, ask) else None

    def _unanswered(self, sent: Sent, party: str) -> str | None:
        """Return who did not answer for a result, if nothing of it went any further."""
        ask = self._exchanges.all.get(sent.exchange)
        if sent.part is None or ask is None:
            return None
        if sent.step in _MATCHING:
            return self._unmatched(sent, party, ask)
        other = party if party != self._exchanges.aggregator else sent.party
        if sent.part is Disclosure.SUM or sent.step not in (*_AFTER, *_LAST):
            return None
        if sent.step in _LAST:  # it was opened, or relayed, and nobody learnt it
            return other if ask.unused(sent.part, _LAST[sent.step]) else None
        after = ask.of(sent.part, _AFTER[sent.step])
        if sent.step is Step.WITNESS:
            after = [s for s in after if s.party == other]
        return None if after else other

    def _signed(self, witness: str, keys: Sent) -> bool:
        """Tell whether a witness signed anything under these keys of an epoch."""
        epoch = self._exchanges.epoch(keys.round)
        signed = (s for s in self._ledger_index.releases() if s.party == witness)
        return any(
            s.step is Step.WITNESSED and self._exchanges.epoch(s.round) == epoch for s in signed
        )

    def _unmatched(self, sent: Sent, party: str, ask: Asked) -> str | None:
        """Return the tag server or matcher that did not answer, if nothing went any further."""
        if ask.celled:
            return None
        asked = sent.step in (Step.POINTS, Step.SECOND_POINTS, Step.COMPARE)
        later = _later(sent)[1 if asked else 0 :]
        if any(s.step in later for s in ask.sents):
            return None
        return party if party != self._exchanges.aggregator else sent.party

    def _left_keys(self, sent: Sent, client: str) -> bool:
        """Tell whether a client came no further in an epoch's keys than this envelope."""
        epoch = self._exchanges.epoch(sent.round)
        if (sent.part, sent.step) == (Service.KEYS, Step.OFFER):
            uploads = (s for s in self._ledger_index.releases() if s.party == client)
            summed = (s for s in uploads if (s.part, s.step) == (Disclosure.SUM, Step.UP))
            return not any(self._exchanges.epoch(s.round) == epoch for s in summed)
        if (sent.part, sent.step) == (Service.PAIRS, Step.ROWS):
            asked = (
                a for a in self._exchanges.all.values() if self._exchanges.epoch(a.round) == epoch
            )
            return not any(client in ask.members for ask in asked)
        answers = self._exchanges.keying(sent.part, _PAIRING.get(sent.step), epoch)
        return not any(client in (s.party, s.recipient) for s in answers)

    def _left_silently(self, sent: Sent, client: str) -> bool:
        """Tell whether nothing rests on an envelope of the end: nothing comes after a farewell."""
        answers = (s for s in self._ledger_index.releases_of(sent.exchange) if s.party == client)
        return sent.party == client or not any(s.part is Service.HEADS for s in answers)

    def _left_behind(self, sent: Sent, client: str) -> bool:
        """Tell whether a client was not asked in the round before which it got no total."""
        asks = (a for a in self._exchanges.all.values() if a.round == sent.round)
        return not any(a.number > sent.exchange and client in a.members for a in asks)

    def _last(self, sent: Sent) -> bool:
        """Tell whether nothing left this party afterwards: who refuses ends its session."""
        return not any(
            s.party == sent.party and s.seq > sent.seq for s in self._ledger_index.releases()
        )

    def _left(self, sent: Sent, client: str, ask: Asked) -> bool:
        mine = [s for s in ask.sents if s.party == client]
        if sent.step in _MATCHING:  # did it come any further than this?
            with_it = [s for s in ask.sents if client in (s.party, s.recipient)]
            return not any(s.step in _later(sent) for s in with_it)
        if sent.step in (Step.SHARES, Step.SELF_SHARES):
            return True  # the step "opened" counts the shares that arrived
        if sent.step is Step.SURVIVORS:
            return client not in {*ask.voted, *dict(self._stated[1].get(ask.number, []))}
        if sent.step is Step.ALL_HERE:
            return client not in {*ask.served, *dict(self._stated[1].get(ask.number, []))}
        if sent.step is Step.VOTE:
            return client not in ask.shown
        if sent.step is Step.VOTES:
            return client not in ask.gave
        if sent.step is Step.DOWN:
            return not mine and self._not_counted(client, ask)
        return self._not_counted(client, ask)

    def _not_counted(self, client: str, ask: Asked) -> bool:
        """Tell whether all went on without this client's answer."""
        said = (e for stated in self._stated for _, e in stated.get(ask.number, []))
        right = all(entry["survivors"] == len(ask.arrived) for entry in said)
        again = (a for a in self._exchanges.all.values() if a.round == ask.round)
        asked = any(a.number > ask.number and client in a.members for a in again)
        return right and not asked and client not in ask.told


def _later(sent: Sent) -> tuple[Step, ...]:
    """Return the steps of matching that come after this one."""
    return _MATCHING[_MATCHING.index(sent.step) + 1 :]


def dropouts(case: Case) -> Dropouts:
    """Return who vanished when and which Asks came to nothing, oldest first."""
    exchanges, ledger_index = case.exchanges, case.ledger_index
    refused = {(party, e["exchange"]) for party, e in ledger_index.of_kind("refusal")}
    gone = [
        *_from_keys(case),
        *(v for ask in exchanges.all.values() for v in _from(ask, ledger_index, exchanges)),
    ]
    smallest = case.plan.smallest_cohort
    return Dropouts(
        vanished=tuple(v for v in gone if (v.client, v.exchange) not in refused),
        lost=tuple(
            LostRound(
                round=ask.round,
                exchange=ask.number,
                ask=ask.name,
                arrived=len(ask.arrived),
                votes=_votes(ask, exchanges) if ask.told else None,
                shares=_shares(ask, exchanges) if ask.shown or ask.whole else None,
                may_be_opened=_openable(case, ask),
            )
            for ask in exchanges.all.values()
            if ask.lost(smallest)
        ),
    )


def _openable(case: Case, ask: Asked) -> bool:
    """Tell whether a total may have been opened all the same; also where nobody can know."""
    try:
        return bool(may_be_opened(case, ask))
    except EvidenceError:
        return True


def _votes(ask: Asked, exchanges: Exchanges) -> int:
    return len(exchanges.arrivals((*ask.voted.values(), *ask.served.values())))


def _shares(ask: Asked, exchanges: Exchanges) -> int:
    return min(exchanges.shares(ask).values(), default=0)


def _from(ask: Asked, ledger_index: LedgerIndex, exchanges: Exchanges) -> Iterator[Vanished]:
    if ask.cut:
        return
    for client in sorted(ask.vanished):
        asked = [s for s in ask.downs if s.recipient == client]
        said = any(s.party == client for s in ask.sents)
        steps = [s for s in ask.sents if s.recipient == client and s.step in ANSWERS]
        if steps:
            moment: Moment = "while items were matched"
            yield Vanished(client=client, round=ask.round, exchange=ask.number, moment=moment)
            continue
        moment = "before its answer arrived" if said else "before it answered"
        if not any(ledger_index.receipt(s, client) is not None for s in asked):
            moment = "before the request reached it"
        yield Vanished(client=client, round=ask.round, exchange=ask.number, moment=moment)
    for client in sorted(ask.told):
        if (late := _while_opening(ask, ledger_index, exchanges, client)) is not None:
            yield Vanished(client=client, round=ask.round, exchange=ask.number, moment=late)


def _while_opening(
    ask: Asked, ledger_index: LedgerIndex, exchanges: Exchanges, client: str
) -> Moment | None:
    """Return how far a holder came with a survivor list, or None if it came through."""
    if ledger_index.receipt(ask.told[client], client) is None:
        return "before the survivor list reached it"
    if client in ask.whole:
        return (
            None
            if client in exchanges.arrivals(ask.served.values())
            else "before its shares arrived"
        )
    if client not in exchanges.arrivals(ask.voted.values()):
        return "before its vote arrived"
    if not ask.shown:
        return None  # too few voted, and nobody was asked for shares
    if client not in ask.shown or ledger_index.receipt(ask.shown[client], client) is None:
        return "before the votes reached it"
    return None if client in exchanges.arrivals(ask.gave.values()) else "before its shares arrived"


def _from_keys(case: Case) -> Iterator[Vanished]:
    """Yield the clients that were called in an epoch and did not come through with its keys."""
    exchanges, calls = case.exchanges, {}
    for sent in case.ledger_index.releases():
        call = (sent.part, sent.step) == (Service.PAIRS, Step.CALL)
        if call and not case.ledger_index.in_cut(sent):
            calls[exchanges.epoch(sent.round), sent.recipient] = sent
    for (_, client), sent in sorted(calls.items()):
        if client not in exchanges.ready(sent.round):
            moment: Moment = "while keys were agreed on"
            yield Vanished(client=client, round=sent.round, exchange=sent.exchange, moment=moment)
