"""What clients would answer to models of somebody's choice: a run's own code and data once more.

Nothing is sent. Clients answer by the algorithm's code from the memory with which a run begins;
what they say is read as its receiver would (`secure_fgl.attack_inputs.again.reading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from algorithms.nn._shared.sparse import Sparse
from algorithms.tasks import Site
from algorithms.tasks.evaluation import begun
from algorithms.tasks.inputs import NodeData
from audits.attacks import Bags, Exposure, Replica, Truth
from audits.attacks._shared.material import Array, Floats
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.view import TotalView
from protocols.messages import Message, values
from protocols.policy.guard import find
from protocols.policy.guards import Clip
from protocols.rounds import Cohort, Reply, Sealed
from secure_fgl.attack_inputs.again.reading import Reader
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
    reader = Reader(replay.case, exchange, kinds[0])
    column, clip = reader.column, find(replay.case.policy.chain(Disclosure.SUM), "clip")
    if column.grid is None or not isinstance(clip, Clip):
        raise _none("a change stands on no grid")
    answering = _Answering(replay, reader, first)
    model, bare = replay.config.model, replay.code.bare(replay.task)
    return Replica(
        model=replay.code.model_name(replay.task.spec.task),
        depth=model.layers,
        optimiser="sgd" if bare.gradients else model.optimiser or "adamw",
        lr=replay.task.lr,
        decay=replay.task.lr * (model.weight_decay or 0.0) * replay.config.algorithm.epochs,
        layers=replay.layers,
        start=np.array(given, dtype=np.float32),
        ask=exchange.name,
        bags={name: _bags(site.data) for name, site in replay.sites.items()},
        norm="l2" if clip.norm == "l2" else "linf",
        bound=clip.bound,
        weighted=bool(column.field.scale),
        largest=column.grid.bound,
        step=column.grid.step,
        noise=reader.noise,
        play=answering.play,
        leader=min(replay.sites),
        lead=answering.lead,
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
    """Lets clients answer, and has what they say read as its receiver would."""

    replay: ReplayedRun
    reader: Reader
    first: tuple[Message, ...]

    def play(self, models: Sequence[Any], rng: np.random.Generator) -> list[list[Exposure]]:
        """Let all clients answer one model a round; see `audits.attacks.Replica`."""
        with self._afresh():
            return [self._round(n, self._handed(m), rng) for n, m in enumerate(models, 1)]

    def lead(
        self,
        wanted: Callable[[Floats], Array],
        rounds: int,
        beyond: bool,
        rng: np.random.Generator,
    ) -> list[list[Exposure]]:
        """Let one client move the model, round by round; see `audits.attacks.Replica`."""
        form = self.replay.form.plain or self.replay.form
        others = [name for name in self.replay.sites if name != min(self.replay.sites)]
        cohort, found = Cohort(self.replay.case.plan.clients), list[list[Exposure]]()
        state = begun(form, self.replay.prepared.first_state()).start
        with self._afresh():
            for number in range(1, rounds + 1):
                steps = form.round(state, cohort)
                model = values(next(steps).handed[0])[_MODEL]  # type: ignore[arg-type]
                found.append(self._round(number, self._handed(model), rng, others))
                read = found[-1][0].seen or {}
                way = wanted(model) - model
                total = self._moved(read, way, form.reach, beyond)
                reply = Reply({type(total): TotalView(total)}, len(self.replay.sites))
                try:
                    steps.send(reply)
                except StopIteration as stop:
                    state = stop.value
        return found

    def _moved(self, read: Arrays, way: Array, reach: float, beyond: bool) -> Message:
        """Return the total of the others, with what one client adds to move the model.

        It says that it has no records. The clip binds a client that runs this code; one that runs
        its own adds any integers, and the total must only be one that the cohort could have.
        """
        column, clients = self.reader.column, len(self.replay.sites)
        clip = find(self.replay.case.policy.chain(Disclosure.SUM), "clip")
        if column.grid is None or not isinstance(clip, Clip):
            raise _none("a change stands on no grid")
        most = column.grid.bound * ((clients - 1) if beyond else 1)
        counted = float(read["count"]) if column.field.scale else float(clients)
        added = way * counted / (reach or 1.0)
        if clip.norm == "l2" and not beyond:
            added *= min(1.0, most / max(float(np.linalg.norm(added)), 1e-300))
        added = np.clip(added, -most, most)
        step = column.grid.step
        return self.reader.update(**{**read, "delta": read["delta"] + step * np.rint(added / step)})

    @contextmanager
    def _afresh(self) -> Iterator[None]:
        """Let clients begin as the run does, and give them back what they remember."""
        sites = self.replay.sites
        kept = {name: (site.memory, site.draws) for name, site in sites.items()}
        try:
            for site in sites.values():
                site.memory, site.draws = {}, {}
            with one_thread_and_deterministic():
                yield
        finally:
            for name, site in sites.items():
                site.memory, site.draws = kept[name]

    def _round(
        self,
        number: int,
        given: tuple[Message, ...],
        rng: np.random.Generator,
        of: Sequence[str] = (),
    ) -> list[Exposure]:
        """Let clients answer, all or those `of` these names, and read what they say."""
        sites = {n: site for n, site in self.replay.sites.items() if not of or n in of}
        said = {name: self._said(site, given) for name, site in sites.items()}
        seen = self.reader.read(said, rng)
        known = {_MODEL: np.asarray(values(given[0])[_MODEL], dtype=np.float64)}
        return [self._exposed(n, number, known, said, seen[n]) for n in said]

    def _exposed(
        self,
        name: str,
        number: int,
        known: Arrays,
        said: Mapping[str, Sequence[Message]],
        seen: Arrays,
    ) -> Exposure:
        return Exposure(
            client=name,
            round=number,
            known=known,
            raw=fields(next(m for m in said[name] if type(m) is self.reader.update)),
            seen=seen,
            cohort=1 if self.reader.clear else len(said),
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
        said = self.reader.exchange.answer(site, *given)
        parts = said if isinstance(said, tuple) else (said,)
        return tuple(message for message in parts if message is not None)
