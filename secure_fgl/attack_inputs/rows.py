"""What the attacks on rows and on generators' gradients are given, computed again from data."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from algorithms._shared.generator_sums import Help, Turn
from algorithms._shared.neighbour_sizes import Sizes
from algorithms._shared.published_generators import Look, Published, everybody
from algorithms.fed_gcn import Client
from algorithms.tasks import Site
from audits.attacks import Answer, Answers, RowsTold, RowSystem
from audits.attacks._shared.payloads import payload_of
from audits.evidence.steps import Case
from crypto.noise import sampler
from crypto.quantiser import Grid
from crypto.samplers import Stream, entropy
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import Rows
from protocols.disclosures.row_sum.protocol.assignment import Offer, Served, assigned
from protocols.disclosures.row_sum.protocol.wire import MOST
from protocols.disclosures.row_sum.run import NoisedRows, grid_of
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import find, guard_of
from protocols.privacy.noising import SAMPLERS
from protocols.privacy.record_noise import counted_in
from protocols.privacy.row_noise import row_noise
from protocols.rounds import Cohort
from secure_fgl.errors import UsageError
from secure_fgl.run.simulation import Preparation

if TYPE_CHECKING:
    from algorithms._shared.neighbours import Drawn

# --- What the attack on rows is given: the rule of the run's policy, applied to the clients' data
# ---
#
# Rows are not read from captures: who is told which row follows from the data and the rule, but for
# rows that are equally good, between which the run's tags decided. Numbers stand in their place
# here. Terms that depend on the model are those of the run's first model, which needs no capture:
# which combination of rows fixes which term depends on no weight. Noise is drawn anew, as the plan
# says it, from a key of the run's name: a report can be repeated.

_TAG, _ROWS = 16, Disclosure.ROW_SUM
Array = NDArray[np.float64]
Made = Callable[[bytes, str], Array]


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
    def training(self) -> Mapping[str, Site]:
        """The same with the canaries that train."""

    @property
    def prepared(self) -> Preparation:
        """What a run begins with."""


def told_rows(run: Replayed) -> RowsTold | None:
    """Return what receivers are told of rows; None if the run tells none."""
    case, sites = run.case, run.sites
    if not case.plan.all_of(Disclosure.ROW_SUM, Step.UP):
        return None
    client, first = _asked(run)
    said = {name: client.linked(site, *first) for name, site in sites.items()}
    offers = {name: _offer(one) for name, one in said.items()}
    terms = {
        _tag(number): one.terms[[at]].toarray().ravel()[:-1]
        for one in said.values()
        for at, number in enumerate(one.ids)
    }
    everything = 1 << 20
    free = assigned(offers, 1, everything, everything)
    guard = guard_of(case.policy.chain(Disclosure.ROW_SUM), Rows)
    protected = guard is not None and not guard.unsafe
    noise = row_noise(case.policy)
    floor = case.policy.others if protected else (guard.threshold if guard else 1)
    each = 1 if protected else everything
    if noise is not None:
        floor, each = 1, noise.releases
    places = guard.rows if guard is not None and protected else everything
    served = assigned(offers, floor, places, each=each)
    bound, bits = grid_of(case.policy) if protected else (0.0, 0)
    step = Grid(bound, bits).step if protected else 1e-7
    names = sorted(sites)
    made = _noised(case, offers, terms, step)
    return RowsTold(
        seen=tuple(systems(served, offers, terms, [(name,) for name in names], made)),
        pooled=tuple(systems(served, offers, terms, list(pairwise([*names, names[0]])), made)),
        raw=tuple(systems(free, offers, terms, [(name,) for name in names])),
        tolerance=step,
    )


def _asked(run: Replayed) -> tuple[Client, tuple[Message, ...]]:
    """Return who answers when rows are asked for, and what the run's first Ask hands out."""
    asked = (e for e in run.form.exchanges if any(k.disclosure is _ROWS for k in e.back))
    client = next(getattr(e.answer, "__self__", None) for e in asked)
    steps = run.form.round(run.prepared.first_state(), Cohort(tuple(sorted(run.sites))))
    first = next(steps).handed
    steps.close()
    if not isinstance(client, Client):
        raise UsageError("The algorithm does not say how its rows' terms are computed.")
    return client, tuple(one for one in first if isinstance(one, Message))


def _noised(
    case: Case, offers: Mapping[str, Offer], terms: Mapping[bytes, Array], step: float
) -> Made | None:
    """Return what clients add to rows under noise; None without noise."""
    noise = counted_in(case.plan.items, "node")
    if noise is None:
        return None
    key = hashlib.sha256(b"secure-fgl/audit rows\0" + case.roster_file.run.encode()).digest()
    maker = NoisedRows(*grid_of(case.policy), noise, MOST // len(offers), key)

    @cache
    def made(row: bytes, adder: str) -> Array:
        entering = [terms[node] for node in sorted(offers[adder].nodes[row])]
        return np.asarray(maker.row(row + adder.encode(), entering)[0] * step)

    return made


def _tag(number: Any) -> bytes:
    return int(number).to_bytes(_TAG, "big")


def _offer(one: Any) -> Offer:
    nodes: dict[bytes, set[bytes]] = {}
    for node, row in one.links.T:
        nodes.setdefault(_tag(row), set()).add(_tag(one.ids[node]))
    held = {row: frozenset(of) for row, of in nodes.items()}
    return Offer(held, frozenset(map(_tag, one.wanted)))


def systems(
    served: Sequence[Served],
    offers: Mapping[str, Offer],
    terms: Mapping[bytes, Array],
    receivers: Sequence[tuple[str, ...]],
    made: Made | None = None,
) -> list[RowSystem]:
    """Return the equations of receivers that pool what they are told, their own terms taken off.

    Args:
        served: the rows.
        offers: by client, which of its nodes enter which row.
        terms: by node, (F,).
        receivers: who pools.
        made: what a client adds to a row, under its noise; None: the terms as they are.
    """
    found, width = [], len(next(iter(terms.values())))
    first = 0 if made is None else 1
    for who in receivers:
        rows: dict[tuple[bytes, ...], tuple[bytes, list[str]]] = {}
        for one in served:
            for receiver in sorted(set(one.receivers) & set(who)):
                adders = [name for name in one.others(receiver) if name not in who]
                entering = sorted(node for n in adders for node in offers[n].nodes[one.row])
                if entering:  # exact rows of the same nodes are the same equation, noised ones not
                    again = (one.row,) if made is not None else ()
                    rows[(*again, *entering)] = one.row, adders
        nodes = sorted({node for key in rows for node in key[first:]})
        place = {node: at for at, node in enumerate(nodes)}
        held = np.stack([terms[node] for node in nodes]) if nodes else np.zeros((0, width))
        system, sums = np.zeros((len(rows), len(nodes))), np.zeros((len(rows), width))
        for at, key in enumerate(sorted(rows)):
            row, adders = rows[key]
            system[at, [place[node] for node in key[first:]]] = 1.0
            if made is not None:
                sums[at] = np.sum([made(row, name) for name in adders], axis=0)
        found.append(
            RowSystem("+".join(who), system, system @ held if made is None else sums, held)
        )
    return found


# --- What the attack on generators' gradients is given: answers to the first step, computed again
# ---
#
# In the first step every fGen is what the public seed makes it, so answers follow from seed and
# data alone, and need no capture: each client gives them once more, by the algorithm's own code and
# with the same draws. What the reader read is the sum of all others, or in clear each answer; noise
# is of the planned size and drawn anew. In the form `published` it is each answer as it is.

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
