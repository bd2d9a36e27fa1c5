"""Rounds: how an algorithm asks, and in which shape the answers come back.

A round is a generator of :class:`Ask`; the aggregator's session turns each Ask into protected
exchanges and sends back a :class:`Reply`. A Reply offers one view per disclosure, so an algorithm
cannot read what the law would not give: the views of `WEIGHTED_SUM`, `MATCH` and `SEALED` are
tokens that can only be handed on. An Ask that too few clients are left for raises `RoundLost` at
its yield; an algorithm that catches it returns its state and asks nothing more in that round. What
no honest peer sends an algorithm refuses by the errors that stand here.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from protocols.clusters import Cut
from protocols.disclosures.names import BACK, GIVEN, Disclosure
from protocols.errors import RemoteProtocolError, Replay, RoundLost
from protocols.messages import (
    Array,
    MatchMessage,
    Message,
    MixedMessage,
    NoisedMessage,
    SealedMessage,
    SimilarityMessage,
    SumMessage,
    WeightedSumMessage,
    addressed,
)

__all__ = [
    "RESERVED",
    "Answer",
    "Ask",
    "Cohort",
    "EachT",
    "Exchange",
    "Given",
    "RemoteProtocolError",
    "Replay",
    "Reply",
    "Round",
    "RoundLost",
    "S",
    "Sealed",
    "TotalT",
    "View",
    "exchange_of",
    "strictest",
]

S = TypeVar("S")
TotalT = TypeVar("TotalT", bound=SumMessage)
EachT = TypeVar("EachT", bound=NoisedMessage | MixedMessage)


class Cohort:
    """The clients an Ask goes to. An algorithm sees how many there are, never who they are.

    The cohort that a round is given is the whole run's, and it holds the run's clusters: `parts`
    are the same from round to round until `Reply.split` cuts one of them. A run that goes on after
    a kill finds them as they were, since its replies are played back.
    """

    def __init__(self, members: Sequence[str], cuts: tuple[Cut, ...] = (), needed: int = 2) -> None:
        self._members = tuple(sorted(members))
        self._needed = needed  # clients of a cluster that can be cut
        self._cuts = cuts  # by which it became what it is, from the whole cohort on
        self._home = self
        self._clusters: tuple[Cohort, ...] = (self,)  # of the whole, as they are now
        self._began: tuple[Cohort, ...] = ()  # as they were when the round began

    @property
    def size(self) -> int:
        """Number of clients."""
        return len(self._members)

    @property
    def divisible(self) -> bool:
        """Whether it is large enough for a cut to happen; else nothing is to be compared."""
        return self.size >= self._home._needed

    @property
    def parts(self) -> tuple[Cohort, ...]:
        """The clusters of the whole cohort as they are now; itself until it is split.

        The parts of a split stand in the place of what was split, its larger side first.
        """
        return self._home._clusters

    @property
    def begun(self) -> Cohort:
        """The cluster that it was in when the round began: who may be asked until it is over."""
        mine = set(self._members)
        return next((one for one in self._home._began if mine <= set(one._members)), self)

    def _restore(self, parts: tuple[Cohort, ...]) -> None:
        """Take the clusters back to what they were before a round that is lost as a whole."""
        self._home._clusters = parts

    def _divided(self, cut: Cut | None) -> tuple[Cohort, ...]:
        """Split this cluster; without a cut, or by one that is not of all of it, it stays whole."""
        home, known = self._home, self._home._clusters
        if self not in known:
            raise ValueError("this is no cluster of the run now: it was split, or never was one")
        if cut is None or cut.members != self._members:
            return (self,)
        cuts = (*self._cuts, cut)
        sides = (cut.rest,) if cut.leaves else (cut.rest, cut.side)
        made = tuple(Cohort(side, cuts) for side in sides)
        for part in made:
            part._home = home
        place = known.index(self)
        home._clusters = (*known[:place], *made, *known[place + 1 :])
        return made

    def split(self, groups: Sequence[int]) -> tuple[Cohort, ...]:
        """Return one cohort per distinct group number, in ascending order.

        Args:
            groups: one group number per client, in the row order of `Reply.similarity`.
        """
        if len(groups) != self.size:
            raise ValueError(f"one group per client is needed: {len(groups)} for {self.size}")
        return tuple(
            Cohort([m for m, g in zip(self._members, groups, strict=True) if g == group])
            for group in sorted(set(groups))
        )

    def __repr__(self) -> str:
        """Return the size only."""
        return f"<Cohort of {self.size}>"


class Sealed:
    """A result that nobody at the aggregator can open; it can only be an Ask's `given`."""

    def __init__(self, kind: type[Message], deliveries: Mapping[str, Any]) -> None:
        self.kind = kind
        self._deliveries = dict(deliveries)

    @classmethod
    def joined(cls, tokens: Sequence[Sealed]) -> Sealed:
        """Return several results of one kind, each addressed to other clients, as one.

        Raises:
            ValueError: none at all, of several kinds, or two for one client.
        """
        addressed = [name for token in tokens for name in token._deliveries]
        if len({token.kind for token in tokens}) != 1 or len(set(addressed)) < len(addressed):
            raise ValueError("only results of one kind, one for each client, can be joined")
        found = {name: one for token in tokens for name, one in token._deliveries.items()}
        return Sealed(tokens[0].kind, found)

    def __repr__(self) -> str:
        """Return the message type only."""
        return f"<Sealed {self.kind.__name__}>"

    def __reduce__(self) -> Any:
        """Refuse pickling."""
        raise TypeError("a sealed result may only be handed on as an Ask's given")


Given = Message | Sealed


@dataclass(frozen=True)
class Ask:
    """Give messages to a cohort and let these come back.

    Attributes:
        cohort: who is asked.
        given: the message (or sealed result) to hand out; further messages may ride along.
        back: the message types that must come back, in any order; None for nothing.
    """

    cohort: Cohort
    given: Given | tuple[Given, ...]
    back: type[Message] | tuple[type[Message], ...] | None = None

    @property
    def handed(self) -> tuple[Given, ...]:
        """What is given, always as a tuple."""
        return self.given if isinstance(self.given, tuple) else (self.given,)

    @property
    def wanted(self) -> tuple[type[Message], ...]:
        """What comes back, always as a tuple."""
        if self.back is None:
            return ()
        return self.back if isinstance(self.back, tuple) else (self.back,)

    @property
    def given_kinds(self) -> tuple[type[Message], ...]:
        """Types of what is given."""
        return tuple(g.kind if isinstance(g, Sealed) else type(g) for g in self.handed)


Round = Generator[Ask, "Reply", S]


class View(Protocol):
    """What the aggregator may do with the answers of one message type."""

    verb: str

    def read(self, verb: str, **options: Any) -> Any:
        """Answer one verb of :class:`Reply`, or raise TypeError."""


class Reply:
    """What an Ask brought back, one view per disclosure.

    Attributes:
        answers: how many clients' answers it stands for; fewer than were asked if some vanished.
    """

    def __init__(self, views: Mapping[type[Message], View], answers: int = 0) -> None:
        self._views, self.answers = dict(views), answers

    def read(self, kind: type[Message], **options: Any) -> Any:
        """Return what the disclosure of `kind` gives of the answers; see its folder's `view.py`.

        Raises:
            TypeError: it was not asked back.
        """
        if kind not in self._views:
            raise TypeError(f"{kind.__name__} was not asked back")
        view = self._views[kind]
        return view.read(view.verb, **options)

    def _read(self, kind: type[Message], verb: str, *base: type[Message], **options: Any) -> Any:
        found = self._views.get(kind)
        if not issubclass(kind, base) or (found is not None and found.verb != verb):
            raise TypeError(
                f"reply.{verb}({kind.__name__}) is not allowed: "
                f"a {kind.disclosure} message discloses {kind.disclosure.meaning}"
            )
        return self.read(kind, **options)

    def total(self, kind: type[TotalT]) -> TotalT:
        """Return the cohort's total of every field of `kind`."""
        return typing.cast(TotalT, self._read(kind, "total", SumMessage))

    def similarity(self, kind: type[SimilarityMessage]) -> Array:
        """Return the (cohort, cohort) matrix of cosines."""
        return typing.cast(Array, self._read(kind, "similarity", SimilarityMessage))

    def split(self, kind: type[SimilarityMessage], part: Cohort) -> tuple[Cohort, ...]:
        """Split a cluster of the run by how alike its clients are, as the form's `splits` says.

        Who vouches for cuts computes one wherever it opens cosines of a whole cluster, and holds
        all of them to one rule; so ask for cosines only of what is to be split. The cluster stays
        whole where no cut may happen, and where one of its clients was away. Its parts are asked
        from the next round on: this one could still be lost, and its splits with it.

        Args:
            kind: the message type that came back.
            part: one of `Cohort.parts`, the very one that was asked.

        Returns:
            What stands in its place among the parts: the larger side and the other; the larger
            alone if the other leaves the run (guard `leave`); the part itself.

        Raises:
            TypeError: the form does not say that it splits by this message.
            ValueError: the part is no cluster of the run now.
        """
        if not issubclass(kind, SimilarityMessage) or kind not in self._views:
            raise TypeError(f"{kind.__name__} was not asked back, or tells nothing of likeness")
        return part._divided(self._views[kind].read("split", kind=kind))

    def each(self, kind: type[EachT]) -> tuple[EachT, ...]:
        """Return each client's message, in an order that does not tell who sent which."""
        return typing.cast(tuple[EachT, ...], self._read(kind, "each", NoisedMessage, MixedMessage))

    def weighted(self, kind: type[WeightedSumMessage], alpha: Array) -> Sealed:
        """Return, sealed, row i of `alpha` times the clients' messages for receiver i.

        Args:
            kind: the message type that came back.
            alpha: (cohort, cohort) weights, each row summing to one.
        """
        return typing.cast(Sealed, self._read(kind, "weighted", WeightedSumMessage, alpha=alpha))

    def matched(self, kind: type[MatchMessage], into: type[MatchMessage]) -> Sealed:
        """Return, sealed, for each client what the others hold under the keys it holds itself."""
        return typing.cast(Sealed, self._read(kind, "matched", MatchMessage, into=into))

    def handed(self, kind: type[SealedMessage] | type[SumMessage]) -> Sealed:
        """Return, sealed, what each client addressed to each other client.

        Of a sum whose receiver is one client: the total that it alone can read. Of the sums of one
        kind in one round, the first is for the cohort's first client, the next for its second, and
        so on, in the row order of `similarity`. It is handed on in the same round, and once;
        `Sealed.joined` puts several into one Ask. A client for which an Ask holds none gets zeros.
        """
        return typing.cast(Sealed, self._read(kind, "handed", SealedMessage, SumMessage))


# --- Exchanges: the Asks that a form makes, what they hand out, and what comes back ---

Answer = Callable[..., Message | tuple[Message, ...] | None]


RESERVED = frozenset({"draw", "key", "pair", "refusal", "totals"})
"""Names of exchanges that belong to the message layer."""


@dataclass(frozen=True)
class Exchange:
    """One kind of Ask: what is given, what comes back, and what the client does.

    Attributes:
        name: short name, used in plan items (``train.up.SUM``).
        given: message types handed out; the first is what the answer is about.
        back: message types that come back.
        answer: runs at the client: ``answer(site, *given) -> message(s) or None``.
        per_round: how often in each round, at most; of an Ask whose total one client reads, how
            often each client reads one (`Form.among`).
        outside: how often outside rounds in a whole run, at most.
        held_out: which of `back` are computed from validation and test records, and from models.
        due: in how many of so many rounds it is asked, if none is lost; None: in all of them.
        follows: which of `back` follow from what the client was handed and from none of its data,
            as the algorithm's file says (trusted): noise of what it was handed covers them.
    """

    name: str
    given: tuple[type[Message], ...]
    back: tuple[type[Message], ...]
    answer: Answer
    per_round: int = 1
    outside: int = 0
    held_out: tuple[type[Message], ...] = ()
    due: Callable[[int], int] | None = None
    follows: tuple[type[Message], ...] = ()

    def __post_init__(self) -> None:
        """Refuse what has no meaning in its direction; raises TypeError."""
        for kinds, allowed, where in (
            (self.given, GIVEN, "given"),
            (self.back, BACK, "asked back"),
        ):
            for kind in kinds:
                read = allowed is GIVEN and addressed(kind)  # a total that one client reads
                if kind.disclosure not in allowed and not read:
                    raise TypeError(
                        f"{self.name}: {kind.__name__} discloses {kind.disclosure}, which cannot "
                        f"be {where}; possible: {', '.join(allowed)}"
                    )
        if not self.given:
            raise TypeError(f"{self.name}: an exchange gives at least one message")
        sums = [kind for kind in self.back if kind.disclosure is Disclosure.SUM]
        several = len(sums) > 1 and any(map(addressed, sums))
        if several or sum(map(addressed, self.given)) > 1:
            raise TypeError(
                f"{self.name}: a total that one client reads is the only sum of its Ask"
            )

    @property
    def addressed(self) -> bool:
        """Whether one client reads the total of what comes back."""
        return any(map(addressed, self.back))

    def times(self, rounds: int) -> int:
        """Return how often this exchange may happen in a run of `rounds` rounds."""
        return self.per_round * rounds + self.outside


def strictest(kinds: Sequence[type[Message]]) -> Disclosure:
    """Return the strictest disclosure of what is given: it decides the protection of all of it."""
    return min((kind.disclosure for kind in kinds), key=GIVEN.index)


def exchange_of(given: type[Message], answer: Answer) -> Exchange:
    """Build an :class:`Exchange` by reading what comes back off the answer's return annotation.

    Raises:
        TypeError: the annotation is missing or holds something that is not a message.
    """
    hint = typing.get_type_hints(answer).get("return", Message)
    kinds = typing.get_args(hint) if typing.get_origin(hint) is tuple else (hint,)
    back = tuple(kind for kind in kinds if kind is not type(None))
    for kind in back:
        if not (isinstance(kind, type) and issubclass(kind, Message) and kind is not Message):
            raise TypeError(
                f"{answer.__name__} must be annotated with the message types it returns, "
                "for example '-> Update' or '-> tuple[Model, Portrait]' or '-> None'"
            )
    return Exchange(answer.__name__, (given,), back, answer)
