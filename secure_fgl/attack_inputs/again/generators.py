"""What the attack on generators' gradients is given: answers to the first step, computed again.

In the first step every fGen is what the public seed makes it, so answers follow from seed and data
alone, and need no capture: each client gives them once more, by the algorithm's own code and with
the same pools. What the reader read is the sum of all others, or in clear each answer; noise is of
the planned size and drawn anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from algorithms._shared.generator_sums import Help, Turn
from algorithms.tasks.site import Site
from audits.attacks import Answer, Answers
from audits.attacks._shared.payloads import payload_of
from audits.evidence.steps import Case
from crypto.noise import sampler
from crypto.samplers import Stream, entropy
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange, Form
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.privacy.noising import SAMPLERS
from protocols.rounds import Cohort
from secure_fgl.errors import UsageError
from secure_fgl.run.simulation import Preparation

__all__ = ["answer_material", "helps"]

Array = np.ndarray[Any, np.dtype[np.float64]]


class Replayed(Protocol):
    """A run's code and data once more."""

    @property
    def case(self) -> Case:
        """The run's documents and ledgers."""

    @property
    def form(self) -> Form[Any]:
        """The admitted form."""

    @property
    def sites(self) -> Mapping[str, Site]:
        """Every client's site."""

    @property
    def prepared(self) -> Preparation:
        """What a run begins with."""


def helps(form: Form[Any]) -> tuple[Exchange, Help] | None:
    """Return the Ask with which clients help one another's generators, and how; None: none."""
    for exchange in form.exchanges:
        if exchange.given == (Turn,) and isinstance(getattr(exchange.answer, "__self__", 0), Help):
            return exchange, exchange.answer.__self__  # type: ignore[attr-defined]
    return None


def answer_material(run: Replayed) -> Answers | None:
    """Return every answer of the first step; None if clients do not help one another."""
    found = helps(run.form)
    if found is None:
        return None
    exchange, aid = found
    case, names = run.case, tuple(sorted(run.sites))
    item = case.plan.find(exchange.name, Disclosure.SUM, Step.UP)
    clear = find(case.policy.chain(Disclosure.SUM), "unsafe_clear") is not None
    seed, firsts, rows = _seed(run, names), dict[str, int](), list[Array]()
    for name in names:
        firsts[name] = sum(map(len, rows))
        rows.append(_own_rows(run.sites[name]))
    answers: list[Answer] = []
    for place, reader in enumerate(names):
        turn = Turn(seed=seed, step=0, reader=place)
        said = {n: _again(n, run.sites[n], aid, turn, firsts[n]) for n in names if n != reader}
        total = np.sum([one.raw for one in said.values()], axis=0)
        for one in said.values():
            seen = _noised(one.raw if clear else total, item, 1 if clear else len(said))
            answers.append(Answer(**{**vars(one), "seen": seen}))
    what = "each client's own answer, in clear" if clear else "the sum of all others' answers"
    return Answers(payload_of(item, case.policy), what, np.concatenate(rows), tuple(answers))


def _seed(run: Replayed, names: tuple[str, ...]) -> int:
    """Return the public seed, as the first Ask of the first round says it."""
    steps = run.form.round(run.prepared.first_state(), Cohort(names))
    (turn,) = next(steps).handed
    steps.close()
    if not isinstance(turn, Turn):
        raise UsageError("The generators' steps are not what a run begins with.")
    return turn.seed


def _own_rows(site: Site) -> Array:
    from algorithms._shared.neighbours.cross import dense

    own = np.flatnonzero(~site.data.common.numpy())
    found: Array = dense(site.data, own).numpy().astype(np.float64)
    return found


def _again(name: str, site: Site, aid: Help, turn: Turn, first: int) -> Answer:
    """Let a client answer once more; every turn before this one it dealt its nodes, too."""
    import torch

    from algorithms._shared.neighbours.cross import dealt, dense, entered
    from algorithms._shared.neighbours.generator import draw

    sizes, weights, kept = aid.sizes, aid.initial(turn.seed), (site.memory, site.draws)
    before = turn.reader
    try:
        site.memory, site.draws = {}, {"pools": before}
        own, pool = dealt(site.data, site.generator("pools"), aid.codes)
        site.draws = {"pools": before}
        slope = np.asarray(aid.answer(site, turn).slope)
    finally:
        site.memory, site.draws = kept
    codes = entered(sizes, (turn.seed, turn.step, turn.reader), aid.codes)
    drawn = draw(sizes, torch.from_numpy(weights), codes)
    rows = drawn.rows.flatten(0, 1).numpy().astype(np.float64)
    hidden = drawn.hidden.flatten(0, 1).numpy().astype(np.float64)
    away = torch.cdist(drawn.rows.flatten(0, 1), dense(site.data, own)).numpy()
    away[np.repeat(np.arange(aid.codes), sizes.draws)[:, None] != pool[None, :]] = np.inf
    matched = np.where(np.isfinite(away).any(axis=1), first + away.argmin(axis=1), -1)
    last = slope[-(sizes.hidden + 1) * sizes.features :].reshape(sizes.hidden + 1, -1)
    ones = np.ones((len(hidden), 1))
    return Answer(name, np.hstack([hidden, ones]), rows, matched.astype(np.int64), last, last)


def _noised(part: Array, item: Item, shares: int) -> Array:
    """Return a part of a message or sum under as much noise as the run's, drawn anew."""
    if item.noise is None:
        return part
    law = sampler(SAMPLERS[item.noise.mechanism], float(item.noise.sigma))
    step = float(next(f.step for m in item.messages for f in m.fields))
    noise = sum(law.sample(Stream(entropy(32)), part.size) for _ in range(shares))
    found: Array = part + step * np.asarray(noise, dtype=np.float64).reshape(part.shape)
    return found
