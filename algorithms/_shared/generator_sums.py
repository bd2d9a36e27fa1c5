"""FedSage+ with others' aid: each client's fGen steps along what all other clients say to it.

In step t client i tells all others its fGen_i. Each other client j answers with gradients at public
codes, matched with its own nodes (`neighbours.answered`), and client i alone reads the sum of all
answers (`SumMessage.receiver`). The steps are taken before the first round's classifier; then each
client trains its fGen on its own graph, as it would without the others.

**What leaves of client i is fGen_i alone.** It starts from public weights and is moved by sums that
i was handed and by nothing else, so it follows from what noise on the answers covers. The policy
must noise sums: fGen_i tells all others what i read, and sums that lack one client each, taken
together, would tell every single answer. In clear it is a control.

Where this departs from the paper: its codes are encodings of client i's nodes, these are public
draws; its step takes client i's own gradient and the others' together, here i's own steps come
after the last fGen_i that leaves. They could come before only under noise that hides a node, and
clipping the gradients of a graph's nodes one by one does not bound what a node does to its
neighbours' (docs/adr/0011-record-level-dp.md).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from algorithms._shared.neighbour_sizes import Learning, Sizes
from algorithms.tasks import Site, Weights
from protocols.forms import Exchange, Form
from protocols.messages import (
    Array,
    Message,
    PublicMessage,
    Receiver,
    SealedMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Reply, Round, RoundLost, Sealed

if TYPE_CHECKING:
    from algorithms._shared.neighbours import NeighGen
    from algorithms.tasks.inputs import NodeData

__all__ = ["Help", "Helped", "Steps", "learn_alone", "mended_site", "with_steps"]

S = TypeVar("S", bound=Message)


class Turn(PublicMessage):
    """Whose fGen is answered now."""

    seed: int = count(unit="seed", meaning="the run's public seed of codes and first weights")
    step: int = count(unit="step", meaning="how many steps of the generators came before")
    reader: int = count(unit="client", meaning="place in the cohort of whom the answers are for")


class Matched(SumMessage):
    """What a client's nodes say to another client's fGen; that client alone reads the sum."""

    receiver: ClassVar[Receiver] = "client"
    slope: Vector = real(
        "g",
        unit="share of the largest",
        meaning="gradient at public codes, each matched in a pool of its own nodes and clipped: "
        "one node moves it by at most 2 / codes",
    )


class Apply(PublicMessage):
    """What a client needs to take its step."""

    seed: int = count(unit="seed", meaning="the run's public seed of codes and first weights")
    answers: int = count(unit="client", meaning="how many clients' answers a total holds")


class Told(SealedMessage):
    """A client's fGen, for all others."""

    generator: Vector = real(
        "cohort", "g", unit="weight", meaning="fGen: public weights moved by totals", wire="f4"
    )


@dataclass(frozen=True)
class Help:
    """How clients help one another.

    Attributes:
        sizes: fGen's.
        steps: T, of each generator along others' answers.
        codes: m, of a step.
        clip: c, largest length of one code's gradient.
        rate: of a step along the mean of all others' gradients.
    """

    sizes: Sizes
    steps: int
    codes: int
    clip: float
    rate: float

    def initial(self, seed: int) -> Weights:
        """Return what every fGen starts from, (g,): public."""
        return self.sizes.initial(np.random.default_rng(seed))

    def answer(self, site: Site, turn: Turn) -> Matched:
        """Say to a client's fGen what this client's nodes say."""
        from algorithms._shared.neighbours import answered

        others: Array | None = site.memory.get("others") if turn.step else None
        weights = self.initial(turn.seed) if others is None else others[turn.reader]
        place = (turn.seed, turn.step, turn.reader)
        facts = site.data, self.sizes, weights, place, site.generator("pools")
        return Matched(slope=answered(*facts, codes=self.codes, clip=self.clip))

    def move(self, site: Site, given: Apply, total: Matched) -> Told:
        """Take a step along what the others said, and tell them where it led."""
        self.settle(site, given, total)
        mine, cohort = site.memory["joint"], given.answers + 1
        return Told(generator=np.tile(mine, (cohort, 1)))

    def settle(self, site: Site, given: Apply, total: Matched) -> None:
        """Take a step along what the others said."""
        from algorithms._shared.neighbours import moved

        before = site.memory.get("joint")
        weights = self.initial(given.seed) if before is None else before
        slope = np.asarray(total.slope, dtype=np.float64)
        site.memory["joint"] = moved(weights, slope, given.answers, self.rate * self.clip)

    def hear(self, site: Site, told: Told) -> None:
        """Remember the others' generators, row by row as the cohort is ordered."""
        site.memory["others"] = np.array(told.generator, dtype=np.float32)

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return every Ask of the steps; they come once in a run, in its first round."""
        asked = (
            Exchange("answer", (Turn,), (Matched,), self.answer, 0, self.steps),
            Exchange("settle", (Apply, Matched), (), self.settle, 0, 1),
        )
        if (more := self.steps - 1) < 1:
            return asked
        return (
            *asked,
            Exchange("move", (Apply, Matched), (Told,), self.move, 0, more, follows=(Told,)),
            Exchange("hear", (Told,), (), self.hear, 0, more),
        )

    def steps_of(self, seed: int, cohort: Cohort) -> Generator[Ask, Reply, None]:
        """Play all steps, at the aggregator.

        They end early where a client is away: rows and turns would be of different clients.
        """
        handed: tuple[Apply, Sealed] | None = None
        for step in range(self.steps):
            if handed is not None:
                reply = yield Ask(cohort, given=handed, back=Told)
                if reply.answers < cohort.size:
                    return
                yield Ask(cohort, given=reply.handed(Told))
            tokens = []
            for reader in range(cohort.size):
                turn = Turn(seed=seed, step=step, reader=reader)
                reply = yield Ask(cohort, given=turn, back=Matched)
                if reply.answers < cohort.size:
                    return
                tokens.append(reply.handed(Matched))
            handed = Apply(seed=seed, answers=cohort.size - 1), Sealed.joined(tokens)
        if handed is not None:
            yield Ask(cohort, given=handed)


@dataclass(frozen=True)
class Helped(Generic[S]):
    """What the aggregator remembers.

    Attributes:
        start: what it hands out.
        begun: the steps of the generators were begun.
    """

    start: S
    begun: bool = False


class Steps(Protocol):
    """What comes before the first round's classifier: `Help`, or what was published."""

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return every Ask of the steps."""

    def steps_of(self, seed: int, cohort: Cohort) -> Generator[Ask, Reply, None]:
        """Play all steps, at the aggregator."""


def with_steps(name: str, form: Form[S], aid: Steps, seed: Callable[[S], int]) -> Form[Helped[S]]:
    """Return a form of this name: a classifier's, and the generators' steps before it.

    Args:
        name: of the form.
        form: of the classifier, one Ask a round.
        aid: how clients help one another.
        seed: returns a state's public seed.
    """

    def round(state: Helped[S], cohort: Cohort) -> Round[Helped[S]]:
        if not state.begun:
            try:
                yield from aid.steps_of(seed(state.start), cohort)
            except RoundLost:
                return Helped(state.start, begun=True)
        after = yield from form.round(state.start, cohort)
        return Helped(after, begun=True)

    return Form(name, round, (*form.exchanges, *aid.exchanges()))


def learn_alone(site: Site, sizes: Sizes, seed: int, how: Learning) -> None:
    """Leave NeighGen, learnt from the client's own graph alone, in its memory; once.

    fGen goes on from "joint" in its memory, where others helped it before.

    Args:
        site: the client's; its memory gets "neighgen".
        sizes: fGen's.
        seed: public; of the encoder and of what fGen starts from.
        how: steps and sizes.
    """
    from algorithms._shared.neighbours import learnt

    if "neighgen" not in site.memory:
        begun = site.memory.get("joint")
        begun = sizes.initial(np.random.default_rng(seed)) if begun is None else begun
        rng = site.generator("neighbours")
        site.memory["neighgen"] = tuple(learnt(site.data, sizes, begun, seed, rng, how))


def mended_site(site: Site, sizes: Sizes, seed: int) -> Site:
    """Return the site on the graph that its NeighGen mends; its own data stay as they are.

    The graph is made once for one NeighGen, and made again alike where it was not kept.
    """
    from algorithms._shared.neighbours import NeighGen, with_neighbours

    by: NeighGen = site.memory["neighgen"]
    kept: tuple[NeighGen, NodeData] | None = site.data.kept.get("mended")
    if kept is None or kept[0] is not by:
        kept = by, with_neighbours(site.data, sizes, NeighGen(*by), seed)
        site.data.kept["mended"] = kept
    return site.on(kept[1])
