"""Audit replicas of a run's totals: what clients would have said with other records of their own.

Each client draws as many training records as it has from all of its labelled ones, answers the
very model that it was given, and what the receiver would read is formed from these answers by the
layer's own code. Not everything can be drawn anew, and then nothing is:

* Noise comes from the operating system, so nobody can hold what left against what was said. A total
  without the noise it should have would stand among seven that have it, and look better than it is.
* Where what a client remembers goes into what it says, its memory holds records that it did not
  draw, which would pass for outsiders.
* Only nodes can be drawn: a record of another task is not marked as one of training or of test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithms.tasks import Site
from audits.attacks import Exposure, Redrawn
from audits.attacks._shared.exposed import FEW
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.policy.guard import find
from protocols.sessions.store.recording import Captured
from secure_fgl.attack_inputs.again import Reader, SaidInAsk
from secure_fgl.attack_inputs.captured_sent import fields, truth_of, updates
from secure_fgl.attack_inputs.replayed import ReplayedRun
from secure_fgl.run.driver import one_thread_and_deterministic

if TYPE_CHECKING:
    from algorithms.tasks.inputs import NodeData

_NOISED = "what noise or private training adds cannot be held against what left"
_OWN_COINS = "canaries won their flips once and are not drawn anew"
_TASK = "only nodes of a graph are drawn anew"
_NOBODY = "no captured total is of those alone who were captured"
_MANY = "at more than {} clients intervals are narrow without"
_MEMORY = "what clients remember goes into what they say, and cannot be drawn anew"
_ALL = "clients train on all records that they hold, so there are no others to draw"


@dataclass(frozen=True, repr=False)
class _Ask:
    """One captured Ask whose total was opened, and those in it."""

    exchange: Exchange
    answers: Mapping[str, Captured]


def redrawn_of(replay: ReplayedRun) -> Redrawn:
    """Return what draws replicas of a run's captured totals, or why nothing does."""
    if why := _objection(replay):
        return Redrawn(why=why)
    asks = list(_asks(replay))
    if not asks:
        return Redrawn(why=_NOBODY)
    if not all(_spare(site.data) for site in replay.sites.values()):
        return Redrawn(why=_ALL)
    if any(_remembers(replay, ask) for ask in asks):
        return Redrawn(why=_MEMORY)
    return Redrawn(_Drawing(replay, asks).play)


def _objection(replay: ReplayedRun) -> str:
    """Say why nothing can be drawn, by the plan alone; empty if nothing speaks against it."""
    plan, policy = replay.case.plan, replay.case.policy
    if find(policy.chain(Disclosure.SUM), "unsafe_clear") is not None:
        return ""  # single messages are told apart without
    if plan.training is not None or any(item.noise is not None for item in plan.items):
        return _NOISED
    if policy.canaries is not None:
        return _OWN_COINS
    if plan.data.task != "node":
        return _TASK
    return _MANY.format(FEW) if len(plan.clients) > FEW else ""


def _asks(replay: ReplayedRun) -> Iterator[_Ask]:
    """Yield every captured Ask of which the aggregator opened a total of those captured alone."""
    if find(replay.case.policy.chain(Disclosure.SUM), "unsafe_clear") is not None:
        return
    replies = replay.replies()
    for number, there in sorted(replay.asks().items()):
        asked, exchange = replay.case.exchanges.all[number], replay.exchange_of(there[0][1])
        if not updates(exchange) or asked.reader or number not in replies:
            continue
        answers = {name: answer for name, answer in there if name in asked.arrived}
        if set(answers) == set(asked.arrived):
            yield _Ask(exchange, answers)


def _spare(data: NodeData) -> bool:
    """Tell whether a client holds labelled records that it does not train on."""
    return bool((data.val | data.test).any())


def _remembers(replay: ReplayedRun, ask: _Ask) -> bool:
    """Tell whether any client says something else where it remembers nothing."""
    (update,) = updates(ask.exchange)
    for client, answer in ask.answers.items():
        if not answer.memory:
            continue
        site = replay.sites[client]
        usual = _update(_said(site.on(site.data), answer, ask.exchange, answer.memory), update)
        try:
            other = _update(_said(site.on(site.data), answer, ask.exchange, {}), update)
        except Exception:  # what cannot answer without its memory needs it, however it fails
            return True
        if any(not np.array_equal(usual[name], other[name]) for name in usual):
            return True
    return False


def _said(
    site: Site, answer: Captured, exchange: Exchange, memory: Mapping[str, Any]
) -> tuple[Message, ...]:
    """Let a client answer once more; where it misses what it remembers, anything may be raised."""
    site.memory, site.draws = dict(memory), dict(answer.draws)
    said = exchange.answer(site, *answer.given)
    parts = said if isinstance(said, tuple) else (said,)
    return tuple(message for message in parts if message is not None)


def _update(said: Sequence[Message], update: type[Message]) -> Mapping[str, Any]:
    return fields(next(message for message in said if type(message) is update))


@dataclass(frozen=True, repr=False)
class _Drawing:
    """Draws all clients' records and lets them answer every captured Ask."""

    replay: ReplayedRun
    asks: Sequence[_Ask]

    def play(self, rng: np.random.Generator) -> list[Exposure]:
        """Return one replica of every captured round; see `audits.attacks.Redrawn`."""
        with one_thread_and_deterministic():
            sites = {name: _drawn(site, rng) for name, site in self.replay.sites.items()}
            return [one for ask in self.asks for one in self._round(ask, sites, rng)]

    def _round(
        self, ask: _Ask, sites: Mapping[str, Site], rng: np.random.Generator
    ) -> Iterator[Exposure]:
        (update,) = updates(ask.exchange)
        spec, hops = self.replay.task.spec, self.replay.config.model.layers
        said = {
            name: _said(sites[name], answer, ask.exchange, answer.memory)
            for name, answer in ask.answers.items()
        }
        seen = Reader(self.replay.case, ask.exchange, update).read(said, rng)
        for name, answer in ask.answers.items():
            truth = truth_of(sites[name], spec, hops)
            one = SaidInAsk(name, truth, answer, ask.exchange, said[name], None)
            yield one.exposure(self.replay, update, seen[name], len(said))


def _drawn(site: Site, rng: np.random.Generator) -> Site:
    """Return a site that trains on as many others of its labelled records."""
    data: NodeData = site.data
    held = (data.train | data.val | data.test).numpy()
    chosen = np.zeros_like(held)
    size = int(np.count_nonzero(data.train.numpy()))
    chosen[rng.choice(np.flatnonzero(held), size=size, replace=False)] = True
    train = data.train.new_tensor(chosen)
    val, test = data.val & ~train, data.test & ~train
    return site.on(replace(data, train=train, val=val, test=test, kept={}))
