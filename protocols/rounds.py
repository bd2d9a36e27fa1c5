"""Rounds: how an algorithm asks, and in which shape the answers come back.

A round is a generator of :class:`Ask`; the aggregator's session turns each Ask into protected
exchanges and sends back a :class:`Reply`. A Reply offers one view per disclosure, so an algorithm
cannot read what the law would not give: the views of `WEIGHTED_SUM`, `MATCH` and `SEALED` are
tokens that can only be handed on.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from protocols.disclosures import Disclosure
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
    names,
)

S = TypeVar("S")
TotalT = TypeVar("TotalT", bound=SumMessage)
EachT = TypeVar("EachT", NoisedMessage, MixedMessage)

Answer = Callable[..., Message | tuple[Message, ...] | None]


class Cohort:
    """The clients an Ask goes to. An algorithm sees how many there are, never who they are."""

    def __init__(self, members: Sequence[str]) -> None:
        self._members = tuple(sorted(members))

    @property
    def size(self) -> int:
        """Number of clients."""
        return len(self._members)

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

    def __init__(self, kind: type[Message], parcels: Mapping[str, Any]) -> None:
        self.kind = kind
        self._parcels = dict(parcels)

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


GIVEN = (
    Disclosure.WEIGHTED_SUM,
    Disclosure.MATCH,
    Disclosure.SEALED,
    Disclosure.RELEASED,
    Disclosure.PUBLIC,
)
"""What may go to a client, the strictest first."""
BACK = (
    Disclosure.SUM,
    Disclosure.WEIGHTED_SUM,
    Disclosure.SIMILARITY,
    Disclosure.MATCH,
    Disclosure.MIXED,
    Disclosure.NOISED,
    Disclosure.SEALED,
)
"""What may come back from a client."""


class View(Protocol):
    """What the aggregator may do with the answers of one message type."""

    def read(self, verb: str, **options: Any) -> Any:
        """Answer one verb of :class:`Reply`, or raise TypeError."""


class Reply:
    """What an Ask brought back, one view per disclosure."""

    def __init__(self, views: Mapping[type[Message], View]) -> None:
        self._views = dict(views)

    def _view(self, kind: type[Message], base: tuple[type[Message], ...], verb: str) -> View:
        if not issubclass(kind, base):
            raise TypeError(
                f"reply.{verb}({kind.__name__}) is not allowed: "
                f"a {kind.disclosure} message discloses {kind.disclosure.meaning}"
            )
        if kind not in self._views:
            raise TypeError(f"{kind.__name__} was not asked back")
        return self._views[kind]

    def total(self, kind: type[TotalT]) -> TotalT:
        """Return the cohort's total of every field of `kind`."""
        return typing.cast(TotalT, self._view(kind, (SumMessage,), "total").read("total"))

    def similarity(self, kind: type[SimilarityMessage]) -> Array:
        """Return the (cohort, cohort) matrix of cosines."""
        view = self._view(kind, (SimilarityMessage,), "similarity")
        return typing.cast(Array, view.read("similarity"))

    def each(self, kind: type[EachT]) -> tuple[EachT, ...]:
        """Return each client's message, in an order that does not tell who sent which."""
        view = self._view(kind, (NoisedMessage, MixedMessage), "each")
        return typing.cast(tuple[EachT, ...], view.read("each"))

    def weighted(self, kind: type[WeightedSumMessage], alpha: Array) -> Sealed:
        """Return, sealed, row i of `alpha` times the clients' messages for receiver i.

        Args:
            kind: the message type that came back.
            alpha: (cohort, cohort) weights, each row summing to one.
        """
        view = self._view(kind, (WeightedSumMessage,), "weighted")
        return typing.cast(Sealed, view.read("weighted", alpha=alpha))

    def matched(self, kind: type[MatchMessage], into: type[MatchMessage]) -> Sealed:
        """Return, sealed, for each client what the others hold under the keys it holds itself."""
        view = self._view(kind, (MatchMessage,), "matched")
        return typing.cast(Sealed, view.read("matched", into=into))

    def handed(self, kind: type[SealedMessage]) -> Sealed:
        """Return, sealed, what each client addressed to each other client."""
        return typing.cast(Sealed, self._view(kind, (SealedMessage,), "handed").read("handed"))


@dataclass(frozen=True)
class Exchange:
    """One kind of Ask: what is given, what comes back, and what the client does.

    Attributes:
        name: short name, used in plan items (``train.up.SUM``).
        given: message types handed out; the first is what the answer is about.
        back: message types that come back.
        answer: runs at the client: ``answer(site, *given) -> message(s) or None``.
        per_round: how often in each round, at most.
        outside: how often outside rounds in a whole run, at most.
    """

    name: str
    given: tuple[type[Message], ...]
    back: tuple[type[Message], ...]
    answer: Answer
    per_round: int = 1
    outside: int = 0

    def __post_init__(self) -> None:
        """Refuse what has no meaning in its direction; raises TypeError."""
        for kinds, allowed, where in (
            (self.given, GIVEN, "given"),
            (self.back, BACK, "asked back"),
        ):
            for kind in kinds:
                if kind.disclosure not in allowed:
                    raise TypeError(
                        f"{self.name}: {kind.__name__} discloses {kind.disclosure}, which cannot "
                        f"be {where}; possible: {', '.join(allowed)}"
                    )
        if not self.given:
            raise TypeError(f"{self.name}: an exchange gives at least one message")

    @property
    def given_disclosure(self) -> Disclosure:
        """The strictest disclosure of what is given: it decides the protection of all of it."""
        return min((kind.disclosure for kind in self.given), key=GIVEN.index)

    def times(self, rounds: int) -> int:
        """Return how often this exchange may happen in a run of `rounds` rounds."""
        return self.per_round * rounds + self.outside


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


@dataclass(frozen=True)
class Form(Generic[S]):
    """One way to run an algorithm, with its own messages.

    Attributes:
        name: shown in plan and report.
        round: the aggregator's side.
        exchanges: every Ask this form may make.
    """

    name: str
    round: Callable[[S, Cohort], Round[S]]
    exchanges: tuple[Exchange, ...]

    @classmethod
    def of(
        cls,
        name: str,
        round: Callable[[S, Cohort], Round[S]],
        answers: Mapping[type[Message], Answer],
        per_round: Mapping[type[Message], int] | None = None,
    ) -> Form[S]:
        """Build a form from the answers, keyed by the message each of them answers.

        Args:
            name: shown in plan and report.
            round: the aggregator's side.
            answers: what a client does with each message it is given.
            per_round: how often each is given in a round, where it is not once.
        """
        often = per_round or {}
        exchanges = (
            replace(exchange_of(kind, answer), per_round=often.get(kind, 1))
            for kind, answer in answers.items()
        )
        return cls(name, round, tuple(exchanges))

    def __post_init__(self) -> None:
        """Refuse two exchanges of one name: plan items are named after them."""
        found = [exchange.name for exchange in self.exchanges]
        if len(set(found)) != len(found):
            raise ValueError(f"form {self.name!r}: two answers have the same name")

    def disclosures(self, kind: type[Message]) -> tuple[Disclosure, ...]:
        """Return every disclosure a message needs: its own and those of what it carries."""
        carried = (f.carried for f in kind.fields if f.carried is not None)
        return (kind.disclosure, *carried)

    def messages(self) -> tuple[type[Message], ...]:
        """Return every message type this form may say, given and back, without repeats."""
        kinds = [k for e in self.exchanges for k in (*e.given, *e.back)]
        return tuple(dict.fromkeys(kinds))

    def find(self, ask: Ask) -> Exchange:
        """Return the exchange that `ask` is an instance of; raises TypeError if there is none."""
        for exchange in self.exchanges:
            if exchange.given == ask.given_kinds and set(exchange.back) == set(ask.wanted):
                return exchange
        raise TypeError(
            f"form {self.name!r} declares no exchange {names(ask.given_kinds)} -> "
            f"{names(ask.wanted) or 'nothing'}"
        )


@dataclass(frozen=True)
class Algorithm(Generic[S]):
    """A learning algorithm: plain functions over plain state, one file each.

    Attributes:
        name: its name in configs.
        citation: the paper it comes from.
        init: first public state from a generator of learning randomness.
        predict: at the client, ``predict(site, given or None) -> (N, C)``; with `given`, the model
            as just downloaded, with None the model as just trained.
        forms: the ways it can run, most preferred first.
        dims: sizes of the named dimensions of its messages.
    """

    name: str
    citation: str
    init: Callable[[np.random.Generator], S]
    predict: Callable[[Any, Message | None], Array]
    forms: tuple[Form[S], ...]
    dims: Mapping[str, int] = field(default_factory=dict)

    def with_form(self, form: Form[S]) -> Algorithm[S]:
        """Return the same algorithm restricted to one form."""
        return replace(self, forms=(form,))
