"""Forms: the ways an algorithm can run, and what a client answers in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from protocols.clusters import CUTS, GUARDS, CutGuard, CutRule
from protocols.disclosures.names import Disclosure
from protocols.messages import Message, SimilarityMessage, addressed, names
from protocols.neighbourhoods import Kind, Topology
from protocols.rounds import RESERVED, Answer, Ask, Cohort, Exchange, Round, exchange_of

__all__ = [
    "Algorithm",
    "Answer",
    "Exchange",
    "Form",
    "Splits",
    "TopologyKind",
    "exchange_of",
]

S = TypeVar("S")
TopologyKind = Kind
"""Which graph joins neighbours; see `protocols.neighbourhoods.Topology`."""


@dataclass(frozen=True)
class Splits:
    """By what, and how, a form splits its clients into clusters over the rounds.

    Attributes:
        kind: the message whose cosines decide.
        cut: which cut is sought, of weights 1 + cosine.
        guard: what keeps a side from being too small.
    """

    kind: type[SimilarityMessage]
    cut: CutRule = "stoer_wagner"
    guard: CutGuard = "constrained"

    def __post_init__(self) -> None:
        """Refuse what is not known; raises ValueError."""
        if self.cut not in CUTS or self.guard not in GUARDS:
            known = f"cut: {', '.join(CUTS)}; guard: {', '.join(GUARDS)}"
            raise ValueError(f"no such cut or guard: {self.cut}, {self.guard}; known: {known}")


@dataclass(frozen=True)
class Form(Generic[S]):
    """One way to run an algorithm, with its own messages.

    Attributes:
        name: shown in plan and report.
        round: the aggregator's side.
        exchanges: every Ask this form may make.
        by_gradients: all that a client sends is computed from what it was given and from what
            `fit`, `gradient` and `mixed` of its task return, and from nothing else of its site.
            Forms that do not say so are not admitted where training must be private.
        top: how many others at most, ties aside, it weighs in one client's combination after its
            first round; None: any number.
        unmixed: its answers fill the fields of MIXED messages themselves, with single records:
            only a chain in clear lets them out.
        holders: how many clients at least hold a row that its sums have rows of (O12); 1: any.
        rows: the weights that it says have rows of items, as their task says; set where a run is
            put together, so that no algorithm's file can forget it.
        by_totals: each round makes one Ask, of the first exchange, and the state after it follows
            from the state before, the totals of all that came back, and how many answered. Then
            clients can compute it as well.
        reach: by how many times the largest change that one client can send a round moves a weight
            of the model at most; 0: nothing bounds it.
        drawn: how many clients at least a round asks; 0: all that there are. The run's clients are
            then cut by lot into disjoint cohorts, once, and rounds take them in turn: `round` is
            handed the cohort whose turn it is (`protocols.plan.cohorts`).
        plain: this form without what was added to it (scores); None: nothing was.
        start: the state before the first round; set where a run is put together.
        splits: how it splits its clients into clusters (`Reply.split`); None: it never does.
        topology: who is whose neighbour, where clients read sums over their neighbours; the form is
            then never scored round by round.
    """

    name: str
    round: Callable[[S, Cohort], Round[S]]
    exchanges: tuple[Exchange, ...]
    by_gradients: bool = False
    top: int | None = None
    unmixed: bool = False
    holders: int = 1
    rows: bool = False
    by_totals: bool = False
    reach: float = 0.0
    drawn: int = 0
    plain: Form[Any] | None = None
    start: Any = None
    splits: Splits | None = None
    topology: Topology | None = None

    @classmethod
    def of(
        cls,
        name: str,
        round: Callable[[S, Cohort], Round[S]],
        answers: Mapping[type[Message], Answer],
        per_round: Mapping[type[Message], int] | None = None,
        *,
        by_gradients: bool = False,
        top: int | None = None,
        holders: int = 1,
        drawn: int = 0,
    ) -> Form[S]:
        """Build a form from the answers, keyed by the message each of them answers.

        Args:
            name: shown in plan and report.
            round: the aggregator's side.
            answers: what a client does with each message it is given.
            per_round: how often each is given in a round, where it is not once.
            by_gradients: see the class.
            top: see the class.
            holders: see the class.
            drawn: see the class.
        """
        often = per_round or {}
        exchanges = (
            replace(exchange_of(kind, answer), per_round=often.get(kind, 1))
            for kind, answer in answers.items()
        )
        facts = tuple(exchanges), by_gradients, top
        return cls(name, round, *facts, holders=holders, drawn=drawn)

    def moved_by_totals(self, reach: float = 0.0) -> Form[S]:
        """Return the form with `by_totals` and `reach`; see the class."""
        return replace(self, by_totals=True, reach=reach)

    def split_by(
        self,
        kind: type[SimilarityMessage],
        cut: CutRule = "stoer_wagner",
        guard: CutGuard = "constrained",
    ) -> Form[S]:
        """Return the form with `splits`; see the class."""
        return replace(self, splits=Splits(kind, cut, guard))

    def over(
        self, kind: TopologyKind, degree: int = 0, edges: Sequence[Sequence[int]] = ()
    ) -> Form[S]:
        """Return the form with a `topology`; see the class and `Topology`.

        Raises:
            ValueError: degree or edges do not go with the kind, or an edge is no pair.
        """
        if any(len(edge) != 2 for edge in edges):
            raise ValueError("an edge is a pair of places of clients")
        pairs = tuple((int(a), int(b)) for a, b in edges)
        return replace(self, topology=Topology(kind, degree, pairs))

    def __post_init__(self) -> None:
        """Refuse two exchanges of one name: plan items are named after them."""
        found = [exchange.name for exchange in self.exchanges]
        if len(set(found)) != len(found):
            raise ValueError(f"form {self.name!r}: two answers have the same name")
        if taken := sorted(RESERVED & set(found)):
            raise ValueError(f"form {self.name!r}: {taken[0]!r} is a name of the layer's own")
        asks = [(exchange.given, frozenset(exchange.back)) for exchange in self.exchanges]
        if len(set(asks)) != len(asks):
            raise ValueError(f"form {self.name!r}: two exchanges give and bring back the same")
        if self.splits is not None and self.splits.kind not in self.messages():
            raise ValueError(f"form {self.name!r}: it splits by what it never asks back")
        self._check_addressed()

    def _check_addressed(self) -> None:
        """Refuse totals that one client reads where rounds have more than one cohort (O5)."""
        back = [kind for e in self.exchanges for kind in e.back if addressed(kind)]
        read = {kind for e in self.exchanges for kind in e.given if addressed(kind)}
        if len(set(back)) < len(back) or not read <= set(back):
            raise ValueError(f"form {self.name!r}: such a total comes of one Ask and is handed on")
        if back and (self.by_totals or self.drawn or self.splits is not None):
            raise ValueError(f"form {self.name!r}: totals for one client are of the whole cohort")

    @property
    def weighted(self) -> bool:
        """Whether what a client says in a sum grows with its number of records."""
        return any(f.scale == "records" for kind in self.messages() for f in kind.fields)

    def among(self, clients: int) -> Form[S]:
        """Return the form as so many clients play it: of a total that one reads, each has turns."""
        by = {True: clients, False: 1}
        often = [
            (e.per_round * by[e.addressed], e.outside * by[e.addressed]) for e in self.exchanges
        ]
        asked = zip(self.exchanges, often, strict=True)
        found = (replace(e, per_round=each, outside=more) for e, (each, more) in asked)
        return replace(self, exchanges=tuple(found))

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
        model: at the client, ``model(site, given or None)``, what it predicts with (an
            `algorithms.tasks.ClientModel`); with `given`, as just downloaded, with
            None as just trained.
        forms: the ways it can run, most preferred first.
        dims: sizes of the named dimensions of its messages.
        gradients: how many gradients a client takes in a round; 0 leaves it to the task's `fit`.
        reduced: what it is in a run of so many rounds where its options leave out what it is
            called after, in words; empty: itself. It stands in the plan as a warning.
        linked: whether clients must know their nodes' edges to other clients' nodes.
    """

    name: str
    citation: str
    init: Callable[[np.random.Generator], S]
    model: Callable[[Any, Message | None], Any]
    forms: tuple[Form[S], ...]
    dims: Mapping[str, int] = field(default_factory=dict)
    gradients: int = 0
    reduced: Callable[[int], str] = lambda rounds: ""
    linked: bool = False
