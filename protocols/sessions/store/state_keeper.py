"""Keeping a session's state, locked, so that a killed run goes on where it was.

A session keeps its state before anything leaves (`Session.commit`): state first, ledger second,
bytes last. So after a kill at any point every party stands either before or after a step, never in
it; it sends its last bytes again, and who answered them gives the same answer again. Nothing is
computed twice with other secrets, nothing is opened twice, no budget is taken twice (O5, O6, O20).

Three kinds of pieces lie in a party's store, each locked under the party's own store key and bound
to run, party and name:

    session      everything but the two below; written last, it is what counts
    site-N       at a client: memory and draws of its site after N answers
    reply-N      at the aggregator: what the N-th Ask brought back (a lost round: nothing)

Each begins, in clear, with the version of its format, to which the lock is bound as well.
Long values of the first two lie beside them and are written once (`store.pieces`).

Who sees what: the store's holder sees sizes and times of writing. Whoever also has the store key
sees the secrets of the current epoch, as if it had read the party's memory, and can open what was
sealed to the party in this run; masks' seeds that were used and earlier encryption keys are no
longer there. At the aggregator it also sees all totals of the run so far, and all mixtures, which
are read there anyhow but would tell more together (O9). A state put back from a
backup is refused, because its ledger goes on beyond it; putting back both is seen by the others,
who answered already.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from crypto.errors import CryptoError
from crypto.rest import lock_at_rest, unlock_at_rest
from crypto.spans import spent
from protocols.disclosures.names import Disclosure
from protocols.errors import LedgerError, OtherState
from protocols.evidence.ledger import Ledger
from protocols.forms import Form
from protocols.messages import Message
from protocols.policy.guard import Guard
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Reply
from protocols.sessions.engine import Session
from protocols.sessions.store.codec import StateCodec
from protocols.sessions.store.pieces import Pieces
from protocols.versions import STATE, Format
from protocols.wire.control import CONTROL
from protocols.wire.run_context import RunContext

SessionT = TypeVar("SessionT", bound=Session)
Outcome = tuple[str, Reply | None]
"""Which exchange was asked, and how it ended; None: its round was lost."""


class StateStore(Protocol):
    """One party's pieces of state in one run."""

    @property
    def key(self) -> bytes:
        """The party's store key, 32 bytes; it does not lie beside the pieces."""

    def put(self, name: str, data: bytes) -> None:
        """Write or replace a piece as a whole; raises OSError."""

    def get(self, name: str) -> bytes | None:
        """Return a piece, None if there is none."""

    def drop(self, name: str) -> None:
        """Remove a piece, if it is there."""

    def names(self) -> Iterable[str]:
        """Return the names of all pieces."""


class LockedStateStore:
    """Locks pieces before a store gets them.

    Args:
        state_store: where they lie.
        run: the run's name, to which they are bound.
        party: whose they are.
        format: what they are, and of which version; they are bound to both.
    """

    def __init__(
        self, state_store: StateStore, run: str, party: str, format: Format = STATE
    ) -> None:
        self._state_store, self._format = state_store, format
        self._place = f"secure-fgl/{format.name}/{format.version}/{run}/{party}/"
        self.key, self.names = state_store.key, state_store.names

    def put(self, name: str, data: bytes) -> str:
        """Lock and write a piece, and return the SHA-256 (hex) of what was written.

        Raises:
            LedgerError: it cannot be written.
        """
        locked = lock_at_rest(self._state_store.key, (self._place + name).encode(), data)
        written = self._format.head + locked
        try:
            self._state_store.put(name, written)
        except OSError as error:
            raise _unwritten(error) from error
        return hashlib.sha256(written).hexdigest()

    def drop(self, name: str) -> None:
        """Remove a piece; raises LedgerError if it cannot be removed."""
        try:
            self._state_store.drop(name)
        except OSError as error:
            raise _unwritten(error) from error

    def get(self, name: str) -> bytes:
        """Return a piece.

        Raises:
            OtherState: it is of another version.
            LedgerError: it is missing, or not what was put.
        """
        found = self._state_store.get(name)
        if found is not None:
            if not self._format.begins(found, OtherState):
                raise _unopened("it is no piece of ours, or was cut or changed")
            locked = found[len(self._format.head) :]
            try:
                return unlock_at_rest(self._state_store.key, (self._place + name).encode(), locked)
            except CryptoError as error:
                raise _unopened("it was changed, or its key is another run's") from error
        raise LedgerError(
            "A kept state is missing.",
            why="the run ended, was never kept, or the state was removed",
            fix="start the run again",
        )


def _guards(policy: PrivacyPolicy) -> dict[str, Guard]:
    """Return the policy's guards by place; what is kept of a matching refers to one of them."""
    found = ((d, n, one) for d, chain in policy.rules.items() for n, one in enumerate(chain))
    return {f"guard {disclosure} {number}": one for disclosure, number, one in found}


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
        self, state_store: StateStore, context: RunContext, form: Form[Any] | None, site: Any = None
    ) -> None:
        self._state_store = LockedStateStore(state_store, context.run, context.me.party.name)
        self._pieces = Pieces(self._state_store)
        self._context, self._form, self._site = context, form, site
        self._learnt = self._answered = 0

    def _codec(self, ledger: Ledger | None) -> StateCodec:
        return state_codec(self._context, self._form, self._site, ledger, self._state_store.key)

    @spent("state")
    def save(self, session: Session) -> None:
        """Keep the state as it is now; raises LedgerError if that is not possible."""
        codec, context = self._codec(session.ledger), self._context
        learnt, answered = getattr(session, "learnt", 0), getattr(session, "answered", 0)
        if self._site is not None and learnt > self._learnt:
            inner = {"draws": self._site.draws, "memory": self._site.memory}
            self._pieces.put(f"site-{learnt}", codec, inner)
        if answered > self._answered:
            ended = (getattr(session, "asking", ""), getattr(session, "outcome", None))
            self._state_store.put(_reply(answered), codec.pack(ended))
        root = {
            "he_key": context.he_key.raw if context.he_key is not None else None,
            "keys": {str(disclosure): key.raw for disclosure, key in context.keys.items()},
            "ledger": session.ledger.facts(),
            "held": dict(context.held),
            "pairs": context.pairs,
            "training": context.training.standing if context.training is not None else None,
            "state": session.kept(),
        }
        self._pieces.put("session", codec, root)
        if learnt > self._learnt:
            self._pieces.drop(f"site-{self._learnt}")
        self._pieces.sweep()
        self._learnt, self._answered = learnt, answered

    @spent("state")
    def restore(
        self, kind: type[SessionT], reopen: Callable[[Mapping[str, Any]], Ledger]
    ) -> SessionT:
        """Return the session as it was kept, its ledger completed.

        Args:
            kind: the session's class.
            reopen: returns the ledger, given what `Ledger.facts` said.

        Raises:
            LedgerError: there is no state, or it does not fit the ledger.
        """
        context, names = self._context, self._pieces.found()
        # Two readings: the ledger and the public key must be known before the rest is read.
        root = self._pieces.get("session", self._codec(None), only=("ledger", "he_key", "keys"))
        if root["he_key"] is not None and context.scheme is not None:
            context.he_key = context.scheme.load_public(root["he_key"])
        for disclosure, raw in root["keys"].items():
            context.take_key(Disclosure(disclosure), raw)
        ledger = reopen(root["ledger"])
        root = self._pieces.get("session", self._codec(ledger))
        context.pairs, context.held = root["pairs"], root["held"]
        if context.training is not None:
            context.training.take_up(root["training"])
        session = kind.taken_up(root["state"], self)
        self._learnt = getattr(session, "learnt", 0)
        self._answered = getattr(session, "answered", 0)
        self._restore_site(names)
        self._pieces.sweep()
        ledger.commit()
        return session

    def _restore_site(self, names: Iterable[str]) -> None:
        if self._site is None or not self._learnt:
            return
        own = f"site-{self._learnt}"
        inner = self._pieces.get(own, self._codec(None))
        self._site.memory, self._site.draws = inner["memory"], inner["draws"]
        for name in names:  # of before a kill in the middle of `save`
            if re.fullmatch(r"site-\d+", name) and name != own:
                self._state_store.drop(name)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield how every Ask so far ended, in order; raises LedgerError if one is missing."""
        codec = self._codec(None)
        for number in range(1, self._answered + 1):
            yield codec.unpack(self._state_store.get(_reply(number)))


def _reply(number: int) -> str:
    return f"reply-{number}"


def _unopened(why: str) -> LedgerError:
    return LedgerError("A kept state does not open.", why=why, fix="start the run again")


def _unwritten(error: OSError) -> LedgerError:
    return LedgerError(
        f"The state of a party cannot be kept ({error.strerror or type(error).__name__}).",
        why="the disk is full, or the folder is not writable",
        fix="free some space and start the run again; nothing of this exchange was sent",
    )
