"""What clients would answer to models of somebody's choice: a run's own code and data once more.

Nothing is sent. Clients answer by the algorithm's code from the memory with which a run begins;
what they say is clipped, rounded and noised by the layer's code, and added up as the receiver adds.
Masks and encryption come off a total and change nothing of it, so they are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from algorithms.nn._shared.sparse import Sparse
from algorithms.tasks.inputs.nodes import NodeData
from algorithms.tasks.site import Site
from audits.attacks import Bags, Exposure, Replica, Truth
from audits.evidence.steps import Case
from crypto.masks import container
from crypto.noise import sampler
from crypto.samplers import KEY_BYTES, Stream
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.layout import Column
from protocols.forms import Exchange
from protocols.messages import Message, values
from protocols.plan.noise import NoisePlan
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.policy.guards import Clip
from protocols.privacy.noising import SAMPLERS
from protocols.rounds import Cohort, Sealed
from secure_fgl.attack_inputs.captured_sent import summed
from secure_fgl.attack_inputs.replayed import ReplayedRun
from secure_fgl.attack_inputs.updates import Arrays, fields, updates
from secure_fgl.errors import UsageError
from secure_fgl.run.driver import one_thread_and_deterministic

__all__ = ["has_replica", "replica_of"]

_MODEL = "weights"  # what hands a model out calls it so, as attacks on captured rounds know it


def has_replica(case: Case) -> bool:
    """Tell whether a run is one whose clients can be asked again, before any data is read."""
    return case.plan.data.task == "node"


def replica_of(replay: ReplayedRun) -> Replica:
    """Return the clients of a run, ready to answer.

    Raises:
        UsageError: they are not given a whole model and asked for its change; says what they are.
    """
    first = _first(replay)
    exchange = next(e for e in replay.form.exchanges if e.given == tuple(map(type, first)))
    kinds = updates(exchange)
    given = values(first[0]).get(_MODEL)
    if not kinds or given is None:
        raise _none("its clients are not given a model and asked for a change of it")
    if given.shape != (replay.task.size,):
        raise _none("its clients are not given the whole model, as each keeps a part of its own")
    answering = _Answering(replay, exchange, kinds[0], first)
    column, clip = answering.column, find(replay.case.policy.chain(Disclosure.SUM), "clip")
    if column.grid is None or not isinstance(clip, Clip):
        raise _none("a change stands on no grid")
    model, bare = replay.config.model, replay.code.bare(replay.task)
    return Replica(
        model=replay.code.model_name(replay.task.spec.task),
        depth=model.layers,
        optimiser="sgd" if bare.gradients else model.optimiser or "adamw",
        lr=replay.task.lr,
        layers=replay.layers,
        start=np.array(given, dtype=np.float32),
        ask=exchange.name,
        bags={name: _bags(site.data) for name, site in replay.sites.items()},
        norm="l2" if clip.norm == "l2" else "linf",
        bound=clip.bound,
        weighted=bool(column.field.scale),
        largest=column.grid.bound,
        step=column.grid.step,
        noise=answering.noise,
        play=answering.play,
    )


def _none(why: str) -> UsageError:
    return UsageError(f"The clients of this run cannot be asked again: {why}.")


def _first(replay: ReplayedRun) -> tuple[Message, ...]:
    """Return what the first Ask of the first round hands out.

    Raises:
        UsageError: it asks nothing, or hands out what the aggregator cannot choose.
    """
    steps = replay.form.round(replay.prepared.first_state(), Cohort(replay.case.plan.clients))
    ask = next(steps, None)
    steps.close()
    given = () if ask is None else tuple(m for m in ask.handed if not isinstance(m, Sealed))
    if ask is None or len(given) != len(ask.handed):
        raise _none("nothing that an aggregator chooses is handed out")
    return given


def _bags(data: NodeData) -> Bags:
    nodes = data.nodes
    matrix = _csr(data.x.matrix) if isinstance(data.x, Sparse) else sp.csr_array(data.x.numpy())
    weighed = _csr(data.propagation("symmetric").matrix)
    train = data.train.numpy().copy()
    return Bags(sp.csr_array(matrix), train, weighed.diagonal().astype(np.float64)[:nodes])


def _csr(matrix: Any) -> sp.csr_array:
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    return sp.csr_array(tuple(part.numpy() for part in parts), shape=tuple(matrix.shape))


@dataclass(frozen=True, repr=False)
class _Answering:
    """Lets clients answer, and reads what they say as its receiver would."""

    replay: ReplayedRun
    exchange: Exchange
    update: type[Message]
    first: tuple[Message, ...]

    @property
    def case(self) -> Case:
        return self.replay.case

    @property
    def column(self) -> Column:
        """Where a change stands in what is summed."""
        layout = summed(self.case, self.exchange)[0]
        wanted = (self.update.__name__, "delta")
        return next(c for c in layout.columns if (c.message, c.field.name) == wanted)

    @property
    def clear(self) -> bool:
        """Whether every client's message is read by itself."""
        return find(self.case.policy.chain(Disclosure.SUM), "unsafe_clear") is not None

    @property
    def planned(self) -> NoisePlan | None:
        """The noise of one client's message."""
        return self.case.plan.find(self.exchange.name, Disclosure.SUM, Step.UP).noise

    @property
    def noise(self) -> float:
        """Standard deviation of all noise on one number that is read, roughly."""
        grid, planned = self.column.grid, self.planned
        if grid is None or planned is None:
            return 0.0
        shares = 1 if self.clear else len(self.replay.sites)
        return float(float(planned.sigma) * grid.step * np.sqrt(shares))

    def play(self, models: Sequence[Any], rng: np.random.Generator) -> list[list[Exposure]]:
        """Let all clients answer one model a round; see `audits.attacks.Replica`."""
        sites = self.replay.sites
        kept = {name: (site.memory, site.draws) for name, site in sites.items()}
        try:
            for site in sites.values():
                site.memory, site.draws = {}, {}
            with one_thread_and_deterministic():
                return [self._round(n, model, rng) for n, model in enumerate(models, 1)]
        finally:
            for name, site in sites.items():
                site.memory, site.draws = kept[name]

    def _round(self, number: int, model: Any, rng: np.random.Generator) -> list[Exposure]:
        given = self._handed(model)
        said = {name: self._said(site, given) for name, site in self.replay.sites.items()}
        seen = self._seen(said, rng)
        known = {_MODEL: np.asarray(model, dtype=np.float64)}
        return [self._exposed(name, number, known, said[name], seen[name]) for name in said]

    def _exposed(
        self,
        name: str,
        number: int,
        known: Arrays,
        said: Sequence[Message],
        seen: Arrays,
    ) -> Exposure:
        return Exposure(
            client=name,
            round=number,
            known=known,
            raw=fields(next(m for m in said if type(m) is self.update)),
            seen=seen,
            cohort=1 if self.clear else len(self.replay.sites),
            truth=Truth(),
            lr=self.replay.task.lr,
            steps=self.replay.config.algorithm.epochs,
            optimiser=self.replay.config.model.optimiser or "",
        )

    def _handed(self, model: Any) -> tuple[Message, ...]:
        """Return what is handed out, with another model in it."""
        mine = np.asarray(model, dtype=np.float32)
        first, *others = self.first
        return (type(first)(**{**values(first), _MODEL: mine}), *others)

    def _said(self, site: Site, given: Sequence[Message]) -> tuple[Message, ...]:
        said = self.exchange.answer(site, *given)
        parts = said if isinstance(said, tuple) else (said,)
        return tuple(message for message in parts if message is not None)

    def _seen(
        self, said: Mapping[str, Sequence[Message]], rng: np.random.Generator
    ) -> dict[str, Arrays]:
        """Return, per client, what the receiver reads of its message: itself, or the total."""
        layout, ring = summed(self.case, self.exchange)
        sent = {name: ring.residues(self._integers(one, rng)) for name, one in said.items()}
        margin = self.planned.margin if self.planned is not None else 0
        kind = container(ring.modulus)

        def read(words: Any, members: int) -> Arrays:
            integers = ring.integers(words.astype(kind))
            return fields(layout.decode(integers, members, margin=margin)[self.update])

        if self.clear:
            return {name: read(words, 1) for name, words in sent.items()}
        total = np.zeros(ring.size, dtype=np.uint64)
        for words in sent.values():
            total += words.astype(np.uint64)  # wraps at 2^64, which every bare modulus divides
            if ring.packing is not None:
                total %= np.uint64(ring.modulus)
        if ring.packing is None and ring.modulus < 1 << 64:
            total %= np.uint64(ring.modulus)
        return dict.fromkeys(said, read(total, len(said)))

    def _integers(self, said: Sequence[Message], rng: np.random.Generator) -> Any:
        """Return one client's message, clipped, rounded and noised."""
        layout = summed(self.case, self.exchange)[0]
        mine = [message for message in said if type(message) in layout.kinds]
        planned = self.planned
        limit = float(planned.l2) if planned is not None else None
        integers, _ = layout.encode(mine, Stream(rng.bytes(KEY_BYTES)), limit=limit)
        if planned is not None:
            law = sampler(SAMPLERS[planned.mechanism], float(planned.sigma))
            integers = integers + law.sample(Stream(rng.bytes(KEY_BYTES)), integers.size)
        return integers
