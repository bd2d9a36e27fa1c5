"""FedSage+ as published: each client shows all others codes of its nodes. Unsafe: a control.

In each step client i shows its fGen, codes z of nodes from which it hid others, and how many of
them each misses (Zhang et al., NeurIPS 2021, as FederatedScope sends them). The aggregator reads
all of it and hands it on to everybody. Each other client j lets i's fGen draw as many neighbours
for a code as it misses, holds them against up to p neighbours of one of its own nodes, and sends
the gradient by itself: unclipped, without noise. The aggregator adds up, and i steps along the sum
and its own gradient. The last layer of one client's gradient is a linear system in records of that
client (attack A14), so only a policy that lets NOISED out in clear admits these messages.

Where this departs from FederatedScope: encoder and fGen are ours (`neighbours.encoded`, `Sizes`),
and a client shows at most so many codes as the plan says, of nodes that miss somebody, since a plan
knows no client's nodes; neither the encoder nor a classifier is shown, as both follow from what is
public; the noise e beside a code is drawn from the run's public seed, in FederatedScope by who
answers; one plain step of bounded length is taken where theirs is Adam's.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from algorithms._shared.neighbour_sizes import Learning, Sizes
from algorithms.tasks import Site, Weights
from protocols.forms import Exchange
from protocols.messages import (
    Array,
    Matrix,
    NoisedMessage,
    PublicMessage,
    ReleasedMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Reply

__all__ = ["Crossed", "Published", "Shown", "everybody"]


class Look(PublicMessage):
    """Show your nodes."""

    seed: int = count(unit="seed", meaning="the run's public seed of encoder and first weights")


class Shown(NoisedMessage):
    """A client's fGen, and what it is to draw neighbours for."""

    bare: ClassVar[bool] = True
    generator: Vector = real("fgen", unit="weight", meaning="the client's fGen", wire="f4")
    codes: Matrix = real(
        "shown", "latent", unit="code", meaning="z of some of its nodes; zeros: no node", wire="f4"
    )
    missing: Vector = count("shown", unit="node", meaning="how many neighbours each node misses")


class Everybody(ReleasedMessage):
    """What all clients showed, in an order that is that of nobody."""

    retold: ClassVar[bool] = True
    seed: int = count(unit="seed", meaning="the run's public seed of encoder and first weights")
    step: int = count(unit="step", meaning="how many steps of the generators came before")
    generators: Matrix = real("cohort", "fgen", unit="weight", meaning="every fGen", wire="f4")
    codes: Array = real(
        "cohort", "shown", "latent", unit="code", meaning="z of nodes of each client", wire="f4"
    )
    missing: Matrix = count("cohort", "shown", unit="node", meaning="how many each node misses")


class Crossed(NoisedMessage):
    """One client's gradient of every other client's fGen (Unsafe: A14 solves it for records)."""

    bare: ClassVar[bool] = True
    slopes: Matrix = real(
        "cohort", "fgen", unit="loss/weight", meaning="gradient at shown codes, as is", wire="f4"
    )


class Summed(ReleasedMessage):
    """All clients' gradients, added up for each fGen."""

    seed: int = count(unit="seed", meaning="the run's public seed of encoder and first weights")
    slopes: Matrix = real("cohort", "fgen", unit="loss/weight", meaning="their sum", wire="f4")


class Told(NamedTuple):
    """What one client says to one fGen, and from what.

    Attributes:
        slope: (P,), the gradient of the mean loss over all drawn rows.
        entered: z + e of each drawn row, (B, 1, c).
        own: which of its nodes the client holds rows against, (n,).
        allowed: bool (B, n).
    """

    slope: Array
    entered: Array
    own: NDArray[np.int64]
    allowed: NDArray[np.bool_]


@dataclass(frozen=True)
class Published:
    """How clients help one another's generators, as published.

    Attributes:
        sizes: fGen's.
        steps: T, of each generator.
        shown: most codes that a client shows.
        clip: largest length of the mean gradient that a step is taken along.
        rate: of that step.
        how: which share of its nodes a client hides.
    """

    sizes: Sizes
    steps: int
    shown: int
    clip: float
    rate: float
    how: Learning

    def initial(self, seed: int) -> Weights:
        """Return what every fGen starts from, (P,): public."""
        return self.sizes.initial(np.random.default_rng(seed))

    def show(self, site: Site, look: Look) -> Shown:
        """Hide some nodes, and show codes of others that miss them."""
        return self.shown_of(site, look.seed)

    def move(self, site: Site, summed: Summed) -> Shown:
        """Take a step, and show codes again."""
        self.settle(site, summed)
        return self.shown_of(site, summed.seed)

    def settle(self, site: Site, summed: Summed) -> None:
        """Take a step along all gradients of this client's fGen, its own among them."""
        mine, cohort = site.memory["place"], len(summed.slopes)
        mean = (np.asarray(summed.slopes[mine], np.float64) + site.memory["own"]) / cohort
        mean *= self.clip / max(float(np.linalg.norm(mean)), self.clip)
        weights = self._weights(site, summed.seed)
        site.memory["joint"] = (weights - self.rate * mean).astype(np.float32)

    def cross(self, site: Site, given: Everybody) -> Crossed:
        """Say to every other client's fGen what this client's nodes say."""
        told = self.answers(site, given)
        return Crossed(slopes=np.stack([one.slope for one in told]))

    def answers(self, site: Site, given: Everybody) -> list[Told]:
        """Return the same, place by place, with what it was computed from."""
        shown = np.asarray(site.memory["shown"])
        same = [place for place, codes in enumerate(given.codes) if np.array_equal(codes, shown)]
        if not same:
            raise ValueError(
                "what a client showed is not among what was handed on; nothing is said"
            )
        site.memory["place"] = mine = same[0]
        rng = site.generator("cross")
        places = range(len(given.generators))
        return [self._told(site, given, place, place == mine, rng) for place in places]

    def _told(
        self, site: Site, given: Everybody, place: int, mine: bool, rng: np.random.Generator
    ) -> Told:
        """Return what a client says to the fGen at a place: to its own, nothing."""
        import torch

        from algorithms._shared.neighbours import dense, draw, inputs, nearest, slopes

        counts = np.minimum(given.missing[place].astype(np.int64), 0 if mine else self.sizes.draws)
        own, near = _neighbours(site, len(counts), self.sizes.draws, rng)
        codes = torch.from_numpy(np.repeat(np.asarray(given.codes[place], np.float32), counts, 0))
        allowed = np.repeat(near, counts, axis=0)
        entered = inputs(codes, 1, torch.Generator().manual_seed((given.seed << 16) + given.step))
        if not len(codes):
            return Told(np.zeros(self.sizes.size, np.float32), entered.numpy(), own, allowed)
        weights = torch.from_numpy(np.array(given.generators[place], np.float32))
        drawn = draw(self.sizes, weights, entered)
        wanted = nearest(drawn.rows, dense(site.data, own), torch.from_numpy(allowed))
        mean = torch.full((len(codes),), 1.0 / len(codes))
        slope = slopes(self.sizes, weights, drawn, wanted).total(mean)
        return Told(slope.numpy(), entered.numpy(), own, allowed)

    def _weights(self, site: Site, seed: int) -> Weights:
        found: Weights | None = site.memory.get("joint")
        return self.initial(seed) if found is None else found

    def shown_of(self, site: Site, seed: int) -> Shown:
        """Return what a client shows of its graph, before a step or after one."""
        import torch

        from algorithms._shared.neighbours import impaired, record_slopes

        rng, weights = site.generator("shown"), self._weights(site, seed)
        some = impaired(site.data, self.sizes, seed, rng, share=self.how.share).with_missing()
        batch = torch.from_numpy(rng.permutation(len(some.codes))[: self.shown])
        codes = np.zeros((self.shown, self.sizes.latent), np.float32)
        missing, own = np.zeros(self.shown, np.int64), np.zeros(self.sizes.size)
        if len(batch):
            codes[: len(batch)] = some.codes[batch].numpy()
            missing[: len(batch)] = some.missing[batch].numpy()
            noise = torch.Generator().manual_seed(int(rng.integers(2**63)))
            slope = record_slopes(self.sizes, torch.from_numpy(weights), some, batch, noise)
            own = slope.total(torch.full((len(batch),), 1.0 / len(batch))).numpy()
        site.memory.update(shown=codes, own=own.astype(np.float64))
        return Shown(generator=weights, codes=codes, missing=missing)

    def exchanges(self) -> tuple[Exchange, ...]:
        """Return every Ask of the steps; they come once in a run, in its first round."""
        asked = (
            Exchange("show", (Look,), (Shown,), self.show, 0, 1),
            Exchange("cross", (Everybody,), (Crossed,), self.cross, 0, self.steps),
            Exchange("settle", (Summed,), (), self.settle, 0, 1),
        )
        if (more := self.steps - 1) < 1:
            return asked
        return (*asked, Exchange("move", (Summed,), (Shown,), self.move, 0, more))

    def steps_of(self, seed: int, cohort: Cohort) -> Generator[Ask, Reply, None]:
        """Play all steps, at the aggregator; they end early where a client is away."""
        given: Look | Summed = Look(seed=seed)
        for step in range(self.steps):
            reply = yield Ask(cohort, given=given, back=Shown)
            if reply.answers < cohort.size:
                return
            shown = everybody(seed, step, reply.each(Shown))
            reply = yield Ask(cohort, given=shown, back=Crossed)
            if reply.answers < cohort.size:
                return
            slopes = np.sum([one.slopes for one in reply.each(Crossed)], axis=0)
            given = Summed(seed=seed, slopes=slopes.astype(np.float32))
        yield Ask(cohort, given=given)


def everybody(seed: int, step: int, shown: Sequence[Shown]) -> Everybody:
    """Return what all clients showed as one message, in the order of its content."""
    rows = sorted(shown, key=lambda one: np.asarray(one.codes, "<f4").tobytes())
    return Everybody(
        seed=seed,
        step=step,
        generators=np.stack([one.generator for one in rows]),
        codes=np.stack([one.codes for one in rows]),
        missing=np.stack([one.missing for one in rows]),
    )


def _neighbours(
    site: Site, rows: int, most: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a client's own nodes, (n,), and for each row up to `most` neighbours of one of them.

    A client without edges takes single nodes of its own.
    """
    data = site.data
    own = np.flatnonzero(~data.common.numpy())
    place = np.full(data.nodes, -1)
    place[own] = np.arange(len(own))
    edges = place[data.edges.numpy()]
    edges = edges[:, (edges >= 0).all(axis=0)]
    both = np.hstack([edges, edges[::-1]]) if edges.size else np.tile(np.arange(len(own)), (2, 1))
    of, chosen = np.unique(both[0]), np.zeros((rows, len(own)), dtype=bool)
    for row, node in enumerate(rng.choice(of, size=rows)):
        near = np.unique(both[1, both[0] == node])
        chosen[row, rng.permutation(near)[:most]] = True
    return own, chosen
