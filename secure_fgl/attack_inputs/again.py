"""What is computed again from a run's data: what clients send, and what receivers read of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from algorithms.tasks import ClientModel, Site
from audits.attacks import Exposure, Truth
from audits.evidence.steps import Case
from crypto.masks import container
from crypto.noise import sampler
from crypto.samplers import KEY_BYTES, Stream
from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum.layout import grid_of
from protocols.disclosures.sum.layout import Column
from protocols.errors import EvidenceError
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.plan import Item, NoisePlan
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.privacy.noising import SAMPLERS
from protocols.sessions.store.recording import Captured
from secure_fgl.attack_inputs.captured_sent import fields, rounded, summed, updates
from secure_fgl.attack_inputs.mixtures import Replayed, answered, idle
from secure_fgl.attack_inputs.rows import noised
from secure_fgl.attack_inputs.weighed import weighed_field
from secure_fgl.config import Config

# --- What one client said in an Ask, and what it would have said had it remembered nothing ---
#
# Some algorithms let clients remember what they were handed before (FedGATE's trackers), so that
# the mean of all clients' gradients goes into what each says next. Another client's message then
# holds something of the victim as well, and is no message in which the victim had no part: the null
# control of an attack needs the answer of a client that remembers nothing.


class Settings(Protocol):
    """The settings of a run, as whoever replays it holds them."""

    @property
    def config(self) -> Config:
        """As the run's folder has it."""

    @property
    def task(self) -> Any:
        """Of the run."""


@dataclass(frozen=True, repr=False)
class SaidInAsk:
    """What a client said in one Ask, computed again, and what is true of it."""

    client: str
    truth: Truth
    answer: Captured
    exchange: Exchange
    messages: tuple[Message, ...]
    afresh: Arrays | None

    def exposure(
        self,
        run: Settings,
        update: type[Message],
        seen: Arrays | None,
        cohort: int,
        *,
        alone: bool = False,
    ) -> Exposure:
        """Return the round as its attacker sees it.

        Args:
            run: whose settings hold.
            update: the message that holds a change of the model.
            seen: what the receiver learnt of it; None: nothing.
            cohort: clients whose data `seen` holds.
            alone: its reader alone vouches for it.
        """
        model, options = run.config.model, run.config.algorithm
        steps = options.options.get(options.name, {}).get("steps", 1)
        return Exposure(
            client=self.client,
            round=self.answer.round,
            known=fields(*self.answer.given),
            raw=fields(next(m for m in self.messages if type(m) is update)),
            seen=seen,
            cohort=cohort if seen is not None else 0,
            truth=self.truth,
            lr=run.task.lr,
            steps=options.epochs * int(steps),
            optimiser=model.optimiser or "",
            afresh=self.afresh,
            alone=alone,
        )


def answered_again(site: Site, answer: Captured, exchange: Exchange) -> Any:
    """Let a client answer as it was then, and leave its records as they were before.

    An algorithm may give a site another view of its records while it answers (FedGCN: a graph of
    the rows that it was told, where features stand at other nodes). What is asked about the records
    afterwards is asked about the client's own.

    Args:
        site: of the client; its memory and draws are those of the answer afterwards.
        answer: what was captured of it.
        exchange: what it was asked.

    Returns:
        What it said, a message or several.
    """
    site.memory, site.draws = dict(answer.memory), dict(answer.draws)
    own = site.data
    try:
        return exchange.answer(site, *answer.given)
    finally:
        site.data = own


def afresh(site: Site, answer: Captured, exchange: Exchange) -> Arrays | None:
    """Return the update of a client that remembers nothing, to what it was given.

    The site's memory and draws are changed; whoever asks sets both again.

    Args:
        site: of the client.
        answer: what was captured of it.
        exchange: what it was asked.

    Returns:
        None where it remembers nothing that others told it, or cannot answer without: an attack's
        null control is then what the client did say.
    """
    if not _handed(answer.memory):
        return None
    try:
        said = answered_again(site, replace(answer, memory={}), exchange)
    except LookupError:  # the algorithm looks up what it remembers
        return None
    (update,) = updates(exchange)
    parts = said if isinstance(said, tuple) else (said,)
    found = next((part for part in parts if type(part) is update), None)
    return None if found is None else fields(found)


def _handed(kept: Any) -> bool:
    """Tell whether a message that was handed out lies in what a client remembers."""
    if isinstance(kept, Mapping):
        return any(map(_handed, kept.values()))
    if isinstance(kept, tuple | list):
        return any(map(_handed, kept))
    return isinstance(kept, Message)


# --- What a receiver reads of messages that nobody sent: clipped, rounded and noised, and added up
# ---
#
# By the layer's own code, under the run's policy. Masks and encryption come off a total and change
# nothing of it, so they are left out.


@dataclass(frozen=True, repr=False)
class Reader:
    """Reads what clients say in an exchange as its receiver would.

    Attributes:
        case: the run.
        exchange: in which they say it.
        update: the message that holds a change of the model.
    """

    case: Case
    exchange: Exchange
    update: type[Message]

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
        shares = 1 if self.clear else len(self.case.plan.clients)
        return float(float(planned.sigma) * grid.step * np.sqrt(shares))

    def read(
        self, said: Mapping[str, Sequence[Message]], rng: np.random.Generator
    ) -> dict[str, Arrays]:
        """Return, per client, what the receiver reads of its message: itself, or the total.

        Args:
            said: by client, what it says.
            rng: decides rounding and noise.
        """
        layout, ring = summed(self.case, self.exchange)
        sent = {name: ring.residues(self._integers(one, rng)) for name, one in said.items()}
        margin = self.planned.margin if self.planned is not None else 0
        kind = container(ring.modulus)

        def decoded(words: Any, members: int) -> Arrays:
            integers = ring.integers(words.astype(kind))
            return fields(layout.decode(integers, members, margin=margin)[self.update])

        if self.clear:
            return {name: decoded(words, 1) for name, words in sent.items()}
        total = np.zeros(ring.size, dtype=np.uint64)
        for words in sent.values():
            total += words.astype(np.uint64)  # wraps at 2^64, which every bare modulus divides
            if ring.packing is not None:
                total %= np.uint64(ring.modulus)
        if ring.packing is None and ring.modulus < 1 << 64:
            total %= np.uint64(ring.modulus)
        return dict.fromkeys(said, decoded(total, len(said)))

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


# --- What one client read of a total that is for it alone, computed again ---
#
# The aggregator opens such a total under its reader's blind, so its capture holds noise, and the
# blind is gone. The reader got the sum of what all others said.

Arrays = Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]


def read_total(said: Sequence[Arrays], item: Item) -> Arrays:
    """Return the total, field by field; noise is of the planned size and drawn anew.

    Args:
        said: by every client that counts, rounded; the reader is none of them.
        item: of the plan.
    """
    steps = {f.name: f.step for m in item.messages for f in m.fields}
    found = {}
    for name in said[0] if said else ():
        total = np.sum([one[name] for one in said], axis=0)
        found[name] = noised(total, item, len(said), float(steps[name] or 1.0))
    return found


# --- The means that clients read of their neighbours' models, computed again ---
#
# A client reads the weighted sum over its neighbours and takes its own part for its own model,
# which it knows; so it has their mean. Every neighbour's model follows from that neighbour's
# capture of the round. Where the reader's next round is captured too, the mean is held against what
# it went on from.

Array = np.ndarray[Any, np.dtype[np.float64]]
_NONE = "no captured round has the models of all neighbours of two clients, which are needed"
_PART = "what neighbours mix is not a whole model"
_FLAT = 1e-6  # how far a weight may be off that is kept as a float of four bytes


def neighbour_means(run: Replayed, answers: Mapping[str, Sequence[Captured]]) -> dict[str, Any]:
    """Return ``read`` and ``unread`` of `audits.attacks.Released`.

    Args:
        run: code and data.
        answers: client -> its captured answers, held against its ledger.

    Raises:
        EvidenceError: a mean, computed again, is not what its reader went on from.
    """
    topology = run.case.plan.topology
    named = {e.name: k for e in run.form.exchanges for k in e.back if _mixed(k)}
    if topology is None or not named:
        return {}
    given = {(c, a.number): a for c, mine in answers.items() for a in mine if a.exchange in named}
    said = dict[tuple[str, int], Array]()
    last = dict[str, int]()
    for reader, entry in run.case.ledger_index.of_kind("neighbourhood"):
        around, number = {reader, *topology.neighbours(reader)}, int(entry["exchange"])
        there = around <= run.training.keys() and all((n, number) in given for n in around)
        if entry["absent"] or not there or number < last.get(reader, 0):
            continue
        last[reader] = number
        said |= {(n, number): _said(run, n, given[n, number], named) for n in around}
        _check(run, reader, number, said, given, named)
    if any(one.shape != (run.task.size,) for one in said.values()):
        return {"unread": _PART}
    found = dict[str, tuple[object, object]]()
    for client in sorted(run.sites):
        readers = [n for n in sorted(last) if client in topology.neighbours(n)]
        if not readers:
            continue
        shares = {n: topology.shares[n] for n in readers}
        reader = max(readers, key=lambda n: shares[n][client] / sum(shares[n].values()))
        row, number = shares[reader], last[reader]
        mean = sum(w * said[n, number] for n, w in row.items()) / sum(row.values())
        found[client] = _model(mean), _model(said[client, number])
    return {"read": found} if len(found) > 1 else {"unread": _NONE}


def _mixed(kind: type[Message]) -> bool:
    return kind.disclosure is Disclosure.NEIGHBOUR_SUM and bool(weighed_field(kind))


def _model(weights: Any) -> ClientModel:
    return ClientModel((np.asarray(weights, dtype=np.float32),))


def _layout(run: Replayed, kind: type[Message]) -> Any:
    case = run.case
    chain = case.policy.chain(Disclosure.NEIGHBOUR_SUM)
    return grid_of(case.plan.topology, (kind,), chain, case.plan.dims).layout


def _said(
    run: Replayed, client: str, answer: Captured, named: Mapping[str, type[Message]]
) -> Array:
    """Return a client's model as it left it: clipped and on the grid."""
    kind = named[answer.exchange]
    exchange = next(e for e in run.form.exchanges if e.name == answer.exchange)
    told = answered(run.training[client], answer, exchange, kind)
    return _vector(rounded(_layout(run, kind), [told], kind))


def _vector(message: Message) -> Array:
    found: Array = np.asarray(getattr(message, weighed_field(type(message))), dtype=np.float64)
    return found.ravel()


def _check(
    run: Replayed,
    reader: str,
    number: int,
    said: Mapping[tuple[str, int], Array],
    given: Mapping[tuple[str, int], Captured],
    named: Mapping[str, type[Message]],
) -> None:
    """Hold a mean against what the reader began its next round with, if that was captured."""
    topology, now = run.case.plan.topology, given[reader, number]
    later = [a for (c, _), a in given.items() if c == reader and a.round == now.round + 1]
    if topology is None or not later or run.case.plan.training is not None:
        return  # noise in training is the operating system's: the same does not come out again
    kind = named[later[0].exchange]
    still = next(e for e in idle(run).exchanges if e.name == later[0].exchange)
    begun = _vector(answered(run.training[reader], later[0], still, kind))
    parts = {**topology.shares[reader], reader: topology.own(reader)}
    mixed = sum(w * said[n, number] for n, w in parts.items()) / topology.whole
    steps = [c.grid.step for c in _layout(run, kind).columns if c.grid is not None]
    if np.abs(begun - mixed).max() > 2.0 * max(steps, default=0.0) + _FLAT:
        raise EvidenceError(
            "captured",
            f"the mean that {reader} read, computed again, is not what it went on from; the data, "
            "the configuration or the code are other than in the run",
        )
