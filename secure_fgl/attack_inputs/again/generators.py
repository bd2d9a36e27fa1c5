"""What the attack on generators' gradients is given: answers to the first step, computed again.

In the first step every fGen is what the public seed makes it, so answers follow from seed and data
alone, and need no capture: each client gives them once more, by the algorithm's own code and with
the same draws. What the reader read is the sum of all others, or in clear each answer; noise is of
the planned size and drawn anew. In the form `published` it is each answer as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from algorithms._shared.generator_sums import Help, Turn
from algorithms._shared.neighbour_sizes import Sizes
from algorithms._shared.published_generators import Look, Published, everybody
from algorithms.tasks import Site
from audits.attacks import Answer, Answers
from audits.attacks._shared.payloads import payload_of
from crypto.noise import sampler
from crypto.samplers import Stream, entropy
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange, Form
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.privacy.noising import SAMPLERS
from protocols.rounds import Cohort
from secure_fgl.attack_inputs.again.row_systems import Replayed
from secure_fgl.errors import UsageError

if TYPE_CHECKING:
    from algorithms._shared.neighbours import Drawn

__all__ = ["answer_material", "helps", "noised"]

Array = np.ndarray[Any, np.dtype[np.float64]]
Allowed = np.ndarray[Any, np.dtype[np.bool_]]
Indices = np.ndarray[Any, np.dtype[np.int64]]


def helps(form: Form[Any]) -> tuple[Exchange, Help | Published] | None:
    """Return the Ask with which clients help one another's generators, and how; None: none."""
    for exchange in form.exchanges:
        aid = getattr(exchange.answer, "__self__", None)
        if isinstance(aid, Help) and exchange.given == (Turn,):
            return exchange, aid
        whole = getattr(exchange.answer, "__wrapped__", exchange.answer)  # under `muting.quiet`
        if isinstance(aid, Published) and whole == aid.cross:
            return exchange, aid
    return None


def answer_material(run: Replayed) -> Answers | None:
    """Return every answer of the first step; None if clients do not help one another."""
    found = helps(run.form)
    if found is None:
        return None
    exchange, aid = found
    case, names = run.case, tuple(sorted(run.sites))
    firsts, rows = dict[str, int](), list[Array]()
    for name in names:
        firsts[name] = sum(map(len, rows))
        rows.append(_own_rows(run.training[name]))
    seed = _seed(run, names)
    if isinstance(aid, Published):
        item = case.plan.find(exchange.name, Disclosure.NOISED, Step.UP)
        what, answers = "each client's own gradient, as published", _shown(run, aid, seed, firsts)
    else:
        item = case.plan.find(exchange.name, Disclosure.SUM, Step.UP)
        clear = find(case.policy.chain(Disclosure.SUM), "unsafe_clear") is not None
        what = "each client's own answer, in clear" if clear else "the sum of all others' answers"
        answers = _summed(run, aid, seed, firsts, item if not clear else None)
    return Answers(
        payload_of(item, case.plan, case.policy), what, np.concatenate(rows), tuple(answers)
    )


def _summed(
    run: Replayed, aid: Help, seed: int, firsts: Mapping[str, int], item: Item | None
) -> list[Answer]:
    """Return the answers of `generator_sums`; without an item each as it is, in clear."""
    answers: list[Answer] = []
    for place, reader in enumerate(firsts):
        turn = Turn(seed=seed, step=0, reader=place)
        said = {n: _again(n, run.training[n], aid, turn, firsts[n]) for n in firsts if n != reader}
        total = np.sum([one.raw for one in said.values()], axis=0)
        for one in said.values():
            seen = one.raw if item is None else noised(total, item, len(said), _step(item))
            answers.append(Answer(**{**vars(one), "seen": seen}))
    return answers


def _shown(run: Replayed, aid: Published, seed: int, firsts: Mapping[str, int]) -> list[Answer]:
    """Return the answers of `published`: every client's gradient of every other one's fGen."""
    import torch

    from algorithms._shared.neighbours import draw

    before = {name: (run.training[name].memory, run.training[name].draws) for name in firsts}
    answers: list[Answer] = []
    try:
        shown = {}
        for name in firsts:
            run.training[name].memory, run.training[name].draws = {}, {}
            shown[name] = aid.shown_of(run.training[name], seed)
        given = everybody(seed, 0, list(shown.values()))
        weights = torch.from_numpy(aid.initial(seed))
        for name, first in firsts.items():
            site = run.training[name]
            for told in aid.answers(site, given):
                drawn = draw(aid.sizes, weights, torch.from_numpy(told.entered))
                if len(told.entered):
                    facts = told.own, told.allowed, first, told.slope
                    answers.append(_answer(name, site, aid.sizes, drawn, *facts))
    finally:
        for name, (memory, draws) in before.items():
            run.training[name].memory, run.training[name].draws = memory, draws
    return answers


def _seed(run: Replayed, names: tuple[str, ...]) -> int:
    """Return the public seed, as the first Ask of the first round says it."""
    steps = run.form.round(run.prepared.first_state(), Cohort(names))
    (turn,) = next(steps).handed
    steps.close()
    if not isinstance(turn, Turn | Look):
        raise UsageError("The generators' steps are not what a run begins with.")
    return turn.seed


def _own_rows(site: Site) -> Array:
    from algorithms._shared.neighbours import dense

    own = np.flatnonzero(~site.data.common.numpy())
    found: Array = dense(site.data, own).numpy().astype(np.float64)
    return found


def _again(name: str, site: Site, aid: Help, turn: Turn, first: int) -> Answer:
    """Let a client answer once more; every turn before this one it dealt its nodes, too."""
    import torch

    from algorithms._shared.neighbours import dealt, draw, entered

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
    allowed = np.repeat(np.arange(aid.codes), sizes.draws)[:, None] == pool[None, :]
    return _answer(name, site, sizes, drawn, own, allowed, first, slope)


def _answer(
    name: str,
    site: Site,
    sizes: Sizes,
    drawn: Drawn,
    own: Indices,
    allowed: Allowed,
    first: int,
    slope: Array,
) -> Answer:
    """Return one answer with what is known of it, and which record each row was held against.

    Args:
        name: whose.
        site: of that client.
        sizes: fGen's.
        drawn: what fGen drew, flattened in here.
        own: the client's nodes that rows were held against.
        allowed: bool (B, n), which of them each row.
        first: number of the first of them among all candidates.
        slope: the whole gradient, (P,).
    """
    import torch

    from algorithms._shared.neighbours import dense

    rows, hidden = (part.flatten(0, 1) for part in (drawn.rows, drawn.hidden))
    away = torch.cdist(rows, dense(site.data, own)).numpy()
    away[~allowed] = np.inf
    matched = np.where(np.isfinite(away).any(axis=1), first + away.argmin(axis=1), -1)
    last = slope[-(sizes.hidden + 1) * sizes.features :].reshape(sizes.hidden + 1, -1)
    last = last.astype(np.float64)
    entering = np.hstack([hidden.numpy().astype(np.float64), np.ones((len(hidden), 1))])
    rows_ = rows.numpy().astype(np.float64)
    return Answer(name, entering, rows_, matched.astype(np.int64), last, last)


def _step(item: Item) -> float:
    return float(next(f.step for m in item.messages for f in m.fields))


def noised(part: Array, item: Item, shares: int, step: float) -> Array:
    """Return a part of a message or sum under as much noise as the run's, drawn anew.

    Args:
        part: of what was said, rounded or not.
        item: of the plan.
        shares: how many clients' noise there is.
        step: of the grid on which the part stands.
    """
    if item.noise is None:
        return part
    law = sampler(SAMPLERS[item.noise.mechanism], float(item.noise.sigma))
    noise = sum(law.sample(Stream(entropy(32)), part.size) for _ in range(shares))
    found: Array = part + step * np.asarray(noise, dtype=np.float64).reshape(part.shape)
    return found
