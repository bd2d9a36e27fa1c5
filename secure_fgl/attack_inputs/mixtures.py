"""What the attack on mixtures is given: what was mixed in captured rounds, and what came of it.

As `secure_fgl.attack_inputs.materials` for sums: what a client said before it was mixed is computed
again, and held against what the aggregator read. The groups are in the client's own capture,
nowhere else.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from algorithms.tasks import Fitted, MaskedTask, Site, Task
from algorithms.tasks.ego import EgoTask
from audits.attacks import Mixtures
from audits.evidence.steps import Case
from protocols.disclosures.mixed.layout import MixLayout, mixed_fields
from protocols.disclosures.mixed.mixing import remixed
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.forms import Exchange, Form
from protocols.messages import Message, MixedMessage, unmixed_of
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.rounds import Reply
from protocols.sessions.store.recording import Captured
from secure_fgl.attack_inputs.captured_sent import RunCode
from secure_fgl.config import Config

__all__ = ["Replayed", "answered", "idle", "mixed_material"]

Array = np.ndarray[Any, np.dtype[np.float64]]


class Replayed(Protocol):
    """A run's code and data once more, see `secure_fgl.attack_inputs.materials`."""

    @property
    def case(self) -> Case:
        """The run's papers and ledgers."""

    @property
    def config(self) -> Config:
        """Its configuration."""

    @property
    def form(self) -> Form[Any]:
        """The admitted form."""

    @property
    def task(self) -> Task:
        """What was learnt."""

    @property
    def sites(self) -> Mapping[str, Site]:
        """Every client's site."""

    @property
    def training(self) -> Mapping[str, Site]:
        """The same with the canaries that train."""

    @property
    def code(self) -> RunCode:
        """What makes its algorithm once more."""


def mixed_material(
    run: Replayed,
    answers: Mapping[str, Sequence[Captured]],
    replies: Mapping[int, Reply],
    *,
    first_only: bool,
) -> list[Mixtures]:
    """Return every client's captured mixtures, by client and round.

    Args:
        run: code and data.
        answers: client -> its captured answers.
        replies: exchange number -> what the aggregator captured of it.
        first_only: the first captured round only.

    Raises:
        EvidenceError: what was read is nobody's mixture of what was computed again.
    """
    mixing = {e.name: e for e in run.form.exchanges if _kinds(e)}
    if not mixing:
        return []
    still = idle(run)
    found: list[Mixtures] = []
    for client, captured in sorted(answers.items()):
        mine = [a for a in captured if a.exchange in mixing]
        rounds = sorted({a.round for a in mine})
        for answer in mine:
            reply = replies.get(answer.number)
            arrived = run.case.exchanges.all[answer.number].arrived
            if first_only and answer.round != rounds[0]:
                continue
            if reply is None or client not in arrived:
                continue
            site, exchange = run.sites[client], mixing[answer.exchange]
            found += _mixed(run, client, site, answer, exchange, reply, still)
    return found


def _kinds(exchange: Exchange) -> list[type[MixedMessage]]:
    return [kind for kind in exchange.back if issubclass(kind, MixedMessage)]


def _mixed(
    run: Replayed,
    client: str,
    site: Site,
    answer: Captured,
    exchange: Exchange,
    reply: Reply,
    still: Form[Any],
) -> Iterator[Mixtures]:
    """Let a client answer once more, and find its mixtures among those that were read.

    Nothing comes of a client whose groups hold too few records, of a round in which all its
    mixtures were withheld, nor of fields that were ready made: only a policy without protection
    lets these out, and what they are made of nobody says.
    """
    (kind,) = _kinds(exchange)
    said = answered(site, answer, exchange, kind)
    records = unmixed_of(said)
    if answer.groups is None or records is None or answer.groups.max() < 0:
        return
    item = run.case.plan.find(exchange.name, Disclosure.MIXED, Step.UP)
    chain = run.case.policy.chain(Disclosure.MIXED)
    layout = MixLayout(kind, chain, {**run.case.plan.dims, **item.dims})
    made, read = remixed(said, layout, answer.groups), reply.each(kind)
    if find(chain, "relay") is not None:
        read = tuple(_picked(made, each) for each in read)
    seen = _matching(layout, made, read)
    begun = next(e for e in still.exchanges if e.name == exchange.name)
    before = unmixed_of(answered(site, answer, begun, kind))
    tables = {"computed": records, "begun": before}
    features, label = mixed_fields(kind)
    yield Mixtures(
        client=client,
        round=answer.round,
        seen={
            name: np.asarray(getattr(seen, field.name), dtype=np.float64)
            for name, field in (("features", features), ("label", label))
            if field is not None
        },
        tables={
            name: _clipped(np.asarray(said.table, dtype=np.float64), layout)
            for name, said in tables.items()
            if said is not None
        },
        index=np.asarray(records.index, dtype=np.int64),
        groups=answer.groups,
        labels=None if records.label is None else np.asarray(records.label, dtype=np.int64),
        **_around(run.task, site),
    )


def answered(site: Site, answer: Captured, exchange: Exchange, kind: type[Message]) -> Message:
    """Let a client answer once more, as it was then; return its message of a kind."""
    site.memory, site.draws = dict(answer.memory), dict(answer.draws)
    given = [m for m in answer.given if type(m) in exchange.given]  # scores are asked for besides
    said = exchange.answer(site, *given)
    return next(m for m in (said if isinstance(said, tuple) else (said,)) if type(m) is kind)


def idle(run: Replayed) -> Form[Any]:
    """Return the run's form over a task that learns nothing: it says what a round began with."""
    task: Any = copy.copy(run.task)
    task.fit = lambda weights, site, **options: weights
    masked = isinstance(task, MaskedTask)
    if masked:
        task.fit_masked = lambda weights, masks, site, **options: Fitted(weights, masks)
    return run.case.policy.admit(run.code.bare(task))


def _around(task: Task, site: Site) -> dict[str, Any]:
    """Return the shape of an ego-graph, and who is whose neighbour, as `Mixtures` has them."""
    if not isinstance(task, EgoTask):
        return {}
    data: Any = site.data
    links = sp.coo_array(
        (np.ones(data.edges.shape[1]), tuple(data.edges.numpy())), shape=(data.nodes, data.nodes)
    )
    whole = sp.csr_array(links + links.T)
    alone = np.asarray(whole.sum(axis=1)).ravel() == 0  # stands at its neighbours' positions
    whole = whole + sp.diags_array(alone.astype(np.float64))
    shares = sp.diags_array(1.0 / np.asarray(whole.sum(axis=1)).ravel()) @ whole
    return {"rings": task.rings, "links": sp.csr_array(shares)}


def _clipped(table: Array, layout: MixLayout) -> Array:
    if layout.clip is None:
        return table
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    short = np.minimum(1.0, layout.clip.bound / np.maximum(lengths, 1e-300))
    return np.asarray(table * short)


def _picked(made: Mapping[str, Array], pool: MixedMessage) -> MixedMessage:
    """Return the mixtures of a relay's pool that are nearest to these, each taken once."""
    features = max(made, key=lambda name: made[name].size)
    mine = made[features].reshape(len(made[features]), -1)
    theirs = np.asarray(getattr(pool, features), np.float64).reshape(-1, mine.shape[1])
    _, chosen = linear_sum_assignment(cdist(mine, theirs, "sqeuclidean"))
    return type(pool)(**{name: getattr(pool, name)[chosen] for name in made})


def _matching(layout: MixLayout, made: Mapping[str, Array], read: Sequence[Message]) -> Message:
    """Return which message that was read is these mixtures; their order tells no sender.

    Raises:
        EvidenceError: none is, to within rounding (of mixtures with noise: none has their shape).
    """
    there = [
        each for each in read if all(getattr(each, n).shape == v.shape for n, v in made.items())
    ]

    def off(each: Message) -> float:
        return max(float(np.abs(getattr(each, n) - value).max()) for n, value in made.items())

    found = min(there, key=off, default=None)
    grid = layout.features_grid
    slack = 1e-4 if grid is None else 2.0 * grid.step
    if found is None or (layout.blur is None and off(found) > slack):
        raise EvidenceError(
            "captured",
            f"the mixtures of {layout.kind.__name__}, computed again, are not what was read; the "
            "data, the configuration or the code are other than in the run",
        )
    return found
