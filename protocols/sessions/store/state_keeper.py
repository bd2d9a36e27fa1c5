"""Keeping a session's state, locked, so that a killed run goes on where it was.

A session keeps its state before anything leaves (`Session.commit`): state first, ledger second,
bytes last. So after a kill at any point every party stands either before or after a step, never in
it; it sends its last bytes again, and who answered them gives the same answer again. Nothing is
computed twice with other secrets, nothing is opened twice, no budget is taken twice (O5, O6, O20).

In a party's store lie

    journal-N   a line for every commit with what changed, see `store.journal` and `store.changes`
    part-N      one long value of the state, see `store.pieces`

Journals begin, in clear, with the version of their format.

Who sees what: the store's holder sees sizes and times of writing. Whoever also has what lies
outside the run folder sees the secrets of the current epoch, as if it had read the party's memory,
and can open what was sealed to the party in this run; masks' seeds that were used and earlier
encryption keys are no longer there. At the aggregator it also sees all totals of the run so far,
and all mixtures, which are read there anyhow but would tell more together (O9). A state put back
from a backup is refused, with its ledger or without: the number of the last commit lies outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Ledger
from protocols.forms import Form
from protocols.messages import Message
from protocols.policy.guard import Guard
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Reply
from protocols.sessions.engine import Session
from protocols.sessions.store.cells import state_of
from protocols.sessions.store.changes import Changes
from protocols.sessions.store.codec import StateCodec
from protocols.sessions.store.journal import Journal, JournalStore, unopened
from protocols.sessions.store.locked import LockedStateStore, StateStore
from protocols.sessions.store.pieces import Piece, Pieces, PieceStore
from protocols.wire.control import CONTROL
from protocols.wire.run_context import RunContext

SessionT = TypeVar("SessionT", bound=Session)
Outcome = tuple[str, Reply | None]
"""Which exchange was asked, and how it ended; None: its round was lost."""


class KeptStore(StateStore, JournalStore, PieceStore, Protocol):
    """Where one party's state lies."""


def _guards(policy: PrivacyPolicy) -> dict[str, Guard]:
    """Return the policy's guards by place; what is kept of a matching refers to one of them."""
    found = [(d, n, one) for d, chain in policy.rules.items() for n, one in enumerate(chain)]
    whole: dict[str, Guard] = {f"guard {d} {number}": one for d, number, one in found}
    inner = ((d, n, place, part) for d, n, one in found for place, part in enumerate(one.within()))
    return whole | {f"guard {d} {n} {place}": part for d, n, place, part in inner}


def state_codec(
    context: RunContext, form: Form[Any] | None, site: Any, ledger: Ledger | None, key: bytes
) -> StateCodec:
    """Return the codec of a party's state; what has its own place is named, not copied."""
    exchanges = {f"exchange {e.name}": e for e in form.exchanges} if form is not None else {}
    shared = {
        "context": context,
        "ledger": ledger,
        "me": context.me,
        "roster": context.roster,
        "plan": context.plan,
        "policy": context.policy,
        "he_key": context.he_key,
        **_guards(context.policy),
        "spread": context.spread,
        **{f"key {disclosure}": key for disclosure, key in context.keys.items()},
        "form": form,
        "site": site,
        **exchanges,
    }
    kinds: set[type[Message]] = {*CONTROL, *(form.messages() if form is not None else ())}
    return StateCodec(shared, kinds, context.scheme, key)


class StateKeeper:
    """Keeps one session's state in its store.

    Args:
        state_store: the party's.
        context: of the session.
        form: the admitted form, at clients and the aggregator.
        site: at a client; its `memory` and `draws` are kept unseen.
    """

    def __init__(
        self, state_store: KeptStore, context: RunContext, form: Form[Any] | None, site: Any = None
    ) -> None:
        self._locked = LockedStateStore(state_store, context.run, context.me.party.name)
        self._journal = Journal(state_store, self._locked.place)
        self._pieces = Pieces(state_store, self._locked.place)
        self._context, self._form, self._site = context, form, site
        self._learnt = self._answered = 0
        self._session, self._memory = Changes(), Changes()
        # At the aggregator: what each Ask brought back, and the long values that this names.
        self._replies: dict[str, tuple[bytes, frozenset[str]]] = {}
        self._anew, self._flush = True, False
        self._lasting = _USED_UP
        self._known: tuple[StateCodec, tuple[object, ...]] | None = None

    def renew(self) -> None:
        """Let the next state stand alone, under a new key: an epoch is over."""
        self._anew = self._flush = True

    def _codec(self, ledger: Ledger | None) -> StateCodec:
        """Return the codec; where what it names was replaced, all is written anew."""
        context = self._context
        named = ledger, context.he_key, context.keys
        if self._known is None or any(
            a is not b for a, b in zip(self._known[1], named, strict=True)
        ):
            made = state_codec(context, self._form, self._site, ledger, self._locked.key)
            self._known, self._anew = (made, named), True
        return self._known[0]

    def save(self, session: Session) -> None:
        """Keep the state as it is now; raises LedgerError if that is not possible."""
        codec = self._codec(session.ledger)
        learnt, answered = getattr(session, "learnt", 0), getattr(session, "answered", 0)
        anew, self._anew = self._anew or self._journal.grown, True  # if this one fails, the next
        if anew:
            self._session, self._memory = Changes(), Changes()
            self._lasting = _USED_UP | session.lasting()
        apart, parted = self._pieces.apart, [self._session]
        changed = self._session.since(self._state(session), codec, apart)
        if self._site is not None and (learnt > self._learnt or anew):
            memory = {"site/draws": self._site.draws, "site/memory": self._site.memory}
            self._memory.since(memory, codec, apart)
            parted.append(self._memory)
        cells = {name: data for one in parted for name, data in one.cells.items()}
        if anew:
            cells |= {name: data for name, (data, _) in self._replies.items()}
        if answered > self._answered:
            ended = (getattr(session, "asking", ""), getattr(session, "outcome", None))
            cells[_reply(answered)] = data = codec.pack(ended, apart)
            self._replies[_reply(answered)] = data, codec.named(data)
        made, unmade = self._pieces.settle(self._named(), anew=anew)
        self._journal.write(
            session.ledger.facts(),
            cells,
            [name for one in parted for name in one.gone],
            ({name: (one.key, one.file, one.size) for name, one in made.items()}, unmade),
            anew=anew,
            flush=self._flush or not changed.isdisjoint(self._lasting),
        )
        self._pieces.sweep()
        self._learnt, self._answered = learnt, answered
        self._anew = self._flush = False

    def _named(self) -> set[str]:
        """Return the names of all long values of the state."""
        replies = [named for _, named in self._replies.values() if named]
        return self._session.named().union(self._memory.named(), *replies)

    def _state(self, session: Session) -> dict[str, Any]:
        """Return everything that must survive this process, by path."""
        context, kept = self._context, session.kept()
        state = {
            "context/he_key": context.he_key.raw if context.he_key is not None else None,
            "context/keys": {str(name): key.raw for name, key in context.keys.items()},
            "context/pairs": context.pairs,
            "context/training": context.training.standing if context.training else None,
        }
        state |= {f"held/{name}": value for name, value in context.held.items()}
        state |= {f"session/{name}": value for name, value in kept["session"].items()}
        for part, fields in kept["parts"].items():
            state |= {f"parts/{part}/{name}": value for name, value in fields.items()}
        return state

    def restore(
        self, kind: type[SessionT], reopen: Callable[[Mapping[str, Any]], Ledger]
    ) -> SessionT:
        """Return the session as it was kept, its ledger completed.

        Args:
            kind: the session's class.
            reopen: returns the ledger, given what `Ledger.facts` said.

        Raises:
            LedgerError: there is no state, it is older than the last commit, or it does not fit
                the ledger.
        """
        context = self._context
        line, cells = self._journal.read()
        self._pieces.take_up({name: Piece(*facts) for name, facts in line.pieces.items()})
        replies = {name: data for name, data in cells.items() if name.startswith(_REPLIES)}
        self._replies = {n: (cells.pop(n), StateCodec.named(data)) for n, data in replies.items()}
        # Two readings: the ledger and the public keys must be known before the rest is read.
        first = {n: d for n, d in cells.items() if n.startswith(("context/he_key", "context/keys"))}
        facts = state_of(first, self._codec(None), self._pieces.get)["context"]
        if facts["he_key"] is not None and context.scheme is not None:
            context.he_key = context.scheme.load_public(facts["he_key"])
        for disclosure, raw in facts["keys"].items():
            context.take_key(Disclosure(disclosure), raw)
        ledger = reopen(line.ledger)
        state = state_of(cells, self._codec(ledger), self._pieces.get)
        context.pairs, context.held = state["context"]["pairs"], state.get("held", {})
        if context.training is not None:
            context.training.take_up(state["context"]["training"])
        session = kind.taken_up(state, self)
        self._learnt = getattr(session, "learnt", 0)
        self._answered = getattr(session, "answered", 0)
        if self._site is not None and self._learnt:
            self._site.memory, self._site.draws = state["site"]["memory"], state["site"]["draws"]
        self._anew = True  # under a new key: what was begun twice shares none with the first time
        self.save(session)
        self._tidy()
        ledger.commit()
        return session

    def _tidy(self) -> None:
        """Remove what a kill left over."""
        self._pieces.tidy()
        for name in self._journal.strays():
            self._locked.drop(name)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield how every Ask so far ended, in order; raises LedgerError if one is missing."""
        codec = self._known[0] if self._known is not None else self._codec(None)
        for number in range(1, self._answered + 1):
            if (data := self._replies.get(_reply(number))) is None:
                raise unopened("an answer to the aggregator is missing")
            yield codec.unpack(data[0], self._pieces.get)


_REPLIES = "replies/"
# Slots of masks, shares, and whatever left: a witness signs once, a client draws its groups once.
_USED_UP = frozenset({"context/pairs/_b", "context/pairs/_given", "session/_gateway/_labels"})


def _reply(number: int) -> str:
    return f"{_REPLIES}{number}#0"
